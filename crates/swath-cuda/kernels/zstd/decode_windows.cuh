// Turns sequences into bytes where there are few tiles: many blocks of threads write a tile.
//
// Each takes windows and knows nothing of those before. `cells` makes a cell of each byte: the byte, or the position of
// the byte that it copies, which lies before the window. `join` follows these positions and writes the bytes. Positions
// only become smaller, so that ends. Until `join` runs, the literals that `cells` reads stay where they are.
#pragma once
#include "lz/cells.cuh"
#include "zstd/decode_batch.cuh"
#include "zstd/decode_execute.cuh"

// The upper bit of a cell that holds a byte; other cells are positions.
constexpr u32 ZSTD_CELL_BYTE = 0x80000000u;
constexpr u32 ZSTD_WINDOW = 4096;

// The cells of a tile, after the rest of its scratch.
SWATH_FN u32* zstd_cells(const DecodeArgs& args, const ZstdTile& tile) {
    return reinterpret_cast<u32*>(tile.scratch.data + ZstdScratch::own_len(args));
}

// Whether many blocks of threads write this tile. One writes tiles with checksums: they are sums over all bytes in order.
SWATH_FN bool has_zstd_windows(const DecodeArgs& args, const ZstdTile& tile) {
    const u64 room = args.scratch_len - ZstdScratch::own_len(args);
    if ((args.flags & ZSTD_SHARED) == 0 || room / 4 < (tile.dst.len + 7) / 8 * 8) return false;
    const u32 blocks = tile.scratch.head().blocks;
    bool checksums = false;
    for (u32 number = 0; number < blocks; number++)
        checksums |= (tile.scratch.notes()[number].flags & ZSTD_HAS_CHECKSUM) != 0;
    return !checksums || (args.flags & ZSTD_VERIFY) == 0;
}

// Calls `visit` with each window of tiles without fault: the number of the tile, the tile, and the first byte. Block b takes
// windows b, b + blocks and so on, of all tiles counted together.
template <class Group, class Visit>
SWATH_FN void visit_zstd_windows(const Group& group, u32 block, u32 blocks, const DecodeArgs& args, const Visit& visit) {
    u64 item = block, before = 0;
    for (u64 at = 0; at < args.count; at++) {
        const u64 windows = (args.tiles[at].dst_len + ZSTD_WINDOW - 1) / ZSTD_WINDOW;
        for (; item < before + windows; item += blocks) {
            // Other blocks may set the status meanwhile, so one lane reads it for all.
            if (group.broadcast(load_racing(&args.status[at]), 0) != STATUS_OK) continue;
            const ZstdTile tile(args, at);
            if (has_zstd_windows(args, tile)) visit(at, tile, u32(item - before) * ZSTD_WINDOW);
        }
        before += windows;
    }
}

struct ZstdCells {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;

    struct Shared : ZstdBatch {
        alignas(16) u32 cells[ZSTD_WINDOW];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        shared.bases.fill(group);
        visit_zstd_windows(group, block, blocks, args, [&](u64 number, const ZstdTile& tile, u32 begin) {
            const u32 end = min_of(u32(tile.dst.len), begin + ZSTD_WINDOW);
            if (fill(group, tile, begin, end, shared)) {
                keep(group, begin, end, shared, zstd_cells(args, tile));
            } else if (group.lane() == 0) {
                report_status(args, number, STATUS_CORRUPT);
            }
            group.sync();
        });
    }

  private:
    // Sets the cells of a window. False if an offset is impossible.
    template <class Group>
    SWATH_FN static bool fill(const Group& group, const ZstdTile& tile, u32 begin, u32 end, Shared& shared) {
        const ZstdNote* const notes = tile.scratch.notes();
        const u32 blocks = tile.scratch.head().blocks;
        // The last block that begins at the window or before.
        u32 number = 0;
        for (u32 beyond = blocks; beyond - number > 1;) {
            const u32 middle = (number + beyond) / 2;
            if (notes[middle].dst <= begin) number = middle;
            else beyond = middle;
        }
        for (; number < blocks && notes[number].dst < end; number++) {
            const ZstdNote& note = notes[number];
            const u32 from = max_of(begin, note.dst), to = min_of(end, note.dst + note.size);
            if (from >= to) continue;
            if (note.sequences == 0) {
                // The bytes are in their place already.
                for (u32 at = from + group.lane(); at < to; at += group.size())
                    shared.cells[at - begin] = ZSTD_CELL_BYTE | tile.dst.data[at];
                continue;
            }
            if (!fill_from(group, tile, number, note, begin, from, to, shared)) return false;
        }
        group.sync();
        return true;
    }

    // The number of marks whose sequences begin before byte `out` of the block.
    template <class Group>
    SWATH_FN static u32 marks_before(const Group& group, const ZstdMark* marks, u32 count, u32 out) {
        u32 own = 0, all;
        for (u32 at = group.lane(); at < count; at += group.size()) own += marks[at].out < out;
        group.exclusive_sum(own, all);
        return all;
    }

