// A stand-in for NVIDIA's driver: what tests/driver.rs runs the backend's own calls against.
//
// It keeps to what "CUDA Driver API" documents of the calls that the backend makes, where that is stricter than a GPU would
// be. A wrong call is refused with the documented error and a line on the standard error stream that begins with FAKE. What is
// left over when the last context goes is wrong too.
//
// The environment: FAKE_VERSION (13000), FAKE_GPUS (1), FAKE_CAPABILITY (90), FAKE_MEMORY (bytes, 1 GiB), FAKE_PEERS (0: GPUs
// do not reach each other), FAKE_BREAK (the number of the launch that fails), FAKE_INIT
// (what cuInit answers), FAKE_PRIORITIES (0: a graph's nodes have none), FAKE_PACE (streams.h).
#include "capture.h"
#include "modules.h"

static bool ready;

static CUresult start(Call& call, CUdevice device) {
    if (!ready) return call.refuse(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
    if (device < 0 || device >= setting("FAKE_GPUS", 1)) return call.refuse(CUDA_ERROR_INVALID_DEVICE, "no device %d", device);
    return CUDA_SUCCESS;
}

extern "C" {

CUresult cuInit(unsigned int flags) {
    Call call{__func__};
    if (flags) return call.refuse(CUDA_ERROR_INVALID_VALUE, "flags");
    if (setting("FAKE_GPUS", 1) == 0) return CUDA_ERROR_NO_DEVICE;
    if (long answer = setting("FAKE_INIT", 0)) return static_cast<CUresult>(answer);
    ready = true;
    for (CUdevice device = static_cast<CUdevice>(contexts.size()); device < setting("FAKE_GPUS", 1); ++device)
        contexts.push_back(new CUctx_st{device});
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
    *version = static_cast<int>(setting("FAKE_VERSION", 13000));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
    Call call{__func__};
    TRY(start(call, 0));
    *count = static_cast<int>(contexts.size());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int number) {
    Call call{__func__};
    TRY(start(call, number));
    *device = number;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
    Call call{__func__};
    TRY(start(call, device));
    snprintf(name, static_cast<size_t>(size), "Fake");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    Call call{__func__};
    TRY(start(call, device));
    *bytes = device_memory();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    Call call{__func__};
    TRY(start(call, device));
    int capability = static_cast<int>(setting("FAKE_CAPABILITY", 90));
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 3; break; // as many as the emulated driver has
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = MOST_SHARED; break;
    default: return call.refuse(CUDA_ERROR_INVALID_VALUE, "an attribute that nobody asked for before");
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    Call call{__func__};
    TRY(start(call, device));
    TRY(call.unsafe());
    *context = contexts[static_cast<size_t>(device)];
    ++(*context)->retained;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    Call call{__func__};
    TRY(start(call, device));
    CUcontext context = contexts[static_cast<size_t>(device)];
    if (!context->retained) return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "it was not retained");
    if (--context->retained) return CUDA_SUCCESS;
    size_t left[] = {streams.of(context), events.of(context), graphs.of(context), executables.of(context), modules.of(context)};
    bool last = true;
    for (CUcontext other : contexts) last = last && !other->retained;
    if (context->used || left[0] || left[1] || left[2] || left[3] || left[4] || (last && !locked.empty()))
        call.refuse(CUDA_ERROR_ILLEGAL_STATE, "left over: %zu bytes, %zu streams, %zu events, %zu + %zu graphs, %zu modules, %zu locked",
                    context->used, left[0], left[1], left[2], left[3], left[4], locked.size());
    else printf("clean after %ld launches\n", launches);
    fflush(stdout);
    context->broken = CUDA_SUCCESS;
    context->peers.clear();
    return CUDA_SUCCESS;
}

static CUresult check_context(Call& call, CUcontext context) {
    for (CUcontext other : contexts)
        if (other == context && context->retained) return CUDA_SUCCESS;
    return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "no such context");
}

CUresult cuCtxSetCurrent(CUcontext context) {
    Call call{__func__};
    if (context) TRY(check_context(call, context));
    if (!current.empty()) current.pop_back();
    if (context) current.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    Call call{__func__};
    TRY(check_context(call, context));
    current.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
    Call call{__func__};
    if (current.empty()) return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread");
    *context = current.back();
    current.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    TRY(check_context(call, peer));
    if (flags || peer == call.context()) return call.refuse(CUDA_ERROR_INVALID_VALUE, "flags, or access to itself");
    if (!setting("FAKE_PEERS", 1)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return call.context()->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
    switch (error) {
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: return *name = nullptr, CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == CUDA_SUCCESS ? "no error" : "what the driver says";
    return CUDA_SUCCESS;
}

} // extern "C"
