// Checks that the fake driver executes, defers, fails and reports as README.md documents.
#include "api.hpp"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static void expect_at(int line, long long got, long long want, const char* text) {
    if (got == want) return;
    std::printf("selftest.cpp:%d: %s is %lld, not %lld\n", line, text, got, want);
    std::fflush(stdout);
    _exit(1);
}
#define EXPECT(got, want) expect_at(__LINE__, static_cast<long long>(got), static_cast<long long>(want), #got)
#define DONE(call) EXPECT(call, OK)

static long long count(const char* what) { return static_cast<long long>(swath_fake_count(what)); }

static const char PTX[] = R"(
.version 8.0
.target sm_70
.visible .entry swath_selftest_add(
    .param .align 8 .b8 swath_selftest_add_param_0[32]
)
{ ret; }
.visible .entry swath_selftest_poke(.param .align 8 .b8 swath_selftest_poke_param_0[16]) { ret; }
.visible .entry swath_selftest_gone(.param .u64 swath_selftest_gone_param_0) { ret; }
)";

struct AddArgs {
    CUdeviceptr src, dst;
    unsigned long long len;
    unsigned value, unused;
};

constexpr size_t LEN = 10000;

// A context, a module, memory on both sides and two streams, which most tests need.
struct Rig {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction add = nullptr, poke = nullptr;
    CUdeviceptr a = 0, b = 0;
    unsigned char* in = nullptr;
    unsigned char* out = nullptr;
    CUstream first = nullptr, second = nullptr;
    CUevent event = nullptr;

    explicit Rig(const char* script) {
        EXPECT(swath_fake_script(script), 0);
        DONE(cuInit(0));
        DONE(cuDevicePrimaryCtxRetain(&context, 0));
        DONE(cuCtxSetCurrent(context));
        DONE(cuModuleLoadData(&module, PTX));
        DONE(cuModuleGetFunction(&add, module, "swath_selftest_add"));
        DONE(cuModuleGetFunction(&poke, module, "swath_selftest_poke"));
        DONE(cuMemAlloc_v2(&a, LEN));
        DONE(cuMemAlloc_v2(&b, LEN));
        DONE(cuMemHostAlloc(reinterpret_cast<void**>(&in), LEN, 0));
        DONE(cuMemHostAlloc(reinterpret_cast<void**>(&out), LEN, 0));
        DONE(cuStreamCreate(&first, 1));
        DONE(cuStreamCreateWithPriority(&second, 1, -1));
        DONE(cuEventCreate(&event, 0));
    }
    // The answer of every call on a released handle.
    void end(CUresult want = OK) {
        EXPECT(cuEventDestroy_v2(event), want);
        EXPECT(cuStreamDestroy_v2(first), want);
        EXPECT(cuStreamDestroy_v2(second), want);
        EXPECT(cuMemFreeHost(in), want);
        EXPECT(cuMemFreeHost(out), want);
        EXPECT(cuMemFree_v2(a), want);
        EXPECT(cuMemFree_v2(b), want);
        EXPECT(cuModuleUnload(module), want);
        EXPECT(cuDevicePrimaryCtxRelease_v2(0), want);
        EXPECT(count("live_bytes"), 0);
        EXPECT(count("live_host_bytes"), 0);
        EXPECT(count("streams") + count("events") + count("modules"), 0);
    }
    CUresult launch_add(CUdeviceptr src, CUdeviceptr dst, unsigned value, CUstream stream, size_t len = LEN) {
        AddArgs args{src, dst, len, value, 0};
        void* params[] = {&args};
        return cuLaunchKernel(add, 3, 1, 1, 64, 1, 1, 0, stream, params, nullptr);
    }
    CUresult launch_poke(CUdeviceptr base, unsigned long long offset, CUstream stream) {
        unsigned long long args[] = {base, offset};
        void* params[] = {args};
        return cuLaunchKernel(poke, 1, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
    }
    // Up on one stream, added to and down on the other, with or without a wait between the two.
    void pipeline(bool with_wait) {
        for (size_t at = 0; at < LEN; at++) in[at] = static_cast<unsigned char>(at);
        DONE(cuMemcpyHtoDAsync_v2(a, in, LEN, first));
        DONE(cuEventRecord(event, first));
        if (with_wait) DONE(cuStreamWaitEvent(second, event, 0));
        DONE(launch_add(a, b, 5, second));
        DONE(cuMemcpyDtoHAsync_v2(out, b, LEN, second));
    }
    bool right() const {
        for (size_t at = 0; at < LEN; at++)
            if (out[at] != static_cast<unsigned char>(at + 5)) return false;
        return true;
    }
};

static void executes() {
    for (const char* script : {"", "lanes=4"}) {
        Rig rig(script);
        rig.pipeline(false);
        EXPECT(rig.right(), true);
        DONE(cuMemsetD8Async(rig.a, 7, LEN, nullptr));
        DONE(cuMemcpyDtoDAsync_v2(rig.b, rig.a, LEN, rig.first));
        std::vector<unsigned char> plain(LEN);
        DONE(cuMemcpyDtoHAsync_v2(plain.data(), rig.b, LEN, nullptr));
        EXPECT(plain[LEN - 1], 7);
        EXPECT(count("alloc"), 2);
        EXPECT(count("live_bytes"), 2 * LEN);
        EXPECT(count("peak_bytes"), 2 * LEN);
        EXPECT(count("live_host_bytes"), 2 * LEN);
        EXPECT(count("h2d"), 1);
        EXPECT(count("d2h"), 2);
        EXPECT(count("d2d"), 1);
        EXPECT(count("d2h_bytes"), 2 * LEN);
        EXPECT(count("launch"), 1);
        EXPECT(count("pageable"), 1);
        EXPECT(count("submitted_before_first_wait"), 6);
        EXPECT(count("no such thing"), -1);
        DONE(cuCtxSynchronize());
        EXPECT(count("sync"), 1);
        rig.end();
        EXPECT(count("free"), 2);
        EXPECT(count("errors"), 0);
    }
}

static void fresh_memory_holds_the_pattern() {
    Rig rig("");
    DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, rig.first));
    for (size_t at = 0; at < LEN; at++) EXPECT(rig.out[at], 0xcd);
    EXPECT(rig.a % 256, 0);
    rig.end();
}

