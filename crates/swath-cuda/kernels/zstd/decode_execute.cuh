// Turns sequences into bytes: all lanes of a block work on one tile, Zstd block after Zstd block, window after window.
//
// Some lanes read sequences, each from a mark, and leave them in shared memory. Then each lane takes eight bytes of a
// window, finds the sequence they belong to, and loads literals and bytes from before the window. A copy of a byte of the
// window itself becomes a pointer to it. Pointers lead to smaller positions only, so following them ends.
//
// Literals lie at the end of their block's place, so a window overwrites only literals that it uses itself: they are
// loaded before a byte of the window is written.
#pragma once
#include "lz/cells.cuh"
#include "zstd/decode_batch.cuh"
#include "zstd/decode_checksum.cuh"

template <u32 LANES, u32 CELLS> struct ZstdExecute {
    static constexpr u32 THREADS = LANES;
    static constexpr u32 BATCH = ZstdBatch::MOST;
    using Args = DecodeArgs;

    // A cell is a byte or the position of an earlier one.
    static_assert(CELLS % 8 == 0 && CELLS <= CELL_BYTE, "a pointer has to fit a cell");

    struct Shared : ZstdBatch {
        alignas(16) u16 cells[CELLS];
        u64 sums[4];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        shared.bases.fill(group);
        for (u64 at = block; at < args.count; at += blocks) {
            group.sync();
            if (args.status[at] != STATUS_OK) continue;
            const u32 status = execute(group, args, ZstdTile(args, at), shared);
            group.sync();
            if (group.lane() == 0) args.status[at] = status;
        }
    }

  private:
    template <class Group>
    SWATH_FN static u32 execute(const Group& group, const Args& args, const ZstdTile& tile, Shared& shared) {
        const u32 blocks = tile.scratch.head().blocks;
        for (u32 number = 0; number < blocks; number++) {
            const ZstdNote& note = tile.scratch.notes()[number];
            if (note.sequences > 0) {
                shared.take_tables(group, tile, number, note);
                if (!execute_block(group, tile, note, shared)) return STATUS_CORRUPT;
            }
            if ((note.flags & ZSTD_HAS_CHECKSUM) == 0 || (args.flags & ZSTD_VERIFY) == 0) continue;
            const u32 size = note.dst + note.size - note.frame;
            const u32 stored = u32(bytes_from(tile.src, note.src + note.src_len));
            if (ZstdChecksum::of(group, tile.dst.part(note.frame, size), shared.sums) != stored) return STATUS_CHECKSUM;
        }
        return STATUS_OK;
    }

    template <class Group>
    SWATH_FN static bool execute_block(const Group& group, const ZstdTile& tile, const ZstdNote& note, Shared& shared) {
        const ZstdLiteralPlace literals(tile, note);
        u32 done = note.dst;
        for (u32 first = 0; first < note.sequences; first += BATCH) {
            const u32 count = min_of(note.sequences - first, BATCH);
            group.sync();
            const bool bad = !shared.read_batch(group, tile, note, first, count);
            if (group.any(bad)) return false;
            const bool last = first + count == note.sequences;
            const u32 entries = count + last, end = note.dst + (last ? note.size : shared.outs[count]);
            while (done < end) {
                const u32 base = done & ~7u, to = base + min_of(end - base, CELLS);
                set_cells(group, tile, note, literals, entries, base, done, to, shared);
                group.sync();
                write_cells(group, tile, base, done, to, shared);
                group.sync();
                done = to;
            }
        }
        return true;
    }

    // Eight bytes of any alignment, out of the two words that hold them. The words also hold up to 15 other bytes, which
    // may belong to a later part of the tile that nothing has written yet. The shifts drop these bytes.
    SWATH_FN static u64 eight_bytes(const u8* from) {
        const u32 skew = u32(u64(from) & 7) * 8;
        const u64* const words = reinterpret_cast<const u64*>(from - (u64(from) & 7));
        const u64 low = words[0], high = words[1];
        return skew ? low >> skew | high << (64 - skew) : low;
    }

    // Sets the cells of the bytes from `done` to before `to` of the tile; cell 0 stands for byte `base`.
    template <class Group>
    SWATH_FN static void set_cells(const Group& group, const ZstdTile& tile, const ZstdNote& note, const ZstdLiteralPlace& literals,
                                   u32 entries, u32 base, u32 done, u32 to, Shared& shared) {
        for (u32 at = group.lane() * 8; at < to - base; at += group.size() * 8) {
            const u32 begin = max_of(base + at, done) - note.dst;
            // The last sequence that begins at `begin` or before.
            u32 index = 0;
            for (u32 beyond = entries; beyond - index > 1;) {
                const u32 middle = (index + beyond) / 2;
                if (shared.outs[middle] <= begin) index = middle;
                else beyond = middle;
            }
            u32 out = shared.outs[index], split = shared.splits[index], literal = shared.literals[index];
            u32 offset = shared.offsets[index], next = shared.outs[index + 1];
            // Usually all eight bytes come from one place: from the stream, of which words may be loaded up to its end,
            // or from the tile.
            const u8* all = nullptr;
            if (begin + 8 <= split) {
                const u32 first = literal + (begin - out);
                if (literals.step == 1 && first + 16 <= literals.safe) all = literals.at(first);
            } else if (begin >= split && begin + 8 <= min_of(next, split + offset)) {
                const u32 source = note.dst + begin - offset;
                if (source + 8 <= done && source + 16 <= tile.dst.len) all = tile.dst.data + source;
            }
            if (all != nullptr && base + at >= done && base + at + 8 <= to) {
                share_cells(shared.cells + at, byte_cells(eight_bytes(all)));
                continue;
            }
            const u8* from[8];
            u32 cells[8];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) {
                const u32 place = base + at + part;
                cells[part] = CELL_BYTE;
                from[part] = tile.dst.data;
                if (place < done || place >= to) continue;
                const u32 within = place - note.dst;
                while (within >= next && index + 1 < entries) {
                    index++;
                    out = next;
                    split = shared.splits[index];
                    literal = shared.literals[index];
                    offset = shared.offsets[index];
                    next = shared.outs[index + 1];
                }
                if (within < split) {
                    from[part] = literals.at(literal + (within - out));
                    continue;
                }
                u32 ahead = within - split;
                if (ahead >= offset) ahead %= offset;
                const u32 source = note.dst + split - offset + ahead;
                if (source >= done) cells[part] = source - base;
                else from[part] = tile.dst.data + source;
            }
            // Unconditional loads: all are in flight before the first one is waited for. Cells that need no load
            // (pointers, and bytes outside of `done` to `to`) load byte 0 of the tile, which may not be written yet. For
            // a pointer the byte is dropped below; outside of `done` to `to` it goes into the cell, but `write_cells`
            // writes no such cell and no pointer leads to one.
            u32 got[8];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) got[part] = *from[part];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++)
                shared.cells[at + part] = u16(cells[part] >= CELL_BYTE ? CELL_BYTE | got[part] : cells[part]);
        }
    }

    template <class Group>
    SWATH_FN static void write_cells(const Group& group, const ZstdTile& tile, u32 base, u32 done, u32 to, Shared& shared) {
        for (u32 at = group.lane() * 8; at < to - base; at += group.size() * 8) {
            EightCells eight = load_cells(shared.cells + at);
            if (!eight.all_bytes()) {
                u32 found[8];
                bool pointers = true;
                SWATH_UNROLL
                for (u32 part = 0; part < 8; part++) found[part] = eight.get(part);
                while (pointers) {
                    pointers = false;
                    SWATH_UNROLL
                    for (u32 part = 0; part < 8; part++) {
                        if (found[part] < CELL_BYTE) found[part] = load_racing(shared.cells + found[part]);
                        pointers |= found[part] < CELL_BYTE;
                    }
                }
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) eight.pairs[part] = found[2 * part] | found[2 * part + 1] << 16;
                // Other lanes then have fewer pointers to follow.
                share_cells(shared.cells + at, eight);
            }
            const u32 low = even_bytes(eight.pairs[0], eight.pairs[1]), high = even_bytes(eight.pairs[2], eight.pairs[3]);
            const u64 bytes = u64(high) << 32 | low;
            if (base + at >= done && base + at + 8 <= to) {
                *reinterpret_cast<u64*>(tile.dst.data + base + at) = bytes;
                continue;
            }
            for (u32 part = 0; part < 8; part++) {
                const u32 place = base + at + part;
                if (place >= done && place < to) tile.dst.data[place] = u8(bytes >> (8 * part));
            }
        }
    }
};
