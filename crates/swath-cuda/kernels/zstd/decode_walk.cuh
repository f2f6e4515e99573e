// Finds the blocks of each tile by their headers alone. One lane a tile.
#pragma once
#include "zstd/decode.cuh"
#include "zstd/decode_bits.cuh"

struct ZstdWalk {
    static constexpr u32 THREADS = 32;
    using Args = DecodeArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 at = u64(block) * group.size() + group.lane(); at < args.count; at += step) {
            const ZstdTile tile(args, at);
            Walk walk(tile);
            args.status[at] = tile.sound ? walk.frames() : u32(STATUS_UNUSUAL);
        }
    }

  private:
    static constexpr u32 NONE = 0xffffffffu;

    struct Walk {
        const Span<const u8> src;
        const ZstdScratch scratch;
        const u32 len, dst_len;
        u32 at, count;
        u64 sequences;         // in all blocks
        u32 sequence_blocks;  // blocks that have any
        // Of the current frame.
        u32 most, tree, tables[ZSTD_CODES];

        SWATH_FN explicit Walk(const ZstdTile& tile)
            : src(tile.src), scratch(tile.scratch), len(u32(tile.src.len)), dst_len(u32(tile.dst.len)), at(0), count(0),
              sequences(0), sequence_blocks(0) {}

        SWATH_FN u32 frames() {
            u32 status = STATUS_OK;
            while (status == STATUS_OK && len - at >= 5) status = frame();
            // Bytes after a frame that are no frame may be padding.
            if (status == STATUS_OK && at != len) status = count > 0 ? STATUS_LONG : STATUS_CORRUPT;
            if (status == STATUS_OK) status = share_out();
            return status;
        }

        // Divides the scratch: tables if all fit, and as many marks as fit.
        SWATH_FN u32 share_out() {
            if (scratch.room == 0) return STATUS_UNUSUAL;
            const u64 room = scratch.len - scratch.store();
            u32 stride = ZSTD_LEAST_STRIDE, tables = ZSTD_TABLE_CELLS * 4;
            auto needed = [&]() {
                return u64(sequence_blocks) * (tables + sizeof(ZstdMark)) + sequences / stride * sizeof(ZstdMark);
            };
            if (needed() > room) tables = 0;
            while (needed() > room && stride < ZSTD_MOST_STRIDE) stride *= 2;
            if (needed() > room) return STATUS_UNUSUAL;
            scratch.head() = ZstdHead{count, stride, tables, 0};
            u32 store = scratch.store();
            for (u32 number = 0; number < count; number++) {
                ZstdNote& note = scratch.notes()[number];
                if (note.sequences == 0) continue;
                note.store = store;
                store += tables + (note.sequences + stride - 1) / stride * u32(sizeof(ZstdMark));
            }
            return STATUS_OK;
        }

        SWATH_FN u32 frame() {
            const u64 head = bytes_from(src, at);
            if ((u32(head) & 0xfffffff0u) == ZSTD_SKIPPABLE) return STATUS_UNUSUAL;
            if (u32(head) != ZSTD_MAGIC) return count > 0 ? STATUS_LONG : STATUS_CORRUPT;
            const u32 descriptor = u32(head >> 32) & 0xff;
            const bool single = (descriptor & 32) != 0;
            const u32 id_len = (descriptor & 3) == 3 ? 4 : descriptor & 3;
            u32 size_len = descriptor >> 6 == 0 ? single : 1u << (descriptor >> 6);
            const u32 head_len = 5 + !single + id_len + size_len;
            if (len - at < head_len + 3 || (descriptor & 8) != 0) return STATUS_CORRUPT;
            u64 window = 0, content = 0;
            if (!single) {
                const u32 exponent = u32(head >> 43) & 31, mantissa = u32(head >> 40) & 7;
                if (exponent + 10 > 31) return STATUS_CORRUPT;
                window = (1ull << (exponent + 10)) + ((1ull << (exponent + 7)) * mantissa);
            }
            const u64 id = bytes_from(src, at + 5 + !single) & ((1ull << (8 * id_len)) - 1);
            if (id != 0) return STATUS_UNUSUAL;
            if (size_len > 0) {
                content = bytes_from(src, at + head_len - size_len);
                if (size_len < 8) content &= (1ull << (8 * size_len)) - 1;
                if (size_len == 2) content += 256;
                // libzstd takes this value for an unknown length.
                if (content == ~0ull) size_len = 0;
                else if (content > dst_len) return STATUS_LONG;
            }
            most = u32(min_of(single ? content : window, u64(ZSTD_BLOCK_LEN)));
            tree = tables[0] = tables[1] = tables[2] = NONE;
            at += head_len;
            u32 flags = ZSTD_FRAME_FIRST;
            for (bool last = false; !last;) {
                if (len - at < 3) return STATUS_CORRUPT;
                if (count == scratch.room) return STATUS_UNUSUAL;
                ZstdNote note{};
                const u64 bits = bytes_from(src, at);
                last = (bits & 1) != 0;
                const u32 kind = u32(bits >> 1) & 3, size = u32(bits >> 3) & 0x1fffff;
                note.flags = kind | flags;
                note.src = at + 3;
                note.src_len = kind == ZSTD_RLE ? 1 : size;
                note.size = size;
                note.most = most;
                at += 3;
                if (kind == 3 || note.src_len > len - at) return STATUS_CORRUPT;
                if (kind != ZSTD_COMPRESSED && size > dst_len) return STATUS_LONG;
                if (kind == ZSTD_COMPRESSED) {
                    const u32 status = compressed(note, u32(bits >> 24), u32(bits >> 56) & 0xff);
                    if (status != STATUS_OK) return status;
                }
                at += note.src_len;
                flags = 0;
                if (last) {
                    note.flags |= ZSTD_FRAME_LAST | (size_len > 0 ? u32(ZSTD_HAS_CONTENT) : 0);
                    note.content = u32(content);
                    if ((descriptor & 4) != 0) {
                        if (len - at < 4) return STATUS_CORRUPT;
                        note.flags |= ZSTD_HAS_CHECKSUM;
                        at += 4;
                    }
                }
                scratch.notes()[count++] = note;
            }
            return STATUS_OK;
        }

        // Reads the headers of a compressed block's literals and sequences. `head` and `fifth` are the first five bytes
        // of the block.
        SWATH_FN u32 compressed(ZstdNote& note, u32 head, u32 fifth) {
            const u32 size = note.src_len;
            if (size > most || size < 2) return STATUS_CORRUPT;
            const u32 kind = head & 3, form = head >> 2 & 3;
            u32 head_len;
            note.tree = count;
            if (kind < 2) {
                head_len = form == 1 ? 2 : form == 3 ? 3 : 1;
                note.literals = form == 1 ? head >> 4 & 0xfff : form == 3 ? head >> 4 & 0xfffff : head >> 3 & 31;
                note.literal_kind = kind == 0 ? ZSTD_PLAIN : ZSTD_ONE_BYTE;
                note.literal_len = kind == 0 ? note.literals : 1;
            } else {
                if (size < 5) return STATUS_CORRUPT;
                head_len = form < 2 ? 3 : form + 2;
                const u32 width = form < 2 ? 10 : form == 2 ? 14 : 18;
                const u64 lens = (u64(fifth) << 32 | head) >> 4;
                note.literals = low_bits(u32(lens), width);
                note.literal_len = low_bits(u32(lens >> width), width);
                note.literal_kind = ZSTD_HUFFMAN;
                note.streams = form == 0 ? 1 : 4;
                if (note.streams == 4 && note.literals < 6) return STATUS_CORRUPT;
                if (kind == 3) {
                    if (tree == NONE) return STATUS_CORRUPT;
                    note.tree = tree;
                }
                tree = note.tree;
            }
            if (note.literals > most || head_len + note.literal_len > size) return STATUS_CORRUPT;
            note.literal_at = note.src + head_len;
            note.size = note.literals;
            u32 place = note.literal_at + note.literal_len;
            const u32 end = note.src + size;
            if (place >= end) return STATUS_CORRUPT;
            const u64 bits = bytes_from(src, place);
            u32 sequence_count = u32(bits) & 0xff;
            place++;
            if (sequence_count == 0xff) {
                sequence_count = (u32(bits >> 8) & 0xffff) + 0x7f00;
                place += 2;
            } else if (sequence_count > 0x7f) {
                sequence_count = (sequence_count - 0x80) << 8 | (u32(bits >> 8) & 0xff);
                place++;
            }
            if (place > end) return STATUS_CORRUPT;
            note.sequences = sequence_count;
            note.sequence_at = place;
            if (sequence_count == 0) return place == end ? STATUS_OK : STATUS_CORRUPT;
            if (place >= end) return STATUS_CORRUPT;
            const u32 modes = src.get(place);
            if ((modes & 3) != 0) return STATUS_CORRUPT;
            for (u32 code = 0; code < ZSTD_CODES; code++) {
                const bool repeated = (modes >> (6 - 2 * code) & 3) == ZSTD_MODE_REPEAT;
                if (repeated && tables[code] == NONE) return STATUS_CORRUPT;
                if (!repeated) tables[code] = count;
                note.tables[code] = tables[code];
            }
            sequences += note.sequences;
            sequence_blocks++;
            return STATUS_OK;
        }
    };
};