static void waits_make_it_right_under_every_order() {
    for (int seed = 0; seed < 40; seed++) {
        Rig rig(("async=1 seed=" + std::to_string(seed)).c_str());
        rig.pipeline(true);
        EXPECT(rig.right(), false);
        EXPECT(rig.out[0], 0xcd);
        DONE(cuStreamSynchronize(rig.second));
        EXPECT(rig.right(), true);
        rig.end();
        EXPECT(count("errors"), 0);
    }
}

static void a_missing_wait_is_caught() {
    int caught = 0;
    for (int seed = 0; seed < 40; seed++) {
        Rig rig(("async=1 seed=" + std::to_string(seed)).c_str());
        rig.pipeline(false);
        DONE(cuStreamSynchronize(rig.second));
        if (seed < 2) EXPECT(rig.right(), false);
        caught += !rig.right();
        rig.end();
    }
    EXPECT(caught > 10, true);
}

static void a_buffer_overwritten_too_early_is_caught() {
    // By the host: the copy reads what the buffer holds when it runs.
    Rig rig("async=1");
    std::memset(rig.in, 1, LEN);
    DONE(cuMemcpyHtoDAsync_v2(rig.a, rig.in, LEN, rig.first));
    std::memset(rig.in, 2, LEN);
    DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, rig.first));
    DONE(cuStreamSynchronize(rig.first));
    EXPECT(rig.out[0], 2);
    rig.end();

    // By another stream: seed 2 runs the others before what is waited for.
    Rig other("async=1 seed=2");
    DONE(cuMemsetD8Async(other.a, 1, LEN, other.first));
    DONE(cuMemcpyDtoHAsync_v2(other.out, other.a, LEN, other.first));
    DONE(cuMemsetD8Async(other.a, 2, LEN, other.second));
    DONE(cuStreamSynchronize(other.first));
    EXPECT(other.out[0], 1);
    DONE(cuMemcpyDtoHAsync_v2(other.out, other.a, LEN, other.first));
    DONE(cuMemsetD8Async(other.a, 3, LEN, other.second));
    DONE(cuStreamSynchronize(other.first));
    EXPECT(other.out[0], 3);
    other.end();
}

static void polling_ends() {
    for (int seed = 0; seed < 10; seed++) {
        Rig rig(("async=1 seed=" + std::to_string(seed)).c_str());
        rig.pipeline(true);
        DONE(cuEventRecord(rig.event, rig.second));
        EXPECT(cuEventQuery(rig.event), NOT_READY);
        int tries = 1;
        while (cuEventQuery(rig.event) == NOT_READY) tries++;
        EXPECT(tries < 10, true);
        EXPECT(rig.right(), true);
        DONE(cuStreamQuery(rig.second));
        EXPECT(count("query"), tries + 2);
        EXPECT(count("submitted_before_first_wait"), 3);
        rig.end();
    }
}

