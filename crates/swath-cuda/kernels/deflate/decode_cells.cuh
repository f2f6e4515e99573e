// Writes shared tiles that are measured: window by window to cells, then cells to bytes.
//
// A window knows nothing of those before it. So its cells are bytes, or pointers to bytes before the window; those of the
// first window are all bytes. A pointer leads to an earlier window, so following pointers ends.
#pragma once
#include "deflate/decode.cuh"
#include "deflate/decode_shared.cuh"
#include "deflate/decode_window.cuh"

constexpr u32 SHARED_WINDOW = 8192;

// Calls `visit` with each window of tiles that are measured: the number of the tile, the tile, and the first byte. Block b
// takes windows b, b + blocks and so on, of all tiles counted together.
template <class Group, class Visit>
SWATH_FN void visit_windows(const Group& group, u32 block, u32 blocks, const DecodeArgs& args, const Visit& visit) {
    if (args.scratch_len < sizeof(SharedState)) return;
    u64 item = block, before = 0;
    for (u64 at = 0; at < args.count; at++) {
        const SharedTile tile(args, at);
        const u64 windows = (tile.dst.len + SHARED_WINDOW - 1) / SHARED_WINDOW;
        for (; item < before + windows; item += blocks) {
            // Other blocks may give the tile up meanwhile, so one lane reads the phase for all.
            const u32 phase = group.broadcast(load_racing(&tile.scratch.state().phase), 0);
            if (phase == SHARED_MEASURED) visit(at, tile, u32(item - before) * SHARED_WINDOW);
        }
        before += windows;
    }
}

struct InflateCells {
    static constexpr u32 THREADS = 128, WORDS = SHARED_WORDS;
    static constexpr u32 STAGED = THREADS * WORDS + 32;
    using Args = DecodeArgs;

    struct Shared {
        alignas(16) u32 staged[STAGED];
        Codes codes;
        Window<SHARED_WINDOW> window;
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        visit_windows(group, block, blocks, args, [&](u64, const SharedTile& tile, u32 begin) {
            group.sync();
            shared.window.clear(group);
            if (group.lane() == 0) shared.window.longs = 0;
            group.sync();
            const WindowPlace place{begin, begin};
            const u32 end = min_of(u32(tile.dst.len), begin + SHARED_WINDOW);
            const bool fine = fill(group, tile, place, end, shared);
            if (!fine && group.lane() == 0) store_racing(&tile.scratch.state().phase, u32(SHARED_GIVEN_UP));
            if (!fine) return;
            shared.window.set_references(group, place);
            group.sync();
            shared.window.keep(group, place, end, tile.scratch.cells() + begin);
        });
    }

  private:
    // The last of `count` ascending numbers, at most `value`; the first of them is.
    template <class At> SWATH_FN static u32 last_up_to(u32 count, u32 value, const At& at) {
        u32 found = 0;
        for (u32 beyond = count; beyond - found > 1;) {
            const u32 middle = (found + beyond) / 2;
            if (at(middle) <= value) found = middle;
            else beyond = middle;
        }
        return found;
    }

    // Decodes the stretches that make bytes of the window. False if the stream is damaged.
    template <class Group>
    SWATH_FN static bool fill(const Group& group, const SharedTile& tile, const WindowPlace& place, u32 end,
                              Shared& shared) {
        const SharedBlock* const blocks = tile.scratch.blocks();
        const u32 count = tile.scratch.state().blocks;
        const Stretch* const stretches = tile.scratch.stretches();
        u32 block = last_up_to(count, place.first, [&](u32 at) { return blocks[at].out; });
        for (; block < count && blocks[block].out < end; block++) {
            const SharedBlock own = blocks[block], next = blocks[block + 1];
            copy_words(group, tile.scratch.codes(block), reinterpret_cast<u32*>(&shared.codes), sizeof(Codes) / 4);
            u32 first = own.stretch + last_up_to(next.stretch - own.stretch, place.first,
                                                 [&](u32 at) { return stretches[own.stretch + at].sum; });
            const u32 lanes = min_of(group.size(), THREADS);
            for (; first < next.stretch && stretches[first].sum < end; first += lanes) {
                const u32 last = min_of(first + lanes, next.stretch) - 1, mine = first + group.lane();
                const u32 from = stretches[first].start, bits = stretches[last].end - from;
                if (bits > (STAGED - 12) * 32) return false;
                const u32 start = stage_bits(group, tile.src, from, bits / 32 + 8, shared.staged);
                bool far = false;
                if (mine <= last && group.lane() < lanes) {
                    const u32 stop = mine + 1 < next.stretch ? stretches[mine + 1].sum : next.out;
                    far = !put(shared, place, end, stretches[mine].start - from + start, stretches[mine].sum, stop);
                }
                if (group.any(far)) return false;
            }
            group.sync();
        }
        return true;
    }

