// What the stand-in keeps: contexts, memory, streams with a thread each, events, captures.
//
// One lock guards all of it. A stream's thread gives it away while it works, so streams run beside each other and beside
// the host, as on a GPU.
#pragma once

#include "api.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

inline long setting(const char* name, long otherwise) {
    const char* value = getenv(name);
    return value ? atol(value) : otherwise;
}

// A device's bytes of memory, and those of shared memory that a block may have.
inline size_t device_memory() { return static_cast<size_t>(setting("FAKE_MEMORY", 1l << 30)); }
constexpr int MOST_SHARED = 227 << 10;

// Never destroyed: streams' threads may outlive the process's end.
inline std::mutex& guard = *new std::mutex;
inline std::condition_variable& changed = *new std::condition_variable;

// Work on a device. An error of it breaks the context.
using Work = std::function<CUresult()>;


// That a piece of work is done.
struct Done {
    CUstream stream;
    unsigned long long number;
    bool yet = false;
};
using DonePtr = std::shared_ptr<Done>;

struct Task {
    std::string what;
    Work work;
    std::vector<DonePtr> after;
    DonePtr done;
};

struct Node {
    std::string what;
    Work work;
    std::set<size_t> after;
};

// A capture, from its beginning on one stream.
struct Capture {
    CUstream origin;
    CUstreamCaptureMode mode;
    std::thread::id thread;
    std::vector<Node> nodes;
    std::vector<CUstream> streams;
    bool invalid = false, ended = false;
};
using CapturePtr = std::shared_ptr<Capture>;

struct CUctx_st {
    CUdevice device;
    int retained = 0;
    size_t used = 0;
    CUresult broken = CUDA_SUCCESS;
    std::set<CUcontext> peers;
};

struct CUstream_st {
    CUcontext context;
    std::thread thread;
    std::deque<Task> queue;
    unsigned long long asked = 0; // pieces of work so far
    unsigned long long wanted = 0; // how far somebody waits for it
    bool closing = false;
    DonePtr last;
    // While it takes part in a capture: what its next node comes after, and whether the origin waits for all of it.
    CapturePtr capture;
    std::set<size_t> tail;
    std::vector<CUgraphNode> told; // of them, to who asked
    std::vector<CUgraphEdgeData> edges;
    bool joined = false;
};

struct CUevent_st {
    CUcontext context;
    // Behind what it was recorded.
    DonePtr done;
    CapturePtr capture;
    CUstream behind = nullptr; // in that capture
    std::set<size_t> tail;
};

struct CUgraph_st {
    CUcontext context;
    std::vector<Node> nodes;
};

struct CUgraphExec_st {
    CUcontext context;
    std::shared_ptr<const std::vector<Node>> nodes; // gone with the last launch, when the graph is
    DonePtr last;
};

// The handles of a kind that are alive. What was given back is never freed, so no new handle is mistaken for an old one.
template <class T>
struct Handles {
    std::set<T*> live;
    T* add(T* x) { return live.insert(x), x; }
    bool has(T* x) const { return live.count(x) > 0; }
    size_t of(CUcontext context) const {
        size_t count = 0;
        for (T* x : live) count += x->context == context;
        return count;
    }
};
inline Handles<CUstream_st> streams;
inline Handles<CUevent_st> events;
inline Handles<CUgraph_st> graphs;
inline Handles<CUgraphExec_st> executables;
inline std::vector<CapturePtr> captures; // under way

inline std::vector<CUcontext> contexts; // by device
inline thread_local std::vector<CUcontext> current;

// A call into the driver, which holds the lock.
struct Call {
    const char* name;
    std::unique_lock<std::mutex> lock{guard};

    // Says what is wrong with it.
    __attribute__((format(printf, 3, 4))) CUresult refuse(CUresult code, const char* format, ...) {
        char text[400];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        fprintf(stderr, "FAKE: %s: error %d: %s\n", name, code, text);
        return code;
    }

    CUcontext context() { return current.empty() ? nullptr : current.back(); }

    // Whether a context is current, and not broken.
    CUresult enter() {
        CUcontext context = this->context();
        if (!context) return refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current on this thread");
        if (!context->retained) return refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context was given back");
        return context->broken;
    }

    // Refuses what a capture of this thread, or one that watches all threads, does not see.
    CUresult unsafe() {
        CUresult result = CUDA_SUCCESS;
        for (const CapturePtr& capture : captures) {
            bool mine = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
            if (!mine && capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL) continue;
            capture->invalid = true;
            result = refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "it is not for times of capture");
        }
        return result;
    }
};

#define TRY(x)                                                                                                         \
    do {                                                                                                               \
        CUresult result_ = (x);                                                                                        \
        if (result_ != CUDA_SUCCESS) return result_;                                                                   \
    } while (0)