static void events_hold_the_last_record_and_tell_time() {
    Rig rig("async=1 seed=1");
    CUevent later, untimed;
    float milliseconds = -1;
    DONE(cuEventCreate(&later, 0));
    DONE(cuEventCreate(&untimed, 2));
    DONE(cuEventQuery(later));
    DONE(cuStreamWaitEvent(rig.first, later, 0));
    DONE(cuEventRecord(rig.event, rig.first));
    rig.pipeline(true);
    DONE(cuEventRecord(later, rig.second));
    EXPECT(cuEventElapsedTime(&milliseconds, rig.event, later), NOT_READY);
    DONE(cuEventSynchronize(later));
    DONE(cuEventElapsedTime(&milliseconds, rig.event, later));
    EXPECT(milliseconds >= 0, true);
    EXPECT(cuEventElapsedTime(&milliseconds, untimed, later), INVALID_HANDLE);
    DONE(cuEventDestroy_v2(later));
    DONE(cuEventDestroy_v2(untimed));
    rig.end();
}

static void the_legacy_stream_orders_blocking_ones() {
    for (int seed = 0; seed < 20; seed++) {
        Rig rig(("async=1 seed=" + std::to_string(seed)).c_str());
        CUstream blocking;
        DONE(cuStreamCreate(&blocking, 0));
        DONE(cuMemsetD8Async(rig.a, 1, LEN, blocking));
        DONE(cuMemcpyDtoDAsync_v2(rig.b, rig.a, LEN, nullptr));
        DONE(cuMemsetD8Async(rig.a, 2, LEN, reinterpret_cast<CUstream>(2)));
        DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.b, LEN, reinterpret_cast<CUstream>(1)));
        DONE(cuStreamSynchronize(nullptr));
        EXPECT(rig.out[LEN - 1], 1);
        DONE(cuStreamDestroy_v2(blocking));
        rig.end();
        EXPECT(count("errors"), 0);
    }
}

static void a_destroyed_stream_still_works_off_its_queue() {
    Rig rig("async=1 seed=1");
    CUstream brief;
    DONE(cuStreamCreate(&brief, 1));
    DONE(cuMemsetD8Async(rig.a, 9, LEN, brief));
    DONE(cuEventRecord(rig.event, brief));
    DONE(cuStreamDestroy_v2(brief));
    DONE(cuStreamWaitEvent(rig.first, rig.event, 0));
    DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, rig.first));
    DONE(cuStreamSynchronize(rig.first));
    EXPECT(rig.out[0], 9);
    EXPECT(cuStreamSynchronize(brief), INVALID_HANDLE);
    EXPECT(count("errors"), 1);
    rig.end();
}

static void bad_copies_break_the_context() {
    for (int kind = 0; kind < 5; kind++) {
        Rig rig("");
        unsigned char plain[4] = {};
        const size_t past = LEN + 1;
        if (kind == 0) EXPECT(cuMemcpyHtoDAsync_v2(rig.a, rig.in, past, rig.first), ILLEGAL_ADDRESS);
        if (kind == 1) EXPECT(cuMemcpyDtoHAsync_v2(rig.in + 1, rig.a, LEN, rig.first), ILLEGAL_ADDRESS);
        if (kind == 2) EXPECT(cuMemcpyDtoDAsync_v2(rig.a, rig.b + 1, LEN, rig.first), ILLEGAL_ADDRESS);
        if (kind == 3) EXPECT(cuMemcpyHtoDAsync_v2(0x1000, plain, 4, rig.first), ILLEGAL_ADDRESS);
        if (kind == 4) EXPECT(cuMemsetD8Async(rig.a - 1, 0, 1, rig.first), ILLEGAL_ADDRESS);
        CUdeviceptr more;
        EXPECT(cuMemAlloc_v2(&more, 1), ILLEGAL_ADDRESS);
        EXPECT(cuCtxSynchronize(), ILLEGAL_ADDRESS);
        // As on a real device, a broken context can still be made current.
        DONE(cuCtxPushCurrent_v2(rig.context));
        DONE(cuCtxPopCurrent_v2(nullptr));
        EXPECT(count("errors"), 1);
        rig.end(ILLEGAL_ADDRESS);
    }
}