    // Decodes a stretch that makes the bytes from `at` to before `stop` of the tile, and keeps what lies in the window. False
    // if a match reaches back too far.
    SWATH_FN static bool put(Shared& shared, const WindowPlace& place, u32 end, u32 bit, u32 at, u32 stop) {
        auto& window = shared.window;
        BitCursor cursor(shared.staged, bit);
        const u32 own_end = min_of(end, stop);
        u32 length = 0;
        CodeChoice choice = choose_code(false);
        // All kinds of codes share as many instructions as they can.
        while (at < own_end) {
            const u32 bits = cursor.peek();
            const u32 entry = shared.codes.find(bits, choice), all = entry_joined(entry);
            const bool inside = at >= place.first, literal = entry & ENTRY_LITERAL;
            const bool several = literal && at + entry_literals(all) <= (inside ? own_end : place.first);
            const u32 taken = several ? all : entry, value = entry_value(entry, bits), cell = at - place.first;
            cursor.skip(entry_bits(taken));
            const u32 late = choice.second();
            if (inside) window.cells[cell + late] = u16(literal ? CELL_BYTE | entry_byte(entry) : value - late);
            if (choice.second()) {
                if (value > at) return false;
                if (inside && length <= end - at) {
                    window.wait(cell);
                } else {
                    // A match that an end of the window cuts off.
                    const u32 first = max_of(at, place.first), beyond = min_of(at + length, end);
                    if (beyond > first) window.refer(place, first, beyond - first, value);
                }
                at += length;
                choice = choose_code(false);
            } else if (literal) {
                const u32 count = entry_literals(taken);
                if (inside && count > 1) {
                    const u32 more = shared.codes.more[low_bits(bits, LENGTH_WIDTH)];
                    window.cells[cell + 1] = u16(CELL_BYTE | (more & 255));
                    if (count > 2) window.cells[cell + 2] = u16(CELL_BYTE | more >> 8);
                }
                at += count;
            } else {
                // What ends a stretch makes no bytes, so that it does not come here.
                if ((entry & ENTRY_OTHER) != 0) return false;
                length = value;
                choice = choose_code(true);
            }
        }
        return true;
    }
};

