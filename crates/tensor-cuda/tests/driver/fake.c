// A driver and a compiler that only keep account: what tests/driver.rs runs the host's side of the backend against.
//
// Memory is the host's. Copies and clears wait in a queue until something waits for them, as on a stream, so that a copy
// whose source is given back too early shows. Kernels do nothing. A wrong call, as one without a context or on memory that
// is not there, ends the process with a line that begins with FAKE. What is left over when the context goes is wrong too.
//
// The environment: FAKE_VERSION (13000), FAKE_GPUS (1), FAKE_CAPABILITY (90), FAKE_MEMORY (bytes, 1 GiB), FAKE_BREAK (the
// number of the launch from which on every call fails, as after an illegal address).
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, CAPTURE_INVALID = 901, UNJOINED = 904 };

#define WRONG(...) (printf("FAKE: " __VA_ARGS__), printf("\n"), fflush(stdout), _exit(3))
void _exit(int);

static long setting(const char* name, long otherwise) {
    const char* value = getenv(name);
    return value ? atol(value) : otherwise;
}

// ---- what there is

static int retained, modules, streams, events, graphs, ready_graphs, pinned, launches, broken, capturing;
static __thread int current;
static __thread int capturing_here;
static struct { char* at; size_t bytes; } memory[4096];
static size_t used;

static Result enter(const char* call) {
    if (!current) WRONG("%s without a context", call);
    return broken ? ILLEGAL_ADDRESS : 0;
}
#define ENTER() do { Result r = enter(__func__); if (r) return r; } while (0)

static void inside(const char* call, uint64_t at, size_t bytes) {
    for (int k = 0; k < 4096; ++k) {
        uint64_t from = (uint64_t)memory[k].at;
        if (from && at >= from && at + bytes <= from + memory[k].bytes) return;
    }
    WRONG("%s outside of memory", call);
}

// ---- the queue

static struct { char* to; const char* from; size_t bytes; } queue[1 << 16];
static int queued, done;

static void run_until(int end) {
    for (; done < end; ++done) {
        if (queue[done].from) memcpy(queue[done].to, queue[done].from, queue[done].bytes);
        else memset(queue[done].to, 0, queue[done].bytes);
    }
}
static Result enqueue(const char* call, uint64_t to, const void* from, size_t bytes) {
    inside(call, to, bytes);
    if (capturing) return 0;
    if (queued == 1 << 16) WRONG("the queue is full");
    queue[queued].to = (char*)to, queue[queued].from = from, queue[queued].bytes = bytes;
    ++queued;
    return 0;
}

// ---- devices and contexts

Result cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
Result cuDriverGetVersion(int* version) { return *version = setting("FAKE_VERSION", 13000), 0; }
Result cuDeviceGetCount(int* count) { return *count = setting("FAKE_GPUS", 1), 0; }
Result cuDeviceGet(int* device, int number) { return *device = number, 0; }
Result cuDeviceGetName(char* name, int size, int device) { return snprintf(name, size, "Fake %d", device), 0; }
Result cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = setting("FAKE_MEMORY", 1 << 30), 0; }
Result cuDeviceGetAttribute(int* value, int which, int device) {
    long capability = setting("FAKE_CAPABILITY", 90);
    *value = which == 16 ? 4 : which == 75 ? capability / 10 : which == 76 ? capability % 10 : which == 97 ? 232448 : 0;
    return 0;
}
static char contexts[64];
Result cuDevicePrimaryCtxRetain(void** context, int device) { return ++retained, *context = contexts + device, 0; }
Result cuDevicePrimaryCtxRelease_v2(int device) {
    if (--retained == 0) {
        if (used || modules || streams || events || graphs || ready_graphs || pinned)
            WRONG("left over: %zu bytes, %d modules, %d streams, %d events, %d + %d graphs, %d pinned", used, modules,
                  streams, events, graphs, ready_graphs, pinned);
        printf("clean after %d launches\n", launches);
        fflush(stdout);
    }
    return 0;
}
Result cuCtxSetCurrent(void* context) { return current = context != 0, 0; }
Result cuCtxPushCurrent_v2(void* context) { return current = 1, 0; }
Result cuCtxPopCurrent_v2(void** context) { return current = 0, 0; }
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
    ENTER();
    return *total = setting("FAKE_MEMORY", 1 << 30), *free = *total - used, 0;
}
Result cuGetErrorString(Result error, const char** text) { return *text = "what the driver says", 0; }