static void bad_launches_break_the_context() {
    unsigned char plain[16] = {};
    for (int kind = 0; kind < 4; kind++) {
        Rig rig("async=1");
        CUdeviceptr gone;
        DONE(cuMemAlloc_v2(&gone, LEN));
        DONE(cuMemFree_v2(gone));
        if (kind == 0) EXPECT(rig.launch_add(gone, rig.b, 0, rig.first), ILLEGAL_ADDRESS);
        if (kind == 1) {
            const auto stack = reinterpret_cast<CUdeviceptr>(plain);
            EXPECT(rig.launch_add(stack, rig.b, 0, rig.first, 16), ILLEGAL_ADDRESS);
        }
        if (kind >= 2) {
            // Through a valid pointer to a bad address: past the block's pages, and to freed memory.
            DONE(rig.launch_poke(rig.a, kind == 2 ? LEN + 300 : gone - rig.a, rig.first));
            EXPECT(cuStreamSynchronize(rig.first), ILLEGAL_ADDRESS);
        }
        EXPECT(rig.launch_add(rig.a, rig.b, 0, rig.first), ILLEGAL_ADDRESS);
        EXPECT(count("errors"), 1);
        rig.end(ILLEGAL_ADDRESS);
    }
}

static void written_guards_are_found() {
    Rig rig("");
    DONE(rig.launch_poke(rig.a, LEN, rig.first));
    DONE(rig.launch_poke(rig.b, -1ull, rig.first));
    rig.in[LEN] = 0;
    EXPECT(count("errors"), 3);
    EXPECT(count("errors"), 3);
    rig.end();
    EXPECT(count("errors"), 3);

    Rig again("");
    DONE(again.launch_poke(again.a, LEN + 3, again.first));
    again.end();
    EXPECT(count("errors"), 1);
}

static void misuse_of_handles_and_memory_is_counted() {
    Rig rig("async=1");
    CUdeviceptr once;
    DONE(cuMemAlloc_v2(&once, 100));
    DONE(cuMemFree_v2(once));
    EXPECT(cuMemFree_v2(once), INVALID_VALUE);
    EXPECT(cuMemFree_v2(rig.a + 1), INVALID_VALUE);
    DONE(cuMemFree_v2(0));
    CUevent event;
    DONE(cuEventCreate(&event, 0));
    DONE(cuEventDestroy_v2(event));
    EXPECT(cuEventRecord(event, rig.first), INVALID_HANDLE);
    EXPECT(count("errors"), 3);
    void* pinned;
    DONE(cuMemHostAlloc(&pinned, LEN, 0));
    DONE(cuMemcpyHtoDAsync_v2(rig.a, pinned, LEN, rig.first));
    DONE(cuMemFreeHost(pinned));
    EXPECT(count("errors"), 4);
    DONE(cuMemAlloc_v2(&once, 100));
    EXPECT(count("live_bytes"), 2 * LEN + 100);
    rig.end();
    // The last block was left to the context.
    EXPECT(count("errors"), 5);
}

static void failures_come_when_scripted() {
    CUdeviceptr block = 0, more = 0;
    void* pinned = nullptr;
    {
        Rig rig("fail_alloc=3 fail_host_alloc=3 fail_copy=2");
        EXPECT(cuMemAlloc_v2(&block, 10), OUT_OF_MEMORY);
        DONE(cuMemAlloc_v2(&block, 10));
        DONE(cuMemFree_v2(block));
        EXPECT(cuMemHostAlloc(&pinned, 10, 0), OUT_OF_MEMORY);
        DONE(cuMemcpyHtoDAsync_v2(rig.a, rig.in, LEN, nullptr));
        EXPECT(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, nullptr), UNKNOWN);
        DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, nullptr));
        rig.end();
    }
    {
        Rig rig("fail_alloc_from=4");
        DONE(cuMemAlloc_v2(&block, 10));
        EXPECT(cuMemAlloc_v2(&more, 10), OUT_OF_MEMORY);
        DONE(cuMemFree_v2(block));
        EXPECT(cuMemAlloc_v2(&more, 10), OUT_OF_MEMORY);
        rig.end();
    }
    {
        Rig rig("memory=100000 free=50000");
        size_t free = 0, total = 0;
        DONE(cuMemGetInfo_v2(&free, &total));
        EXPECT(free, 30000);
        EXPECT(total, 100000);
        EXPECT(cuMemAlloc_v2(&block, 30001), OUT_OF_MEMORY);
        DONE(cuMemAlloc_v2(&block, 30000));
        DONE(cuMemFree_v2(block));
        rig.end();
    }
    {
        Rig rig("fail_launch=2 async=1");
        DONE(rig.launch_add(rig.a, rig.b, 0, rig.first));
        EXPECT(rig.launch_add(rig.a, rig.b, 0, rig.first), LAUNCH_FAILED);
        EXPECT(cuStreamSynchronize(rig.first), LAUNCH_FAILED);
        rig.end(LAUNCH_FAILED);
    }
    {
        Rig rig("fault_launch=1 async=1");
        DONE(rig.launch_add(rig.a, rig.b, 0, rig.first));
        EXPECT(cuStreamSynchronize(rig.first), ILLEGAL_ADDRESS);
        rig.end(ILLEGAL_ADDRESS);
    }
    {
        Rig rig("fail_sync=2");
        DONE(cuCtxSynchronize());
        EXPECT(cuStreamSynchronize(rig.first), LAUNCH_FAILED);
        rig.end(LAUNCH_FAILED);
    }
    {
        Rig rig("");
        EXPECT(swath_fake_script("fail_call=2"), 0);
        DONE(cuCtxSynchronize());
        EXPECT(cuStreamQuery(rig.first), UNKNOWN);
        DONE(cuCtxSynchronize());
        EXPECT(count("fallible"), 3);
        rig.end();
        EXPECT(count("fallible") < count("calls"), true);
    }
    {
        Rig rig("");
        EXPECT(swath_fake_script("lose_after=2"), 0);
        DONE(cuCtxSynchronize());
        DONE(cuCtxSynchronize());
        EXPECT(cuCtxSynchronize(), UNKNOWN);
        EXPECT(cuInit(0), UNKNOWN);
        rig.end(UNKNOWN);
        EXPECT(count("errors"), 0);
    }
    // All of that is over with the next script.
    Rig rig("");
    rig.pipeline(true);
    EXPECT(rig.right(), true);
    rig.end();
}

