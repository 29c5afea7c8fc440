// Streams and events: work in the order of the calls, done by a thread of the stream when its time has come.
//
// FAKE_PACE says when that is. `lazy`: nothing is done before somebody waits for it. `eager`: at once. A number: after
// random pauses, which that number begins.
#pragma once

#include "state.h"
#include <algorithm>

inline bool is_lazy() {
    static const char* pace = getenv("FAKE_PACE");
    static bool lazy = !pace || !strcmp(pace, "lazy");
    return lazy;
}

inline void pause_a_little() {
    static unsigned int pace = static_cast<unsigned int>(setting("FAKE_PACE", 0));
    if (pace == 0) return;
    static thread_local unsigned int state = pace;
    unsigned int drawn = static_cast<unsigned int>(rand_r(&state));
    if (drawn % 4 == 0) usleep(drawn / 4 % 500);
}

// Has work done, with all that it comes after.
inline void want(const DonePtr& done) {
    if (!done || done->yet) return;
    CUstream stream = done->stream;
    if (stream->wanted >= done->number) return;
    stream->wanted = done->number;
    for (const Task& task : stream->queue) {
        if (task.done->number > done->number) break;
        for (const DonePtr& other : task.after) want(other);
    }
    changed.notify_all();
}

// The life of a stream's thread.
inline void serve(CUstream stream) {
    std::unique_lock<std::mutex> lock(guard);
    auto is_ready = [stream] {
        if (stream->queue.empty()) return stream->closing;
        const Task& task = stream->queue.front();
        for (const DonePtr& other : task.after)
            if (!other->yet) return false;
        return !is_lazy() || task.done->number <= stream->wanted;
    };
    for (;;) {
        changed.wait(lock, is_ready);
        if (stream->queue.empty()) return;
        Task& task = stream->queue.front(); // a deque's front stays where it is
        if (task.work && !stream->context->broken) {
            lock.unlock();
            pause_a_little();
            CUresult result = task.work();
            lock.lock();
            if (result != CUDA_SUCCESS) {
                fprintf(stderr, "FAKE-GPU: %s breaks its context with error %d\n", task.what.c_str(), result);
                stream->context->broken = result;
            }
        }
        task.done->yet = true;
        stream->queue.pop_front();
        changed.notify_all();
    }
}

inline void finish(std::unique_lock<std::mutex>& lock, const DonePtr& done) {
    want(done);
    if (done) changed.wait(lock, [&] { return done->yet; });
}

// With FAKE_WAITS=1 calls that reserve something wait for all devices of the process, as the real driver's may. Work of which one
// device waits for another, that the calling thread has yet to ask for, is never done then: the end of the process.
inline void wait_for_all(Call& call) {
    static bool waits = setting("FAKE_WAITS", 0) != 0;
    if (!waits) return;
    std::vector<DonePtr> all;
    for (CUstream stream : streams.live) all.push_back(stream->last);
    for (const DonePtr& done : all) want(done);
    for (const DonePtr& done : all) {
        if (!done || changed.wait_for(call.lock, std::chrono::seconds(60), [&] { return done->yet; })) continue;
        call.refuse(CUDA_ERROR_ILLEGAL_STATE, "it waits for work that waits for this thread");
        _exit(70);
    }
}

// Whether work is done, and how it went. To ask is to want it.
inline CUresult look(CUcontext context, const DonePtr& done) {
    want(done);
    return !done || done->yet ? context->broken : CUDA_ERROR_NOT_READY;
}

// Asks a stream for work, or writes it down.
inline CUresult ask(Call& call, CUstream stream, std::string what, Work work, std::vector<DonePtr> after = {}) {
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->context != call.context())
        return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "the stream belongs to another context than the current one");
    if (Capture* capture = stream->capture.get()) {
        if (capture->invalid) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid");
        capture->nodes.push_back({std::move(what), std::move(work), stream->tail});
        stream->tail = {capture->nodes.size() - 1};
        stream->joined = stream == capture->origin;
        return CUDA_SUCCESS;
    }
    stream->last = std::make_shared<Done>(Done{stream, ++stream->asked});
    stream->queue.push_back({std::move(what), std::move(work), std::move(after), stream->last});
    changed.notify_all();
    return CUDA_SUCCESS;
}

