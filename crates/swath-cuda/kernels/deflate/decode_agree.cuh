// Decoding one run of prefix codes with many lanes, none of which knows where its first code starts.
//
// Every lane decodes a stretch from a guess. Prefix codes fall into step by themselves, so most lanes end where they
// would have from the right start as well. Where a lane ends, the next one has to have started; if it has not, it
// decodes again.
#pragma once
#include "core/base.cuh"

struct Stretch {
    u32 start, end;
    u32 sum;   // of what is counted
    u32 stop;  // not 0: nothing follows this stretch
};

// How many lanes from the first on agree: all, or those up to the first that stops, or, after so many tries, fewer;
// never none. `decode` makes a lane's stretch from its start. `ends` has room for `lanes` numbers.
template <class Group, class Decode>
SWATH_FN u32 agree(const Group& group, u32* ends, u32 lanes, u32 tries, Stretch& stretch, const Decode& decode) {
    const u32 lane = group.lane();
    for (;; tries--) {
        if (lane < lanes) ends[lane] = stretch.stop ? ~0u : stretch.end;
        group.sync();
        const u32 before = lane > 0 && lane < lanes ? ends[lane - 1] : stretch.start;
        const bool differs = before != ~0u && before != stretch.start;
        // The first lane that differs, or stops, says how far the others count.
        const u32 event = group.min(differs ? 2 * lane : stretch.stop ? 2 * lane + 1 : 2 * lanes);
        if (event & 1) return event / 2 + 1;
        if (event == 2 * lanes || tries == 0) return event / 2;
        if (differs) stretch = decode(before);
    }
}