// ---- memory

Result cuMemAlloc_v2(uint64_t* at, size_t bytes) {
    ENTER();
    if (capturing_here) WRONG("an allocation during a capture");
    if (!bytes) return INVALID_VALUE;
    if (used + bytes > (size_t)setting("FAKE_MEMORY", 1 << 30)) return OUT_OF_MEMORY;
    for (int k = 0; k < 4096; ++k) {
        if (memory[k].at) continue;
        memory[k].at = aligned_alloc(256, (bytes + 255) / 256 * 256), memory[k].bytes = bytes;
        memset(memory[k].at, 0xab, bytes);
        return used += bytes, *at = (uint64_t)memory[k].at, 0;
    }
    return OUT_OF_MEMORY;
}
Result cuMemFree_v2(uint64_t at) {
    if (!current) WRONG("cuMemFree without a context");
    if (capturing_here) WRONG("memory given back during a capture");
    if (done < queued && !broken) WRONG("memory given back before the work on it ended");
    for (int k = 0; k < 4096; ++k) {
        if ((uint64_t)memory[k].at != at) continue;
        free(memory[k].at);
        return used -= memory[k].bytes, memory[k].at = 0, 0;
    }
    WRONG("memory given back that is not there");
    return 0;
}
Result cuMemHostAlloc(void** at, size_t bytes, unsigned flags) { ENTER(); return ++pinned, *at = malloc(bytes), 0; }
Result cuMemFreeHost(void* at) { return --pinned, free(at), 0; }
Result cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void* stream) {
    ENTER();
    return enqueue(__func__, at, 0, bytes);
}
Result cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    ENTER();
    if (capturing) WRONG("a copy from the host in a capture");
    return enqueue(__func__, to, from, bytes);
}
Result cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    ENTER();
    if (capturing) WRONG("a copy to the host in a capture");
    inside(__func__, from, bytes);
    run_until(queued);
    memcpy(to, (void*)from, bytes);
    return 0;
}

Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    ENTER();
    inside(__func__, from, bytes);
    return enqueue(__func__, to, (void*)from, bytes);
}
Result cuMemcpyPeerAsync(uint64_t to, char* to_context, uint64_t from, char* from_context, size_t bytes, void* stream) {
    ENTER();
    if (to_context == from_context) WRONG("a copy between devices that stays on one");
    inside(__func__, from, bytes);
    return enqueue(__func__, to, (void*)from, bytes);
}
Result cuCtxEnablePeerAccess(char* context, unsigned flags) {
    ENTER();
    if (context < contexts || context >= contexts + 64) WRONG("access to no context");
    return flags ? INVALID_VALUE : 0;
}

// ---- streams, events, graphs

// A stream that waits for an event of a capture takes part in it; the one that began the capture must wait for it again.
typedef struct { int captured, begun; } Stream;
typedef struct { int at; Stream* behind; } Event;
static Stream *aside, *unjoined;

Result cuStreamCreate(Stream** stream, unsigned flags) {
    ENTER();
    return ++streams, *stream = calloc(1, sizeof(Stream)), 0;
}
Result cuStreamDestroy_v2(Stream* stream) { return --streams, free(stream), 0; }
Result cuStreamSynchronize(Stream* stream) {
    ENTER();
    if (capturing || stream->captured) WRONG("waiting during a capture");
    run_until(queued);
    return 0;
}
Result cuEventCreate(Event** event, unsigned flags) { ENTER(); return ++events, *event = calloc(1, sizeof(Event)), 0; }
Result cuEventRecord(Event* event, Stream* stream) {
    ENTER();
    return event->at = queued, event->behind = stream->captured ? stream : NULL, 0;
}
Result cuEventSynchronize(Event* event) { ENTER(); return run_until(event->at), 0; }
Result cuEventQuery(Event* event) { ENTER(); return event->at <= done ? 0 : NOT_READY; }
Result cuStreamWaitEvent(Stream* stream, Event* event, unsigned flags) {
    ENTER();
    if (event->at > queued || flags) WRONG("a wait for an event of another time");
    if (event->behind && !event->behind->captured) WRONG("a wait for an event of a capture that has ended");
    if (!event->behind && stream->captured) WRONG("a wait in a capture for what is not part of it");
    if (event->behind && !stream->begun) aside = unjoined = stream, stream->captured = 1;
    if (stream->begun && event->behind == unjoined) unjoined = NULL;
    return 0;
}
Result cuEventDestroy_v2(Event* event) { return --events, free(event), 0; }
Result cuStreamBeginCapture_v2(Stream* stream, int mode) {
    ENTER();
    if (mode != 1) WRONG("a capture that disturbs other threads");
    return capturing = capturing_here = stream->captured = stream->begun = 1, 0;
}
Result cuStreamEndCapture(Stream* stream, void** graph) {
    if (!capturing_here) WRONG("the end of a capture on another thread, or of none");
    capturing = capturing_here = stream->captured = stream->begun = 0;
    int joined = !unjoined;
    if (aside) aside->captured = 0;
    aside = unjoined = NULL;
    ENTER();
    if (!joined) return UNJOINED;
    return ++graphs, *graph = &graphs, 0;
}
Result cuGraphInstantiateWithFlags(void** ready, void* graph, unsigned long long flags) {
    ENTER();
    return ++ready_graphs, *ready = &ready_graphs, 0;
}
Result cuGraphDestroy(void* graph) { return --graphs, 0; }
Result cuGraphUpload(void* ready, void* stream) { ENTER(); return 0; }
Result cuGraphLaunch(void* ready, void* stream) { ENTER(); return ready == &ready_graphs ? 0 : INVALID_VALUE; }
Result cuGraphExecDestroy(void* ready) { return --ready_graphs, 0; }

