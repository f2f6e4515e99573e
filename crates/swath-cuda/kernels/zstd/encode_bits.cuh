// Writes bits into words that several lanes write to.
#pragma once
#include "core/atomics.cuh"
#include "core/span.cuh"

// Writes bits, least significant first, from any bit of zeroed words on. The sink owns all words between its first and
// its last; other sinks may write to these two as well.
struct BitSink {
    Span<u32> words;
    u64 held;
    u32 at, count;
    bool alone;  // this sink owns the word at `at` from its first bit on

    SWATH_FN BitSink(const Span<u32>& words, u32 bit)
        : words(words), held(0), at(bit >> 5), count(bit & 31), alone((bit & 31) == 0) {}

    // Writes at most 32 bits; the bits of `value` above them are 0.
    SWATH_FN void put(u32 value, u32 bits) {
        held |= u64(value) << count;
        count += bits;
        if (count < 32) return;
        if (alone) words.set(at, u32(held));
        else join(u32(held));
        held >>= 32;
        count -= 32;
        at++;
        alone = true;
    }
    SWATH_FN void end() {
        if (count > 0) join(u32(held));
    }

  private:
    SWATH_FN void join(u32 value) const {
        if (words.holds(at)) atomic_or(words.data + at, value);
    }
};

SWATH_FN void put_byte(const Span<u32>& words, u32 at, u32 value) {
    if (words.holds(at >> 2)) atomic_or(words.data + (at >> 2), (value & 0xff) << ((at & 3) * 8));
}
SWATH_FN void put_bytes(const Span<u32>& words, u32 at, u64 value, u32 count) {
    for (u32 k = 0; k < count; k++) put_byte(words, at + k, u32(value >> (k * 8)) & 0xff);
}

// Writes the bits of a header, one lane, into bytes that no other lane writes.
struct ByteSink {
    u8* bytes;
    u32 room, len, held, count;

    SWATH_FN ByteSink(u8* bytes, u32 room) : bytes(bytes), room(room), len(0), held(0), count(0) {}

    // Writes at most 16 bits.
    SWATH_FN void put(u32 value, u32 bits) {
        held |= value << count;
        count += bits;
        for (; count >= 8; count -= 8, held >>= 8) store();
    }
    SWATH_FN void end() {
        if (count > 0) store();
        held = count = 0;
    }
    // Whether everything fitted.
    SWATH_FN bool fits() const { return len <= room; }

  private:
    SWATH_FN void store() {
        if (len < room) bytes[len] = u8(held);
        len++;
    }
};
