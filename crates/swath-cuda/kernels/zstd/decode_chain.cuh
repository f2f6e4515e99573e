// Reads the sequences of each block once, a whole block of threads for each, where there are few blocks.
//
// The bits of a sequence and its three states follow from those of the sequence before, so they form one chain, which
// takes most of the time. One lane follows it and does nothing else: it notes the position and the states every few
// sequences. All lanes then read what the sequences say, each from such a note on, and add it up.
#pragma once
#include "zstd/decode_sequence.cuh"
#include "zstd/decode_tables_together.cuh"

struct ZstdChain {
    static constexpr u32 THREADS = 256;
    static constexpr u32 WORDS = 1024;                // words of the stream that are loaded at once
    static constexpr u32 STEPS = ZSTD_LEAST_STRIDE;   // sequences that are followed before the chain looks for more words
    static constexpr i32 MARGIN = STEPS * 89 / 32 + 4;  // words that they may take, at 89 bits at most
    using Args = DecodeArgs;

    struct Shared {
        u32 tables[ZSTD_TABLE_CELLS];
        TwoWords links[ZSTD_TABLE_CELLS];  // the same cells, as the chain needs them
        FourWords words[WORDS];            // each word of the stream with the two before it
        ZstdTogether making;
        ZstdBases bases;
        u32 offsets[THREADS][3];  // after the sequences of each lane
        i32 bit;
        u32 states[ZSTD_CODES];
        u32 done;  // sequences
        u32 from;  // position of the sequences' bits
    };

    template <class Group>
    SWATH_FN static void run(const Group& group, u32 block, u32 blocks, const Args& args, Shared& shared) {
        shared.bases.fill(group);
        const u64 items = u64(args.count) * ZstdScratch::most_notes(args);
        for (u64 item = block; item < items; item += blocks) {
            const u64 at = item % args.count;
            const u32 number = u32(item / args.count);
            // Other blocks may set the status meanwhile, so one lane reads it for all.
            if (group.broadcast(args.status[at], 0) != STATUS_OK) continue;
            const ZstdTile tile(args, at);
            if (number >= tile.scratch.head().blocks) continue;
            ZstdNote& note = tile.scratch.notes()[number];
            if (note.sequences == 0) continue;
            const u32 status = read_block(group, tile, number, note, shared);
            if (status != STATUS_OK && group.lane() == 0) report_status(args, at, status);
            group.sync();
        }
    }

  private:
    // The part of a cell that the chain needs. Low: bits of the next state; from bit 8 on these and the extra bits together;
    // from bit 24 on the extra bits. Three of these can be added up at once. High: the place of the next state's link, if its
    // bits are 0.
    SWATH_FN static TwoWords link_of(u32 cell, u32 table_place) {
        const u32 coded = cell & 15, extra = cell >> 14 & 31;
        return TwoWords{coded | (coded + extra) << 8 | extra << 24, table_place + (cell >> 4 & 1023) * LINK};
    }
    static constexpr u32 LINK = sizeof(TwoWords);

    // Makes the links of all cells. Returns the most bits that a sequence may take.
    template <class Group> SWATH_FN static u32 make_links(const Group& group, Shared& shared) {
        const Near<u32> links(&shared.links[0].low);
        u32 most = 0;
        for (u32 code = 0; code < ZSTD_CODES; code++) {
            const u32 first = table_at(code), place = links.origin() + first * LINK;
            u32 least_left = 255;
            for (u32 cell = group.lane(); cell < 1u << shared.making.logs[code]; cell += group.size()) {
                const TwoWords link = link_of(shared.tables[first + cell], place);
                shared.links[first + cell] = link;
                least_left = min_of(least_left, 255 - (link.low >> 8 & 255));
            }
            most += 255 - group.min(least_left);
        }
        return most;
    }

    template <class Group>
    SWATH_FN static u32 read_block(const Group& group, const ZstdTile& tile, u32 number, ZstdNote& note, Shared& shared) {
        const u32 from = shared.making.make(group, tile, number, note, shared.tables);
        if (from == 0) return STATUS_CORRUPT;
        u32 bit;
        if (!find_last_bit(tile.src, from, note.src + note.src_len, bit)) return STATUS_CORRUPT;
        const u32* const logs = shared.making.logs;
        if (logs[0] + logs[1] + logs[2] > bit - from * 8) return STATUS_CORRUPT;
        u32* const kept = tile.scratch.head().tables > 0 ? tile.scratch.tables(note) : nullptr;
        for (u32 cell = group.lane(); kept != nullptr && cell < ZSTD_TABLE_CELLS; cell += group.size())
            kept[cell] = shared.tables[cell];
        const bool wide = make_links(group, shared) > 64;
        if (group.lane() == 0) {
            BackwardBits bits(tile.src, bit);
            for (u32 code = 0; code < ZSTD_CODES; code++) shared.states[code] = bits.take(logs[code]);
            shared.bit = bits.end;
            shared.done = 0;
        }
        group.sync();
        const i32 first = i32(from * 8);
        ZstdMark* const marks = tile.scratch.marks(note);
        const u32 stride = tile.scratch.head().stride;
        // A part of the chain takes more than half of the loaded words, so this ends.
        while (shared.done < note.sequences && shared.bit >= first) {
            const i32 low = load_words(group, tile, shared.bit, first, shared.words);
            group.sync();
            if (group.lane() == 0) {
                if (wide) follow<true>(marks, stride, note.sequences, first, low, shared);
                else follow<false>(marks, stride, note.sequences, first, low, shared);
            }
            group.sync();
        }
        if (shared.bit != first) return STATUS_CORRUPT;
        return add_up(group, tile, note, from, stride, marks, shared);
    }

