// Shared by the stand-ins for NVIDIA's libraries: the fake driver beside them, and work that they give to its streams.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "api.hpp"

// The driver in the folder above, which the process has open already.
inline void* driver() {
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

// Gives work to a stream that may touch device memory when it runs, and must not call the driver.
inline CUresult queue(CUstream stream, std::function<void()> work) {
    const auto run = function<decltype(swath_fake_run)>("swath_fake_run");
    if (!run) return NOT_INITIALIZED;
    const auto call = [](void* data) { (*static_cast<std::function<void()>*>(data))(); };
    const auto drop = [](void* data) { delete static_cast<std::function<void()>*>(data); };
    return run(stream, call, drop, new std::function<void()>(std::move(work)));
}

inline uint32_t hash(const uint8_t* data, size_t len) {
    uint32_t value = 2166136261u;
    for (size_t at = 0; at < len; at++) value = (value ^ data[at]) * 16777619u;
    return value;
}

// SWATH_FAKE_REFUSE=n refuses every n-th stream, by its hash.
inline bool refuses(uint32_t hash) {
    const char* every = getenv("SWATH_FAKE_REFUSE");
    return every && atoi(every) > 0 && hash % uint32_t(atoi(every)) == 0;
}
