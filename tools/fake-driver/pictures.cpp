// Stand-ins for nvJPEG and nvJPEG2000 on the fake driver, so that the path of pictures is tested without a GPU.
//
// They read sizes from a stream's header and "decode" it to a pattern: the sample of component c at column x and row y
// is x + 3 y + 50 c + a hash of the whole stream. What a state holds is pinned and copied by the stream, late, as in
// the real ones: a state that is used again or destroyed too early is found by the samples, or by the fake driver.
// SWATH_FAKE_REFUSE=n has every n-th stream, by its hash, refused.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "api.hpp"

namespace {

enum : int { SUCCESS = 0, BAD = 3, ALLOCATOR = 5, FAILED = 6 };

// The driver in the folder above, which the process has open already.
void* driver() {
    static void* const opened = [] {
        Dl_info self{};
        dladdr(reinterpret_cast<void*>(&driver), &self);
        std::string path = self.dli_fname;
        path = path.substr(0, path.rfind('/')) + "/../libcuda.so.1";
        return dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    }();
    return opened;
}

template <class F> F* function(const char* name) {
    return driver() ? reinterpret_cast<F*>(dlsym(driver(), name)) : nullptr;
}

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

uint32_t hash(const uint8_t* data, size_t len) {
    uint32_t value = 2166136261u;
    for (size_t at = 0; at < len; at++) value = (value ^ data[at]) * 16777619u;
    return value;
}

bool refuses(uint32_t hash) {
    const char* every = getenv("SWATH_FAKE_REFUSE");
    return every && atoi(every) > 0 && hash % uint32_t(atoi(every)) == 0;
}

// Pinned memory that the device copies from until the stream has passed: freed under a copy, the driver complains.
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
