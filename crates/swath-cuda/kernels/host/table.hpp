// Every kernel as a host function, by name: the fake driver launches them, and tools/kernel-host runs them under
// sanitizers.
//
// Include this file, then every .cu file.
#pragma once
#include "groups.hpp"
#include "core/kernel.cuh"
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

struct HostKernel {
    u64 args_size;
    u32 threads;
    // With 1 lane, blocks run with a SerialGroup, else with a team of that many threads, whatever `threads` is.
    void (*launch)(u32 blocks, u32 lanes, const void* args);
};

inline std::map<std::string, HostKernel>& host_kernels() {
    static std::map<std::string, HostKernel> table;
    return table;
}

template <class Kernel> void launch_on_host(u32 blocks, u32 lanes, const void* raw) {
    typename Kernel::Args args;
    std::memcpy(&args, raw, sizeof args);
    for (u32 block = 0; block < blocks; block++) {
        // The device does not clear shared memory. Each block gets fresh memory, filled with a value that no body may
        // rely on.
        std::unique_ptr<typename Kernel::Shared> shared(new typename Kernel::Shared);
        std::memset(static_cast<void*>(shared.get()), 0xa5, sizeof(typename Kernel::Shared));
        if (lanes <= 1) {
            Kernel::run(SerialGroup{}, block, blocks, args, *shared);
            continue;
        }
        Team team(lanes);
        std::vector<std::thread> threads;
        for (u32 lane = 0; lane < lanes; lane++)
            threads.emplace_back([&, lane] { Kernel::run(TeamGroup{team, lane}, block, blocks, args, *shared); });
        for (auto& thread : threads) thread.join();
    }
}

template <class Kernel> bool register_kernel(const char* name) {
    return host_kernels().emplace(name, HostKernel{sizeof(typename Kernel::Args), Kernel::THREADS, launch_on_host<Kernel>}).second;
}

#define SWATH_KERNEL(name, Kernel) static const bool registered_##name = register_kernel<Kernel>(#name);
