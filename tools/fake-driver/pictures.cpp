// Stand-ins for nvJPEG and nvJPEG2000 on the fake driver, so that image codecs are tested without a GPU.
//
// They read sizes from a stream's header and "decode" it to a pattern: the sample of component c at column x and row y
// is x + 3 y + 50 c + a hash of the whole stream. The data of a state is pinned and copied by the stream, late, as in
// the real libraries: a state that is reused or destroyed too early shows in the samples, or in the fake driver.
//
// They encode real streams that every decoder accepts, lossless for JPEG 2000 whatever the requested quality.
// SWATH_FAKE_REFUSE=n refuses every n-th stream, by its hash, and SWATH_FAKE_ENCODE=n fails the n-th tile to encode, and
// all after it, as a device does.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "jpeg2000_writer.hpp"
#include "jpeg_writer.hpp"
#include "library.hpp"

namespace {

enum : int { SUCCESS = 0, INVALID = 2, BAD = 3, UNABLE = 4, ALLOCATOR = 5, FAILED = 6 };

struct Shape {
    uint32_t width = 0, height = 0, components = 0, bits = 0;
    bool is_signed = false, subsampled = false;
};

uint32_t big(const uint8_t* at, int count) {
    uint32_t value = 0;
    while (count--) value = value << 8 | *at++;
    return value;
}

bool jpeg_shape(const uint8_t* data, size_t len, Shape& shape) {
    for (size_t at = 2; at + 4 <= len && data[at] == 0xff;) {
        const uint8_t marker = data[at + 1];
        const size_t segment = big(data + at + 2, 2);
        if (at + 2 + segment > len) return false;
        if (marker >= 0xc0 && marker <= 0xc2 && segment >= 11) {
            const uint8_t* body = data + at + 4;
            shape = {big(body + 3, 2), big(body + 1, 2), body[5], body[0], false, false};
            for (uint32_t c = 1; c < shape.components; c++) shape.subsampled |= body[7] != body[7 + 3 * c];
            return true;
        }
        at += 2 + segment;
    }
    return false;
}

bool jpeg2000_shape(const uint8_t* data, size_t len, Shape& shape) {
    if (len < 45 || big(data, 4) != 0xff4fff51) return false;
    const uint8_t depth = data[42];
    shape = {big(data + 8, 4) - big(data + 16, 4), big(data + 12, 4) - big(data + 20, 4), big(data + 40, 2),
             (depth & 0x7fu) + 1, (depth & 0x80) != 0, false};
    return true;
}

// Pinned memory that the device copies from until the stream has passed: the driver reports it if it is freed earlier.
struct State {
    std::vector<void*> pinned;
    std::vector<size_t> sizes;
    int batch = 0;

    uint8_t* room(size_t slot, size_t len) {
        if (pinned.size() <= slot) {
            pinned.resize(slot + 1, nullptr);
            sizes.resize(slot + 1, 0);
        }
        if (sizes[slot] < len) {
            if (pinned[slot]) function<decltype(cuMemFreeHost)>("cuMemFreeHost")(pinned[slot]);
            pinned[slot] = nullptr;
            sizes[slot] = 0;
            if (function<decltype(cuMemHostAlloc)>("cuMemHostAlloc")(&pinned[slot], len, 0) != OK) return nullptr;
            sizes[slot] = len;
        }
        return static_cast<uint8_t*>(pinned[slot]);
    }