// Work of a library: a number of bytes of device memory, which it adds 1 to, and how often it was dropped.
struct Foreign {
    CUdeviceptr at;
    size_t len;
    int* dropped;
};

static CUresult run_foreign(Foreign work, CUstream stream) {
    const auto run = [](void* data) {
        const Foreign& work = *static_cast<Foreign*>(data);
        for (size_t at = 0; at < work.len; at++) reinterpret_cast<unsigned char*>(work.at)[at]++;
    };
    const auto drop = [](void* data) {
        ++*static_cast<Foreign*>(data)->dropped;
        delete static_cast<Foreign*>(data);
    };
    return swath_fake_run(stream, run, drop, new Foreign(work));
}

static void work_of_libraries_is_queued_as_launches_are() {
    int dropped = 0;
    {
        Rig rig("async=1");
        DONE(cuMemsetD8Async(rig.a, 4, LEN, rig.first));
        DONE(run_foreign({rig.a, LEN, &dropped}, rig.first));
        EXPECT(dropped, 0);
        DONE(cuMemcpyDtoHAsync_v2(rig.out, rig.a, LEN, rig.first));
        DONE(cuStreamSynchronize(rig.first));
        EXPECT(rig.out[0] + rig.out[LEN - 1], 10);
        EXPECT(dropped, 1);
        EXPECT(count("launch"), 1);
        EXPECT(count("errors"), 0);
        EXPECT(run_foreign({rig.a, LEN, &dropped}, reinterpret_cast<CUstream>(1234)), INVALID_HANDLE);
        EXPECT(dropped, 2);
        rig.end();
    }
    {
        Rig rig("fail_launch=2 async=1");
        DONE(run_foreign({rig.a, LEN, &dropped}, rig.first));
        EXPECT(run_foreign({rig.a, LEN, &dropped}, rig.first), LAUNCH_FAILED);
        EXPECT(dropped, 4);
        rig.end(LAUNCH_FAILED);
    }
    {
        Rig rig("");
        EXPECT(run_foreign({rig.a, 2 * LEN, &dropped}, rig.first), ILLEGAL_ADDRESS);
        EXPECT(dropped, 5);
        EXPECT(count("errors") > 0, true);
        rig.end(ILLEGAL_ADDRESS);
    }
}

