// Reading a tile's stream by words: bytes forward, and bits backward as Zstd stores them.
//
// Streams begin at a multiple of 16 bytes and are followed by 16 that belong to the buffer, so words from any byte up to
// the end may be loaded. What lies behind the end is noise: whoever uses it finds out by counting.
#pragma once
#include "core/bits.cuh"
#include "core/span.cuh"

SWATH_FN const u64* words_of(const Span<const u8>& stream) { return reinterpret_cast<const u64*>(stream.data); }

// 64 bits from a bit of the stream on, at most its end.
SWATH_FN u64 bits_from(const Span<const u8>& stream, u32 bit) {
    const u64* const at = words_of(stream) + (bit >> 6);
    const u32 shift = bit & 63;
    const u64 low = at[0], high = at[1];
    return shift ? low >> shift | high << (64 - shift) : low;
}
SWATH_FN u64 bytes_from(const Span<const u8>& stream, u32 byte) { return bits_from(stream, byte * 8); }

// A shift that takes 32 as well.
SWATH_FN u32 shifted_right(u32 bits, u32 by) {
#if SWATH_DEVICE
    return __funnelshift_rc(bits, 0, by);
#else
    return by > 31 ? 0 : bits >> by;
#endif
}

// 64 bits, the first to be read the most significant.
struct UpperBits {
    u32 high, low;

    // At most 32 of them, `from` (at most 63) behind the first. Fields do not wait for each other.
    SWATH_FN u32 field(u32 from, u32 count) const {
        const u32 first = from < 32 ? high : low, second = from < 32 ? low : 0;
        return shifted_right(joined_upper(first, second, from), 32 - count);
    }
    // As many as the lower five bits of `count` say.
    SWATH_FN void skip(u32 count) {
        high = joined_upper(high, low, count);
        low = joined_upper(low, 0, count);
    }

  private:
    SWATH_FN static u32 joined_upper(u32 first, u32 second, u32 shift) {
#if SWATH_DEVICE
        return __funnelshift_l(second, first, shift);
#else
        return u32((u64(first) << 32 | second) << (shift & 31) >> 32);
#endif
    }
};

// The words that hold the last 64 bits below one.
struct BackwardWords {
    u32 first, second, third;

    SWATH_FN UpperBits from(i32 end) const {
        return UpperBits{joined(second, first, u32(end) & 31), joined(third, second, u32(end) & 31)};
    }
};

// Bits that are read from the last to the first.
struct BackwardBits {
    const u32* words;
    i32 end;  // those below this one are left, and then what lies before them in the stream

    SWATH_FN BackwardBits(const Span<const u8>& stream, u32 from)
        : words(reinterpret_cast<const u32*>(stream.data)), end(i32(from)) {}

    SWATH_FN BackwardWords words_below() const {
        const i32 word = end >> 5;
        return BackwardWords{load(word), load(word - 1), load(word - 2)};
    }
    // The last 64 that are left.
    SWATH_FN UpperBits peek() const { return words_below().from(end); }
    SWATH_FN u32 take(u32 count) {
        const u32 value = peek().field(0, count);
        end -= i32(count);
        return value;
    }

  private:
    SWATH_FN u32 load(i32 word) const { return words[max_of(word, 0)]; }
};

// The first of backward bits: below the highest one of their last byte. False where there is none.
SWATH_FN bool find_last_bit(const Span<const u8>& stream, u32 from, u32 to, u32& bit) {
    if (to <= from) return false;
    const u32 last = stream.get(to - 1);
    if (last == 0) return false;
    bit = (to - 1) * 8 + highest_one(last);
    return true;
}
