// A stand-in for cuFile on the fake driver: reads into pinned memory and waits for the copy, as compatibility mode
// does.
//
// SWATH_FAKE_STORAGE=n has the n-th read and all after it fail.
#include <unistd.h>

#include <atomic>

#include "library.hpp"

namespace {

struct Error {
    int code, cuda;
};

struct Description {
    int kind;
    union {
        int descriptor;
        void* handle;
    };
    const void* file_system;
};

}  // namespace

API Error cuFileDriverOpen() { return driver() ? Error{0, 0} : Error{5029, 0}; }
API Error cuFileDriverClose() { return {0, 0}; }
API Error cuFileDriverGetProperties(uint32_t* properties) { return properties[0] = properties[1] = 0, Error{0, 0}; }
API Error cuFileHandleRegister(void** handle, Description* description) {
    *handle = new int(description->descriptor);
    return {0, 0};
}
API void cuFileHandleDeregister(void* handle) { delete static_cast<int*>(handle); }
API ssize_t cuFileRead(void* handle, void* address, size_t len, off_t offset, off_t address_offset) {
    static std::atomic<int> reads{0};
    const char* fails = getenv("SWATH_FAKE_STORAGE");
    if (fails && ++reads >= atoi(fails)) return -5044;
    void* pinned = nullptr;
    if (function<decltype(cuMemHostAlloc)>("cuMemHostAlloc")(&pinned, len ? len : 1, 0) != OK) return -5043;
    ssize_t read = pread(*static_cast<int*>(handle), pinned, len, offset);
    if (read > 0) {
        CUstream stream = nullptr;
        const auto to = reinterpret_cast<CUdeviceptr>(address) + CUdeviceptr(address_offset);
        const bool copied = function<decltype(cuStreamCreate)>("cuStreamCreate")(&stream, 1) == OK &&
            function<decltype(cuMemcpyHtoDAsync_v2)>("cuMemcpyHtoDAsync_v2")(to, pinned, size_t(read), stream) == OK &&
            function<decltype(cuStreamSynchronize)>("cuStreamSynchronize")(stream) == OK;
        if (stream) function<decltype(cuStreamDestroy_v2)>("cuStreamDestroy_v2")(stream);
        if (!copied) read = -5011;
    }
    function<decltype(cuMemFreeHost)>("cuMemFreeHost")(pinned);
    return read;
}