static void modules_are_checked() {
    Rig rig("");
    CUmodule module;
    CUfunction function;
    EXPECT(cuModuleGetFunction(&function, rig.module, "swath_selftest"), NOT_FOUND);
    EXPECT(cuModuleGetFunction(&function, rig.module, "swath_selftest_gone"), NOT_FOUND);
    EXPECT(count("errors"), 1);
    EXPECT(cuModuleLoadData(&module, "not PTX"), INVALID_IMAGE);
    const char* other = ".version 8.0\n.target sm_70\n.visible .entry swath_selftest_add(\n"
                        ".param .align 8 .b8 swath_selftest_add_param_0[40]\n)";
    DONE(cuModuleLoadData(&module, other));
    EXPECT(cuModuleGetFunction(&function, module, "swath_selftest_add"), INVALID_IMAGE);
    EXPECT(count("errors"), 2);
    DONE(cuModuleUnload(module));
    int value = 0;
    DONE(cuFuncGetAttribute(&value, 0, rig.add));
    EXPECT(value, 64);
    DONE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, rig.add, 64, 0));
    EXPECT(value, 32);
    AddArgs args{rig.a, rig.b, LEN, 0, 0};
    void* params[] = {&args};
    EXPECT(cuLaunchKernel(rig.add, 0, 1, 1, 64, 1, 1, 0, nullptr, params, nullptr), INVALID_VALUE);
    EXPECT(cuLaunchKernel(rig.add, 1, 1, 1, 48, 1, 1, 0, nullptr, params, nullptr), INVALID_VALUE);
    EXPECT(cuLaunchKernel(rig.add, 1, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr), LAUNCH_OUT_OF_RESOURCES);

    EXPECT(swath_fake_script("version=11080"), 0);
    EXPECT(cuModuleLoadData(&module, PTX), UNSUPPORTED_PTX_VERSION);
    EXPECT(swath_fake_script("fail_module=1"), 0);
    EXPECT(cuModuleLoadData(&module, PTX), UNSUPPORTED_PTX_VERSION);
    EXPECT(swath_fake_script("capability=61"), 0);
    char log[64] = "";
    int options[] = {5, 6};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    EXPECT(cuModuleLoadDataEx(&module, PTX, 2, options, values), INVALID_PTX);
    EXPECT(log[0], 'f');
    rig.end();
}

// The least that the fake takes for machine code: one kernel, its attributes, the names of sections.
static std::vector<unsigned char> machine_code(unsigned chip, bool wide, unsigned short parameter_bytes) {
    static const char NAMES[] = "\0.shstrtab\0.nv.info.swath_selftest_add";
    // An attribute with a value of four bytes, one that is its value, and the size of the parameters.
    const unsigned char attributes[] = {4, 0x37, 4, 0, 0x81, 0, 0, 0, 3, 0x50, 0, 0, 3, 0x19,
                                        static_cast<unsigned char>(parameter_bytes), 0};
    Elf64_Ehdr head = {};
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_ABIVERSION] = wide ? 8 : 7;
    head.e_machine = 190;
    head.e_flags = wide ? chip << 8 | 2 : chip;
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = 3;
    head.e_shstrndx = 1;
    const size_t names_at = sizeof head, attributes_at = names_at + sizeof NAMES;
    head.e_shoff = attributes_at + sizeof attributes;
    Elf64_Shdr sections[3] = {};
    sections[1].sh_name = 1;
    sections[1].sh_offset = names_at;
    sections[1].sh_size = sizeof NAMES;
    sections[2].sh_name = 11;
    sections[2].sh_offset = attributes_at;
    sections[2].sh_size = sizeof attributes;
    std::vector<unsigned char> image;
    const auto append = [&](const void* bytes, size_t len) {
        const auto* start = static_cast<const unsigned char*>(bytes);
        image.insert(image.end(), start, start + len);
    };
    append(&head, sizeof head);
    append(NAMES, sizeof NAMES);
    append(attributes, sizeof attributes);
    append(sections, sizeof sections);
    return image;
}

static void machine_code_is_checked() {
    Rig rig("capability=89");
    CUmodule module;
    CUfunction function;
    struct {
        unsigned chip;
        bool wide;
        CUresult result;
    } cases[] = {{89, false, OK},          {86, false, OK},
                 {80, true, OK},           {90, false, NO_BINARY_FOR_GPU},
                 {75, false, NO_BINARY_FOR_GPU}, {120, true, NO_BINARY_FOR_GPU}};
    for (const auto& each : cases) {
        const auto image = machine_code(each.chip, each.wide, sizeof(AddArgs));
        EXPECT(cuModuleLoadData(&module, image.data()), each.result);
        if (each.result) continue;
        EXPECT(cuModuleGetFunction(&function, module, "swath_selftest"), NOT_FOUND);
        DONE(cuModuleGetFunction(&function, module, "swath_selftest_add"));
        DONE(cuModuleUnload(module));
    }
    EXPECT(count("modules_made"), 4);
    EXPECT(count("cubins_made"), 3);
    EXPECT(count("errors"), 0);
    DONE(cuModuleLoadData(&module, machine_code(80, false, 40).data()));
    EXPECT(cuModuleGetFunction(&function, module, "swath_selftest_add"), INVALID_IMAGE);
    EXPECT(count("errors"), 1);
    DONE(cuModuleUnload(module));
    auto foreign = machine_code(80, false, sizeof(AddArgs));
    foreign[18] = 62;  // x86-64
    EXPECT(cuModuleLoadData(&module, foreign.data()), INVALID_IMAGE);
    EXPECT(swath_fake_script("refuse_cubin=200"), 0);
    EXPECT(cuModuleLoadData(&module, machine_code(90, false, sizeof(AddArgs)).data()), INVALID_IMAGE);
    DONE(cuModuleLoadData(&module, PTX));
    DONE(cuModuleUnload(module));
    rig.end();
}

