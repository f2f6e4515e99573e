// Entry points about memory: to get it, to free it, to copy it.
#include "state.hpp"

template <class T> static T* pointer(uint64_t address) { return reinterpret_cast<T*>(address); }

// The device memory that the script and other users leave free.
static uint64_t available(Context& context) {
    const Script& script = state().script;
    const uint64_t most = std::min(script.memory, script.free), live = state().live_on(context);
    return most > live ? most - live : 0;
}

API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!free || !total) return INVALID_VALUE;
    *free = available(*call.context);
    *total = state().script.memory;
    return OK;
}

API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t len) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!address || !len) return INVALID_VALUE;
    State& s = state();
    const uint64_t nth = ++s.count.alloc;
    if (nth == s.script.fail_alloc || nth >= s.script.fail_alloc_from) return OUT_OF_MEMORY;
    if (len > available(*call.context)) return OUT_OF_MEMORY;
    const Block* block = s.device.take(len, call.context);
    if (!block) return OUT_OF_MEMORY;
    *address = block->start;
    if (s.script.hide) Arena::open(*block, false);
    s.count.peak_bytes = std::max(s.count.peak_bytes, s.device.live());
    return OK;
}

// A broken or lost device reports an error but still frees: the process continues here, so frees have to be counted.
API CUresult cuMemFree_v2(CUdeviceptr address) {
    Call call(Need::Context, Kind::GivesBack);
    if (!call.context) return call.result;
    if (!address) return call.result;
    State& s = state();
    Block* block = s.device.find(address);
    if (!block || block->start != address) {
        if (call.result) return call.result;
        report("cuMemFree of %llx, which is no device memory (any more)", address);
        return INVALID_VALUE;
    }
    Context* owner = static_cast<Context*>(block->context);
    s.count.waited = true;
    s.scheduler.finish(owner);
    s.count.free++;
    check_guards(*block);
    s.device.give_back(*block);
    return call.result ? call.result : owner->broken;
}

API CUresult cuMemHostAlloc(void** address, size_t len, unsigned flags) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!address || !len || flags > 7) return INVALID_VALUE;
    State& s = state();
    if (++s.count.host_alloc == s.script.fail_host_alloc) return OUT_OF_MEMORY;
    const Block* block = s.host.take(len, call.context);
    if (!block) return OUT_OF_MEMORY;
    *address = pointer<void>(block->start);
    return OK;
}

API CUresult cuMemFreeHost(void* address) {
    Call call(Need::Context, Kind::GivesBack);
    if (!call.context) return call.result;
    State& s = state();
    Block* block = s.host.find(reinterpret_cast<uint64_t>(address));
    if (!block || block->start != reinterpret_cast<uint64_t>(address)) {
        if (call.result) return call.result;
        report("cuMemFreeHost of %p, which is no host memory of the driver (any more)", address);
        return INVALID_VALUE;
    }
    if (s.scheduler.touches({block->start, block->len}))
        report("cuMemFreeHost of %p while a copy from or to it is under way", address);
    s.scheduler.finish(static_cast<Context*>(block->context));
    s.count.host_free++;
    check_guards(*block);
    s.host.give_back(*block);
    return call.result;
}

API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    const Block* block = s.device.find(address);
    const bool device = block && address < block->end();
    if (!device) block = s.host.find(address);
    if (!value || !block || address >= block->end()) return INVALID_VALUE;
    switch (attribute) {
    case 1: *static_cast<CUcontext*>(value) = block->context; return OK;
    case 2: *static_cast<unsigned*>(value) = device ? 2 : 1; return OK;
    case 3: *static_cast<CUdeviceptr*>(value) = address; return OK;
    case 4:
        if (device) return INVALID_VALUE;
        *static_cast<void**>(value) = pointer<void>(address);
        return OK;
    case 7: *static_cast<unsigned long long*>(value) = block->id * 2 + device; return OK;
    case 8: *static_cast<unsigned*>(value) = 0; return OK;
    case 9: *static_cast<int*>(value) = static_cast<Context*>(block->context)->device; return OK;
    case 11: *static_cast<CUdeviceptr*>(value) = block->start; return OK;
    case 12: *static_cast<size_t*>(value) = block->len; return OK;
    case 13: *static_cast<unsigned*>(value) = 1; return OK;
    default: return NOT_SUPPORTED;
    }
}

