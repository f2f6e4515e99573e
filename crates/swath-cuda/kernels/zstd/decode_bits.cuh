// Reads the stream of a tile word by word: bytes forward, and bits backward as Zstd stores them.
//
// Streams begin at a multiple of 16 bytes, and 16 bytes after them belong to the buffer, so whole words may be loaded
// from any byte of the stream. Words that reach past the end hold bytes that nothing has written. Each caller checks
// positions before it believes bits, so such bytes never reach the output.
#pragma once
#include "core/bits.cuh"
#include "core/span.cuh"

SWATH_FN const u64* words_of(const Span<const u8>& stream) { return reinterpret_cast<const u64*>(stream.data); }

// 64 bits of the stream from `bit` on. `bit` is at most the end of the stream.
SWATH_FN u64 bits_from(const Span<const u8>& stream, u32 bit) {
    const u64* const at = words_of(stream) + (bit >> 6);
    const u32 shift = bit & 63;
    const u64 low = at[0], high = at[1];
    return shift ? low >> shift | high << (64 - shift) : low;
}
SWATH_FN u64 bytes_from(const Span<const u8>& stream, u32 byte) { return bits_from(stream, byte * 8); }

// A right shift by 0 to 32.
SWATH_FN u32 shifted_right(u32 bits, u32 by) {
#if SWATH_DEVICE
    return __funnelshift_rc(bits, 0, by);
#else
    return by > 31 ? 0 : bits >> by;
#endif
}

// 64 bits; the first one to be read is the most significant.
struct UpperBits {
    u32 high, low;

    // `count` bits (at most 32) that follow the first `from` (at most 63). Several fields can be computed independently.
    SWATH_FN u32 field(u32 from, u32 count) const {
        const u32 first = from < 32 ? high : low, second = from < 32 ? low : 0;
        return shifted_right(joined_upper(first, second, from), 32 - count);
    }
    // Skips as many bits as the lower five bits of `count` say.
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

// The three words that hold the 64 bits below a position.
struct BackwardWords {
    u32 first, second, third;

    SWATH_FN UpperBits from(i32 end) const {
        return UpperBits{joined(second, first, u32(end) & 31), joined(third, second, u32(end) & 31)};
    }
};

// Bits that are read from the last to the first.
struct BackwardBits {
    const u32* words;
    i32 end;  // bits below this position are left; the bits before the code follow them

    SWATH_FN BackwardBits(const Span<const u8>& stream, u32 from)
        : words(reinterpret_cast<const u32*>(stream.data)), end(i32(from)) {}

    SWATH_FN BackwardWords words_below() const {
        const i32 word = end >> 5;
        return BackwardWords{load(word), load(word - 1), load(word - 2)};
    }
    // The next 64 bits.
    SWATH_FN UpperBits peek() const { return words_below().from(end); }
    SWATH_FN u32 take(u32 count) {
        const u32 value = peek().field(0, count);
        end -= i32(count);
        return value;
    }

  private:
    SWATH_FN u32 load(i32 word) const { return words[max_of(word, 0)]; }
};

// Finds where backward bits start: below the highest set bit of their last byte. False if that byte is 0 or missing.
SWATH_FN bool find_last_bit(const Span<const u8>& stream, u32 from, u32 to, u32& bit) {
    if (to <= from) return false;
    const u32 last = stream.get(to - 1);
    if (last == 0) return false;
    bit = (to - 1) * 8 + highest_one(last);
    return true;
}
