// Decodes TIFF LZW (compression 5): all lanes of a block work on one tile.
//
// The codes between two Clears are a segment. Three facts make a segment parallel:
// - The width of a code follows from the number of codes since the Clear, so the position of every code is known. All
//   lanes read codes at once, and the first Clear or EOI among them ends the segment.
// - The string of a code from 258 on is the string of code number `code - 258` of the segment and the first byte of the
//   code after that one. So every code has a parent before it; its length is its depth in that forest, and its first byte
//   is that of its root. Lanes follow parents and leave their progress for others.
// - The sum of the lengths before it is where a string starts. Its bytes, last to first, are the first bytes of the codes
//   after its parents, so a lane writes it without waiting for the text of any other code.
// Strings are gathered in a window of shared memory that is written out 16 bytes at a time. Long strings are mostly
// copied from earlier text.
//
// The kernel is stricter than the CPU, which then decodes the tile: it refuses the old bit order, codes for a table that
// has long been full, and streams with few codes between Clears.
#pragma once
#include "core/kernel.cuh"
#include "core/memory.cuh"
#include "core/racing.cuh"

struct Lzw {
    static constexpr u32 THREADS = 256;
    using Args = DecodeArgs;

    static constexpr u32 CLEAR = 256;
    static constexpr u32 EOI = 257;
    static constexpr u32 FIRST = 258;
    // The table is full after 3839 codes; one more entry for the Clear that has to follow.
    static constexpr u32 CODES = 3840;
    // Holds the longest string (CODES bytes) and the stream of a segment (43270 bits), at any alignment.
    static constexpr u32 WINDOW = 8192;
    // Number of lanes that share a long string, and the mean length from which the strings of a window count as long.
    static constexpr u32 TEAM = 16;
    static constexpr u32 LONG = 16;

