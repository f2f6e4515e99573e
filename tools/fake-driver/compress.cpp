// A stand-in for nvCOMP on the fake driver: batches are compressed and decompressed when their stream gets there.
//
// Its output is valid for every decoder and has the form of nvCOMP's: a Deflate chunk is one block with codes of its
// own, marked as the last in its first bit and filled up with zero bits; a Zstd chunk is one frame without checksum in
// blocks of 64 KiB. Only runs of one byte are found. Only LZ4 is decompressed.
#include <algorithm>
#include <cstring>
#include <vector>

#include "library.hpp"

namespace {

enum : int { SUCCESS = 0, INVALID = 10, UNABLE = 11, CANNOT_DECOMPRESS = 12, CUDA = 1000 };
constexpr size_t BLOCK = 64 << 10;

struct Options {
    int algorithm;
    char reserved[60];
};
struct Alignments {
    size_t input, output, temp;
};
struct Properties {
    uint32_t version, cudart;
};

// Bits from the lowest on, as Deflate has them.
struct Bits {
    uint8_t* out;
    uint64_t held = 0;
    unsigned count = 0;

    void put(uint32_t value, unsigned bits) {
        held |= uint64_t(value) << count;
        for (count += bits; count >= 8; count -= 8, held >>= 8) *out++ = uint8_t(held);
    }
    void finish() {
        if (count) *out++ = uint8_t(held);
    }
};

// The code words of a canonical code, bit-reversed for `Bits`.
std::vector<uint32_t> code_words(const std::vector<unsigned>& lens) {
    std::vector<uint32_t> words(lens.size());
    uint32_t next = 0;
    for (unsigned len = 1; len <= 15; len++, next <<= 1)
        for (size_t symbol = 0; symbol < lens.size(); symbol++) {
            if (lens[symbol] != len) continue;
            for (unsigned bit = 0; bit < len; bit++) words[symbol] |= (next >> bit & 1) << (len - 1 - bit);
            next++;
        }
    return words;
}

size_t deflate(const uint8_t* data, size_t len, uint8_t* out) {
    // A complete code: a half of it for literals, the other for the end of the block (the first of 6 bits) and lengths.
    static const std::vector<unsigned> lens = [] {
        std::vector<unsigned> lens(286, 9);
        std::fill(lens.begin() + 256, lens.begin() + 284, 6);
        lens[284] = lens[285] = 5;
        return lens;
    }();
    static const std::vector<uint32_t> words = code_words(lens);
    static const unsigned order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    static const std::vector<unsigned> len_lens = [] {
        std::vector<unsigned> lens(19, 0);
        lens[1] = lens[5] = lens[6] = lens[9] = 2;
        return lens;
    }();
    static const std::vector<uint32_t> len_words = code_words(len_lens);
    Bits bits{out};
    bits.put(1 | 2 << 1, 3);
    bits.put(29, 5);
    bits.put(0, 5);
    bits.put(15, 4);
    for (const unsigned symbol : order) bits.put(len_lens[symbol], 3);
    for (const unsigned each : lens) bits.put(len_words[each], 2);
    bits.put(len_words[1], 2);
    for (size_t at = 0; at < len;) {
        size_t run = 0;
        while (at > 0 && run < 258 && at + run < len && data[at + run] == data[at - 1]) run++;
        if (run < 3) {
            bits.put(words[data[at]], lens[data[at]]);
            at++;
            continue;
        }
        // The largest base that does not exceed the run, and the rest in as many bits as its group has.
        unsigned symbol = 285, base = 258, extra = 0;
        if (run < 258)
            for (symbol = 257, base = 3; symbol < 284; symbol++, base += 1u << extra) {
                extra = symbol < 265 ? 0 : (symbol - 261) / 4;
                if (run < base + (1u << extra)) break;
            }
        bits.put(words[symbol], lens[symbol]);
        bits.put(uint32_t(run) - base, extra);
        bits.put(0, 1);  // a distance of 1
        at += run;
    }
    bits.put(words[256], lens[256]);
    bits.finish();
    return size_t(bits.out - out);
}

uint8_t* little(uint8_t* out, uint64_t value, unsigned bytes) {
    for (; bytes--; value >>= 8) *out++ = uint8_t(value);
    return out;
}

size_t zstd(const uint8_t* data, size_t len, uint8_t* out) {
    uint8_t* const start = out;
    out = little(out, 0xFD2FB528, 4);
    if (len < 256) {
        *out++ = 0x20;
        out = little(out, len, 1);
    } else {
        const bool is_short = len < 65536 + 256;
        *out++ = is_short ? 0x40 : 0x80;
        *out++ = 0x50;  // a window of 1 MiB
        out = little(out, is_short ? len - 256 : len, is_short ? 2 : 4);
    }
    size_t at = 0;
    do {
        const size_t count = std::min(BLOCK, len - at);
        const bool is_last = at + count == len;
        const bool is_run = count > 1 && memcmp(data + at, data + at + 1, count - 1) == 0;
        out = little(out, count << 3 | (is_run ? 2 : 0) | is_last, 3);
        const size_t stored = is_run ? 1 : count;
        memcpy(out, data + at, stored);
        out += stored;
        at += count;
    } while (at < len);
    return size_t(out - start);
}

// The number of output bytes, or all bits set.
constexpr size_t BAD = SIZE_MAX;

size_t unlz4(const uint8_t* data, size_t len, uint8_t* out, size_t room) {
    const uint8_t* const end = data + len;
    size_t written = 0;
    const auto number = [&](size_t value) {
        if (value == 15)
            while (data < end) {
                value += *data;
                if (*data++ != 255) break;
            }
        return value;
    };
    while (data < end) {
        const uint8_t token = *data++;
        const size_t literals = number(token >> 4);
        if (literals > size_t(end - data) || literals > room - written) return BAD;
        memcpy(out + written, data, literals);
        data += literals;
        written += literals;
        if (data == end) return written;
        if (end - data < 2) return BAD;
        const size_t distance = data[0] | data[1] << 8;
        data += 2;
        const size_t match = number(token & 15) + 4;
        if (!distance || distance > written || match > room - written) return BAD;
        for (size_t at = 0; at < match; at++, written++) out[written] = out[written - distance];
    }
    return written;
}

using Encoder = size_t(const uint8_t*, size_t, uint8_t*);
using Decoder = size_t(const uint8_t*, size_t, uint8_t*, size_t);

bool is_aligned(const void* address, size_t alignment) { return reinterpret_cast<uintptr_t>(address) % alignment == 0; }

// Overwrites temporary memory, as the real library does.
void scribble(void* temp, size_t len) {
    for (size_t at = 0; at < len; at += 512) static_cast<uint8_t*>(temp)[at] = 0xA5;
    if (len) static_cast<uint8_t*>(temp)[len - 1] = 0xA5;
}

int done(CUresult result) { return result == OK ? SUCCESS : CUDA; }

size_t deflate_room(size_t len) { return len * 9 / 4 + 800; }
size_t zstd_room(size_t len) {
    return len + (len < 256 ? 6 : len < 65536 + 256 ? 8 : 10) + 3 * std::max<size_t>(1, (len + BLOCK - 1) / BLOCK);
}
size_t deflate_temp(int algorithm, size_t total) {
    return algorithm == 0 ? 0 : algorithm == 1 ? total * 11 / 2 : total * 10;
}
size_t zstd_temp(size_t total) { return (8 << 20) + 2 * total; }

constexpr Alignments DEFLATE_ALIGNMENTS{1, 8, 8}, ZSTD_ALIGNMENTS{4, 1, 1};

// Refuses a chunk that is longer than stated or at a wrong address, which the real library does not tolerate.
int compress(Encoder* encode, Alignments wanted, const void* const* inputs, const size_t* lens, size_t longest,
             size_t count, void* temp, size_t temp_len, void* const* outputs, size_t* output_lens, int* statuses,
             void* stream) {
    return done(queue(stream, [=] {
        scribble(temp, temp_len);
        for (size_t at = 0; at < count; at++) {
            const auto* input = static_cast<const uint8_t*>(inputs[at]);
            auto* output = static_cast<uint8_t*>(outputs[at]);
            const bool is_right = is_aligned(input, wanted.input) && is_aligned(output, wanted.output);
            output_lens[at] = 0;
            if (!is_right || lens[at] > longest) statuses[at] = INVALID;
            else if (refuses(hash(input, lens[at]))) statuses[at] = UNABLE;
            else statuses[at] = SUCCESS, output_lens[at] = encode(input, lens[at], output);
        }
    }));
}

int decompress(Decoder* decode, const void* const* inputs, const size_t* lens, const size_t* rooms, size_t* output_lens,
               size_t count, void* temp, size_t temp_len, void* const* outputs, int* statuses, void* stream) {
    return done(queue(stream, [=] {
        scribble(temp, temp_len);
        for (size_t at = 0; at < count; at++) {
            const auto* input = static_cast<const uint8_t*>(inputs[at]);
            const size_t written = decode(input, lens[at], static_cast<uint8_t*>(outputs[at]), rooms[at]);
            output_lens[at] = written == BAD ? 0 : written;
            statuses[at] = written == BAD ? CANNOT_DECOMPRESS : SUCCESS;
        }
    }));
}

}  // namespace

