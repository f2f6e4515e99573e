// Encodes tiles as Zstd: every piece is one block, made by the lanes of one block of the grid, side by side with the others.
//
// A tile's stream is a frame header (`PackArgs.head`: magic number, descriptor with "single segment", length) and the
// blocks of its pieces. Matches reach back over earlier pieces, of which only the bytes have to be known. A block uses no
// table of another, and repeats only offsets of its own. The steps for a piece:
// - The matcher lists the matches. Bytes outside of matches are literals, gathered in the scratch memory.
// - The literals are counted for a Huffman code. They make four streams, a quarter of the lanes for each. A decoder reads
//   a stream from its last bit to its first, so the place of a literal follows from the lengths of those after it.
// - Sequences need three FSE states, each a chain from the last sequence to the first: one lane follows each chain and
//   records the bits to write. The number of bits gives every sequence its place, and all lanes write them.
// - A block is stored raw, or as one repeated byte, where that is shorter.
#pragma once
#include "core/encode_args.cuh"
#include "core/kernel.cuh"
#include "core/memory.cuh"
#include "lz/links.cuh"
#include "zstd/encode_bits.cuh"
#include "zstd/encode_huffman.cuh"
#include "zstd/encode_sequences.cuh"

// `Matcher` has the interface of LzMatch in lz/match.cuh.
template <class Matcher, class Limits, u32 LANES> struct ZstdEncode {
    static constexpr u32 THREADS = LANES;
    using Args = EncodeArgs;

    static constexpr u32 LONGEST_PIECE = 65536;
    static constexpr u32 SHORTEST_MATCH = 4;
    // Matches do not leave a segment of so many pieces: 8 MiB.
    static constexpr u32 SEGMENT = 128, MOST_DISTANCE = SEGMENT * LONGEST_PIECE - 1;
    static constexpr u32 HEADER = 3;  // bytes of a block header
    static constexpr u32 NO_ROOM = 0xffffffffu;  // the size of a piece whose buffers are too short or misaligned
    // The scratch memory has the links of all tiles, then three parts for each block of the grid: the matches, then literals
    // and steps, then steps of the offset codes. A match covers at least as many bytes as its other steps take (four). So
    // literals grow from the start of the second part, and those steps end at its end.
    static constexpr u32 MATCHES = LONGEST_PIECE / SHORTEST_MATCH;
    static constexpr u64 SCRATCH = u64(MATCHES) * 8 + LONGEST_PIECE + u64(MATCHES) * 2;
    // The longest encoded piece: its bytes and a header, rounded up to whole quads.
    SWATH_FN static u64 room_for(u64 piece_len) { return (piece_len + HEADER + 15) / 16 * 16; }

    static constexpr u32 COPIES = 4;
    struct Work {
        union {
            u32 covered[LONGEST_PIECE / 32];  // a bit for each byte inside a match
            u32 copies[COPIES][256];          // counts of literals, in several copies so that fewer lanes add to the same one
        };
        ZstdHuffman::Shared huffman;
        ZstdSequences::Shared sequences;
        u32 stream_starts[5];  // first bit of each stream, counted over all streams
    };
    struct Shared {
        union {
            typename Matcher::Shared matcher;
            Work work;
        };
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        const u64 all = u64(args.tiles) * args.pieces;
        for (u64 item = block; item < all; item += blocks) {
            const u32 size = encode(group, args, item, block, shared);
            if (group.lane() == 0) args.sizes[item] = size;
            group.sync();
        }
    }

  private:
    enum LiteralsType : u32 { LITERALS_RAW = 0, LITERALS_SAME = 1, LITERALS_HUFFMAN = 2 };
    enum BlockType : u32 { BLOCK_RAW = 0, BLOCK_SAME = 1, BLOCK_COMPRESSED = 2 };

    // The literals of a piece and the section of the block that holds them.
    struct Literals {
        const u8* bytes;
        u32 count;
        u32 kinds;       // number of different values
        u32 type;
        u32 header_len;
        u32 streams;
        u32 len;         // bytes of the whole section
        u32 lane_bits;   // bits of this lane's share of the streams
        u32 lane_start;  // bits of the shares of earlier lanes
    };

    template <class Group>
    SWATH_FN static u32 encode(const Group& group, const Args& args, u64 item, u32 block, Shared& shared) {
        const u64 tile = item / args.pieces, piece = item % args.pieces, tile_len = args.lens[tile];
        const u64 start = piece * args.piece_len;
        const bool lengths_valid = args.piece_len <= LONGEST_PIECE && args.piece_len != 0 && tile_len <= args.src_stride
            && tile_len <= u64(args.piece_len) * args.pieces;
        if (!lengths_valid) return tile_len == 0 ? 0 : NO_ROOM;
        if (start >= tile_len) return 0;
        const u64 len = min_of(u64(args.piece_len), tile_len - start);
        // The lanes read 16 bytes at a time, so the whole slot of the tile has to be there.
        const Span<const u8> tiles(args.src, args.src_len);
        const Span<const u8> around = tiles.part(tile * args.src_stride, args.src_stride);
        const Span<const u8> src = around.part(start, len);
        const Span<u8> dst = Span<u8>(args.dst, args.dst_len).part(item * args.dst_stride, args.dst_stride);
        const u64 links_len = LzLinkTable::len(args);
        const Span<u8> scratch = Span<u8>(args.scratch, args.scratch_len).part(links_len + block * SCRATCH, SCRATCH);
        if (src.len != len || dst.len != args.dst_stride || dst.len < room_for(len)) return NO_ROOM;
        if (scratch.len != SCRATCH || args.src_stride % 16 != 0) return NO_ROOM;
        if (!aligned_to(around.data, 16) || !aligned_to(dst.data, 16) || !aligned_to(scratch.data, 16)) return NO_ROOM;

        const Span<u32> words(reinterpret_cast<u32*>(dst.data), dst.len / 4);
        const bool last = start + len == tile_len;
        if (!differs(group, src)) {
            if (group.lane() == 0) {
                words.set(0, block_header(last, BLOCK_SAME, u32(len)) | u32(src.data[0]) << 24);
            }
            return HEADER + 1;
        }

        u32* const matches = reinterpret_cast<u32*>(scratch.data);
        u8* const rest = scratch.data + u64(MATCHES) * 8;
        const u64 segment = piece / SEGMENT * SEGMENT * args.piece_len;
        const LzSource source{LzBytes(around.part(segment, start + len - segment)), u32(start - segment),
            LzLinkTable::of(args, tile).part(segment, start + len - segment)};
        const u32 found = Matcher::run(group, source, Limits{SHORTEST_MATCH, LONGEST_PIECE - 1, MOST_DISTANCE, 2 * 16, 4 * 16, 0}, args.effort,
            args.row_len, args.pixel_len, Span<u32>(matches, 2 * MATCHES), shared.matcher);
        group.sync();
        u32* const steps = reinterpret_cast<u32*>(rest + LONGEST_PIECE);
        const ZstdList list{matches, steps - found, reinterpret_cast<u16*>(steps), found};

        Work& work = shared.work;
        Literals literals{src.data, u32(len), 0, LITERALS_RAW, 1, 1, 0, 0, 0};
        if (list.count > 0) {
            literals.bytes = rest;
            literals.count = gather(group, src, list, rest, work);
            ZstdSequences::count(group, list, work.sequences);
        }
        count_literals(group, literals, work);
        // Work that lanes cannot share; each job on a warp of its own if there are enough warps.
        const auto warp = group.warp();
        for (u32 job = warp.index(); job < ZSTD_CODES + 1; job += warp.count()) {
            if (job < ZSTD_CODES && list.count > 0) ZstdSequences::step_through(warp, job, list, work.sequences);
            if (job == ZSTD_CODES && literals.kinds > 1 && warp.lane() == 0) ZstdHuffman::describe(work.huffman);
        }
        group.sync();
        plan_literals(group, literals, work);
        u32 sequences_len = 1, header_len = 1, my_bits = 0, bits_before = 0, bits = 0;
        const u32 each = (list.count + group.size() - 1) / group.size();
        const u32 from = min_of(group.lane() * each, list.count), to = min_of(from + each, list.count);
        if (list.count > 0) {
            my_bits = ZstdSequences::measure(list, work.sequences, from, to);
            bits_before = group.exclusive_sum(my_bits, bits);
            header_len = list.count < 128 ? 2 : 3;
            for (u32 code = 0; code < ZSTD_CODES; code++) header_len += work.sequences.header_lens[code];
            sequences_len = header_len + (bits + ZstdSequences::end_bits(work.sequences)) / 8 + 1;
        }
        const u32 size = literals.len + sequences_len;
        if (size >= u32(len) || refused_by_old_library(list, work.sequences, sequences_len - header_len)) {
            put_raw(group, src, last, words);
            return HEADER + u32(len);
        }

        for (u32 k = group.lane(); k < (HEADER + size + 3) / 4; k += group.size()) words.set(k, 0);
        group.sync();
        if (group.lane() == 0) put_bytes(words, 0, block_header(last, BLOCK_COMPRESSED, size), HEADER);
        put_literals(group, literals, words, work);
        const u32 at = HEADER + literals.len;
        if (list.count == 0) return HEADER + size;  // the count is a byte, and it is 0 already
        if (group.lane() == 0) put_sequences_header(list, words, at, work.sequences);
        const u32 stream = (at + header_len) * 8;
        if (from < to) {
            BitSink sink(words, stream + bits - bits_before - my_bits);
            ZstdSequences::put(list, work.sequences, from, to, sink);
            if (from == 0) ZstdSequences::put_end(work.sequences, sink);
            sink.end();
        }
        return HEADER + size;
    }

    SWATH_FN static u32 block_header(bool last, u32 type, u32 size) { return u32(last) | type << 1 | size << 3; }

    // libzstd before 1.3.5 needs at least four bytes from the start of the last table description on.
    SWATH_FN static bool refused_by_old_library(const ZstdList& list, const ZstdSequences::Shared& shared, u32 stream_len) {
        if (list.count == 0) return false;
        u32 last = 0;
        for (u32 code = 0; code < ZSTD_CODES; code++) {
            if (shared.modes[code] == ZSTD_MODE_FSE) last = shared.header_lens[code];
            else if (last != 0) last += shared.header_lens[code];
        }
        return last != 0 && last + stream_len < 4;
    }

    // Copies the literals into one run; returns their number.
    template <class Group>
    SWATH_FN static u32 gather(const Group& group, const Span<const u8>& src, const ZstdList& list, u8* to,
        Work& work) {
        const u32 len = u32(src.len), words = (len + 31) / 32;
        for (u32 k = group.lane(); k < words; k += group.size()) work.covered[k] = 0;
        group.sync();
        for (u32 k = group.lane(); k < list.count; k += group.size()) {
            const u32 from = list.place(k), until = from + list.length(k);
            for (u32 word = from / 32; word <= (until - 1) / 32; word++) {
                const u32 first = max_of(from, word * 32) - word * 32;
                const u32 count = min_of(until - word * 32, 32u) - first;
                if (count == 32) work.covered[word] = ~0u;
                else atomic_or(&work.covered[word], ((1u << count) - 1) << first);
            }
        }
        group.sync();
        u32 done = 0;
        for (u32 base = 0; base < words; base += group.size()) {
            const u32 word = base + group.lane();
            u32 free = 0;
            if (word < words) {
                free = ~work.covered[word];
                if (len - word * 32 < 32) free &= (1u << (len - word * 32)) - 1;
            }
            u32 total;
            u8* at = to + done + group.exclusive_sum(ones_in(free), total);
            SWATH_UNROLL
            for (u32 half = 0; half < 2; half++) {
                if ((free >> (half * 16) & 0xffff) == 0) continue;
                const Quad quad = quad_at(src, word * 32 + half * 16);
                SWATH_UNROLL
                for (u32 k = 0; k < 16; k++) {
                    if (free >> (half * 16 + k) & 1) *at++ = byte_of(quad, k);
                }
            }
            done += total;
        }
        group.sync();
        return done;
    }

    SWATH_FN static u8 byte_of(const Quad& quad, u32 k) { return u8(quad.words[k / 4] >> (k % 4 * 8)); }

    // The 16 bytes from `at` on, with zeros after the last.
    SWATH_FN static Quad quad_at(const Span<const u8>& src, u32 at) {
        if (aligned_to(src.data, 16)) return load_quad(src.data + at);
        Quad quad = {{0, 0, 0, 0}};
        SWATH_UNROLL
        for (u32 k = 0; k < 16; k++) quad.words[k / 4] |= u32(src.get(at + k)) << (k % 4 * 8);
        return quad;
    }

    // Whether the bytes are not all equal. For most pieces the first round shows it.
    template <class Group> SWATH_FN static bool differs(const Group& group, const Span<const u8>& src) {
        const u32 first = src.data[0];
        for (u32 base = 0; base < u32(src.len); base += group.size() * 16) {
            bool differs = false;
            const u32 at = base + group.lane() * 16;
            if (at < u32(src.len)) {
                const Quad quad = quad_at(src, at);
                SWATH_UNROLL
                for (u32 k = 0; k < 16; k++) differs |= at + k < u32(src.len) && byte_of(quad, k) != first;
            }
            if (group.any(differs)) return true;
        }
        return false;
    }

    // Counts the literals of each value and finds the lengths of their codes.
    template <class Group>
    SWATH_FN static void count_literals(const Group& group, Literals& literals, Work& work) {
        for (u32 k = group.lane(); k < COPIES * 256; k += group.size()) work.copies[k / 256][k % 256] = 0;
        group.sync();
        u32* const copy = work.copies[group.lane() % COPIES];
        const u32 skew = u32(reinterpret_cast<u64>(literals.bytes) & 15), end = skew + literals.count;
        for (u32 base = group.lane() * 16; base < end; base += group.size() * 16) {
            const Quad quad = load_quad(literals.bytes - skew + base);
            SWATH_UNROLL
            for (u32 k = 0; k < 16; k++) {
                if (base + k >= skew && base + k < end) atomic_add(&copy[byte_of(quad, k)], 1u);
            }
        }
        group.sync();
        u32 kinds = 0;
        for (u32 k = group.lane(); k < 256; k += group.size()) {
            u32 sum = 0;
            for (u32 copied = 0; copied < COPIES; copied++) sum += work.copies[copied][k];
            work.huffman.counts[k] = sum;
            kinds += sum > 0;
        }
        group.exclusive_sum(kinds, literals.kinds);
        if (literals.kinds > 1) ZstdHuffman::find_lengths(group, work.huffman);
    }

    // Chooses the shortest way to store the literals.
    template <class Group>
    SWATH_FN static void plan_literals(const Group& group, Literals& literals, Work& work) {
        const u32 count = literals.count;
        literals.header_len = count < 32 ? 1 : count < 4096 ? 2 : 3;
        literals.len = literals.header_len + count;
        if (literals.kinds == 1) {
            literals.type = LITERALS_SAME;
            literals.len = literals.header_len + 1;
        }
        if (literals.kinds < 2 || work.huffman.tree_len == 0) return;
        ZstdHuffman::number(group, work.huffman);
        const u32 streams = count < 1024 ? 1 : 4;
        const u32 bits = measure_literals(group, literals, streams, work);
        u32 len = work.huffman.tree_len + (streams == 1 ? bits / 8 + 1 : 6);
        for (u32 k = 0; streams == 4 && k < 4; k++) len += stream_bits(work, k) / 8 + 1;
        const u32 header_len = streams == 1 ? 3 : count < 16384 ? 4 : 5;
        if (header_len + len >= literals.len) return;
        literals.type = LITERALS_HUFFMAN;
        literals.streams = streams;
        literals.header_len = header_len;
        literals.len = header_len + len;
    }

    // Divides the literals into chunks, each inside one stream. In every round each lane has one chunk; there is more
    // than one round only if there are fewer lanes than streams.
    struct Chunks {
        u32 per_stream, rounds, quarter, chunk_len, count;

        SWATH_FN Chunks(u32 lanes, u32 streams, u32 count) : count(count) {
            per_stream = max_of(lanes / streams, 1u);
            rounds = streams * per_stream / lanes;
            quarter = (count + streams - 1) / streams;
            chunk_len = (quarter + per_stream - 1) / per_stream;
        }
        SWATH_FN u32 stream(u32 chunk) const { return chunk / per_stream; }
        SWATH_FN u32 end_of(u32 stream) const { return min_of((stream + 1) * quarter, count); }
        SWATH_FN u32 from(u32 chunk) const {
            return min_of(stream(chunk) * quarter + chunk % per_stream * chunk_len, end_of(stream(chunk)));
        }
        SWATH_FN u32 to(u32 chunk) const { return min_of(from(chunk) + chunk_len, end_of(stream(chunk))); }
    };

    SWATH_FN static u32 stream_bits(const Work& work, u32 stream) {
        return work.stream_starts[stream + 1] - work.stream_starts[stream];
    }

    SWATH_FN static u32 bits_of(const Literals& literals, u32 from, u32 to, const Work& work) {
        const u32 skew = u32(reinterpret_cast<u64>(literals.bytes) & 15), first = from + skew, end = to + skew;
        u32 bits = 0;
        for (u32 base = first & ~15u; base < end; base += 16) {
            const Quad quad = load_quad(literals.bytes - skew + base);
            SWATH_UNROLL
            for (u32 k = 0; k < 16; k++) {
                if (base + k >= first && base + k < end) bits += work.huffman.lens[byte_of(quad, k)];
            }
        }
        return bits;
    }

    // Writes the codes, the last literal first, two at a time.
    SWATH_FN static void put_codes(const Literals& literals, u32 from, u32 to, const Work& work, BitSink& sink) {
        const u32 skew = u32(reinterpret_cast<u64>(literals.bytes) & 15), first = from + skew, end = to + skew;
        for (u32 after = (end + 15) & ~15u; after > first; after -= 16) {
            const u32 base = after - 16;
            const Quad quad = load_quad(literals.bytes - skew + base);
            SWATH_UNROLL
            for (u32 k = 16; k > 0; k -= 2) {
                const bool high_in = base + k - 1 >= first && base + k - 1 < end;
                const bool low_in = base + k - 2 >= first && base + k - 2 < end;
                const u32 high = high_in ? work.huffman.codes[byte_of(quad, k - 1)] : 0;
                const u32 low = low_in ? work.huffman.codes[byte_of(quad, k - 2)] : 0;
                sink.put((high & 0xfff) | (low & 0xfff) << (high >> 12), (high >> 12) + (low >> 12));
            }
        }
    }

    // Returns the bits of all streams, and sets where each stream and each lane's share begins.
    template <class Group>
    SWATH_FN static u32 measure_literals(const Group& group, Literals& literals, u32 streams, Work& work) {
        const Chunks chunks(group.size(), streams, literals.count);
        u32 done = 0;
        for (u32 round = 0; round < chunks.rounds; round++) {
            const u32 chunk = round * group.size() + group.lane();
            u32 total;
            literals.lane_bits = bits_of(literals, chunks.from(chunk), chunks.to(chunk), work);
            literals.lane_start = done + group.exclusive_sum(literals.lane_bits, total);
            if (chunk % chunks.per_stream == 0) work.stream_starts[chunks.stream(chunk)] = literals.lane_start;
            done += total;
        }
        if (group.lane() == 0) work.stream_starts[streams] = done;
        group.sync();
        return done;
    }

    template <class Group>
    SWATH_FN static void put_literals(const Group& group, const Literals& literals, const Span<u32>& words,
        Work& work) {
        const u32 count = literals.count, type = literals.type;
        u32 at = HEADER + literals.header_len;
        if (type != LITERALS_HUFFMAN) {
            if (group.lane() == 0) {
                const u32 format = literals.header_len == 1 ? 0 : literals.header_len == 2 ? 1 : 3;
                put_bytes(words, HEADER, type | format << 2 | count << (format == 0 ? 3 : 4), literals.header_len);
                if (type == LITERALS_SAME) put_byte(words, at, literals.bytes[0]);
            }
            if (type == LITERALS_RAW) {
                for (u32 k = group.lane(); k < count; k += group.size()) put_byte(words, at + k, literals.bytes[k]);
            }
            return;
        }
        const u32 tree_len = work.huffman.tree_len;
        if (group.lane() == 0) {
            const u32 bits = literals.header_len == 3 ? 10 : literals.header_len == 4 ? 14 : 18;
            const u32 format = literals.streams == 1 ? 0 : literals.header_len - 2;
            const u64 compressed = literals.len - literals.header_len;
            const u64 header = type | format << 2 | u64(count) << 4 | compressed << (4 + bits);
            put_bytes(words, HEADER, header, literals.header_len);
        }
        for (u32 k = group.lane(); k < tree_len; k += group.size()) put_byte(words, at + k, work.huffman.tree[k]);
        at += tree_len;
        if (literals.streams == 4) {
            for (u32 k = group.lane(); k < 3; k += group.size()) {
                put_bytes(words, at + 2 * k, stream_bits(work, k) / 8 + 1, 2);
            }
            at += 6;
        }
        const Chunks chunks(group.size(), literals.streams, count);
        for (u32 round = 0; round < chunks.rounds; round++) {
            const u32 chunk = round * group.size() + group.lane(), stream = chunks.stream(chunk);
            // Where a lane has several chunks, each is a whole stream.
            const u32 bits = chunks.rounds == 1 ? literals.lane_bits : stream_bits(work, stream);
            const u32 before = chunks.rounds == 1 ? literals.lane_start : work.stream_starts[stream];
            u32 place = at;
            for (u32 other = 0; other < stream; other++) place += stream_bits(work, other) / 8 + 1;
            BitSink sink(words, place * 8 + work.stream_starts[stream + 1] - before - bits);
            put_codes(literals, chunks.from(chunk), chunks.to(chunk), work, sink);
            if (chunk % chunks.per_stream == 0) sink.put(1, 1);
            sink.end();
        }
    }

    SWATH_FN static void put_sequences_header(const ZstdList& list, const Span<u32>& words, u32 at,
        const ZstdSequences::Shared& shared) {
        if (list.count < 128) {
            put_byte(words, at++, list.count);
        } else {
            put_byte(words, at++, 128 + (list.count >> 8));
            put_byte(words, at++, list.count & 0xff);
        }
        const u32* const modes = shared.modes;
        put_byte(words, at++, modes[ZSTD_LITERALS] << 6 | modes[ZSTD_OFFSETS] << 4 | modes[ZSTD_LENGTHS] << 2);
        for (u32 code = 0; code < ZSTD_CODES; code++) {
            for (u32 k = 0; k < shared.header_lens[code]; k++) put_byte(words, at++, shared.headers[code][k]);
        }
    }

    template <class Group>
    SWATH_FN static void put_raw(const Group& group, const Span<const u8>& src, bool last, const Span<u32>& words) {
        const u32 len = u32(src.len), header = block_header(last, BLOCK_RAW, len);
        for (u32 word = group.lane(); word < (HEADER + len + 3) / 4; word += group.size()) {
            u32 value = word == 0 ? header : 0;
            for (u32 k = word == 0 ? HEADER : 0; k < 4; k++) value |= u32(src.get(word * 4 + k - HEADER)) << (k * 8);
            words.set(word, value);
        }
    }
};