    struct Shared {
        // The stream of a segment, as big-endian words; later its text.
        union {
            alignas(16) u8 window[WINDOW];
            u32 words[WINDOW / 4];
        };
        // First a link towards the root, see `link`; then the start of the string in the segment << 8, and its first
        // byte.
        u32 nodes[CODES + 1];
        u16 codes[CODES];
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 tile = block; tile < args.count; tile += blocks) {
            const TileJob job = args.tiles[tile];
            const u32 status = decode(group, args, job, shared);
            if (group.lane() == 0) args.status[tile] = status;
        }
    }

    // Why a segment ends, in the low bits of the number of the code that ends it, so that the minimum is the first end.
    enum Stop : u32 { STOP_CLEAR = 0, STOP_END = 1, STOP_BAD = 2, STOP_KINDS = 4 };

    // A link that has arrived holds the first byte of the string; any other holds the number of an earlier code. Both
    // hold the distance in codes; of an arrived link this is the length of the string less one.
    static constexpr u32 ARRIVED = 1u << 31;
    static constexpr u32 DISTANCE = 0xfffu << 16;
    static constexpr u32 TARGET = 0xfffu;

    SWATH_FN static u32 link(u32 code) { return code < CLEAR ? ARRIVED | code : 1u << 16 | (code - FIRST); }

    // Codes get wider one entry early: those of W bits begin with number `first_of(W)`.
    SWATH_FN static constexpr u32 first_of(u32 width) { return width == 9 ? 0 : (1u << (width - 1)) - 258; }
    SWATH_FN static u32 width_of(u32 index) {
        return 9 + (index >= first_of(10)) + (index >= first_of(11)) + (index >= first_of(12));
    }
    // Bits from the Clear to code number `index`.
    SWATH_FN static u32 bits_before(u32 index) {
        u32 bits = 9 * index;
        for (u32 width = 10; width <= 12; width++) bits += index > first_of(width) ? index - first_of(width) : 0;
        return bits;
    }

    SWATH_FN static u32 start_of(const Shared& shared, u32 index) { return shared.nodes[index] >> 8; }
    SWATH_FN static u8 first_byte_of(const Shared& shared, u32 index) { return u8(shared.nodes[index]); }

    // The stream of a tile, with the 16 bytes after it because it is read 16 bytes at a time, and the tile's place in the
    // output.
    struct Tile {
        Span<const u8> src;
        Span<u8> dst;
        // STATUS_UNDONE if a Clear opens the stream and there is something to decode.
        u32 status;
    };
    // The bit after that Clear.
    static constexpr u64 OPENED = 9;

    SWATH_FN static Tile open(const Args& args, const TileJob& job) {
        const Span<const u8> src = Span<const u8>(args.src, args.src_len).part(job.src, job.src_len + 16);
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(job.dst, job.dst_len);
        return Tile{src, dst, status_of_opening(src, dst, job)};
    }

    SWATH_FN static u32 status_of_opening(const Span<const u8>& src, const Span<u8>& dst, const TileJob& job) {
        if (job.src_len > ~0ull / 16 || src.len != job.src_len + 16 || dst.len != job.dst_len) return STATUS_CORRUPT;
        if (!aligned_to(src.data, 16)) return STATUS_CORRUPT;
        if (dst.len == 0) return STATUS_OK;
        if (job.src_len < 2) return STATUS_SHORT;
        // The load may reach past a short stream; the nine bits below do not, since the stream has two bytes.
        const u32 opening = swapped(load_quad(src.data).words[0]) >> 23;
        return opening == CLEAR ? STATUS_UNDONE : opening == EOI ? STATUS_SHORT : STATUS_CORRUPT;
    }

    SWATH_FN static u64 bits_of(const Span<const u8>& src) { return (src.len - 16) * 8; }

    SWATH_FN static u32 status_of_end(u32 stop) {
        return stop % STOP_KINDS == STOP_END ? STATUS_SHORT : STATUS_CORRUPT;
    }

    // Bits from the first code of a segment to the first code of the next.
    SWATH_FN static u32 bits_through(u32 stop) {
        return bits_before(stop / STOP_KINDS) + width_of(stop / STOP_KINDS);
    }

    template <class Group>
    SWATH_FN static u32 decode(const Group& group, const Args& args, const TileJob& job, Shared& shared) {
        const Tile tile = open(args, job);
        if (tile.status != STATUS_UNDONE) return tile.status;
        // A segment costs the same however few codes it has, so the CPU decodes streams of very short segments.
        u32 segments = 64 + u32(min_of(tile.src.len / 128, u64(1) << 31));
        u64 done = 0;
        for (u64 bit = OPENED; segments > 0; segments--) {
            u32 total;
            const u32 stop = resolve(group, tile.src, bit, total, shared);
            write(group, stop / STOP_KINDS, tile.dst, done, shared);
            if (total >= tile.dst.len - done) return STATUS_OK;
            if (stop % STOP_KINDS != STOP_CLEAR) return status_of_end(stop);
            done += total;
            bit += bits_through(stop);
        }
        return STATUS_CORRUPT;
    }

    // Reads the segment whose first code is at `bit` and finds where its strings start; `total` is the length of its
    // text. Returns its number of codes * STOP_KINDS, and why it ends.
    template <class Group>
    SWATH_FN static u32 resolve(const Group& group, const Span<const u8>& src, u64 bit, u32& total, Shared& shared) {
        const u32 stop = read_codes(group, src, bit, shared);
        const u32 count = stop / STOP_KINDS;
        prefetch_segment(group, src, bit + bits_through(stop));
        total = 0;
        if (count > 0) {
            follow_links(group, count, shared);
            total = add_lengths(group, count, shared);
        }
        return stop;
    }

    // Loads the next segment's stream into the cache while this one is decoded.
    template <class Group>
    SWATH_FN static void prefetch_segment(const Group& group, const Span<const u8>& src, u64 bit) {
        for (u32 line = group.lane(); line * 1024 < bits_before(CODES); line += group.size()) {
            const u64 at = bit / 8 + line * 128;
            if (src.holds(at)) prefetch(src.data + at);
        }
    }

    // Reads the codes of the segment and turns them into links; returns the same as `resolve`.
    template <class Group>
    SWATH_FN static u32 read_codes(const Group& group, const Span<const u8>& src, u64 bit, Shared& shared) {
        const u64 bits = bits_of(src);
        if (bit > bits) return STOP_END;
        const u32 skip = u32(bit & 127);
        const u32 left = u32(min_of(bits - bit, u64(bits_before(CODES))));
        // The last load may reach up to 15 bytes past the stream. Nothing may have written these bytes; no code uses them
        // (`left` counts bits of the stream only).
        const u8* const from = src.data + (bit >> 7) * 16;
        for (u32 at = group.lane() * 16; at * 8 < skip + left; at += group.size() * 16) {
            const Quad quad = load_quad(from + at);
            SWATH_UNROLL
            for (u32 k = 0; k < 4; k++) shared.words[at / 4 + k] = swapped(quad.words[k]);
        }
        group.sync();
        u32 stop = CODES * STOP_KINDS | STOP_BAD;
        read_codes_of<9>(group, skip, left, stop, shared);
        read_codes_of<10>(group, skip, left, stop, shared);
        read_codes_of<11>(group, skip, left, stop, shared);
        read_codes_of<12>(group, skip, left, stop, shared);
        return group.min(stop);
    }

    // Reads the codes of W bits; lowers `stop` to the first code that ends the segment.
    template <u32 W, class Group>
    SWATH_FN static void read_codes_of(const Group& group, u32 skip, u32 left, u32& stop, Shared& shared) {
        constexpr u32 first = first_of(W), end = W == 12 ? CODES : first_of(W + 1);
        const u32 before = bits_before(first);
        const u32 whole = left < before ? 0 : (left - before) / W;
        const u32 to = min_of(first + whole, end);
        if (to < end) stop = min_of(stop, to * STOP_KINDS | STOP_END);
        for (u32 index = first + group.lane(); index < to; index += group.size()) {
            const u32 at = skip + before + (index - first) * W;
            // If the second word lies past the stream, none of its bits belong to the code.
            const u32 code = bits_from(shared.words[at / 32], shared.words[at / 32 + 1], at) >> (32 - W);
            shared.codes[index] = u16(code);
            shared.nodes[index] = link(code);
            // Clear and EOI also fail this test.
            if (code >= CLEAR && code - FIRST >= index) {
                const u32 why = code == CLEAR ? STOP_CLEAR : code == EOI ? STOP_END : STOP_BAD;
                stop = min_of(stop, index * STOP_KINDS | why);
            }
        }
    }

    // Follows links in place. A lane may see the link of another before or after it moved on; both lead to the same root,
    // so no barrier is needed. Links lead back only, to codes that were checked, so each lane arrives whatever the others
    // do. One loop serves all codes of a lane, so that a lane that has arrived takes its next code at once.
    template <class Group> SWATH_FN static void follow_links(const Group& group, u32 count, Shared& shared) {
        u32 index = group.lane();
        u32 own = index < count ? load_racing(&shared.nodes[index]) : 0;
        while (index < count) {
            const bool arrived = (own & ARRIVED) != 0;
            if (arrived) index += group.size();
            if (index >= count) break;
            const u32 other = load_racing(&shared.nodes[arrived ? index : own & TARGET]);
            own = arrived ? other : other + (own & DISTANCE);
            if (!arrived) store_racing(&shared.nodes[index], own);
        }
        group.sync();
    }

    // Replaces links by starts; returns the length of the segment's text.
    template <class Group> SWATH_FN static u32 add_lengths(const Group& group, u32 count, Shared& shared) {
        // Odd, so that lanes use different banks.
        const u32 each = ((count + group.size() - 1) / group.size()) | 1;
        const u32 from = min_of(group.lane() * each, count), to = min_of(from + each, count);
        u32 sum = 0;
        for (u32 index = from; index < to; index++) sum += ((shared.nodes[index] & DISTANCE) >> 16) + 1;
        u32 total;
        u32 start = group.exclusive_sum(sum, total);
        for (u32 index = from; index < to; index++) {
            const u32 node = shared.nodes[index];
            shared.nodes[index] = start << 8 | (node & 0xff);
            start += ((node & DISTANCE) >> 16) + 1;
        }
        if (group.lane() == 0) shared.nodes[count] = total << 8;
        group.sync();
        return total;
    }

    // Writes the text of a segment to `dst` from `done` on, as far as it fits.
    template <class Group>
    SWATH_FN static void write(const Group& group, u32 count, const Span<u8>& dst, u64 done, Shared& shared) {
        // No segment is longer than this.
        const Span<u8> text(dst.data + done, min_of(dst.len - done, u64(CODES) * CODES));
        for (u32 from = 0, start = 0; from < count && start < text.len;) {
            // The window holds bytes that lie between multiples of 16 in memory.
            const u32 skip = u32(reinterpret_cast<u64>(text.data + start) & 15);
            const u32 to = last_in_reach(shared, from, count, start + WINDOW - 16);
            const u32 len = start_of(shared, to) - start;
            if (len >= (to - from) * LONG) {
                fill_long(group, from, to, text, start - skip, shared);
            } else {
                fill_short(group, from, to, start - skip, shared);
            }
            group.sync();
            flush(group, text, start, skip, min_of(len, u32(text.len) - start), shared);
            group.sync();
            from = to;
            start += len;
        }
    }

    // The last code, up to `count`, that starts at `reach` or before: the end of the window that begins with `from`.
    SWATH_FN static u32 last_in_reach(const Shared& shared, u32 from, u32 count, u32 reach) {
        if (start_of(shared, count) <= reach) return count;
        u32 low = from + 1, high = count;
        while (high - low > 1) {
            const u32 middle = (low + high) / 2;
            if (start_of(shared, middle) <= reach) low = middle;
            else high = middle;
        }
        return low;
    }

    // Each lane writes whole strings. `base` is the start of the window in the segment; it may be negative (modulo 2^32).
    template <class Group>
    SWATH_FN static void fill_short(const Group& group, u32 from, u32 to, u32 base, Shared& shared) {
        for (u32 index = from + group.lane(); index < to; index += group.size()) {
            u32 end = start_of(shared, index + 1) - base;
            u32 code = shared.codes[index];
            while (code >= FIRST) {
                shared.window[--end] = first_byte_of(shared, code - FIRST + 1);
                code = shared.codes[code - FIRST];
            }
            shared.window[--end] = u8(code);
        }
    }

    // A few lanes write a string together: byte by byte up to the first parent before the window, whose text they copy.
    template <class Group>
    SWATH_FN static void fill_long(
        const Group& group, u32 from, u32 to, const Span<u8>& text, u32 base, Shared& shared) {
        const u32 team = min_of(TEAM, group.size()), own = group.lane() % team;
        for (u32 index = from + group.lane() / team; index < to; index += group.size() / team) {
            u32 end = start_of(shared, index + 1) - base;
            u32 code = shared.codes[index];
            while (code >= FIRST) {
                const u32 parent = code - FIRST;
                end--;
                if (own == 0) shared.window[end] = first_byte_of(shared, parent + 1);
                if (parent < from) {
                    const u32 start = start_of(shared, parent), len = start_of(shared, parent + 1) - start;
                    end -= len;
                    for (u32 k = own; k < len; k += team) shared.window[end + k] = text.get(start + k);
                    break;
                }
                code = shared.codes[parent];
            }
            if (code < FIRST && own == 0) shared.window[end - 1] = u8(code);
        }
    }

    // Writes `len` bytes of the window, from `skip` on, to `start` of the text, which has room for them.
    template <class Group>
    SWATH_FN static void flush(
        const Group& group, const Span<u8>& text, u32 start, u32 skip, u32 len, const Shared& shared) {
        u8* const to = text.data + start - skip;
        const u32 end = skip + len;
        const u32 whole = min_of((skip + 15) & ~15u, end), rest = max_of(end & ~15u, whole);
        for (u32 k = skip + group.lane(); k < whole; k += group.size()) to[k] = shared.window[k];
        for (u32 k = whole + group.lane() * 16; k < rest; k += group.size() * 16) {
            store_quad(to + k, load_quad(shared.window + k));
        }
        for (u32 k = rest + group.lane(); k < end; k += group.size()) to[k] = shared.window[k];
    }
};