inline void close(CUstream stream, std::unique_lock<std::mutex>& lock) {
    want(stream->last);
    stream->closing = true;
    changed.notify_all();
    lock.unlock();
    stream->thread.join();
    lock.lock();
}

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    if (flags != CU_STREAM_NON_BLOCKING) return call.refuse(CUDA_ERROR_INVALID_VALUE, "a stream that waits for others");
    *stream = streams.add(new CUstream_st{call.context()});
    (*stream)->thread = std::thread(serve, *stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    Call call{__func__};
    CUresult entered = call.enter();
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (stream->capture) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured");
    streams.live.erase(stream);
    close(stream, call.lock);
    return entered;
}

static CUresult check_idle(Call& call, CUstream stream) {
    TRY(call.enter());
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (!stream->capture) return call.unsafe();
    stream->capture->invalid = true;
    return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is being captured");
}

CUresult cuStreamQuery(CUstream stream) {
    Call call{__func__};
    TRY(check_idle(call, stream));
    return look(stream->context, stream->last);
}

CUresult cuStreamSynchronize(CUstream stream) {
    Call call{__func__};
    TRY(check_idle(call, stream));
    finish(call.lock, stream->last);
    return stream->context->broken;
}

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    if (flags != CU_EVENT_DISABLE_TIMING)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "a kind of event that nobody asked for before");
    *event = events.add(new CUevent_st{call.context()});
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    Call call{__func__};
    if (!events.has(event)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
    events.live.erase(event);
    return call.enter();
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    if (!events.has(event)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (event->context != stream->context) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "of two contexts");
    event->capture = stream->capture;
    if (Capture* capture = stream->capture.get()) {
        if (capture->invalid) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid");
        event->behind = stream, event->tail = stream->tail;
        return CUDA_SUCCESS;
    }
    event->done = stream->last;
    return CUDA_SUCCESS;
}

static CUresult check_event(Call& call, CUevent event) {
    TRY(call.enter());
    if (!events.has(event)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
    if (!event->capture) return call.unsafe();
    if (!event->capture->ended) event->capture->invalid = true;
    return call.refuse(CUDA_ERROR_CAPTURED_EVENT, "the event is one of a capture");
}

CUresult cuEventQuery(CUevent event) {
    Call call{__func__};
    TRY(check_event(call, event));
    return look(event->context, event->done);
}

CUresult cuEventSynchronize(CUevent event) {
    Call call{__func__};
    TRY(check_event(call, event));
    finish(call.lock, event->done);
    return event->context->broken;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    if (flags) return call.refuse(CUDA_ERROR_INVALID_VALUE, "flags");
    if (!streams.has(stream)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such stream");
    if (!events.has(event)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such event");
    Capture* capture = stream->capture.get();
    if (capture && capture->invalid) return call.refuse(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture is invalid");
    if (!event->capture) {
        if (capture) {
            capture->invalid = true;
            return call.refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "the event is outside of the stream's capture");
        }
        if (!event->done) return CUDA_SUCCESS;
        return ask(call, stream, "a wait", nullptr, {event->done});
    }
    if (event->capture->ended) return call.refuse(CUDA_ERROR_CAPTURED_EVENT, "the event's capture has ended");
    if (!capture) {
        stream->capture = event->capture;
        stream->capture->streams.push_back(stream);
        stream->tail.clear();
    } else if (stream->capture != event->capture) {
        capture->invalid = event->capture->invalid = true;
        return call.refuse(CUDA_ERROR_STREAM_CAPTURE_MERGE, "of two captures");
    }
    stream->tail.insert(event->tail.begin(), event->tail.end());
    stream->joined = stream == stream->capture->origin;
    // The origin waits for another stream, if for all of it.
    if (stream->joined && event->tail == event->behind->tail) event->behind->joined = true;
    return CUDA_SUCCESS;
}

} // extern "C"