// Counts a copy and finds the stream it goes to; null, with the answer in `result`, where the script or the stream
// forbids it.
static std::shared_ptr<Stream> start_copy(Call& call, CUstream handle, uint64_t& calls, uint64_t& bytes, size_t len) {
    State& s = state();
    auto stream = stream_of(*call.context, handle);
    if (!stream) call.result = INVALID_HANDLE;
    calls++;
    bytes += len;
    if (s.count.h2d + s.count.d2h + s.count.d2d != s.script.fail_copy) return stream;
    call.result = UNKNOWN;
    return nullptr;
}

static CUresult illegal(Call& call, const char* what, uint64_t address, uint64_t len) {
    report("%s: %llu bytes at %llx are not in one live block", what, static_cast<unsigned long long>(len),
           static_cast<unsigned long long>(address));
    call.context->broken = ILLEGAL_ADDRESS;
    state().scheduler.abandon(call.context);
    return ILLEGAL_ADDRESS;
}

// Whether host memory may be copied from or to, and whether it is the driver's own. Other memory is not checked.
static bool check_host(uint64_t address, uint64_t len, bool& pinned) {
    State& s = state();
    pinned = s.host.holds(address, len);
    return pinned || (address && !s.host.reserved(address) && !s.device.reserved(address));
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t len, CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    const auto stream = start_copy(call, handle, s.count.h2d, s.count.h2d_bytes, len);
    if (!stream) return call.result;
    if (!len) return OK;
    const uint64_t source = reinterpret_cast<uint64_t>(from);
    bool pinned;
    if (!s.device.holds(to, len)) return illegal(call, "copy to device", to, len);
    if (!check_host(source, len, pinned)) return illegal(call, "copy to device from host", source, len);
    Work work;
    if (pinned) {
        work.host = {source, len};
        work.run = [=] {
            const Reach reach({to});
            std::memcpy(pointer<void>(to), from, len);
            return OK;
        };
    } else {
        // The driver stages pageable memory before it returns.
        s.count.pageable++;
        const auto* bytes = static_cast<const uint8_t*>(from);
        work.run = [to, staged = std::vector<uint8_t>(bytes, bytes + len)] {
            const Reach reach({to});
            std::memcpy(pointer<void>(to), staged.data(), staged.size());
            return OK;
        };
    }
    return submit(stream, std::move(work));
}

API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t len, CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    const auto stream = start_copy(call, handle, s.count.d2h, s.count.d2h_bytes, len);
    if (!stream) return call.result;
    if (!len) return OK;
    const uint64_t target = reinterpret_cast<uint64_t>(to);
    bool pinned;
    if (!s.device.holds(from, len)) return illegal(call, "copy from device", from, len);
    if (!check_host(target, len, pinned)) return illegal(call, "copy from device to host", target, len);
    // If the host reads too early, it must not find the data of an earlier copy.
    if (pinned && !s.scheduler.touches({target, len})) std::memset(to, Arena::FRESH, len);
    Work work;
    work.host = {target, len};
    work.run = [=] {
        const Reach reach({from});
        std::memcpy(to, pointer<void>(from), len);
        return OK;
    };
    const CUresult result = submit(stream, std::move(work));
    if (pinned || result) return result;
    // The driver returns from a copy to pageable memory when it is done.
    s.count.pageable++;
    s.count.waited = true;
    s.scheduler.finish(Scheduler::tail(stream));
    return call.context->broken;
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t len, CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    const auto stream = start_copy(call, handle, s.count.d2d, s.count.d2d_bytes, len);
    if (!stream) return call.result;
    if (!len) return OK;
    if (!s.device.holds(to, len)) return illegal(call, "copy within device", to, len);
    if (!s.device.holds(from, len)) return illegal(call, "copy within device", from, len);
    Work work;
    work.run = [=] {
        const Reach reach({to, from});
        std::memmove(pointer<void>(to), pointer<void>(from), len);
        return OK;
    };
    return submit(stream, std::move(work));
}

API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t len, CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    State& s = state();
    const auto stream = stream_of(*call.context, handle);
    if (!stream) return INVALID_HANDLE;
    s.count.memset++;
    if (!len) return OK;
    if (!s.device.holds(to, len)) return illegal(call, "fill", to, len);
    Work work;
    work.run = [=] {
        const Reach reach({to});
        std::memset(pointer<void>(to), value, len);
        return OK;
    };
    return submit(stream, std::move(work));
}
