// Decodes the literals of each block, and copies blocks that are stored, to the end of the block's place in the tile.
//
// A block of threads takes one block. Its literals are one Huffman stream or four. Each stream is cut into stretches of
// equal bits, one for each of eight lanes or more; only the first lane knows where a code begins. The others guess, and prefix
// codes synchronise by themselves: where a lane ends, the next one must have started, else it decodes its stretch again.
// Then the number of bytes of all earlier stretches is known, and each lane decodes once more, to its place.
#pragma once
#include "core/near.cuh"
#include "zstd/decode.cuh"
#include "zstd/decode_huffman.cuh"

// Reads backward bits through a ring in shared memory, which a lane fills with loads of 16 bytes. Neighbouring lanes read
// far apart in the stream, so each load serves one lane. All lanes load at once; otherwise they would wait for each
// other.
struct RingBits {
    static constexpr u32 CHUNKS = 4, WORDS = CHUNKS * 4;
    static constexpr u32 STEP = 20;  // words from lane to lane: whole chunks, spread over the banks

    const FourWords* const chunks;
    const Near<u32> ring;
    i32 end;     // bits below this position are left
    i32 lowest;  // lowest chunk in the ring
    FourWords next;

    SWATH_FN RingBits(const Span<const u8>& stream, const u32* ring, i32 from)
        : chunks(reinterpret_cast<const FourWords*>(stream.data)), ring(ring), end(from), lowest(from >> 7) {
        const FourWords first = load(lowest), second = load(lowest - 1), third = load(lowest - 2);
        store(lowest, first);
        store(lowest - 1, second);
        store(lowest - 2, third);
        lowest -= 2;
        next = load(lowest - 1);
    }
    SWATH_FN UpperBits peek() const {
        const u32 word = u32(end >> 5);
        return BackwardWords{ring[word % WORDS], ring[(word - 1) % WORDS], ring[(word - 2) % WORDS]}.from(end);
    }
    // Loads the next chunk. Call it at least once for every 128 bits read.
    SWATH_FN void top_up() {
        if ((end >> 7) - lowest >= 2) return;
        lowest--;
        store(lowest, next);
        next = load(lowest - 1);
    }

  private:
    SWATH_FN FourWords load(i32 chunk) const { return chunks[max_of(chunk, 0)]; }
    SWATH_FN void store(i32 chunk, const FourWords& four) const { ring.put(u32(chunk) % CHUNKS * 4, four); }
};