static void devices_are_as_scripted() {
    int value = 0;
    EXPECT(swath_fake_script("init=803"), 0);
    EXPECT(cuInit(0), 803);
    EXPECT(swath_fake_script("devices=0"), 0);
    EXPECT(cuInit(0), NO_DEVICE);
    EXPECT(swath_fake_script("devises=2"), 1);
    EXPECT(swath_fake_script("devices=two"), 1);
    EXPECT(swath_fake_script("devices=2 version=13000 capability=86 sms=7 memory=12345678"), 0);
    DONE(cuInit(0));
    DONE(cuDriverGetVersion(&value));
    EXPECT(value, 13000);
    DONE(cuDeviceGetCount(&value));
    EXPECT(value, 2);
    CUdevice device;
    DONE(cuDeviceGet(&device, 1));
    EXPECT(cuDeviceGet(&device, 2), INVALID_DEVICE);
    DONE(cuDeviceGetAttribute(&value, 16, 1));
    EXPECT(value, 7);
    DONE(cuDeviceGetAttribute(&value, 75, 1));
    EXPECT(value, 8);
    DONE(cuDeviceGetAttribute(&value, 76, 1));
    EXPECT(value, 6);
    size_t bytes = 0;
    DONE(cuDeviceTotalMem_v2(&bytes, 1));
    EXPECT(bytes, 12345678);
    char name[64];
    DONE(cuDeviceGetName(name, sizeof name, 0));
    DONE(cuDeviceGetPCIBusId(name, sizeof name, 1));
    EXPECT(std::strcmp(name, "0000:02:00.0"), 0);
    CUuuid one, two;
    DONE(cuDeviceGetUuid_v2(&one, 0));
    DONE(cuDeviceGetUuid_v2(&two, 1));
    EXPECT(std::memcmp(&one, &two, 16) != 0, true);
    const char* text = nullptr;
    DONE(cuGetErrorName(2, &text));
    EXPECT(std::strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"), 0);
    EXPECT(cuGetErrorString(12345, &text), INVALID_VALUE);
}

static void contexts_keep_apart() {
    Rig rig("devices=2");
    CUcontext other, popped;
    CUdeviceptr far = 0;
    CUstream stream;
    int value = -1;
    DONE(cuDevicePrimaryCtxRetain(&other, 1));
    DONE(cuCtxPushCurrent_v2(other));
    DONE(cuCtxGetDevice(&value));
    EXPECT(value, 1);
    DONE(cuMemAlloc_v2(&far, LEN));
    DONE(cuStreamCreate(&stream, 1));
    EXPECT(rig.launch_add(rig.a, rig.b, 0, stream), INVALID_HANDLE);
    DONE(cuPointerGetAttribute(&value, 9, far + 5));
    EXPECT(value, 1);
    unsigned type = 0;
    DONE(cuPointerGetAttribute(&type, 2, far));
    EXPECT(type, 2);
    DONE(cuPointerGetAttribute(&type, 2, reinterpret_cast<CUdeviceptr>(rig.in)));
    EXPECT(type, 1);
    EXPECT(cuPointerGetAttribute(&type, 2, far + LEN), INVALID_VALUE);
    DONE(cuCtxPopCurrent_v2(&popped));
    EXPECT(popped == other, true);
    // Memory of another device is out of reach, and only the context that tried is broken.
    EXPECT(rig.launch_add(far, rig.b, 0, rig.first), ILLEGAL_ADDRESS);
    DONE(cuCtxPushCurrent_v2(other));
    DONE(cuStreamDestroy_v2(stream));
    DONE(cuMemFree_v2(far));
    DONE(cuCtxPopCurrent_v2(&popped));
    DONE(cuDevicePrimaryCtxRelease_v2(1));
    rig.end(ILLEGAL_ADDRESS);
    std::thread([] {
        CUdeviceptr block;
        EXPECT(cuMemAlloc_v2(&block, 1), INVALID_CONTEXT);
    }).join();
}

static void threads_may_call_at_once() {
    for (const char* script : {"", "async=1 seed=77"}) {
        Rig rig(script);
        std::vector<std::thread> threads;
        for (int own = 0; own < 6; own++) {
            threads.emplace_back([&rig, own] {
                DONE(cuCtxSetCurrent(rig.context));
                for (int round = 0; round < 30; round++) {
                    CUstream stream;
                    CUdeviceptr block;
                    void* host;
                    DONE(cuStreamCreate(&stream, 1));
                    DONE(cuMemAlloc_v2(&block, LEN));
                    DONE(cuMemHostAlloc(&host, LEN, 0));
                    DONE(cuMemsetD8Async(block, static_cast<unsigned char>(own), LEN, stream));
                    DONE(rig.launch_add(block, block, 1, stream));
                    DONE(cuMemcpyDtoHAsync_v2(host, block, LEN, stream));
                    DONE(cuStreamSynchronize(stream));
                    EXPECT(static_cast<unsigned char*>(host)[LEN - 1], own + 1);
                    DONE(cuMemFreeHost(host));
                    DONE(cuMemFree_v2(block));
                    DONE(cuStreamDestroy_v2(stream));
                }
            });
        }
        for (auto& thread : threads) thread.join();
        EXPECT(count("launch"), 180);
        EXPECT(count("errors"), 0);
        rig.end();
    }
}

// The exit status of a child process.
template <class Body> static int in_child(Body body) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        body();
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void host_writes(CUdeviceptr address) {
    volatile CUdeviceptr where = address;
    *reinterpret_cast<volatile char*>(where) = 0;
}

// Has to come before the driver is used here: a forked process could not use it any more.
static void the_end_of_the_process_is_watched() {
    EXPECT(in_child([] { Rig("").end(); }), 0);
    EXPECT(in_child([] { Rig rig(""); }), 0);
    EXPECT(in_child([] { Rig rig("leaks=1"); }), 97);
    EXPECT(in_child([] {
        Rig rig("");
        rig.launch_poke(rig.a, LEN, nullptr);
    }), 97);
    EXPECT(in_child([] {
        setenv("SWATH_FAKE_DRIVER", "devices=3", 1);
        int devices = 0;
        DONE(cuInit(0));
        DONE(cuDeviceGetCount(&devices));
        EXPECT(devices, 3);
    }), 0);
    EXPECT(in_child([] {
        // Faults of the host itself are not caught.
        Rig rig("");
        rig.launch_add(rig.a, rig.b, 0, nullptr);
        host_writes(8);
    }), 1000 + SIGSEGV);
    EXPECT(in_child([] { host_writes(Rig("").a); }), 1000 + SIGSEGV);
    EXPECT(in_child([] { host_writes(Rig("hide=0").a); }), 0);
}

static void a_fork_cannot_use_the_driver() {
    Rig rig("");
    EXPECT(in_child([] { EXPECT(cuCtxSynchronize(), NOT_INITIALIZED); }), 0);
    rig.end();
}

static void the_other_libraries_lack_symbols(const std::string& folder) {
    const auto has = [](void* library, const char* name) { return dlsym(library, name) != nullptr; };
    void* whole = dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    void* old = dlopen((folder + "/old/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    void* empty = dlopen((folder + "/empty/libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT(whole && old && empty, true);
    EXPECT(has(whole, "cuMemGetInfo_v2") && has(whole, "cuLaunchKernel") && has(whole, "swath_fake_count"), true);
    EXPECT(has(old, "cuInit") && has(old, "cuMemAlloc_v2") && has(old, "swath_fake_script"), true);
    EXPECT(has(old, "cuMemGetInfo_v2") || has(old, "cuLaunchKernel"), false);
    EXPECT(has(empty, "cuInit"), true);
    EXPECT(has(empty, "cuDriverGetVersion") || has(empty, "swath_fake_script"), false);
}

int main(int, char** args) {
    the_end_of_the_process_is_watched();
    executes();
    fresh_memory_holds_the_pattern();
    waits_make_it_right_under_every_order();
    a_missing_wait_is_caught();
    a_buffer_overwritten_too_early_is_caught();
    polling_ends();
    events_hold_the_last_record_and_tell_time();
    the_legacy_stream_orders_blocking_ones();
    a_destroyed_stream_still_works_off_its_queue();
    bad_copies_break_the_context();
    bad_launches_break_the_context();
    written_guards_are_found();
    misuse_of_handles_and_memory_is_counted();
    failures_come_when_scripted();
    work_of_libraries_is_queued_as_launches_are();
    modules_are_checked();
    machine_code_is_checked();
    devices_are_as_scripted();
    contexts_keep_apart();
    threads_may_call_at_once();
    a_fork_cannot_use_the_driver();
    the_other_libraries_lack_symbols(args[1]);
    EXPECT(swath_fake_script(""), 0);
    std::printf("fake driver: self-test passed\n");
}