    ~State() {
        for (void* block : pinned)
            if (block) function<decltype(cuMemFreeHost)>("cuMemFreeHost")(block);
    }
};

int decode(State& state, size_t slot, const Shape& shape, uint32_t seed, uint32_t size, void* const* planes,
           const size_t* pitches, void* stream) {
    const size_t row = size_t(shape.width) * size, plane = row * shape.height;
    uint8_t* room = state.room(slot, plane * shape.components);
    if (!room) return ALLOCATOR;
    const auto copy = function<decltype(cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2");
    for (uint32_t c = 0; c < shape.components; c++)
        for (uint32_t y = 0; y < shape.height; y++) {
            uint8_t* at = room + c * plane + y * row;
            for (uint32_t x = 0; x < shape.width; x++) {
                const uint32_t value = x + 3 * y + 50 * c + seed;
                if (size == 1) at[x] = uint8_t(value);
                else memcpy(at + 2 * x, &value, 2);
            }
            const auto to = reinterpret_cast<CUdeviceptr>(planes[c]) + y * pitches[c];
            if (copy(to, at, row, stream) != OK) return FAILED;
        }
    return SUCCESS;
}

struct Jpeg {
    uint8_t* channel[4];
    size_t pitch[4];
};

int jpeg_one(State& state, size_t slot, const uint8_t* data, size_t len, const Jpeg& output, void* stream) {
    Shape shape;
    if (!jpeg_shape(data, len, shape)) return BAD;
    const uint32_t seed = hash(data, len);
    if (refuses(seed)) return BAD;
    void* planes[4] = {output.channel[0], output.channel[1], output.channel[2], output.channel[3]};
    return decode(state, slot, shape, seed, 1, planes, output.pitch, stream);
}

struct Codestream {
    Shape shape;
    uint32_t seed = 0;
};

struct ImageInfo {
    uint32_t width, height, tile_width, tile_height, tiles_across, tiles_down, components;
};
struct ComponentInfo {
    uint32_t width, height;
    uint8_t precision, is_signed;
};
struct Image {
    void** planes;
    size_t* pitches;
    int type;
    uint32_t components;
};

// The encoding of one tile, when the stream gets there.
struct Job {
    std::vector<uint8_t> stream;
    bool is_done = false;
};

struct EncodeState {
    std::shared_ptr<Job> job;

    ~EncodeState() { forget(); }

    // The real ones lose the tile, or worse.
    void forget() {
        if (!job || job->is_done) return job.reset();
        fprintf(stderr, "pictures: an encoder's state is destroyed or used again while it has work\n");
        abort();
    }
};

bool fails_to_encode() {
    static std::atomic<int> tiles{0};
    const char* from = getenv("SWATH_FAKE_ENCODE");
    return from && ++tiles >= atoi(from);
}

template <class F> int encode(EncodeState& state, void* stream, F write) {
    if (fails_to_encode()) return FAILED;
    state.forget();
    const auto job = std::make_shared<Job>();
    // Work that never runs, its context being broken, is done when it is dropped.
    const std::shared_ptr<void> end(nullptr, [job](void*) { job->is_done = true; });
    const CUresult queued = queue(stream, [job, end, write] { job->stream = write(); });
    if (queued != OK) return FAILED;
    state.job = job;
    return SUCCESS;
}

// The length alone where there is no place for the bytes: that waits for the stream.
int retrieve(EncodeState& state, uint8_t* data, size_t* len, void* stream) {
    if (!state.job) return INVALID;
    if (!data && function<decltype(cuStreamSynchronize)>("cuStreamSynchronize")(stream) != OK) return FAILED;
    const Job& job = *state.job;
    if (job.stream.empty()) return FAILED;
    if (data && *len < job.stream.size()) return INVALID;
    if (refuses(hash(job.stream.data(), job.stream.size()))) return UNABLE;
    *len = job.stream.size();
    if (data) memcpy(data, job.stream.data(), job.stream.size());
    return SUCCESS;
}

struct JpegParams {
    int quality = 70, subsampling = 0;
};

enum : int { GREY = 6, PLANAR = 3, INTERLEAVED = 5 };

// `format` is that of the samples, or 0 for one component as it is.
int encode_jpeg(EncodeState& state, const JpegParams& params, const Jpeg& source, int format, int width, int height,
                void* stream) {
    const bool is_pixels = format == INTERLEAVED;
    if (width < 1 || height < 1 || (format && !is_pixels && format != PLANAR)) return INVALID;
    if (source.pitch[0] < size_t(width) * (is_pixels ? 3 : 1)) return INVALID;
    if (params.subsampling < 0 || params.subsampling > (format ? 2 : GREY)) return UNABLE;
    return encode(state, stream, [=] {
        std::vector<jpeg_writer::Plane> planes(format ? 3 : 1, {width, height, {}});
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++) {
                float colour[3] = {};
                for (size_t c = 0; c < planes.size(); c++) {
                    const size_t plane = is_pixels ? 0 : c;
                    const size_t column = is_pixels ? size_t(x) * 3 + c : size_t(x);
                    colour[c] = source.channel[plane][size_t(y) * source.pitch[plane] + column];
                }
                const auto [r, g, b] = colour;
                planes[0].samples.push_back(format ? 0.299f * r + 0.587f * g + 0.114f * b : r);
                if (!format) continue;
                planes[1].samples.push_back(128 - 0.168736f * r - 0.331264f * g + 0.5f * b);
                planes[2].samples.push_back(128 + 0.5f * r - 0.418688f * g - 0.081312f * b);
            }
        const int across = format && params.subsampling ? 2 : 1, down = format && params.subsampling == 2 ? 2 : 1;
        return jpeg_writer::Writer(std::move(planes), across, down, params.quality).out;
    });
}

struct EncodeConfig {
    int stream_type, color_space;
    uint16_t rsiz;
    uint32_t width, height, tiling, tile_width, tile_height, components;
    const ComponentInfo* info;
    uint32_t sop, eph;
    int progression;
    uint32_t layers, colours, resolutions, block_width, block_height, modes, irreversible, precincts;
    uint32_t precinct_width[33], precinct_height[33];
};

struct Jpeg2000Params {
    uint32_t width = 0, height = 0, components = 0;
    int bits = 0;
    bool is_signed = false, colours = false, is_lossless = false, interleaved = false;
};

int encode_jpeg2000(EncodeState& state, const Jpeg2000Params& params, const Image& source, void* stream) {
    const size_t size = params.bits > 8 ? 2 : 1;
    const size_t planes = params.interleaved ? 1 : params.components;
    const size_t beside = params.interleaved ? params.components : 1;
    if (!params.components || source.components != params.components || (source.type == 0) != (size == 1))
        return INVALID;
    std::vector<const uint8_t*> addresses;
    std::vector<size_t> pitches(source.pitches, source.pitches + planes);
    for (size_t at = 0; at < planes; at++) {
        addresses.push_back(static_cast<const uint8_t*>(source.planes[at]));
        if (pitches[at] < params.width * beside * size) return INVALID;
    }
    return encode(state, stream, [=] {
        std::vector<std::vector<int>> samples(params.components);
        for (size_t c = 0; c < samples.size(); c++)
            for (size_t y = 0; y < params.height; y++)
                for (size_t x = 0; x < params.width; x++) {
                    const size_t plane = params.interleaved ? 0 : c;
                    const size_t column = params.interleaved ? x * beside + c : x;
                    const uint8_t* at = addresses[plane] + y * pitches[plane] + column * size;
                    const uint16_t word = size == 1 ? *at : uint16_t(at[0] | at[1] << 8);
                    samples[c].push_back(params.is_signed ? int(int16_t(word)) : int(word));
                }
        return jpeg2000_writer::write(std::move(samples), int(params.width), int(params.height), params.bits,
                                      params.is_signed, params.colours);
    });
}

int property(int kind, int* value, int major, int minor) {
    *value = kind == 0 ? major : kind == 1 ? minor : 0;
    return SUCCESS;
}

template <class T> int made(void** place, T* object) {
    *place = object;
    return SUCCESS;
}

}  // namespace