API int nvcompGetProperties(Properties* properties) { return *properties = {6000, 13000}, SUCCESS; }
API const char* nvcompGetStatusString(int status) {
    switch (status) {
    case SUCCESS: return "nvcompSuccess";
    case INVALID: return "nvcompErrorInvalidValue";
    case UNABLE: return "nvcompErrorNotSupported";
    case CANNOT_DECOMPRESS: return "nvcompErrorCannotDecompress";
    case CUDA: return "nvcompErrorCudaError";
    default: return nullptr;
    }
}

API int nvcompBatchedDeflateCompressGetRequiredAlignments(Options options, Alignments* alignments) {
    *alignments = DEFLATE_ALIGNMENTS;
    return options.algorithm >= 0 && options.algorithm <= 5 ? SUCCESS : INVALID;
}
API int nvcompBatchedDeflateCompressGetTempSize(size_t, size_t, Options options, size_t* temp, size_t total, void*) {
    *temp = deflate_temp(options.algorithm, total);
    return options.algorithm >= 0 && options.algorithm <= 5 ? SUCCESS : INVALID;
}
API int nvcompBatchedDeflateCompressGetMaxOutputChunkSize(size_t longest, Options, size_t* room) {
    return *room = deflate_room(longest), SUCCESS;
}
API int nvcompBatchedDeflateCompressAsync(const void* const* inputs, const size_t* lens, size_t longest, size_t count,
                                          void* temp, size_t temp_len, void* const* outputs, size_t* output_lens,
                                          Options options, int* statuses, void* stream) {
    if (options.algorithm < 0 || options.algorithm > 5) return INVALID;
    return compress(deflate, DEFLATE_ALIGNMENTS, inputs, lens, longest, count, temp, temp_len, outputs, output_lens,
                    statuses, stream);
}

