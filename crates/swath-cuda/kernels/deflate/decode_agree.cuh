// Decodes one run of prefix codes with many lanes, of which only the first knows where a code starts.
//
// Every other lane decodes its stretch from a guess. Prefix codes synchronise by themselves, so most lanes end where they
// would have ended from the right start as well. Where a lane ends, the next one must have started; if it has not, it
// decodes again.
#pragma once
#include "core/base.cuh"

struct Stretch {
    u32 start, end;
    u32 sum;   // sum of what `decode` counts
    u32 stop;  // not 0: the run ends in this stretch
};

// Returns how many lanes, from the first on, agree: all, or those up to the first that stops, or, after `tries` tries,
// fewer; at least one. `decode` decodes the stretch of a lane from a start. `ends` has room for `lanes` numbers.
template <class Group, class Decode>
SWATH_FN u32 agree(const Group& group, u32* ends, u32 lanes, u32 tries, Stretch& stretch, const Decode& decode) {
    const u32 lane = group.lane();
    for (;; tries--) {
        if (lane < lanes) ends[lane] = stretch.stop ? ~0u : stretch.end;
        group.sync();
        const u32 before = lane > 0 && lane < lanes ? ends[lane - 1] : stretch.start;
        const bool differs = before != ~0u && before != stretch.start;
        // The first lane that differs or stops decides how many lanes count.
        const u32 event = group.min(differs ? 2 * lane : stretch.stop ? 2 * lane + 1 : 2 * lanes);
        if (event & 1) return event / 2 + 1;
        if (event == 2 * lanes || tries == 0) return event / 2;
        if (differs) stretch = decode(before);
    }
}
