// The Huffman code of the literals of a block: lengths, codes, and the description of the tree.
#pragma once
#include "zstd/encode_fse.cuh"
#include "lz/huffman_build.cuh"

struct ZstdHuffman {
    static constexpr u32 LONGEST = 11;
    // A description has one byte and at most 127 more of FSE-coded weights, or at most 64 of plain ones.
    static constexpr u32 TREE_ROOM = 128;
    static constexpr u32 WEIGHTS = LONGEST + 1;

    using Build = HuffmanBuild<256>;

    struct Shared {
        u32 counts[256];
        Build::Shared build;
        u8 lens[256];
        u16 codes[256];       // a code, and its length << 12
        u32 weight_counts[WEIGHTS];
        FseTable<WEIGHTS, 6> table;
        u8 tree[TREE_ROOM];
        u8 coded[TREE_ROOM];   // weights coded by FSE
        u32 tree_len;         // 0 if the tree cannot be described
    };

    // Making the code for `counts` takes three steps with barriers between them: all lanes find the lengths, one lane
    // describes the tree, all lanes number the codes. At least two symbols must occur.
    template <class Group> SWATH_FN static void find_lengths(const Group& group, Shared& shared) {
        Build::lengths(group, shared.counts, 256, LONGEST, shared.lens, shared.build);
    }
    // Describes the weights up to the last symbol but one: as they are or coded by FSE, whichever is shorter.
    SWATH_FN static void describe(Shared& shared) {
        u32 longest = LONGEST, last = 255;
        while (shared.build.per_length[longest] == 0) longest--;
        while (shared.lens[last] == 0) last--;
        for (u32 k = 0; k < WEIGHTS; k++) shared.weight_counts[k] = 0;
        for (u32 symbol = 0; symbol < last; symbol++) shared.weight_counts[weight(shared, symbol, longest)]++;
        const u32 plain = last <= 128 ? 1 + (last + 1) / 2 : 0;
        const u32 stream = describe_by_fse(shared, last, longest);
        if (stream != 0 && (plain == 0 || stream + 1 < plain)) {
            shared.tree[0] = u8(stream);
            for (u32 k = 0; k < stream; k++) shared.tree[1 + k] = shared.coded[k];
            shared.tree_len = stream + 1;
            return;
        }
        shared.tree_len = plain;
        if (plain == 0) return;
        shared.tree[0] = u8(127 + last);
        for (u32 symbol = 0; symbol < last; symbol += 2) {
            const u32 second = symbol + 1 < last ? weight(shared, symbol + 1, longest) : 0;
            shared.tree[1 + symbol / 2] = u8(weight(shared, symbol, longest) << 4 | second);
        }
    }

    // Numbers the codes: longer ones before shorter ones, those of a length in the order of symbols.
    template <class Group> SWATH_FN static void number(const Group& group, Shared& shared) {
        for (u32 symbol = group.lane(); symbol < 256; symbol += group.size()) {
            const u32 len = shared.lens[symbol];
            u32 code = 0;
            for (u32 longer = LONGEST; longer > len; longer--) code = (code + shared.build.per_length[longer]) >> 1;
            for (u32 other = 0; other < symbol; other++) code += shared.lens[other] == len;
            shared.codes[symbol] = len == 0 ? u16(0) : u16(code | len << 12);
        }
    }

  private:
    SWATH_FN static u32 weight(const Shared& shared, u32 symbol, u32 longest) {
        const u32 len = shared.lens[symbol];
        return len == 0 ? 0 : longest + 1 - len;
    }

    // Codes the weights with two FSE states that take turns. Returns the length; 0 if the weights cannot be coded so.
    SWATH_FN static u32 describe_by_fse(Shared& shared, u32 last, u32 longest) {
        u32 kinds = 0;
        for (u32 k = 0; k < WEIGHTS; k++) kinds += shared.weight_counts[k] > 0;
        if (kinds < 2) return 0;
        shared.table.share_out(shared.weight_counts, last, last > 48 ? 6 : 5);
        shared.table.build();
        ByteSink sink(shared.coded, TREE_ROOM - 1);
        shared.table.describe(sink);
        u32 states[2];
        states[(last - 1) & 1] = shared.table.start(weight(shared, last - 1, longest));
        states[last & 1] = shared.table.start(weight(shared, last - 2, longest));
        for (u32 symbol = last - 2; symbol-- > 0;) {
            const FseSymbol& what = shared.table.symbols[weight(shared, symbol, longest)];
            const u32 put = shared.table.step(states[symbol & 1], what);
            sink.put(put & 0xfff, put >> 12);
        }
        sink.put(states[1] - (1u << shared.table.log), shared.table.log);
        sink.put(states[0] - (1u << shared.table.log), shared.table.log);
        sink.put(1, 1);
        sink.end();
        return sink.fits() ? sink.len : 0;
    }
};
