// Memory that shows misuse: fresh blocks hold a pattern, guards surround them, freed ones are unmapped.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <sys/mman.h>

struct Block {
    uint64_t start;
    uint64_t len;
    uint64_t pages;      // first byte of its pages
    uint64_t pages_end;  // an unmapped page follows
    uint64_t id;
    void* context;
    bool reported = false;

    uint64_t end() const { return start + len; }
};

// A range of addresses that blocks are cut from. An address is used again only when the whole range has been used once,
// so that a stale pointer hits an unmapped page rather than the data of another block.
class Arena {
  public:
    static constexpr uint64_t PAGE = 4096;
    static constexpr uint64_t SIZE = 16ull << 30;
    static constexpr uint8_t FRESH = 0xcd, GUARD = 0xfd;

    // A block ends where its pages end where `at_end` is set (less what `ALIGN` takes), and starts where they start
    // elsewhere.
    Arena(uint64_t wanted, bool at_end) : at_end(at_end) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* where = mmap(reinterpret_cast<void*>(wanted), SIZE, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (where == MAP_FAILED) where = mmap(nullptr, SIZE, PROT_NONE, flags, -1, 0);
        base = where == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(where);
        next = base;
        // Every block is filled when it is taken: with small pages, faults take most of the time of tests.
        if (base) madvise(reinterpret_cast<void*>(base), SIZE, MADV_HUGEPAGE);
    }

    // Null where there is no room.
    Block* take(uint64_t len, void* context) {
        if (!base || len == 0 || len > SIZE / 2) return nullptr;
        const uint64_t room = round_up(len, ALIGN);
        const uint64_t span = round_up(room, PAGE);
        uint64_t at = gap(next, span + PAGE);
        if (!at) at = gap(base, span + PAGE);
        if (!at || mprotect(reinterpret_cast<void*>(at), span, PROT_READ | PROT_WRITE) != 0) return nullptr;
        next = at + span + PAGE;
        Block block{at_end ? at + span - room : at, len, at, at + span, ++ids, context};
        std::memset(reinterpret_cast<void*>(at), GUARD, span);
        std::memset(reinterpret_cast<void*>(block.start), FRESH, len);
        live_len += len;
        return &blocks.emplace(block.start, block).first->second;
    }

    // Allows the process to touch the block's pages, or forbids it.
    static void open(const Block& block, bool access) {
        const int rights = access ? PROT_READ | PROT_WRITE : PROT_NONE;
        mprotect(reinterpret_cast<void*>(block.pages), block.pages_end - block.pages, rights);
    }

    // The block's guards have to be checked before.
    void give_back(Block& block) {
        open(block, false);
        madvise(reinterpret_cast<void*>(block.pages), block.pages_end - block.pages, MADV_DONTNEED);
        live_len -= block.len;
        blocks.erase(block.start);
    }

    // The block that holds this address, its end included.
    Block* find(uint64_t address) {
        auto after = blocks.upper_bound(address);
        if (after == blocks.begin()) return nullptr;
        Block& block = std::prev(after)->second;
        return address <= block.end() ? &block : nullptr;
    }
    // Whether `len` bytes from `address` on lie in one block.
    bool holds(uint64_t address, uint64_t len) {
        const Block* block = find(address);
        return block && len <= block->end() - address;
    }
    bool reserved(uint64_t address) const { return base && address >= base && address - base < SIZE; }
    uint64_t live() const { return live_len; }
    std::map<uint64_t, Block>& all() { return blocks; }

    // The first guard byte that was written, or 0.
    static uint64_t damaged(const Block& block) {
        for (uint64_t at = block.pages; at < block.start; at++)
            if (*reinterpret_cast<const uint8_t*>(at) != GUARD) return at;
        for (uint64_t at = block.end(); at < block.pages_end; at++)
            if (*reinterpret_cast<const uint8_t*>(at) != GUARD) return at;
        return 0;
    }

  private:
    // cuMemAlloc promises as much.
    static constexpr uint64_t ALIGN = 256;

    static uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

    uint64_t gap(uint64_t from, uint64_t len) const {
        auto other = blocks.lower_bound(from);
        if (other != blocks.begin() && std::prev(other)->second.pages_end + PAGE > from)
            from = std::prev(other)->second.pages_end + PAGE;
        for (; other != blocks.end(); ++other) {
            if (other->second.pages >= from && other->second.pages - from >= len) return from;
            from = other->second.pages_end + PAGE;
        }
        return from <= base + SIZE && base + SIZE - from >= len ? from : 0;
    }

    const bool at_end;
    uint64_t base = 0, next = 0, live_len = 0, ids = 0;
    std::map<uint64_t, Block> blocks;
};