    // Loads the words below a position, down to somewhat before the first bit. Returns the number of the first one, which
    // may be negative.
    template <class Group>
    SWATH_FN static i32 load_words(const Group& group, const ZstdTile& tile, i32 bit, i32 first, FourWords* words) {
        const i32 low = max_of((bit >> 5) + 1 - i32(WORDS), (first >> 5) - MARGIN);
        const u32* const from = reinterpret_cast<const u32*>(tile.src.data);
        auto load = [&](i32 word) { return word < 0 ? 0 : from[word]; };
        for (i32 word = low + i32(group.lane()); word <= bit >> 5; word += i32(group.size()))
            words[word - low] = FourWords{{load(word), load(word - 1), load(word - 2), 0}};
        return low;
    }

    // Follows the chain as far as the loaded words reach. One lane runs it. After damage the bits are arbitrary, but
    // states stay inside their tables and positions inside the words. Each step has as few instructions as possible, since
    // nothing else runs beside it. `WIDE`: a sequence may take more than 64 bits.
    template <bool WIDE>
    SWATH_FN static void follow(ZstdMark* marks, u32 stride, u32 sequences, i32 first, i32 low, Shared& shared) {
        const Near<u32> links(&shared.links[0].low), words(&shared.words[0].words[0]);
        auto place_of = [&](u32 code) { return links.origin() + (table_at(code) + shared.states[code]) * LINK; };
        auto state_of = [&](u32 code, u32 place) { return (place - links.origin()) / LINK - table_at(code); };
        u32 literal = place_of(ZSTD_LITERALS), offset = place_of(ZSTD_OFFSETS), length = place_of(ZSTD_LENGTHS);
        u32 done = shared.done;
        // Positions are counted from the first loaded word on.
        const i32 base = low * 32, least = first - base, enough = low <= (first >> 5) - MARGIN ? least : MARGIN * 32;
        i32 bit = shared.bit - base;
        auto words_at = [&](i32 end) { return words.four_at(words.origin() + (u32(end) >> 5 << 4)); };
        auto upper = [](const FourWords& four, i32 end) {
            return u64(joined_by(four.words[1], four.words[0], u32(end))) << 32 |
                   joined_by(four.words[2], four.words[1], u32(end));
        };
        while (done < sequences && bit >= enough) {
            if (done % stride == 0) {
                marks[done / stride].bit = u32(bit + base);
                marks[done / stride].states = state_of(ZSTD_LITERALS, literal) | state_of(ZSTD_OFFSETS, offset) << 9 |
                                              state_of(ZSTD_LENGTHS, length) << 17;
            }
            FourWords next = words_at(bit);
            TwoWords literal_link = links.two_at(literal), length_link = links.two_at(length);
            TwoWords offset_link = links.two_at(offset);
            // The last sequence has no next states.
            const u32 steps = min_of(STEPS, sequences - done), full = done + steps == sequences ? steps - 1 : steps;
            for (u32 step = 0; step < full; step++) {
                const u32 sum = literal_link.low + offset_link.low + length_link.low;
                const u32 extra = sum >> 24, total = sum >> 8 & 255;
                u32 bits = u32(upper(next, bit) << extra >> 32);
                if (WIDE && total > 64) bits = u32(upper(words_at(bit - i32(extra)), bit - i32(extra)) >> 32);
                bit -= i32(total);
                // These arrive before the links do.
                next = words_at(bit);
                const u32 second = upper_after(bits, 0, literal_link.low);
                const u32 third = upper_after(bits, 0, literal_link.low + length_link.low);
                literal = upper_after(0, bits, literal_link.low) * LINK + literal_link.high;
                length = upper_after(0, second, length_link.low) * LINK + length_link.high;
                offset = upper_after(0, third, offset_link.low) * LINK + offset_link.high;
                literal_link = links.two_at(literal);
                length_link = links.two_at(length);
                offset_link = links.two_at(offset);
            }
            if (full < steps) bit -= i32((literal_link.low + offset_link.low + length_link.low) >> 24);
            done += steps;
        }
        shared.bit = bit + base;
        shared.states[ZSTD_LITERALS] = state_of(ZSTD_LITERALS, literal);
        shared.states[ZSTD_OFFSETS] = state_of(ZSTD_OFFSETS, offset);
        shared.states[ZSTD_LENGTHS] = state_of(ZSTD_LENGTHS, length);
        shared.done = done;
    }

