// Encodes pieces of tiles as Deflate, a block of lanes for each piece: matches, their codes, the bits.
//
// A piece is one block with its own codes, or stored if that is not longer. Every piece but the last of a tile ends with
// an empty stored block, so that pieces begin and end at whole bytes, and no match reaches into another piece. One after
// the other they are an ordinary stream, and each can be decoded without the others.
//
// The scratch memory has the links of all tiles (lz/links.cuh), then the matches for each block of the grid. The lanes go
// through the piece twice, in chunks, each lane with a few positions: once to count the symbols, once to write their bits,
// where sums over the lanes give each lane its place.
#pragma once
#include "deflate/encode_codes.cuh"
#include "core/encode_args.cuh"
#include "lz/match.cuh"
#include "core/memory.cuh"

struct DeflateEncode {
    static constexpr u32 THREADS = 128;
    using Args = EncodeArgs;

    static constexpr u32 PIECE_LEN = LzMatch::PIECE_LEN;  // the longest piece
    static constexpr u32 STORED_LEN = 65535;              // bytes of a stored block
    static constexpr u32 MATCHES = 20480;                 // more matches are not used
    static constexpr u32 SCRATCH = MATCHES * 8;           // bytes for each block of the grid, beside the links
    static constexpr u32 NO_ROOM = 0xffffffff;            // the size of a piece whose buffers are too small

    // The longest encoded piece: stored blocks and the empty one. As a stride it is rounded up to 16.
    SWATH_FN static constexpr u32 bound(u32 len) { return len + 5 * ((len + STORED_LEN - 1) / STORED_LEN) + 5; }

    static constexpr u32 EACH = 8;  // positions of a lane at a time
    static constexpr u32 CHUNK = 2048;
    static constexpr u32 STAGED = CHUNK * 16 / 32 + 4;  // words; no symbol takes more than 16 bits for each byte

    struct Coding {
        DeflateCodes codes;
        // For each position of a chunk: the match that begins there (length << 16 and distance), and whether it is inside
        // one.
        u32 matches[CHUNK];
        u32 begins[CHUNK / 32];
        u32 inside[CHUNK / 32];
        u32 staged[STAGED];
    };
    union Shared {
        LzMatch::Shared matching;
        Coding coding;
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u64 all = u64(args.tiles) * args.pieces;
        for (u64 piece = block; piece < all; piece += blocks) {
            const u32 size = encode(group, block, args, piece, shared);
            if (group.lane() == 0) args.sizes[piece] = size;
            group.sync();
        }
    }

  private:
    template <class Group>
    SWATH_FN static u32 encode(const Group& group, u32 block, const Args& args, u64 piece, Shared& shared) {
        const u64 tile = piece / args.pieces, start = piece % args.pieces * args.piece_len;
        const u64 len = args.lens[tile];
        if (start >= len && args.piece_len > 0) return 0;
        // Words are read, including all of the one that holds the last byte.
        const u64 words = (len + 3) & ~3ull;
        const Span<const u8> whole = Span<const u8>(args.src, args.src_len).part(tile * args.src_stride, words);
        const Span<const u8> src(whole.data + start, min_of(len - start, u64(args.piece_len)));
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(piece * args.dst_stride, args.dst_stride);
        const u64 links_len = LzLinkTable::len(args);
        const Span<u8> scratch = Span<u8>(args.scratch, args.scratch_len).part(links_len + u64(block) * SCRATCH, SCRATCH);
        if (whole.len == 0 || args.piece_len > PIECE_LEN || len > u64(args.pieces) * args.piece_len) return NO_ROOM;
        if (dst.len < 16 || scratch.len != SCRATCH) return NO_ROOM;
        if (!aligned_to(whole.data, 4) || !aligned_to(dst.data, 4) || !aligned_to(scratch.data, 4)) return NO_ROOM;
        const bool last = start + src.len == len;

        const Span<u32> list(reinterpret_cast<u32*>(scratch.data), MATCHES * 2);
        const LzLimits limits = {3, 258, 32768, 3 * 16, 16, 2 * 16};
        const LzBytes bytes(src);
        const LzSource source = {bytes, 0, LzLinkTable::of(args, tile).part(start, src.len)};
        const u32 count =
            LzMatch::run(group, source, limits, args.effort, args.row_len, args.pixel_len, list, shared.matching);
        group.sync();
        Coding& coding = shared.coding;
        coding.codes.clear(group);
        Walk walk = {count, 0, 0};
        for (u32 chunk = 0; chunk < bytes.len; chunk += CHUNK) {
            mark(group, list, chunk, walk, coding);
            tally(group, bytes, chunk, coding);
        }
        const u32 bits = coding.codes.build(group);

        const u32 blocks = u32((src.len + STORED_LEN - 1) / STORED_LEN);
        const u32 stored = u32(src.len) + 5 * blocks + (last ? 0 : 5);
        const u32 coded = last ? (bits + 7) / 8 : (bits + 3 + 7) / 8 + 4;
        const u32 size = min_of(stored, coded);
        if (size > dst.len) return NO_ROOM;
        if (stored <= coded) {
            store(group, src, last, dst);
            return size;
        }
        for (u32 k = group.lane(); k < STAGED; k += group.size()) coding.staged[k] = 0;
        group.sync();
        u32 staged = coding.codes.write_header(group, last, coding.staged), written = 0;
        walk = {count, 0, 0};
        for (u32 chunk = 0; chunk < bytes.len; chunk += CHUNK) {
            mark(group, list, chunk, walk, coding);
            written += flush(group, staged, dst, written, coding);
            staged = staged % 32;
            staged += write(group, bytes, chunk, staged, coding);
        }
        const u32 end = coding.codes.end_code();
        if (group.lane() == 0) {
            BitWriter writer(coding.staged, staged);
            writer.put(DeflateCodes::code_of(end), DeflateCodes::bits_of(end));
            writer.end();
        }
        staged += DeflateCodes::bits_of(end);
        group.sync();
        written += flush(group, staged, dst, written, coding);
        finish(group, staged % 32, last, dst, written, coding);
        return size;
    }

