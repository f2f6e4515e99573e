// The part of a tile that is being decoded: literals and references become bytes.
//
// A window holds one cell for each byte from `base` on. A cell is a byte, a pointer to an earlier cell of the window, or
// a pointer to a byte before the window, which is final. First all cells are set, in any order; then all are resolved at
// once. Pointers lead to smaller positions only, so following them ends, whatever the stream says. A lane that resolves a
// cell stores the byte there, so that other lanes have fewer pointers to follow; no barrier is needed.
#pragma once
#include "lz/cells.cuh"
#include "deflate/decode_codes.cuh"
#include "core/span.cuh"

// Values of a cell that is no byte: the distance before the first byte of the window, less one; or, from this constant
// on, the position in the window.
constexpr u32 CELL_POINTER = 0xa000;

constexpr u32 ADLER_MODULUS = 65521;

// The sum of four bytes, each times its weight.
SWATH_FN u32 weighed(u32 bytes, u32 weights) {
#if SWATH_DEVICE
    // NVRTC has the instruction, but not the header that names it.
    u32 sum;
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(bytes), "r"(weights), "r"(0u));
    return sum;
#else
    u32 sum = 0;
    for (u32 part = 0; part < 32; part += 8) sum += (bytes >> part & 255) * (weights >> part & 255);
    return sum;
#endif
}

// The sums of each lane for the Adler-32, added up when the tile is complete.
struct AdlerShare {
    u64 plain, weighted;
};

// The position of the window; the same in all lanes.
struct WindowPlace {
    u32 base;   // position of cell 0 in the tile, a multiple of 8
    u32 first;  // first byte that is not written yet
};

// The cell for a copy of the byte at `source` of the tile.
SWATH_FN u32 cell_for(const WindowPlace& place, u32 source) {
    return source >= place.first ? CELL_POINTER + (source - place.base) : place.first - 1 - source;
}

