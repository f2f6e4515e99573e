// The part of the CUDA driver's binary interface that swath calls, and what the fake adds to it.
//
// Enumerations of cuda.h are plain ints here and handles are opaque pointers: the same to a caller that looks symbols
// up by name.
#pragma once
#include <cstddef>
#include <cstdint>

#define API extern "C" __attribute__((visibility("default")))

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = void*;
using CUstream = void*;
using CUevent = void*;
using CUmodule = void*;
using CUfunction = void*;
struct CUuuid {
    char bytes[16];
};

enum : CUresult {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    CONTEXT_IS_DESTROYED = 709,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    UNKNOWN = 999,
};

API CUresult cuInit(unsigned flags);
API CUresult cuDriverGetVersion(int* version);
API CUresult cuGetErrorName(CUresult error, const char** text);
API CUresult cuGetErrorString(CUresult error, const char** text);

API CUresult cuDeviceGetCount(int* count);
API CUresult cuDeviceGet(CUdevice* device, int ordinal);
API CUresult cuDeviceGetName(char* name, int len, CUdevice device);
API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device);
API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device);
API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device);
API CUresult cuDeviceGetPCIBusId(char* id, int len, CUdevice device);
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device);
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

API CUresult cuCtxSetCurrent(CUcontext context);
API CUresult cuCtxGetCurrent(CUcontext* context);
API CUresult cuCtxPushCurrent_v2(CUcontext context);
API CUresult cuCtxPopCurrent_v2(CUcontext* context);
API CUresult cuCtxGetDevice(CUdevice* device);
API CUresult cuCtxSynchronize();

API CUresult cuMemGetInfo_v2(size_t* free, size_t* total);
API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t len);
API CUresult cuMemFree_v2(CUdeviceptr address);
API CUresult cuMemHostAlloc(void** address, size_t len, unsigned flags);
API CUresult cuMemFreeHost(void* address);
API CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr address);
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t len, CUstream stream);
API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t len, CUstream stream);
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t len, CUstream stream);
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t len, CUstream stream);

API CUresult cuStreamCreate(CUstream* stream, unsigned flags);
API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority);
API CUresult cuStreamDestroy_v2(CUstream stream);
API CUresult cuStreamSynchronize(CUstream stream);
API CUresult cuStreamQuery(CUstream stream);
API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
API CUresult cuEventCreate(CUevent* event, unsigned flags);
API CUresult cuEventDestroy_v2(CUevent event);
API CUresult cuEventRecord(CUevent event, CUstream stream);
API CUresult cuEventQuery(CUevent event);
API CUresult cuEventSynchronize(CUevent event);
API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end);

API CUresult cuModuleLoadData(CUmodule* module, const void* image);
API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* options, void** values);
API CUresult cuModuleUnload(CUmodule module);
API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
API CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction function);
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared);
API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** params,
                            void** extra);

// Work of a library that may touch device memory; it is queued, counted and failed like a launch, and must not call the
// driver. `drop` is called with the data when the work has run, or never will.
API CUresult swath_fake_run(CUstream stream, void (*run)(void*), void (*drop)(void*), void* data);
// Another script, and all counters at zero; null reads SWATH_FAKE_DRIVER again. Not 0: the script is not understood.
API int swath_fake_script(const char* text);
// One of the counters named in README.md; all bits set for a name it does not know.
API unsigned long long swath_fake_count(const char* what);
