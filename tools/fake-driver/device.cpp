// Entry points about the driver, its devices and their contexts, and the names of errors.
#include "state.hpp"
#include <unistd.h>

API CUresult cuInit(unsigned flags) {
    State& s = state();
    bool scripted;
    {
        std::unique_lock<std::mutex> lock(s.mutex);
        scripted = s.scripted;
    }
    if (!scripted && swath_fake_script(nullptr) != 0) return INVALID_VALUE;
    Call call(Need::Driver);
    if (call.result) return call.result;
    if (flags) return INVALID_VALUE;
    if (s.script.init) return CUresult(s.script.init);
    if (!s.script.devices) return NO_DEVICE;
    if (s.ready && s.process != getpid()) return NOT_INITIALIZED;
    s.ready = true;
    s.process = getpid();
    return OK;
}

API CUresult cuDriverGetVersion(int* version) {
    Call call(Need::Driver);
    if (call.result) return call.result;
    if (!version) return INVALID_VALUE;
    *version = int(state().script.version);
    return OK;
}

struct ErrorText {
    CUresult code;
    const char* name;
    const char* text;
};

static const ErrorText ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_text(CUresult code, const char** text, const char* ErrorText::* part) {
    if (!text) return INVALID_VALUE;
    *text = nullptr;
    for (const ErrorText& error : ERRORS)
        if (error.code == code) *text = error.*part;
    return *text ? OK : INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult error, const char** text) { return error_text(error, text, &ErrorText::name); }
API CUresult cuGetErrorString(CUresult error, const char** text) { return error_text(error, text, &ErrorText::text); }

static bool exists(CUdevice device) { return device >= 0 && uint64_t(device) < state().script.devices; }

API CUresult cuDeviceGetCount(int* count) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!count) return INVALID_VALUE;
    *count = int(state().script.devices);
    return OK;
}

API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!device) return INVALID_VALUE;
    if (!exists(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return OK;
}

API CUresult cuDeviceGetName(char* name, int len, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!name || len <= 0) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    std::snprintf(name, size_t(len), "Swath fake device");
    return OK;
}

API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!bytes) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    *bytes = state().script.memory;
    return OK;
}

API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!uuid) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    std::memcpy(uuid->bytes, "swath-fake-gpu-", 15);
    uuid->bytes[15] = char('a' + device);
    return OK;
}

API CUresult cuDeviceGetPCIBusId(char* id, int len, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!id || len < 13) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    std::snprintf(id, size_t(len), "0000:%02x:00.0", unsigned(device + 1) & 0xff);
    return OK;
}

API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!value || attribute < 1 || attribute > 150) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    const Script& script = state().script;
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;                    // threads of a block
    case 4: *value = 64; break;
    case 5: *value = INT32_MAX; break;                               // grid
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 << 10; break;                                // shared memory of a block
    case 9: *value = 64 << 10; break;                                // constant memory
    case 10: *value = 32; break;                                     // warp
    case 11: *value = INT32_MAX; break;                              // pitch
    case 12: case 82: *value = 64 << 10; break;                      // registers of a block, of a multiprocessor
    case 13: *value = 1500000; break;                                // kHz
    case 16: *value = int(script.sms); break;
    case 33: *value = device + 1; break;                             // PCI bus
    case 36: *value = 2600000; break;                                // memory kHz
    case 37: *value = 4096; break;                                   // memory bus bits
    case 38: *value = 4 << 20; break;                                // L2
    case 39: *value = 2048; break;                                   // threads of a multiprocessor
    case 40: *value = 2; break;                                      // copy engines
    case 15: case 19: case 31: case 41: case 78: *value = 1; break;  // overlap, mapped host memory, concurrent kernels,
                                                                     // unified addresses, priorities
    case 75: *value = int(script.capability / 10); break;
    case 76: *value = int(script.capability % 10); break;
    case 81: *value = 100 << 10; break;                              // shared memory of a multiprocessor
    case 97: *value = 99 << 10; break;                               // of a block that asks for it
    case 106: *value = 32; break;                                    // blocks of a multiprocessor
    default: *value = 0;
    }
    return OK;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!context) return INVALID_VALUE;
    if (!exists(device)) return INVALID_DEVICE;
    Context& own = state().contexts[device];
    if (own.broken) return own.broken;
    own.device = device;
    own.retained++;
    *context = &own;
    return OK;
}

static void give_back_all(Arena& arena, Context& context, const char* kind) {
    for (auto at = arena.all().begin(); at != arena.all().end();) {
        Block& block = (at++)->second;
        if (block.context != &context) continue;
        check_guards(block);
        if (!context.broken && !state().lost)
            report("%s memory of %llu bytes outlived its context", kind, static_cast<unsigned long long>(block.len));
        arena.give_back(block);
    }
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    Call call(Need::Init, Kind::GivesBack);
    if (device < 0 || uint64_t(device) >= Script::MAX_DEVICES) return INVALID_DEVICE;
    State& s = state();
    Context& own = s.contexts[device];
    if (!own.retained) return call.result ? call.result : CUresult(INVALID_CONTEXT);
    if (--own.retained) return call.result ? call.result : own.broken;
    s.scheduler.finish(&own);
    give_back_all(s.device, own, "device");
    give_back_all(s.host, own, "host");
    const auto of_this = [&](const auto& object) { return object.context == &own; };
    s.functions.remove_if(of_this);
    s.modules.remove_if(of_this);
    s.events.remove_if(of_this);
    s.streams.remove_if(of_this);
    s.legacy.erase(&own);
    for (auto at = s.per_thread.begin(); at != s.per_thread.end();)
        at = at->first.first == &own ? s.per_thread.erase(at) : std::next(at);
    s.scheduler.forget_all(&own);
    return call.result ? call.result : own.broken;
}

// Null is no context; false is not one of ours.
static bool known(CUcontext handle) {
    for (Context& context : state().contexts)
        if (handle == &context) return context.retained != 0;
    return handle == nullptr;
}

// A broken context can still be made current: nothing but the calls on it fail.
API CUresult cuCtxSetCurrent(CUcontext context) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!known(context)) return INVALID_CONTEXT;
    if (!current().empty()) current().pop_back();
    if (!context) return OK;
    current().push_back(static_cast<Context*>(context));
    return OK;
}

API CUresult cuCtxGetCurrent(CUcontext* context) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!context) return INVALID_VALUE;
    *context = call.context;
    return OK;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
    Call call(Need::Init);
    if (call.result) return call.result;
    if (!context || !known(context)) return INVALID_CONTEXT;
    current().push_back(static_cast<Context*>(context));
    return OK;
}

API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    Call call(Need::Init, Kind::GivesBack);
    if (current().empty()) return call.result ? call.result : CUresult(INVALID_CONTEXT);
    if (context) *context = current().back();
    current().pop_back();
    return call.result;
}

API CUresult cuCtxGetDevice(CUdevice* device) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!device) return INVALID_VALUE;
    *device = call.context->device;
    return OK;
}
