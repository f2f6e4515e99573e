// Finds where the bytes of each block go, and the three offsets that each block starts with. One lane a tile.
#pragma once
#include "zstd/decode_sequence.cuh"

struct ZstdLayout {
    static constexpr u32 THREADS = 32;
    using Args = DecodeArgs;
    struct Shared {};

    template <class Group> SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared&) {
        const u64 step = u64(blocks) * group.size();
        for (u64 at = u64(block) * group.size() + group.lane(); at < args.count; at += step)
            if (args.status[at] == STATUS_OK) args.status[at] = lay_out(ZstdTile(args, at));
    }

  private:
    SWATH_FN static u32 lay_out(const ZstdTile& tile) {
        const u32 blocks = tile.scratch.head().blocks, room = u32(tile.dst.len);
        u32 dst = 0, frame = 0, offsets[3] = {1, 4, 8};
        for (u32 number = 0; number < blocks; number++) {
            ZstdNote& note = tile.scratch.notes()[number];
            if ((note.flags & ZSTD_FRAME_FIRST) != 0) {
                frame = dst;
                offsets[0] = 1;
                offsets[1] = 4;
                offsets[2] = 8;
            }
            note.dst = dst;
            note.frame = frame;
            if (note.size > room - dst) return STATUS_LONG;
            dst += note.size;
            if (note.sequences > 0) {
                u32 after[3];
                for (u32 which = 0; which < 3; which++) after[which] = known_offset(note.offsets[which], offsets);
                for (u32 which = 0; which < 3; which++) {
                    note.offsets[which] = offsets[which];
                    offsets[which] = after[which];
                }
            }
            if ((note.flags & ZSTD_HAS_CONTENT) != 0 && dst - frame != note.content) return STATUS_CORRUPT;
        }
        return dst == room ? STATUS_OK : STATUS_SHORT;
    }
};