    // The next match in the list, and the end of the last match.
    struct Walk {
        u32 count, next, covered;
    };

    // Marks the matches of a chunk.
    template <class Group>
    SWATH_FN static void mark(const Group& group, const Span<u32>& list, u32 chunk, Walk& walk, Coding& coding) {
        for (u32 k = group.lane(); k < CHUNK / 32; k += group.size()) {
            // The positions that the last match of the previous chunk covers.
            const u32 first = chunk + k * 32;
            const u32 inside = walk.covered > first ? min_of(walk.covered - first, 32u) : 0;
            coding.begins[k] = 0;
            coding.inside[k] = inside == 32 ? 0xffffffffu : (1u << inside) - 1;
        }
        group.sync();
        for (;;) {
            const u32 k = walk.next + group.lane();
            u32 mine = 0, end = 0;
            if (k < walk.count) {
                const u32 place = list.data[2 * k], at = (place & 0xffff) - chunk;
                if (at < CHUNK) {
                    mine = 1;
                    end = (place & 0xffff) + (place >> 16);
                    coding.matches[at] = place >> 16 << 16 | list.data[2 * k + 1];
                    atomic_or(&coding.begins[at / 32], 1u << at % 32);
                    cover(at, min_of(at + (place >> 16), CHUNK), coding.inside);
                }
            }
            u32 total;
            group.exclusive_sum(mine, total);
            // Matches are sorted, so the last that counts comes before the first that does not.
            if (total > 0) walk.covered = group.broadcast(end, total - 1);
            walk.next += total;
            if (total < group.size()) break;
        }
        group.sync();
    }
    // Sets the bits from `from` to before `to`.
    SWATH_FN static void cover(u32 from, u32 to, u32* words) {
        for (u32 word = from / 32; word * 32 < to; word++) {
            const u32 low = max_of(from, word * 32) - word * 32, high = min_of(to - word * 32, 32u);
            atomic_or(&words[word], (0xffffffffu >> (32 - (high - low))) << low);
        }
    }

    // A lane's positions of a chunk: their bytes, and bits for those that are literals and those where matches begin.
    struct Few {
        u32 low, high, literals, begins;

        SWATH_FN u32 byte(u32 k) const { return (k < 4 ? low >> 8 * k : high >> 8 * (k - 4)) & 0xff; }
    };
    SWATH_FN static Few few(const LzBytes& bytes, u32 chunk, u32 from, const Coding& coding) {
        const u32 at = chunk + from;
        if (from >= CHUNK || at >= bytes.len) return {0, 0, 0, 0};
        const u32 most = min_of(bytes.len - at, EACH);
        return {bytes.four(at), most > 4 ? bytes.four(at + 4) : 0,
            ~(coding.inside[from / 32] >> from % 32) & ((1u << most) - 1),
            coding.begins[from / 32] >> from % 32 & ((1u << EACH) - 1)};
    }

    // Counts the symbols of a chunk.
    template <class Group>
    SWATH_FN static void tally(const Group& group, const LzBytes& bytes, u32 chunk, Coding& coding) {
        for (u32 from = group.lane() * EACH; from < CHUNK; from += group.size() * EACH) {
            const Few mine = few(bytes, chunk, from, coding);
            SWATH_UNROLL
            for (u32 k = 0; k < EACH; k++) {
                if (mine.literals >> k & 1) coding.codes.count_literal(mine.byte(k), group.lane());
            }
            for (u32 left = mine.begins; left != 0; left &= left - 1) {
                coding.codes.count_match(coding.matches[from + lowest_one(left)]);
            }
        }
        group.sync();
    }