struct InflateJoin {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        visit_windows(group, block, blocks, args, [&](u64 number, const SharedTile& tile, u32 begin) {
            AdlerShare share{0, 0};
            write(group, tile, begin, share);
            u32 plain, weighted;
            group.exclusive_sum(u32(share.plain % ADLER_MODULUS), plain);
            group.exclusive_sum(u32(share.weighted % ADLER_MODULUS), weighted);
            if (group.lane() != 0) return;
            SharedState& state = tile.scratch.state();
            atomic_add(&state.plain, plain % ADLER_MODULUS);
            atomic_add(&state.weighted, weighted % ADLER_MODULUS);
            fence();
            const u32 windows = (u32(tile.dst.len) + SHARED_WINDOW - 1) / SHARED_WINDOW;
            if (atomic_add(&state.joined, 1u) + 1 < windows) return;
            fence();
            const u32 low = (1 + load_racing(&state.plain)) % ADLER_MODULUS;
            const u32 high = u32((tile.dst.len + load_racing(&state.weighted)) % ADLER_MODULUS);
            const u64 tail = (u64(state.bit) + 7) / 8;
            u32 stored = 0;
            for (u32 part = 0; part < 4; part++) stored = stored << 8 | tile.src.get(tail + part);
            if (tail + 4 <= tile.src.len && stored == (high << 16 | low)) args.status[number] = STATUS_OK;
        });
    }

  private:
    // Writes the bytes of a window.
    template <class Group>
    SWATH_FN static void write(const Group& group, const SharedTile& tile, u32 begin, AdlerShare& share) {
        u16* const cells = tile.scratch.cells();
        const u32 end = min_of(u32(tile.dst.len), begin + SHARED_WINDOW);
        const u32 weight = (u32(tile.dst.len) - begin) % ADLER_MODULUS + ADLER_MODULUS;
        for (u32 at = begin + group.lane() * 8; at < end; at += group.size() * 8) {
            EightCells eight = load_shared_cells(cells + at);
            if (!eight.all_bytes()) {
                u32 found[8], from[8], got[8];
                bool pointers = false;
                SWATH_UNROLL
                for (u32 part = 0; part < 8; part++) {
                    found[part] = eight.get(part);
                    from[part] = begin;
                    pointers |= found[part] < CELL_BYTE;
                }
                // Unconditional loads: all are in flight before the first one is waited for.
                while (pointers) {
                    SWATH_UNROLL
                    for (u32 part = 0; part < 8; part++) {
                        // The pointer is a distance from the first byte of the window that holds it.
                        if (found[part] < CELL_BYTE) from[part] = from[part] / SHARED_WINDOW * SHARED_WINDOW - 1 - found[part];
                        got[part] = load_racing(cells + from[part]);
                    }
                    pointers = false;
                    SWATH_UNROLL
                    for (u32 part = 0; part < 8; part++) {
                        if (found[part] < CELL_BYTE) found[part] = got[part];
                        pointers |= found[part] < CELL_BYTE;
                    }
                }
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) eight.pairs[part] = found[2 * part] | found[2 * part + 1] << 16;
                // Other lanes then have fewer pointers to follow.
                share_cells(cells + at, eight);
            }
            u32 words[2] = {even_bytes(eight.pairs[0], eight.pairs[1]), even_bytes(eight.pairs[2], eight.pairs[3])};
            const u32 front = weighed(words[0], 0x01010101), back = weighed(words[1], 0x01010101);
            share.plain += front + back;
            share.weighted += (weight - (at - begin)) * (front + back);
            share.weighted -= weighed(words[0], 0x03020100) + weighed(words[1], 0x07060504);
            if (at + 8 <= end) {
                *reinterpret_cast<u64*>(tile.dst.data + at) = u64(words[1]) << 32 | words[0];
            } else {
                for (u32 part = 0; at + part < end; part++) tile.dst.data[at + part] = u8(words[part / 4] >> (8 * (part % 4)));
            }
        }
    }
    // Loads eight cells that other lanes may change.
    SWATH_FN static EightCells load_shared_cells(const u16* cells) {
#if SWATH_DEVICE
        return load_cells(cells);
#else
        EightCells eight;
        for (u32 part = 0; part < 4; part++)
            eight.pairs[part] = load_racing(cells + 2 * part) | u32(load_racing(cells + 2 * part + 1)) << 16;
        return eight;
#endif
    }
};

// Decodes the tiles that have no status yet.
template <class Inflate> struct InflateRest {
    static constexpr u32 THREADS = Inflate::THREADS;
    using Args = DecodeArgs;
    using Shared = typename Inflate::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 at = block; at < args.count; at += blocks) {
            if (group.broadcast(args.status[at], 0) != STATUS_UNDONE) continue;
            DecodeArgs own = args;
            own.tiles += at;
            own.status += at;
            own.count = 1;
            Inflate::run(group, 0, 1, own, shared);
        }
    }
};