template <u32 CELLS> struct Window {
    static_assert(CELLS % 32 == 0 && CELL_POINTER + CELLS <= 0x10000, "a pointer has to fit a cell");
    static constexpr u32 SHORT = 16;  // several lanes share longer references
    static constexpr u32 TEAM = 16;   // so many lanes

    // References wait until all literals are set, so that all lanes get some. They wait in their own first two cells (the
    // length, and the distance less one), and have their bit set here.
    u32 waiting[CELLS / 32];
    u32 longs;
    struct Long {
        u16 cell, length, distance;
    };
    Long long_ones[CELLS / (SHORT + 1) + 1];
    union {
        // One cell more, because a reference that the end of the window cuts off after one cell is noticed late.
        alignas(16) u16 cells[CELLS + 8];
        // Used at different times.
        CodeLengths lengths;
    };

    template <class Group> SWATH_FN void clear(const Group& group) {
        for (u32 at = group.lane(); at < CELLS / 32; at += group.size()) waiting[at] = 0;
    }

    // The part of a reference that lies in the window, if its end or the end of the window before cuts it off.
    SWATH_FN void refer(const WindowPlace& place, u32 to, u32 length, u32 distance) {
        const u32 cell = to - place.base;
        if (length < 3) {
            for (u32 index = 0; index < length; index++)
                cells[cell + index] = u16(cell_for(place, to + index - distance));
            return;
        }
        cells[cell] = u16(length);
        cells[cell + 1] = u16(distance - 1);
        wait(cell);
    }
    SWATH_FN void wait(u32 cell) { atomic_or(&waiting[cell / 32], 1u << cell % 32); }

    template <class Group> SWATH_FN void set_references(const Group& group, const WindowPlace& place) {
        for (u32 word = group.lane(); word < CELLS / 32; word += group.size()) {
            u32 left = waiting[word];
            waiting[word] = 0;
            while (left) {
                const u32 cell = word * 32 + lowest_one(left), length = cells[cell], distance = cells[cell + 1] + 1u;
                left &= left - 1;
                if (length > SHORT) {
                    long_ones[atomic_add(&longs, 1u)] = {u16(cell), u16(length), u16(distance)};
                    continue;
                }
                const u32 to = place.base + cell;
                for (u32 index = 0, source = to - distance; index < length; index++) {
                    cells[cell + index] = u16(cell_for(place, source));
                    source = source + 1 == to ? to - distance : source + 1;
                }
            }
        }
        group.sync();
        const u32 width = min_of(group.size(), TEAM), teams = group.size() / width, first = group.lane() % width;
        for (u32 number = group.lane() / width; number < longs; number += teams) {
            const Long one = long_ones[number];
            const u32 length = one.length, distance = one.distance, from = place.base + one.cell - distance;
            const bool again = distance < length;
            const u32 step = again ? width % distance : width;
            u32 ahead = again ? first % distance : first;
            for (u32 index = first; index < length; index += width) {
                cells[one.cell + index] = u16(cell_for(place, from + ahead));
                ahead += step;
                if (again && ahead >= distance) ahead -= distance;
            }
        }
    }

    // Resolves the cells from `place.first` to before byte `end` of the tile as far as the window knows them, and stores them.
    // `place.first` is byte `place.base`; `to` has room for whole groups of eight.
    template <class Group>
    SWATH_FN void keep(const Group& group, const WindowPlace& place, u32 end, u16* to) {
        const u32 stop = end - place.base;
        for (u32 at = group.lane() * 8; at < stop; at += group.size() * 8) {
            EightCells eight = load_cells(cells + at);
            if (at + 8 > stop || !eight.all_bytes()) {
                u32 found[8];
                bool pointers = false;
                SWATH_UNROLL
                for (u32 part = 0; part < 8; part++) {
                    found[part] = at + part < stop ? eight.get(part) : CELL_BYTE;
                    pointers |= found[part] >= CELL_POINTER;
                }
                if (pointers) follow(at, found);
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) eight.pairs[part] = found[2 * part] | found[2 * part + 1] << 16;
                share_cells(cells + at, eight);
            }
            share_cells(to + at, eight);
        }
    }

    // Resolves the cells up to byte `end` of the tile and writes them.
    template <class Group>
    SWATH_FN void write(const Group& group, const WindowPlace& place, u32 end, Span<u8> tile, AdlerShare& share) {
        const u32 skip = place.first - place.base, stop = end - place.base;
        const u32 weight = (u32(tile.len) - place.base) % ADLER_MODULUS + ADLER_MODULUS;
        for (u32 at = group.lane() * 8; at < stop; at += group.size() * 8) {
            // Eight at a time, so that many loads are in flight.
            EightCells eight = load_cells(cells + at);
            const bool whole = at >= skip && at + 8 <= stop;
            if (!whole || !eight.all_bytes()) {
                u32 found[8], got[8];
                bool pointers = false, outside = false;
                SWATH_UNROLL
                for (u32 part = 0; part < 8; part++) {
                    found[part] = eight.get(part);
                    if (!whole && (at + part < skip || at + part >= stop)) found[part] = CELL_BYTE;
                    pointers |= found[part] >= CELL_POINTER;
                }
                if (pointers) follow(at, found);
                SWATH_UNROLL
                for (u32 part = 0; part < 8; part++) outside |= found[part] < CELL_BYTE;
                if (outside && place.first > 0) {
                    SWATH_UNROLL
                    for (u32 part = 0; part < 8; part++) {
                        const u32 back = found[part] < CELL_BYTE ? min_of(found[part], place.first - 1) : 0;
                        got[part] = tile.data[place.first - 1 - back];
                    }
                    SWATH_UNROLL
                    for (u32 part = 0; part < 8; part++)
                        if (found[part] < CELL_BYTE) found[part] = CELL_BYTE | got[part];
                }
                SWATH_UNROLL
                for (u32 part = 0; part < 4; part++) eight.pairs[part] = found[2 * part] | found[2 * part + 1] << 16;
                share_cells(cells + at, eight);
            }
            const u32 words[2] = {even_bytes(eight.pairs[0], eight.pairs[1]),
                                  even_bytes(eight.pairs[2], eight.pairs[3])};
            const u32 front = weighed(words[0], 0x01010101), back = weighed(words[1], 0x01010101);
            share.plain += front + back;
            share.weighted += (weight - at) * (front + back);
            share.weighted -= weighed(words[0], 0x03020100) + weighed(words[1], 0x07060504);
            if (whole) {
                *reinterpret_cast<u64*>(tile.data + place.base + at) = u64(words[1]) << 32 | words[0];
            } else {
                for (u32 part = 0; part < 8; part++)
                    if (at + part >= skip && at + part < stop)
                        tile.set(place.base + at + part, u8(words[part / 4] >> (8 * (part % 4))));
            }
        }
    }

  private:
    // Follows pointers into the window from eight cells. `at` is any cell.
    SWATH_FN void follow(u32 at, u32 (&found)[8]) const {
        u32 got[8];
        // Unconditional loads: all are in flight before the first one is waited for.
        for (bool pointers = true; pointers;) {
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) {
                const u32 from = found[part] >= CELL_POINTER ? found[part] - CELL_POINTER : at;
                got[part] = load_racing(cells + from);
            }
            pointers = false;
            SWATH_UNROLL
            for (u32 part = 0; part < 8; part++) {
                if (found[part] >= CELL_POINTER) found[part] = got[part];
                pointers |= found[part] >= CELL_POINTER;
            }
        }
    }
};
