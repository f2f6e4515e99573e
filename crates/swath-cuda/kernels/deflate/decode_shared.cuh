// Deflate tiles that several blocks of threads share: the data that the kernels pass to each other.
//
// One block of threads takes milliseconds for a tile, and a read of few tiles leaves most of the device idle. So:
//   start   finds the first Deflate block of each tile and makes its codes
//   span    launched several times: many blocks of threads measure the next bits of a Deflate block, each its own part of
//   them; the last one to finish puts the parts together and, where the Deflate block ends, makes the codes of the next
//   finish  does the same for what is left, with one block of threads for each tile
//   cells   decodes each window of a tile to cells, by itself; a cell is a byte, or a pointer to an earlier byte
//   join    follows the pointers from window to window, writes the bytes, and checks their sum
//   rest    decodes tiles that the others gave up, from the start: damaged ones, and unusual ones
// So only `rest` says what is wrong with a tile. NOTES.md has figures.
#pragma once
#include "core/atomics.cuh"
#include "core/kernel.cuh"
#include "deflate/decode_stretch.cuh"

enum SharedPhase : u32 {
    SHARED_RUNNING = 0,
    SHARED_MEASURED = 1,  // up to the end of the last Deflate block, and the bytes fill the tile
    SHARED_GIVEN_UP = 2,
};

constexpr u32 SHARED_WORDS = 9;  // of a stretch, at most

// The state of a tile. Positions are bits of its stream and bytes of its output.
struct SharedState {
    u32 phase;
    u32 bit;        // so far measured
    u32 done;       // bytes up to there
    u32 blocks;     // Deflate blocks so far, with the current one
    u32 stretches;  // so far
    u32 last;       // whether the current Deflate block is the last
    u32 words;      // of a stretch of the current Deflate block
    u32 token_bits; // likely length of its tokens
    u32 arrived;    // parts of the current span that are measured
    u32 joined;     // windows that are written
    u32 plain, weighted;  // sums for the Adler-32
    u32 unused[4];
};

// The first stretch and the first byte of a Deflate block.
struct SharedBlock {
    u32 stretch, out;
};

// The scratch of a tile: its state, its Deflate blocks (one more for the end), their codes, cells, stretches. The `sum` of a
// stretch becomes the position of its first byte.
struct SharedScratch {
    // Longer tiles and streams go to `rest`.
    static constexpr u64 MOST_TILE = 1ull << 26;

    u8* data;
    u64 len;
    u32 block_room;
    u64 stretches_at;

    SWATH_FN SharedScratch(const DecodeArgs& args, u64 tile, u64 dst_len)
        : data(args.scratch + tile * args.scratch_len), len(args.scratch_len),
          block_room(32 + u32(min_of(dst_len, MOST_TILE) >> 14)), stretches_at(cells_at() + (dst_len + 15) / 16 * 32) {}

    SWATH_FN bool fits(u64 dst_len) const { return dst_len <= MOST_TILE && stretches_at <= len; }
    SWATH_FN SharedState& state() const { return *reinterpret_cast<SharedState*>(data); }
    SWATH_FN SharedBlock* blocks() const { return reinterpret_cast<SharedBlock*>(data + sizeof(SharedState)); }
    SWATH_FN u32* codes(u32 block) const { return reinterpret_cast<u32*>(data + codes_at() + block * sizeof(Codes)); }
    SWATH_FN u16* cells() const { return reinterpret_cast<u16*>(data + cells_at()); }
    SWATH_FN Stretch* stretches() const { return reinterpret_cast<Stretch*>(data + stretches_at); }
    SWATH_FN u32 stretch_room() const { return u32(min_of((len - stretches_at) / sizeof(Stretch), u64(1u << 30))); }

  private:
    SWATH_FN u64 codes_at() const { return sizeof(SharedState) + (u64(block_room) + 2) / 2 * 16; }
    SWATH_FN u64 cells_at() const { return codes_at() + u64(block_room) * sizeof(Codes); }
};
static_assert(sizeof(SharedState) % 16 == 0 && sizeof(Codes) % 16 == 0 && sizeof(Stretch) == 16, "all parts are aligned");

// The memory of a tile.
struct SharedTile {
    Span<const u8> src;
    Span<u8> dst;
    SharedScratch scratch;
    bool sound;

    SWATH_FN SharedTile(const DecodeArgs& args, u64 at) : SharedTile(args, args.tiles[at], at) {}
    SWATH_FN SharedTile(const DecodeArgs& args, const TileJob& job, u64 at)
        : src(Span<const u8>(args.src, args.src_len).part(job.src, job.src_len)),
          dst(Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len)), scratch(args, at, job.dst_len),
          sound(src.len == job.src_len && dst.len == job.dst_len && src.len <= SharedScratch::MOST_TILE &&
                scratch.fits(dst.len)) {}

    SWATH_FN u32 end() const { return u32(src.len * 8); }
};

template <class T> SWATH_FN void copy_words(const T& group, const u32* from, u32* to, u32 count) {
    for (u32 at = group.lane(); at < count; at += group.size()) to[at] = from[at];
}