API int nvjpegGetProperty(int kind, int* value) { return property(kind, value, 13, 0); }
API int nvjpegCreateEx(int, const void*, const void*, unsigned, void** handle) {
    return driver() ? made(handle, new int) : FAILED;
}
API int nvjpegDestroy(void* handle) { return delete static_cast<int*>(handle), SUCCESS; }
API int nvjpegJpegStateCreate(void*, void** state) { return made(state, new State); }
API int nvjpegJpegStateDestroy(void* state) { return delete static_cast<State*>(state), SUCCESS; }
API int nvjpegJpegStreamCreate(void*, void** jpeg) { return made(jpeg, new Shape); }
API int nvjpegJpegStreamDestroy(void* jpeg) { return delete static_cast<Shape*>(jpeg), SUCCESS; }
API int nvjpegJpegStreamParseHeader(void*, const uint8_t* data, size_t len, void* jpeg) {
    return jpeg_shape(data, len, *static_cast<Shape*>(jpeg)) ? SUCCESS : BAD;
}
API int nvjpegDecodeBatchedSupported(void*, void*, int* unsupported) { return *unsupported = 0, SUCCESS; }
API int nvjpegGetImageInfo(void*, const uint8_t* data, size_t len, int* components, int* subsampling, int* widths,
                           int* heights) {
    Shape shape;
    if (!jpeg_shape(data, len, shape)) return BAD;
    *components = int(shape.components);
    *subsampling = shape.subsampled;
    widths[0] = int(shape.width);
    heights[0] = int(shape.height);
    return SUCCESS;
}
API int nvjpegDecode(void*, void* state, const uint8_t* data, size_t len, int, Jpeg* output, void* stream) {
    return jpeg_one(*static_cast<State*>(state), 0, data, len, *output, stream);
}
API int nvjpegDecodeBatchedInitialize(void*, void* state, int batch, int, int) {
    static_cast<State*>(state)->batch = batch;
    return SUCCESS;
}
API int nvjpegDecodeBatched(void*, void* state, const uint8_t* const* data, const size_t* lens, Jpeg* outputs,
                            void* stream) {
    auto& used = *static_cast<State*>(state);
    int status = SUCCESS;
    for (size_t slot = 0; slot < size_t(used.batch) && status == SUCCESS; slot++)
        status = jpeg_one(used, slot, data[slot], lens[slot], outputs[slot], stream);
    return status;
}

