// Decodes Deflate in a zlib frame: the lanes of a block decode one tile together.
//
// A round takes the next bits of a Deflate block, a stretch for each lane (decode_agree.cuh). The lanes first count the
// bytes that their stretches make. Sums of these give each lane the place of its bytes, and it decodes once more, into
// the cells of a window (decode_window.cuh), which is then resolved and written. NOTES.md says what was tried.
//
// The kernels need no scratch memory. Block b takes tiles b, b + blocks and so on.
#pragma once
#include "deflate/decode_stretch.cuh"
#include "deflate/decode_window.cuh"
#include "core/kernel.cuh"

// A block has `LANES` lanes. Each takes at most `WORDS` words a round, an odd number, and the window has `CELLS` bytes of
// output.
template <u32 LANES, u32 WORDS, u32 CELLS> struct Inflate {
    static constexpr u32 THREADS = LANES;
    using Args = DecodeArgs;

    static constexpr u32 TRIES = 6;  // after so many tries, the round takes only the lanes that agree
    static constexpr u32 STAGED = LANES * WORDS + 8 > HEAD_WORDS ? LANES * WORDS + 8 : HEAD_WORDS;
    static_assert(WORDS % 2 == 1 && STAGED % 4 == 0, "lanes keep off each other's banks, and words come by four");

    struct Shared {
        alignas(16) u32 staged[STAGED];
        Codes codes;
        Window<CELLS> window;
        u32 ends[LANES];
    };

    // A tile while it is decoded; the same in all lanes except `share`.
    struct Tile {
        Span<const u8> src;
        Span<u8> dst;
        u64 bit;   // position in src
        u32 done;  // decoded bytes
        AdlerShare share;
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 at = block; at < args.count; at += blocks) {
            const TileJob job = args.tiles[at];
            Tile tile{Span<const u8>(args.src, args.src_len).part(job.src, job.src_len),
                      Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len), 0, 0, {0, 0}};
            u32 status = STATUS_CORRUPT;
            // Bytes are counted in 32 bits, and a round may count beyond the tile.
            if (tile.src.len == job.src_len && tile.dst.len == job.dst_len && job.dst_len <= 1ull << 31)
                status = inflate(group, tile, shared);
            if (group.lane() == 0) args.status[at] = status;
            group.sync();
        }
    }

    template <class Group> SWATH_FN static u32 inflate(const Group& group, Tile& tile, Shared& shared) {
        if (!has_zlib_head(tile.src)) return STATUS_CORRUPT;
        tile.bit = 16;
        const u32 status = decode_blocks(group, tile, shared, true);
        if (status != STATUS_OK) return status;
        return check(group, tile);
    }

    // Decodes the blocks from the next bit on, which have to fill dst: with `ends` up to the last block, else all of src,
    // to its very end.
    template <class Group>
    SWATH_FN static u32 decode_blocks(const Group& group, Tile& tile, Shared& shared, bool ends) {
        // A tile that failed may have left something in the window.
        shared.window.clear(group);
        // A block costs the same however little it holds, so a stream of empty blocks would take minutes. No encoder
        // makes so many; if one does, the CPU decodes the tile.
        u32 blocks_left = 64 + u32((tile.src.len + tile.dst.len) / 128);
        bool last = false;
        while (!last) {
            if (blocks_left-- == 0) return STATUS_CORRUPT;
            const u32 start = stage(group, tile, shared, HEAD_WORDS);
            const BlockHead head = read_head(group, shared.staged, start, shared.window.lengths, shared.ends, LANES);
            last = head.last;
            tile.bit += head.end - start;
            if (!head.fine || tile.bit > tile.src.len * 8 || (last && !ends)) return STATUS_CORRUPT;
            const u32 status = head.kind == 0 ? copy_stored(group, tile, shared) : decode_block(group, tile, shared);
            if (status != STATUS_OK) return status;
            if (!ends) last = tile.bit == tile.src.len * 8;
        }
        if (tile.done != tile.dst.len) return STATUS_SHORT;
        return STATUS_OK;
    }

    template <class Group> SWATH_FN static u32 stage(const Group& group, const Tile& tile, Shared& shared, u32 words) {
        return stage_bits(group, tile.src, tile.bit, words, shared.staged);
    }

    SWATH_FN static WindowPlace next_window(const Tile& tile) { return WindowPlace{tile.done & ~7u, tile.done}; }

    template <class Group> SWATH_FN static u32 copy_stored(const Group& group, Tile& tile, Shared& shared) {
        u64 from = (tile.bit + 7) / 8;
        if (from + 4 > tile.src.len) return STATUS_CORRUPT;
        const u32 length = u32(tile.src.get(from)) | u32(tile.src.get(from + 1)) << 8;
        const u32 inverse = u32(tile.src.get(from + 2)) | u32(tile.src.get(from + 3)) << 8;
        from += 4;
        if ((length ^ inverse) != 0xffff || length > tile.src.len - from) return STATUS_CORRUPT;
        if (length > tile.dst.len - tile.done) return STATUS_LONG;
        const u32 end = tile.done + length;
        while (tile.done < end) {
            const WindowPlace place = next_window(tile);
            const u32 to = min_of(end - place.base, CELLS) + place.base;
            for (u32 at = tile.done + group.lane(); at < to; at += group.size())
                shared.window.cells[at - place.base] = u16(CELL_BYTE | tile.src.get(from + (at - tile.done)));
            group.sync();
            shared.window.write(group, place, to, tile.dst, tile.share);
            group.sync();
            from += to - tile.done;
            tile.done = to;
        }
        tile.bit = from * 8;
        return STATUS_OK;
    }

    template <class Group> SWATH_FN static u32 decode_block(const Group& group, Tile& tile, Shared& shared) {
        const u32 token_bits = make_tables(group, shared.window.lengths, shared.codes);
        if (token_bits == 0) return STATUS_CORRUPT;
        const u32 words = min_of(STRETCH_TOKENS * token_bits / 32, WORDS) | 1;
        const u32 lanes = min_of(group.size(), LANES), lane = group.lane();
        for (;;) {
            const u32 start = stage(group, tile, shared, lanes * words + 8);
            const u64 left = tile.src.len * 8 - tile.bit + start;
            const u32 limit = u32(min_of(left, u64(0x7fffffff)));
            const u32 begin = start + lane * words * 32, end = begin + words * 32;
            auto measure_from = [&](u32 from) { return measure(shared.staged, shared.codes, from, end, limit); };
            Stretch stretch{0, 0, 0, GOES_ON};
            if (lane < lanes) {
                const u32 warm = min_of(WARM_TOKENS * token_bits, begin - start);
                stretch = measure_from(fall_in(shared.staged, shared.codes, begin - warm, begin));
            }
            const u32 valid = agree(group, shared.ends, lanes, TRIES, stretch, measure_from);
            const u32 found = group.broadcast(stretch.stop << 28 | stretch.end, valid - 1);
            const u32 stop = found >> 28;
            if (stop == BAD) return STATUS_CORRUPT;
            if (lane >= valid) stretch.sum = 0;
            u32 total;
            const u32 place = tile.done + group.exclusive_sum(stretch.sum, total);
            if (total > tile.dst.len - tile.done) return STATUS_LONG;
            if (!put(group, tile, shared, stretch, place, total)) return STATUS_CORRUPT;
            tile.bit += (found & 0x0fffffff) - start;
            if (stop == BLOCK_END) return STATUS_OK;
        }
    }

    // Turns the tokens of a round into bytes. False if a match reaches back too far.
    template <class Group>
    SWATH_FN static bool put(const Group& group, Tile& tile, Shared& shared, const Stretch& stretch, u32 place,
                             u32 total) {
        const u32 end = tile.done + total, own_end = place + stretch.sum;
        BitCursor cursor(shared.staged, stretch.sum ? stretch.start : 0);
        u32 rest = 0, distance = 0;
        auto& window = shared.window;
        while (tile.done < end) {
            const WindowPlace now = next_window(tile);
            const u32 to = min_of(end - now.base, CELLS) + now.base, own_to = min_of(to, own_end);
            if (group.lane() == 0) window.longs = 0;
            group.sync();
            bool far = false;
            // A match that did not fit into the last window.
            if (rest > 0 && place < to) {
                const u32 part = min_of(rest, to - place);
                window.refer(now, place, part, distance);
                place += part;
                rest -= part;
            }
            // As in `measure`, all kinds of codes share as many instructions as they can.
            u32 length = 0;
            CodeChoice choice = choose_code(false);
            while (place < own_to) {
                const u32 bits = cursor.peek();
                const u32 entry = shared.codes.find(bits, choice), all = entry_joined(entry);
                const bool literal = entry & ENTRY_LITERAL, several = literal && place + entry_literals(all) <= own_to;
                const u32 taken = several ? all : entry, value = entry_value(entry, bits), cell = place - now.base;
                cursor.skip(entry_bits(taken));
                const u32 late = choice.second();
                window.cells[cell + late] = u16(literal ? CELL_BYTE | entry_byte(entry) : value - late);
                if (choice.second()) {
                    if (value > place) {
                        far = true;
                        break;
                    }
                    if (length <= to - place) {
                        window.wait(cell);
                        place += length;
                    } else {
                        distance = value;
                        rest = length - (to - place);
                        window.refer(now, place, to - place, distance);
                        place = to;
                    }
                    choice = choose_code(false);
                } else if (literal) {
                    const u32 count = entry_literals(taken);
                    if (count > 1) {
                        const u32 more = shared.codes.more[low_bits(bits, LENGTH_WIDTH)];
                        window.cells[cell + 1] = u16(CELL_BYTE | (more & 255));
                        if (count > 2) window.cells[cell + 2] = u16(CELL_BYTE | more >> 8);
                    }
                    place += count;
                } else {
                    length = value;
                    choice = choose_code(true);
                }
            }
            if (group.any(far)) return false;
            window.set_references(group, now);
            group.sync();
            window.write(group, now, to, tile.dst, tile.share);
            group.sync();
            tile.done = to;
        }
        return true;
    }

    template <class Group> SWATH_FN static u32 check(const Group& group, const Tile& tile) {
        if (tail_at(tile) + 4 > tile.src.len) return STATUS_CORRUPT;
        return stored_sum(tile) == sum(group, tile) ? STATUS_OK : STATUS_CHECKSUM;
    }

    // The position of the stored checksum once the last block is decoded, and its value.
    SWATH_FN static u64 tail_at(const Tile& tile) { return (tile.bit + 7) / 8; }
    SWATH_FN static u32 stored_sum(const Tile& tile) {
        u32 stored = 0;
        for (u32 part = 0; part < 4; part++) stored = stored << 8 | tile.src.get(tail_at(tile) + part);
        return stored;
    }

    // The Adler-32 of the decoded bytes.
    template <class Group> SWATH_FN static u32 sum(const Group& group, const Tile& tile) {
        u32 plain, weighted;
        group.exclusive_sum(u32(tile.share.plain % ADLER_MODULUS), plain);
        group.exclusive_sum(u32(tile.share.weighted % ADLER_MODULUS), weighted);
        const u32 low = (1 + plain) % ADLER_MODULUS;
        const u32 high = (u32(tile.dst.len % ADLER_MODULUS) + weighted) % ADLER_MODULUS;
        return high << 16 | low;
    }
};

#if SWATH_DEVICE
// `blocks` is the number of blocks that a multiprocessor has to hold, which limits the registers of a thread.
#define SWATH_INFLATE(name, Kernel, blocks)                                                             \
    extern "C" __global__ void __launch_bounds__(Kernel::THREADS, blocks) name(const Kernel::Args args) { \
        __shared__ Kernel::Shared shared;                                                               \
        __shared__ BlockGroup::Shared group_shared;                                                     \
        Kernel::run(BlockGroup(group_shared), blockIdx.x, gridDim.x, args, shared);                     \
    }
#else
#define SWATH_INFLATE(name, Kernel, blocks) SWATH_KERNEL(name, Kernel)
#endif