template <u32 STRETCHES> struct ZstdDecodeLiterals {  // stretches of a stream
    static constexpr u32 STREAMS = 4;  // of a block
    static constexpr u32 THREADS = STREAMS * STRETCHES;
    static constexpr u32 WARM = 768;                  // bits decoded before a stretch, to synchronise
    static constexpr u32 LEAST = 840;                 // least bits of a stretch, which has a multiple of this
    static constexpr u32 AT_ONCE = 5;                 // codes that 64 bits hold for certain
    using Args = DecodeArgs;

    // One Huffman stream.
    struct Stream {
        i32 first, last;  // its bits: below `last`, down to `first`
        u32 each;         // bits of a stretch
        u32 dst, len;
    };
    // The codes that start in a stretch.
    struct Stretch {
        i32 start, end;
        u32 count;
    };

    struct Shared {
        ZstdTree tree;
        Stream streams[STREAMS];
        Stretch stretches[STREAMS * STRETCHES];
        i32 starts[STREAMS * STRETCHES];  // where the stretches should start
        alignas(16) u32 rings[STREAMS * STRETCHES][RingBits::STEP];
        u32 status;  // of the tree
        u32 from;    // start of the streams
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u64 items = u64(args.count) * ZstdScratch::most_notes(args);
        for (u64 item = block; item < items; item += blocks) {
            const u64 at = item % args.count;
            const u32 number = u32(item / args.count);
            // Other blocks may set the status meanwhile, so one lane reads it for all.
            if (group.broadcast(args.status[at], 0) != STATUS_OK) continue;
            const ZstdTile tile(args, at);
            if (number >= tile.scratch.head().blocks) continue;
            const u32 status = decode(group, tile, number, shared);
            if (status != STATUS_OK && group.lane() == 0) report_status(args, at, status);
            group.sync();
        }
    }

  private:
    template <class Group>
    SWATH_FN static u32 decode(const Group& group, const ZstdTile& tile, u32 number, Shared& shared) {
        const ZstdNote& note = tile.scratch.notes()[number];
        const u32 kind = note.flags & ZSTD_KIND;
        if (kind != ZSTD_COMPRESSED) {
            copy_stored(group, tile, kind == ZSTD_RLE, note.src, note.dst, note.size);
            return STATUS_OK;
        }
        if (note.literal_kind != ZSTD_HUFFMAN) {
            // `execute` reads them from the stream.
            if (note.sequences == 0)
                copy_stored(group, tile, note.literal_kind == ZSTD_ONE_BYTE, note.literal_at, note.dst, note.size);
            return STATUS_OK;
        }
        if (group.lane() == 0) {
            const ZstdNote& holder = tile.scratch.notes()[note.tree];
            const u32 end = shared.tree.read(tile.src, holder.literal_at, holder.literal_at + holder.literal_len);
            shared.from = note.tree == number ? end : note.literal_at;
            shared.status = end == 0 ? STATUS_CORRUPT : end == ZstdTree::UNUSUAL ? STATUS_UNUSUAL : STATUS_OK;
        }
        group.sync();
        if (shared.status != STATUS_OK) return shared.status;
        bool bad = false;
        for (u32 stream = group.lane(); stream < STREAMS; stream += group.size())
            bad |= !find_stream(tile, note, shared.from, stream, shared.streams[stream]);
        shared.tree.fill(group);
        if (group.any(bad)) return STATUS_CORRUPT;
        agree(group, tile, shared);
        return group.any(!put(group, tile, shared)) ? STATUS_CORRUPT : STATUS_OK;
    }

    template <class Group>
    SWATH_FN static void copy_stored(const Group& group, const ZstdTile& tile, bool same, u32 from, u32 dst, u32 len) {
        const Span<u8> to = tile.dst.part(dst, len);
        if (same) {
            const u8 byte = tile.src.get(from);
            for (u64 at = group.lane(); at < to.len; at += group.size()) to.data[at] = byte;
            return;
        }
        // Copies whole words from the first aligned byte of the tile on.
        const u32 head = u32(min_of(u64(-dst & 7), to.len)), words = (u32(to.len) - head) / 8;
        for (u32 at = group.lane(); at < words; at += group.size())
            *reinterpret_cast<u64*>(to.data + head + at * 8) = bytes_from(tile.src, from + head + at * 8);
        for (u32 at = group.lane(); at < head; at += group.size()) to.data[at] = tile.src.get(from + at);
        for (u32 at = head + words * 8 + group.lane(); at < to.len; at += group.size())
            to.data[at] = tile.src.get(from + at);
    }

    // Finds one of the streams of a block's literals. False if its lengths are impossible.
    SWATH_FN static bool find_stream(const ZstdTile& tile, const ZstdNote& note, u32 from, u32 number, Stream& stream) {
        u32 to = note.literal_at + note.literal_len;
        stream.dst = note.dst + (note.size - note.literals);
        stream.len = note.literals;
        if (note.streams == STREAMS) {
            // Three lengths give the starts of the other streams.
            if (from + 10 > to) return false;
            const u64 lens = bytes_from(tile.src, from);
            from += 6;
            const u32 each = (note.literals + 3) / 4;
            for (u32 before = 0; before < number; before++) {
                from += u32(lens >> (16 * before)) & 0xffff;
                stream.dst += each;
                stream.len -= each;
            }
            if (number < STREAMS - 1) {
                const u32 len = u32(lens >> (16 * number)) & 0xffff;
                if (from > to || len > to - from) return false;
                to = from + len;
                stream.len = each;
            }
        } else if (number > 0) {
            // The other streams are empty.
            stream.first = stream.last = 0;
            stream.each = LEAST;
            stream.len = 0;
            return true;
        }
        u32 bit;
        if (!find_last_bit(tile.src, from, to, bit)) return false;
        stream.first = i32(from * 8);
        stream.last = i32(bit);
        // Codes that all have the same length (5 to 8 bits) never synchronise, but they start at these multiples anyway.
        stream.each = ((bit - from * 8) / STRETCHES + LEAST) / LEAST * LEAST;
        return tile.dst.part(stream.dst, stream.len).len == stream.len;
    }

    // The bit where stretch `number` should start. The border after the last stretch is the end of the stream.
    SWATH_FN static i32 border(const Stream& stream, u32 number) {
        return max_of(stream.last - i32(number * stream.each), stream.first);
    }

    // Finds where the first code of each stretch starts, and the number of codes in it.
    template <class Group> SWATH_FN static void agree(const Group& group, const ZstdTile& tile, Shared& shared) {
        for (u32 nth = group.lane(); nth < STREAMS * STRETCHES; nth += group.size()) {
            const Stream& stream = shared.streams[nth / STRETCHES];
            const u32 number = nth % STRETCHES;
            const i32 begin = border(stream, number);
            i32 start = begin + min_of(i32(WARM), stream.last - begin);
            if (start > begin) start = measure(tile, shared, nth, start, begin).end;
            shared.stretches[nth] = measure(tile, shared, nth, start, border(stream, number + 1));
        }
        // Each round makes at least one more stretch agree with all before it.
        for (u32 tries = 1; tries < STRETCHES; tries++) {
            group.sync();
            bool differs = false;
            for (u32 nth = group.lane(); nth < STREAMS * STRETCHES; nth += group.size()) {
                const i32 start = nth % STRETCHES == 0 ? shared.stretches[nth].start : shared.stretches[nth - 1].end;
                differs |= start != shared.stretches[nth].start;
                shared.starts[nth] = start;
            }
            if (!group.any(differs)) return;
            for (u32 nth = group.lane(); nth < STREAMS * STRETCHES; nth += group.size()) {
                if (shared.starts[nth] == shared.stretches[nth].start) continue;
                const i32 end = border(shared.streams[nth / STRETCHES], nth % STRETCHES + 1);
                shared.stretches[nth] = measure(tile, shared, nth, shared.starts[nth], end);
            }
        }
        group.sync();
    }

    // Decodes from `start` and counts the codes that start above `end`.
    SWATH_FN static Stretch measure(const ZstdTile& tile, const Shared& shared, u32 nth, i32 start, i32 end) {
        Stretch stretch{start, start, 0};
        if (start <= end) return stretch;
        RingBits bits(tile.src, shared.rings[nth], start);
        const Near<u16> table(shared.tree.table);
        const u32 shift = 32 - shared.tree.log;
        while (bits.end > end) {
            SWATH_UNROLL
            for (u32 half = 0; half < 2; half++) {
                UpperBits window = bits.peek();
                SWATH_UNROLL
                for (u32 code = 0; code < AT_ONCE; code++) {
                    const u32 entry = table[window.high >> shift];
                    window.skip(entry);
                    // Codes beyond the end do not count.
                    const bool within = bits.end > end;
                    bits.end -= within ? i32(entry & 31) : 0;
                    stretch.count += within;
                }
            }
            bits.top_up();
        }
        stretch.end = bits.end;
        return stretch;
    }

    // Decodes each stretch to its place. False if a stream does not hold its number of literals in exactly its bits.
    template <class Group> SWATH_FN static bool put(const Group& group, const ZstdTile& tile, const Shared& shared) {
        for (u32 nth = group.lane(); nth < STREAMS * STRETCHES; nth += group.size()) {
            const Stream& stream = shared.streams[nth / STRETCHES];
            const u32 number = nth % STRETCHES;
            u32 before = 0, all = 0;
            for (u32 other = 0; other < STRETCHES; other++) {
                const u32 count = shared.stretches[nth - number + other].count;
                if (other < number) before += count;
                all += count;
            }
            const i32 end = shared.stretches[nth - number + STRETCHES - 1].end;
            if (all != stream.len || end != stream.first) return false;
            const Stretch stretch = shared.stretches[nth];
            if (stretch.count > 0) decode_to(tile, shared, nth, stream.dst + before);
        }
        return true;
    }

    SWATH_FN static void decode_to(const ZstdTile& tile, const Shared& shared, u32 nth, u32 dst) {
        RingBits bits(tile.src, shared.rings[nth], shared.stretches[nth].start);
        const Near<u16> table(shared.tree.table);
        const u32 shift = 32 - shared.tree.log;
        u32 left = shared.stretches[nth].count;
        u8* at = tile.dst.data + dst;
        // The next `count` bytes; the first is the least significant.
        auto symbols = [&](u32 count) {
            UpperBits window = bits.peek();
            u32 bytes = 0;
            SWATH_UNROLL
            for (u32 code = 0; code < count; code++) {
                const u32 entry = table[window.high >> shift];
                window.skip(entry);
                bits.end -= i32(entry & 31);
                bytes |= entry >> 8 << (8 * code);
            }
            return bytes;
        };
        // Single bytes up to an aligned word, whole words, then the rest.
        const u32 head = min_of(-dst & 7, left);
        for (u32 byte = 0; byte < head; byte++) *at++ = u8(symbols(1));
        bits.top_up();
        for (left -= head; left >= 8; left -= 8, at += 8) {
            const u32 low = symbols(4);
            *reinterpret_cast<u64*>(at) = u64(symbols(4)) << 32 | low;
            bits.top_up();
        }
        for (; left > 0; left--) *at++ = u8(symbols(1));
    }
};