API int nvjpeg2kGetProperty(int kind, int* value) { return property(kind, value, 0, 11); }
API int nvjpeg2kCreateSimple(void** handle) { return driver() ? made(handle, new int) : FAILED; }
API int nvjpeg2kDestroy(void* handle) { return delete static_cast<int*>(handle), SUCCESS; }
API int nvjpeg2kDecodeStateCreate(void*, void** state) { return made(state, new State); }
API int nvjpeg2kDecodeStateDestroy(void* state) { return delete static_cast<State*>(state), SUCCESS; }
API int nvjpeg2kStreamCreate(void** stream) { return made(stream, new Codestream); }
API int nvjpeg2kStreamDestroy(void* stream) { return delete static_cast<Codestream*>(stream), SUCCESS; }
API int nvjpeg2kStreamParse(void*, const uint8_t* data, size_t len, int, int, void* stream) {
    auto& parsed = *static_cast<Codestream*>(stream);
    parsed.seed = hash(data, len);
    return jpeg2000_shape(data, len, parsed.shape) && !refuses(parsed.seed) ? SUCCESS : BAD;
}
API int nvjpeg2kStreamGetImageInfo(void* stream, ImageInfo* info) {
    const Shape& shape = static_cast<Codestream*>(stream)->shape;
    *info = {shape.width, shape.height, shape.width, shape.height, 1, 1, shape.components};
    return SUCCESS;
}
API int nvjpeg2kStreamGetImageComponentInfo(void* stream, ComponentInfo* info, uint32_t) {
    const Shape& shape = static_cast<Codestream*>(stream)->shape;
    *info = {shape.width, shape.height, uint8_t(shape.bits), shape.is_signed};
    return SUCCESS;
}
API int nvjpeg2kDecodeImage(void*, void* state, void* stream, void*, Image* output, void* queue) {
    const auto& parsed = *static_cast<Codestream*>(stream);
    return decode(*static_cast<State*>(state), 0, parsed.shape, parsed.seed, output->type == 0 ? 1 : 2, output->planes,
                  output->pitches, queue);
}