// ---- kernels

Result cuModuleLoadData(void** module, const void* image) {
    ENTER();
    if (memcmp(image, "an image", 8)) return INVALID_VALUE;
    return ++modules, *module = &modules, 0;
}
Result cuModuleUnload(void* module) { return --modules, 0; }
Result cuModuleGetFunction(void** function, void* module, const char* name) {
    ENTER();
    return *name ? (*function = &launches, 0) : NOT_FOUND;
}
Result cuFuncLoad(void* function) { ENTER(); return 0; }
Result cuFuncGetAttribute(int* value, int which, void* function) { ENTER(); return *value = 1024, 0; }
Result cuFuncSetAttribute(void* function, int which, int value) {
    ENTER();
    return which == 8 && value == 232448 - 1024 ? 0 : INVALID_VALUE;
}
Result cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void* stream, void** args, void** extra) {
    ENTER();
    if (function != &launches || !gx || !gy || !gz || !bx || bx * by * bz > 1024 || extra) return INVALID_VALUE;
    for (void** arg = args; *arg; ++arg) (void)*(volatile char*)*arg;
    ++launches;
    if (launches == setting("FAKE_BREAK", 0)) broken = 1;
    return 0;
}

// ---- the compiler

static int compiled;

Result nvrtcVersion(int* major, int* minor) { return *major = setting("FAKE_NVRTC", 13), *minor = 0, 0; }
Result nvrtcGetNumSupportedArchs(int* count) { return *count = 2, 0; }
Result nvrtcGetSupportedArchs(int* archs) { return archs[0] = 80, archs[1] = 90, 0; }
const char* nvrtcGetErrorString(Result error) { return "what the compiler says"; }
Result nvrtcCreateProgram(void** program, const char* source, const char* name, int headers, const char* const* texts,
                          const char* const* names) {
    for (int k = 0; k < headers; ++k)
        if (!texts[k][0] || !names[k][0]) return 3;
    return *program = malloc(1), 0;
}
Result nvrtcDestroyProgram(void** program) { return free(*program), *program = 0, 0; }
Result nvrtcCompileProgram(void* program, int count, const char* const* options) {
    const char* wanted = setting("FAKE_CAPABILITY", 90) > 90 ? "--gpu-architecture=compute_90" : "--gpu-architecture=sm_90";
    for (int k = 0; k < count; ++k)
        if (!strcmp(options[k], wanted)) return __sync_fetch_and_add(&compiled, 1), 0;
    return 6;
}
Result nvrtcGetProgramLogSize(void* program, size_t* bytes) { return *bytes = 1, 0; }
Result nvrtcGetProgramLog(void* program, char* log) { return *log = 0, 0; }
Result nvrtcGetCUBINSize(void* program, size_t* bytes) { return *bytes = 9, 0; }
Result nvrtcGetCUBIN(void* program, char* image) { return strcpy(image, "an image"), 0; }
Result nvrtcGetPTXSize(void* program, size_t* bytes) { return *bytes = 9, 0; }
Result nvrtcGetPTX(void* program, char* image) { return strcpy(image, "an image"), 0; }