API int nvcompBatchedZstdCompressGetRequiredAlignments(Options, Alignments* alignments) {
    return *alignments = ZSTD_ALIGNMENTS, SUCCESS;
}
API int nvcompBatchedZstdCompressGetTempSize(size_t, size_t, Options, size_t* temp, size_t total, void*) {
    return *temp = zstd_temp(total), SUCCESS;
}
API int nvcompBatchedZstdCompressGetMaxOutputChunkSize(size_t longest, Options, size_t* room) {
    return *room = zstd_room(longest), SUCCESS;
}
API int nvcompBatchedZstdCompressAsync(const void* const* inputs, const size_t* lens, size_t longest, size_t count,
                                       void* temp, size_t temp_len, void* const* outputs, size_t* output_lens, Options,
                                       int* statuses, void* stream) {
    if (temp_len < zstd_temp(0)) return INVALID;
    return compress(zstd, ZSTD_ALIGNMENTS, inputs, lens, longest, count, temp, temp_len, outputs, output_lens, statuses,
                    stream);
}

API int nvcompBatchedLZ4DecompressGetRequiredAlignments(Options, Alignments* alignments) {
    return *alignments = {1, 1, 8}, SUCCESS;
}
API int nvcompBatchedLZ4DecompressGetTempSize(size_t count, size_t, Options, size_t* temp, size_t, void*) {
    return *temp = 64 * count, SUCCESS;
}
API int nvcompBatchedLZ4DecompressAsync(const void* const* inputs, const size_t* lens, const size_t* rooms,
                                        size_t* output_lens, size_t count, void* temp, size_t temp_len,
                                        void* const* outputs, Options, int* statuses, void* stream) {
    return decompress(unlz4, inputs, lens, rooms, output_lens, count, temp, temp_len, outputs, statuses, stream);
}