API int nvjpegEncoderStateCreate(void*, void** state, void*) { return made(state, new EncodeState); }
API int nvjpegEncoderStateDestroy(void* state) { return delete static_cast<EncodeState*>(state), SUCCESS; }
API int nvjpegEncoderParamsCreate(void*, void** params, void*) { return made(params, new JpegParams); }
API int nvjpegEncoderParamsDestroy(void* params) { return delete static_cast<JpegParams*>(params), SUCCESS; }
API int nvjpegEncoderParamsSetQuality(void* params, int quality, void*) {
    static_cast<JpegParams*>(params)->quality = quality;
    return quality >= 1 && quality <= 100 ? SUCCESS : INVALID;
}
API int nvjpegEncoderParamsSetEncoding(void*, int encoding, void*) { return encoding == 0xC0 ? SUCCESS : UNABLE; }
API int nvjpegEncoderParamsSetOptimizedHuffman(void*, int, void*) { return SUCCESS; }
API int nvjpegEncoderParamsSetSamplingFactors(void* params, int subsampling, void*) {
    static_cast<JpegParams*>(params)->subsampling = subsampling;
    return SUCCESS;
}
API int nvjpegEncodeYUV(void*, void* state, void* params, const Jpeg* source, int subsampling, int width, int height,
                        void* stream) {
    if (subsampling != GREY) return UNABLE;
    return encode_jpeg(*static_cast<EncodeState*>(state), *static_cast<JpegParams*>(params), *source, 0, width, height,
                       stream);
}
API int nvjpegEncodeImage(void*, void* state, void* params, const Jpeg* source, int format, int width, int height,
                          void* stream) {
    if (!format) return INVALID;
    return encode_jpeg(*static_cast<EncodeState*>(state), *static_cast<JpegParams*>(params), *source, format, width,
                       height, stream);
}
API int nvjpegEncodeRetrieveBitstream(void*, void* state, uint8_t* data, size_t* len, void* stream) {
    return retrieve(*static_cast<EncodeState*>(state), data, len, stream);
}

API int nvjpeg2kEncoderCreateSimple(void** encoder) { return driver() ? made(encoder, new int) : FAILED; }
API int nvjpeg2kEncoderDestroy(void* encoder) { return delete static_cast<int*>(encoder), SUCCESS; }
API int nvjpeg2kEncodeStateCreate(void*, void** state) { return made(state, new EncodeState); }
API int nvjpeg2kEncodeStateDestroy(void* state) { return delete static_cast<EncodeState*>(state), SUCCESS; }
API int nvjpeg2kEncodeParamsCreate(void** params) { return made(params, new Jpeg2000Params); }
API int nvjpeg2kEncodeParamsDestroy(void* params) { return delete static_cast<Jpeg2000Params*>(params), SUCCESS; }
API int nvjpeg2kEncodeParamsSetEncodeConfig(void* params, const EncodeConfig* config) {
    const bool is_plain = !config->stream_type && !config->rsiz && !config->tiling && !config->sop && !config->eph &&
                          config->layers == 1 && !config->modes && !config->precincts;
    if (!is_plain || config->color_space == 0 || config->components < 1 || config->components > 4) return INVALID;
    // As the real one: no picture of a single pixel.
    if (config->width * config->height < 2) return UNABLE;
    const ComponentInfo& info = config->info[0];
    const bool is_signed = info.is_signed != 0, colours = config->colours != 0, is_lossless = !config->irreversible;
    *static_cast<Jpeg2000Params*>(params) = {config->width, config->height, config->components, info.precision,
                                             is_signed,     colours,        is_lossless,        false};
    return SUCCESS;
}
API int nvjpeg2kEncodeParamsSpecifyQuality(void* params, int, double value) {
    const auto& set = *static_cast<Jpeg2000Params*>(params);
    return set.components && !set.is_lossless && value > 0 ? SUCCESS : INVALID;
}
API int nvjpeg2kEncodeParamsSetInputFormat(void* params, int format) {
    static_cast<Jpeg2000Params*>(params)->interleaved = format == 1;
    return SUCCESS;
}
API int nvjpeg2kEncode(void*, void* state, void* params, const Image* source, void* stream) {
    return encode_jpeg2000(*static_cast<EncodeState*>(state), *static_cast<Jpeg2000Params*>(params), *source, stream);
}
API int nvjpeg2kEncodeRetrieveBitstream(void*, void* state, uint8_t* data, size_t* len, void* stream) {
    return retrieve(*static_cast<EncodeState*>(state), data, len, stream);
}