    // Sets the cells from byte `from` to before byte `to` of the tile, which a block with sequences makes.
    template <class Group>
    SWATH_FN static bool fill_from(const Group& group, const ZstdTile& tile, u32 number, const ZstdNote& note, u32 begin,
                                   u32 from, u32 to, Shared& shared) {
        const u32 stride = tile.scratch.head().stride, count = (note.sequences + stride - 1) / stride;
        const ZstdMark* const marks = tile.scratch.marks(note);
        const u32 first_mark = max_of(marks_before(group, marks, count, from - note.dst + 1), 1u) - 1;
        const u32 sequences = min_of(marks_before(group, marks, count, to - note.dst) * stride, note.sequences);
        const ZstdLiteralPlace literals(tile, note);
        group.sync();
        shared.take_tables(group, tile, number, note);
        for (u32 first = first_mark * stride; first < sequences && from < to; first += ZstdBatch::MOST) {
            const u32 batch = min_of(sequences - first, ZstdBatch::MOST);
            group.sync();
            const bool bad = !shared.read_batch(group, tile, note, first, batch);
            if (group.any(bad)) return false;
            const bool last = first + batch == note.sequences;
            const u32 stop = min_of(to, note.dst + (last ? note.size : shared.outs[batch]));
            set_cells(group, tile, note, literals, batch + last, begin, from, stop, shared);
            from = max_of(from, stop);
        }
        return from == to;
    }

    template <class Group>
    SWATH_FN static void set_cells(const Group& group, const ZstdTile& tile, const ZstdNote& note,
                                   const ZstdLiteralPlace& literals, u32 entries, u32 begin, u32 from, u32 to,
                                   Shared& shared) {
        for (u32 at = from + group.lane() * 8; at < to; at += group.size() * 8) {
            const u32 start = at - note.dst;
            // The last sequence that begins at `start` or before.
            u32 index = 0;
            for (u32 beyond = entries; beyond - index > 1;) {
                const u32 middle = (index + beyond) / 2;
                if (shared.outs[middle] <= start) index = middle;
                else beyond = middle;
            }
            u32 out = shared.outs[index], split = shared.splits[index], literal = shared.literals[index];
            u32 offset = shared.offsets[index], next = shared.outs[index + 1];
            const u8* place[8];
            u32 cells[8];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) {
                const u32 within = start + part;
                cells[part] = ZSTD_CELL_BYTE;
                place[part] = tile.dst.data;
                if (at + part >= to) continue;
                while (within >= next && index + 1 < entries) {
                    index++;
                    out = next;
                    split = shared.splits[index];
                    literal = shared.literals[index];
                    offset = shared.offsets[index];
                    next = shared.outs[index + 1];
                }
                if (within < split) {
                    place[part] = literals.at(literal + (within - out));
                    continue;
                }
                u32 ahead = within - split;
                if (ahead >= offset) ahead %= offset;
                cells[part] = note.dst + split - offset + ahead;
            }
            // Unconditional loads: all are in flight before the first one is waited for.
            u32 got[8];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) got[part] = *place[part];
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++)
                if (at + part < to) shared.cells[at + part - begin] = cells[part] == ZSTD_CELL_BYTE ? cells[part] | got[part] : cells[part];
        }
    }

    // Resolves the cells as far as the window knows them, and stores them.
    template <class Group>
    SWATH_FN static void keep(const Group& group, u32 begin, u32 end, Shared& shared, u32* to) {
        for (u32 at = begin + group.lane(); at < end; at += group.size()) {
            u32 cell = load_racing(shared.cells + (at - begin));
            if (cell < ZSTD_CELL_BYTE && cell >= begin) {
                do cell = load_racing(shared.cells + (cell - begin));
                while (cell < ZSTD_CELL_BYTE && cell >= begin);
                // Other lanes then have fewer to follow.
                store_racing(shared.cells + (at - begin), cell);
            }
            to[at] = cell;
        }
    }
};

struct ZstdJoin {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;
    struct Shared {};

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        visit_zstd_windows(group, block, blocks, args, [&](u64, const ZstdTile& tile, u32 begin) {
            u32* const cells = zstd_cells(args, tile);
            const u32 end = min_of(u32(tile.dst.len), begin + ZSTD_WINDOW);
            for (u32 at = begin + group.lane() * 4; at < end; at += group.size() * 4) {
                u32 found[4];
                bool positions = false;
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) {
                    found[part] = at + part < end ? load_racing(cells + at + part) : ZSTD_CELL_BYTE;
                    positions |= found[part] < ZSTD_CELL_BYTE;
                }
                if (positions) {
                    // Unconditional loads: all are in flight before the first one is waited for.
                    while (positions) {
                        u32 got[4];
                        SWATH_UNROLL
                        for (u32 part = 0; part < 4; part++)
                            got[part] = load_racing(cells + (found[part] < ZSTD_CELL_BYTE ? found[part] : at));
                        positions = false;
                        SWATH_UNROLL
                        for (u32 part = 0; part < 4; part++) {
                            if (found[part] < ZSTD_CELL_BYTE) found[part] = got[part];
                            positions |= found[part] < ZSTD_CELL_BYTE;
                        }
                    }
                    SWATH_UNROLL
                    for (u32 part = 0; part < 4; part++)
                        if (at + part < end) store_racing(cells + at + part, found[part]);
                }
                if (at + 4 <= end) {
                    *reinterpret_cast<u32*>(tile.dst.data + at) =
                        (found[0] & 255) | (found[1] & 255) << 8 | (found[2] & 255) << 16 | found[3] << 24;
                } else {
                    for (u32 part = 0; at + part < end; part++) tile.dst.data[at + part] = u8(found[part]);
                }
            }
        });
    }
};

// Writes the tiles that `cells` and `join` leave out.
template <class Execute> struct ZstdRest {
    static constexpr u32 THREADS = Execute::THREADS;
    using Args = DecodeArgs;
    using Shared = typename Execute::Shared;

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 at = block; at < args.count; at += blocks) {
            if (group.broadcast(args.status[at], 0) != STATUS_OK || has_zstd_windows(args, ZstdTile(args, at))) continue;
            DecodeArgs own = args;
            own.tiles += at;
            own.status += at;
            own.scratch += at * args.scratch_len;
            own.count = 1;
            Execute::run(group, 0, 1, own, shared);
        }
    }
};
