// Decodes LZW where there are few tiles: several blocks share the segments of a tile, in three launches one after the
// other.
//
// `LzwFind` (blocks as for `Lzw`) records where segments begin. Encoders clear a table that is full or nearly so, so it
// looks for the Clear only there, and reads a whole segment only if it finds none. `LzwMeasure` resolves every segment,
// which also shows whether `LzwFind` missed a Clear, and records the length of its text. `LzwWrite` resolves it again and
// writes it, after the texts of the segments before it. If the records do not fit, or a Clear was missed, one block
// decodes the tile as `Lzw` does.
//
// All take DecodeArgs with these meanings: `flags` is the number of blocks that share a tile in `LzwMeasure` and
// `LzwWrite`; the work is count * flags items, for any number of blocks. `scratch` has `scratch_len` bytes for each
// *tile*, a multiple of 16; 16 * (9 + src_len / 4096) are enough for any stream of the usual encoders.
#pragma once
#include "lzw/decode.cuh"

// The record of a segment. The first record of a tile is its head: `bit` is the number of segments.
struct LzwNote {
    u64 bit;   // position of its first code
    u32 len;   // length of its text
    u32 stop;  // why it ends: an Lzw::Stop, or LzwParts::WRONG
};

struct LzwParts {
    static constexpr u32 THREADS = Lzw::THREADS;
    using Args = DecodeArgs;
    using Shared = Lzw::Shared;

    // The segment does not end where the next one begins.
    static constexpr u32 WRONG = 3;

    // The records of a tile, its head included; empty if there is no room for them.
    SWATH_FN static Span<LzwNote> notes_of(const Args& args, u64 tile) {
        const u64 room = args.scratch_len / sizeof(LzwNote);
        if (!aligned_to(args.scratch, 16) || args.scratch_len % 16 != 0 || room < 2) return Span<LzwNote>(nullptr, 0);
        return Span<LzwNote>(reinterpret_cast<LzwNote*>(args.scratch) + tile * room, room);
    }

    // The records of a tile's segments, as far as they are valid.
    SWATH_FN static Span<LzwNote> segments_of(const Args& args, u64 tile) {
        const Span<LzwNote> notes = notes_of(args, tile);
        return notes.len == 0 ? notes : notes.part(1, notes.data[0].bit);
    }
};

struct LzwFind : LzwParts {
    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        for (u64 tile = block; tile < args.count; tile += blocks) {
            const Span<LzwNote> notes = notes_of(args, tile);
            if (notes.len == 0) continue;
            const u32 found = find(group, Lzw::open(args, args.tiles[tile]), notes, shared);
            if (group.lane() == 0) notes.data[0].bit = found;
        }
    }

  private:
    // A Clear is expected when the table lacks at most this many codes.
    static constexpr u32 NEAR = 64;
    // Segments whose ends are prefetched.
    static constexpr u32 AHEAD = 8;

    // Records where the segments begin; returns their number, 0 if there is no room for all.
    template <class Group>
    SWATH_FN static u32 find(const Group& group, const Lzw::Tile& tile, const Span<LzwNote>& notes, Shared& shared) {
        if (tile.status != STATUS_UNDONE) return 0;
        u64 bit = Lzw::OPENED;
        for (u32 count = 1; count < notes.len; count++) {
            if (group.lane() == 0) notes.data[count].bit = bit;
            u32 stop = probe(group, tile.src, bit);
            if (stop == NONE) stop = Lzw::read_codes(group, tile.src, bit, shared);
            if (stop % Lzw::STOP_KINDS != Lzw::STOP_CLEAR) return count;
            bit += Lzw::bits_through(stop);
        }
        return 0;
    }

    static constexpr u32 NONE = ~0u;

    // The first Clear among the last codes of a full table, in the form that `Lzw::read_codes` returns.
    template <class Group> SWATH_FN static u32 probe(const Group& group, const Span<const u8>& src, u64 bit) {
        const u64 bits = Lzw::bits_of(src);
        u32 stop = NONE;
        for (u32 index = Lzw::CODES - NEAR + group.lane(); index < Lzw::CODES; index += group.size()) {
            const u64 at = bit + Lzw::bits_before(index);
            if (at + 12 > bits) break;
            // Reads at most seven bytes past the stream, which the code does not use.
            const u8* const word = src.data + (at >> 5) * 4;
            const u32 code = bits_from(load_word(word), load_word(word + 4), u32(at)) >> 20;
            if (code == Lzw::CLEAR) stop = min_of(stop, index * Lzw::STOP_KINDS | Lzw::STOP_CLEAR);
        }
        if (group.lane() < AHEAD) {
            const u64 later = (bit + u64(Lzw::bits_before(Lzw::CODES)) * (group.lane() + 2)) / 8;
            if (src.holds(later)) prefetch(src.data + later);
        }
        return group.min(stop);
    }
};

