// Computes the lengths of prefix codes from the counts of their symbols, none longer than a limit.
#pragma once
#include "core/kernel.cuh"

// For codes of at most MOST symbols.
template <u32 MOST> struct HuffmanBuild {
    static constexpr u32 LONGEST = 15;  // the largest limit

    struct Shared {
        // First the counts in ascending order; then the parents of the inner nodes; at last the depths of the inner
        // nodes.
        u32 tree[MOST];
        u16 order[MOST];  // the symbols in ascending order of their counts
        u32 per_length[LONGEST + 2];
    };

    // Sets the length of each symbol; unused symbols get 0. A code has at least two symbols: if fewer are used, the first
    // unused ones get a length too. The counts add up to less than 2^32, and 2^limit is at least the number of symbols.
    template <class Group>
    SWATH_FN static void lengths(const Group& group, const u32* counts, u32 symbols, u32 limit, u8* lengths,
        Shared& shared) {
        const u32 used = sort(group, counts, symbols, shared);
        if (used < 2) {
            const u32 only = used == 1 ? shared.order[0] : 0, other = only == 0 ? 1 : 0;
            for (u32 k = group.lane(); k < symbols; k += group.size()) lengths[k] = k == only || k == other;
            group.sync();
            return;
        }
        if (group.lane() == 0) {
            join(used, shared);
            fit(limit, shared);
        }
        for (u32 k = group.lane(); k < symbols; k += group.size()) {
            if (counts[k] == 0) lengths[k] = 0;
        }
        group.sync();
        for (u32 k = group.lane(); k < used; k += group.size()) {
            // The rarest symbols come first and get the longest codes.
            u32 length = limit, before = shared.per_length[limit];
            while (k >= before && length > 1) before += shared.per_length[--length];
            lengths[shared.order[k]] = u8(length);
        }
        group.sync();
    }

  private:
    // Returns the number of symbols used.
    template <class Group>
    SWATH_FN static u32 sort(const Group& group, const u32* counts, u32 symbols, Shared& shared) {
        u32 mine = 0, used;
        for (u32 k = group.lane(); k < symbols; k += group.size()) {
            const u32 count = counts[k];
            if (count == 0) continue;
            mine++;
            u32 rank = 0;
            for (u32 other = 0; other < symbols; other++) {
                const u32 its = counts[other];
                rank += its != 0 && (its < count || (its == count && other < k));
            }
            shared.tree[rank] = count;
            shared.order[rank] = u16(k);
        }
        group.exclusive_sum(mine, used);
        return used;
    }

    // Joins the two rarest nodes again and again, in place: leaves and inner nodes are two queues in ascending order.
    // Then counts the leaves at every depth; those that are too deep count at the last entry but one.
    SWATH_FN static void join(u32 used, Shared& shared) {
        u32* const tree = shared.tree;
        u32 leaf = 0, inner = 0;
        for (u32 next = 0; next + 1 < used; next++) {
            u32 sum = 0;
            for (u32 both = 0; both < 2; both++) {
                if (leaf >= used || (inner < next && tree[inner] < tree[leaf])) {
                    sum += tree[inner];
                    tree[inner++] = next;
                } else {
                    sum += tree[leaf++];
                }
            }
            tree[next] = sum;
        }
        for (u32 length = 0; length < LONGEST + 2; length++) shared.per_length[length] = 0;
        // Depths from the root down. An inner node stands for two nodes one level deeper, and is no leaf itself.
        tree[used - 2] = 0;
        shared.per_length[1] = 2;
        for (u32 next = used - 2; next-- > 0;) {
            const u32 depth = tree[tree[next]] + 1, own = min_of(depth, LONGEST + 1);
            tree[next] = depth;
            shared.per_length[own]--;
            shared.per_length[min_of(depth + 1, LONGEST + 1)] += 2;
        }
    }

    // Shortens the codes beyond the limit to the limit, and lengthens others until all codes fit.
    SWATH_FN static void fit(u32 limit, Shared& shared) {
        u32* const count = shared.per_length;
        u32 over = 0;
        for (u32 length = limit + 1; length < LONGEST + 2; length++) over += count[length];
        if (over == 0) return;
        count[limit] += over;
        for (u32 length = limit + 1; length < LONGEST + 2; length++) count[length] = 0;
        const u32 room = 1u << limit;
        u32 taken = 0;
        for (u32 length = 1; length <= limit; length++) taken += count[length] << (limit - length);
        while (taken > room) {
            u32 length = limit - 1;
            while (count[length] == 0) length--;
            count[length]--;
            count[length + 1]++;
            taken -= 1u << (limit - length - 1);
        }
        while (taken < room) {
            u32 length = limit;
            while (count[length] == 0 || 1u << (limit - length) > room - taken) length--;
            count[length]--;
            count[length - 1]++;
            taken += 1u << (limit - length);
        }
    }
};