    // Completes the marks, and the note.
    template <class Group>
    SWATH_FN static u32 add_up(const Group& group, const ZstdTile& tile, ZstdNote& note, u32 from, u32 stride,
                               ZstdMark* marks, Shared& shared) {
        const u32 all = (note.sequences + stride - 1) / stride, lanes = min_of(group.size(), THREADS);
        const u32 each = (all + lanes - 1) / lanes, lane = group.lane();
        const u32 own = min_of(lane * each, all), end = lane < lanes ? min_of(own + each, all) : own;
        const u32 matched_most = note.most - note.literals;
        // Each lane reads its stretches as if the three offsets before them were unknown.
        u32 literals = 0, out = 0;
        u32 offsets[3];
        for (u32 which = 0; which < 3; which++) offsets[which] = unknown(which);
        bool bad = false, unusual = false;
        for (u32 stretch = own; stretch < end; stretch++) {
            ZstdMark& mark = marks[stretch];
            ZstdReader reader(shared.tables, shared.bases, BackwardBits(tile.src, mark.bit), from * 8);
            reader.states[ZSTD_LITERALS] = mark.states & 511;
            reader.states[ZSTD_OFFSETS] = mark.states >> 9 & 255;
            reader.states[ZSTD_LENGTHS] = mark.states >> 17 & 511;
            mark.out = out;
            mark.literals = literals;
            for (u32 which = 0; which < 3; which++) reader.offsets[which] = mark.offsets[which] = offsets[which];
            reader.begin();
            const u32 left = min_of(stride, note.sequences - stretch * stride);
            for (u32 step = 0; step < left; step++) {
                const bool last = stretch + 1 == all && step + 1 == left;
                const ZstdSequence sequence = last ? reader.next<true>() : reader.next<false>();
                literals += sequence.literals;
                out += sequence.literals + sequence.length;
            }
            bad |= reader.bad || reader.missing();
            unusual |= out - literals > matched_most;
            // Sums beyond the limits go on from 0, so that they never wrap round.
            if (literals > note.literals || unusual) {
                bad |= literals > note.literals;
                literals = out = 0;
            }
            for (u32 which = 0; which < 3; which++) offsets[which] = reader.offsets[which];
        }
        if (group.any(bad)) return STATUS_CORRUPT;
        if (group.any(unusual)) return STATUS_UNUSUAL;
        if (lane < lanes)
            for (u32 which = 0; which < 3; which++) shared.offsets[lane][which] = offsets[which];
        u32 all_literals, all_out;
        const u32 literals_before = group.exclusive_sum(literals, all_literals);
        const u32 out_before = group.exclusive_sum(out, all_out);
        if (all_literals > note.literals) return STATUS_CORRUPT;
        if (all_out - all_literals > matched_most) return STATUS_UNUSUAL;
        if (lane == 0) {
            // Each entry becomes the offsets before the stretches of its lane.
            u32 before[3];
            for (u32 which = 0; which < 3; which++) before[which] = unknown(which);
            for (u32 other = 0; other < lanes; other++) {
                u32 after[3];
                for (u32 which = 0; which < 3; which++) after[which] = joined_offset(shared.offsets[other][which], before);
                for (u32 which = 0; which < 3; which++) {
                    shared.offsets[other][which] = before[which];
                    before[which] = after[which];
                }
            }
            note.size = note.literals + (all_out - all_literals);
            for (u32 which = 0; which < 3; which++) {
                note.offsets[which] = before[which];
                bad |= before[which] == 0;
            }
        }
        group.sync();
        for (u32 stretch = own; stretch < end; stretch++) {
            ZstdMark& mark = marks[stretch];
            mark.out += out_before;
            mark.literals += literals_before;
            for (u32 which = 0; which < 3; which++) {
                mark.offsets[which] = joined_offset(mark.offsets[which], shared.offsets[lane]);
                bad |= mark.offsets[which] == 0;
            }
        }
        return group.any(bad) ? STATUS_CORRUPT : STATUS_OK;
    }

    SWATH_FN static u32 unknown(u32 which) { return ZSTD_UNKNOWN | which << ZSTD_WHICH; }

    // Resolves an offset as far as the three before are known.
    SWATH_FN static u32 joined_offset(u32 offset, const u32* before) {
        const u32 from = before[offset >> ZSTD_WHICH & 3];
        if ((offset & ZSTD_UNKNOWN) != 0 && (from & ZSTD_UNKNOWN) != 0) return from + (offset & ZSTD_LESS);
        return known_offset(offset, before);
    }
};