struct LzwMeasure : LzwParts {
    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u32 parts = max_of(args.flags, 1u);
        for (u64 item = block; item < u64(args.count) * parts; item += blocks) {
            const u64 number = item / parts;
            const Span<LzwNote> segments = segments_of(args, number);
            if (segments.len == 0) continue;
            const Lzw::Tile tile = Lzw::open(args, args.tiles[number]);
            for (u64 k = item % parts; k < segments.len; k += parts) {
                const u64 bit = segments.data[k].bit;
                u32 total;
                const u32 stop = Lzw::resolve(group, tile.src, bit, total, shared);
                u32 why = stop % Lzw::STOP_KINDS;
                const bool last = k + 1 == segments.len;
                if (last != (why != Lzw::STOP_CLEAR)) why = WRONG;
                else if (!last && bit + Lzw::bits_through(stop) != segments.data[k + 1].bit) why = WRONG;
                if (group.lane() == 0) {
                    segments.data[k].len = total;
                    segments.data[k].stop = why;
                }
            }
        }
    }
};

struct LzwWrite : LzwParts {
    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u32 parts = max_of(args.flags, 1u);
        for (u64 item = block; item < u64(args.count) * parts; item += blocks) {
            const u64 number = item / parts;
            const TileJob job = args.tiles[number];
            const u32 part = u32(item % parts);
            const Span<LzwNote> segments = segments_of(args, number);
            u32 status = STATUS_UNDONE;
            if (usable(group, segments)) status = write(group, Lzw::open(args, job), segments, part, parts, shared);
            else if (part == 0) status = Lzw::decode(group, args, job, shared);
            if (part == 0 && group.lane() == 0) args.status[number] = status;
        }
    }

  private:
    template <class Group> SWATH_FN static bool usable(const Group& group, const Span<LzwNote>& segments) {
        bool wrong = segments.len == 0;
        for (u64 k = group.lane(); k < segments.len; k += group.size()) wrong |= segments.data[k].stop == WRONG;
        return !group.any(wrong);
    }

    // Writes the segments of one part; returns the status of the tile.
    template <class Group>
    SWATH_FN static u32 write(const Group& group, const Lzw::Tile& tile, const Span<LzwNote>& segments, u32 part,
        u32 parts, Shared& shared) {
        u64 done = 0, summed = 0;
        for (u64 k = part; k < segments.len; k += parts) {
            done += length(group, segments, summed, k);
            summed = k;
            if (done >= tile.dst.len) break;
            u32 total;
            const u32 stop = Lzw::resolve(group, tile.src, segments.data[k].bit, total, shared);
            Lzw::write(group, stop / Lzw::STOP_KINDS, tile.dst, done, shared);
        }
        done += length(group, segments, summed, segments.len);
        return done >= tile.dst.len ? u32(STATUS_OK) : Lzw::status_of_end(segments.data[segments.len - 1].stop);
    }

    // The length of the text of the segments from `from` to before `to`.
    template <class Group>
    SWATH_FN static u64 length(const Group& group, const Span<LzwNote>& segments, u64 from, u64 to) {
        u64 sum = 0;
        for (u64 k = from + group.lane(); k < to; k += group.size()) sum += segments.data[k].len;
        // Sums over a group have 32 bits, so the low 20 bits are summed separately.
        u32 low, high;
        group.exclusive_sum(u32(sum & 0xfffff), low);
        group.exclusive_sum(u32(sum >> 20), high);
        return (u64(high) << 20) + low;
    }
};