    // Appends the bits of a chunk to the staged ones; returns how many.
    template <class Group>
    SWATH_FN static u32 write(const Group& group, const LzBytes& bytes, u32 chunk, u32 staged, Coding& coding) {
        u32 all = 0;
        for (u32 round = 0; round < CHUNK; round += group.size() * EACH) {
            const u32 from = round + group.lane() * EACH;
            const Few mine = few(bytes, chunk, from, coding);
            // Adds nothing if there is no literal.
            u32 codes[EACH], sum = 0;
            SWATH_UNROLL
            for (u32 k = 0; k < EACH; k++) {
                codes[k] = mine.literals >> k & 1 ? coding.codes.literal(mine.byte(k)) : 0;
                sum += DeflateCodes::bits_of(codes[k]);
            }
            for (u32 left = mine.begins; left != 0; left &= left - 1) {
                sum += coding.codes.match_bits(coding.matches[from + lowest_one(left)]);
            }
            u32 total;
            const u32 place = staged + all + group.exclusive_sum(sum, total);
            if (sum > 0) {
                BitWriter writer(coding.staged, place);
                SWATH_UNROLL
                for (u32 k = 0; k < EACH; k += 2) {
                    if (mine.begins >> k & 1) coding.codes.put_match(coding.matches[from + k], writer);
                    // Two literals at once.
                    const u32 first = codes[k], second = codes[k + 1], bits = DeflateCodes::bits_of(first);
                    writer.put(DeflateCodes::code_of(first) | DeflateCodes::code_of(second) << bits,
                        bits + DeflateCodes::bits_of(second));
                    if (mine.begins >> (k + 1) & 1) coding.codes.put_match(coding.matches[from + k + 1], writer);
                }
                writer.end();
            }
            all += total;
        }
        group.sync();
        return all;
    }

    // Writes whole words to the output and moves the rest to the front; returns the number of words.
    template <class Group>
    SWATH_FN static u32 flush(const Group& group, u32 staged, const Span<u8>& dst, u32 written, Coding& coding) {
        const u32 whole = staged / 32, rest = coding.staged[whole];
        for (u32 k = group.lane(); k < whole; k += group.size()) {
            if ((u64(written) + k + 1) * 4 <= dst.len) reinterpret_cast<u32*>(dst.data)[written + k] = coding.staged[k];
        }
        group.sync();
        for (u32 k = group.lane(); k <= whole; k += group.size()) coding.staged[k] = k == 0 ? rest : 0;
        group.sync();
        return whole;
    }

    // Writes the last bits of a block, and the empty block.
    template <class Group>
    SWATH_FN static void finish(const Group& group, u32 bits, bool last, const Span<u8>& dst, u32 written,
        const Coding& coding) {
        if (group.lane() != 0) return;
        // An empty block that is not the last begins with three zero bits.
        const u32 filled = last ? (bits + 7) / 8 : (bits + 3 + 7) / 8;
        const u64 tail = coding.staged[0], at = u64(written) * 4;
        for (u32 k = 0; k < filled; k++) dst.set(at + k, u8(tail >> 8 * k));
        if (last) return;
        for (u32 k = 0; k < 4; k++) dst.set(at + filled + k, k < 2 ? 0 : 0xff);
    }

    template <class Group>
    SWATH_FN static void store(const Group& group, const Span<const u8>& src, bool last, const Span<u8>& dst) {
        const u32 blocks = u32((src.len + STORED_LEN - 1) / STORED_LEN);
        for (u32 block = group.lane(); block < blocks; block += group.size()) {
            const u32 len = min_of(u32(src.len) - block * STORED_LEN, STORED_LEN);
            put_head(dst, block * (STORED_LEN + 5), last && block + 1 == blocks, len);
        }
        if (!last && group.lane() == 0) put_head(dst, src.len + 5 * blocks, false, 0);
        for (u32 k = group.lane(); k < src.len; k += group.size()) dst.set(k + 5 * (k / STORED_LEN + 1), src.data[k]);
    }
    SWATH_FN static void put_head(const Span<u8>& dst, u64 at, bool last, u32 len) {
        dst.set(at, last);
        dst.set(at + 1, u8(len));
        dst.set(at + 2, u8(len >> 8));
        dst.set(at + 3, u8(~len));
        dst.set(at + 4, u8(~len >> 8));
    }
};
