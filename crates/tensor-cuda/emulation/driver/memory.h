// Memory of devices, in the host's memory between guards, and page-locked memory.
#pragma once

#include "streams.h"
#include "work.h"

// A guard's bytes: NaNs as float, bfloat16 and half alike. Fresh and freed memory holds them too.
constexpr size_t GUARD = 4096;
constexpr unsigned short POISON = 0xffa5;

struct Block {
    CUcontext context;
    size_t bytes;
    char* base;
};
inline std::map<CUdeviceptr, Block> blocks;
inline std::map<const char*, size_t> locked; // page-locked memory

inline char poisoned(size_t k) { return static_cast<char>(k % 2 ? POISON >> 8 : POISON & 0xff); }

// Doubles what is there already: blocks may have hundreds of megabytes.
inline void poison(char* at, size_t bytes) {
    for (size_t k = 0; k < bytes && k < 2; ++k) at[k] = poisoned(k);
    for (size_t done = 2; done < bytes; done *= 2) memcpy(at + done, at, std::min(done, bytes - done));
}

inline bool is_whole(const char* guard) {
    for (size_t k = 0; k < GUARD; ++k)
        if (guard[k] != poisoned(k)) return false;
    return true;
}

// The block around some bytes of a context's memory, or none. An address right behind a block is in it.
inline const std::pair<const CUdeviceptr, Block>* block_of(CUcontext context, CUdeviceptr at, size_t bytes) {
    auto next = blocks.upper_bound(at);
    if (next == blocks.begin()) return nullptr;
    const auto& found = *--next;
    bool inside = at - found.first <= found.second.bytes && bytes <= found.second.bytes - (at - found.first);
    return inside && found.second.context == context ? &found : nullptr;
}

inline bool is_locked(const void* at, size_t bytes) {
    auto next = locked.upper_bound(static_cast<const char*>(at));
    if (next == locked.begin()) return false;
    --next;
    size_t offset = static_cast<size_t>(static_cast<const char*>(at) - next->first);
    return offset <= next->second && bytes <= next->second - offset;
}

inline bool are_whole(CUdeviceptr at) {
    const Block& block = blocks.at(at);
    char* start = reinterpret_cast<char*>(at);
    return is_whole(start - GUARD) && is_whole(start + block.bytes);
}

// Whether the places of some work are in the context's memory; after it, whether that memory's guards are whole too.
inline bool are_fine(const char* name, CUcontext context, const std::vector<Place>& places, bool after) {
    std::lock_guard<std::mutex> lock(guard);
    for (size_t k = 0; k < places.size(); ++k) {
        auto block = block_of(context, places[k].at, places[k].bytes);
        if (block && (!after || are_whole(block->first))) continue;
        fprintf(stderr, "FAKE: %s: place %zu %s\n", name, k,
                block ? "has something written beside it" : "is in no memory of the device");
        return false;
    }
    return true;
}

// Who copies to where, checked when it is asked for and when it is done.
struct Side {
    CUcontext context; // null for the host's memory
    char* at;
    bool must_be_locked;

    bool is_there(size_t bytes) const {
        if (context) return block_of(context, reinterpret_cast<CUdeviceptr>(at), bytes);
        return !must_be_locked || is_locked(at, bytes);
    }
};

// Asks for something to be done with so many bytes of each side.
static CUresult work_on(Call& call, std::vector<Side> sides, size_t bytes, CUstream stream, std::function<void()> work) {
    TRY(call.enter());
    auto are_there = [sides, bytes] {
        for (const Side& side : sides)
            if (!side.is_there(bytes)) return false;
        return true;
    };
    if (!are_there()) return call.refuse(CUDA_ERROR_INVALID_VALUE, "%zu bytes are not all in memory that is there", bytes);
    return ask(call, stream, call.name, [are_there, work] {
        {
            std::lock_guard<std::mutex> lock(guard);
            if (!are_there()) return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        work();
        return CUDA_SUCCESS;
    });
}

static CUresult copy(Call& call, Side to, Side from, size_t bytes, CUstream stream) {
    if (!bytes) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    return work_on(call, {to, from}, bytes, stream, [=] { memmove(to.at, from.at, bytes); });
}

static Side on_device(CUcontext context, CUdeviceptr at) { return {context, reinterpret_cast<char*>(at), true}; }

// No copy between host and device may be part of a capture: the backend makes none.
static CUresult refuse_in_capture(Call& call, CUstream stream) {
    if (!streams.has(stream) || !stream->capture) return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return call.refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the host in a capture");
}

extern "C" {

CUcontext fake_context() {
    std::lock_guard<std::mutex> lock(guard);
    return current.empty() ? nullptr : current.back();
}

int fake_device(CUcontext context) { return context->device; }

bool fake_is_captured(CUstream stream) {
    std::lock_guard<std::mutex> lock(guard);
    return stream->capture != nullptr;
}

void fake_spoil(CUstream stream) {
    std::lock_guard<std::mutex> lock(guard);
    stream->capture->invalid = true;
}

void fake_break(CUcontext context) {
    std::lock_guard<std::mutex> lock(guard);
    context->broken = CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult fake_work(const char* name, CUstream stream, const std::vector<Place>& places, const std::function<void()>& work) {
    CUcontext context = fake_context();
    if (!are_fine(name, context, places, false)) return CUDA_ERROR_INVALID_VALUE;
    Call call{name};
    return ask(call, stream, name, [=, name = std::string(name)] {
        if (!are_fine(name.c_str(), context, places, false)) return CUDA_ERROR_ILLEGAL_ADDRESS;
        work();
        return are_fine(name.c_str(), context, places, true) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    Call call{__func__};
    TRY(call.enter());
    *total = device_memory();
    *free = *total - call.context()->used;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) {
    Call call{__func__};
    TRY(call.enter());
    TRY(call.unsafe());
    if (!bytes) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no bytes");
    wait_for_all(call);
    size_t& used = call.context()->used;
    if (bytes > device_memory() - used) return CUDA_ERROR_OUT_OF_MEMORY;
    char* base = static_cast<char*>(malloc(bytes + 2 * GUARD + 256));
    if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
    uintptr_t start = (reinterpret_cast<uintptr_t>(base) + GUARD + 255) / 256 * 256;
    poison(reinterpret_cast<char*>(start) - GUARD, GUARD);
    poison(reinterpret_cast<char*>(start), bytes);
    poison(reinterpret_cast<char*>(start) + bytes, GUARD);
    used += bytes;
    *at = start;
    blocks[*at] = {call.context(), bytes, base};
    return CUDA_SUCCESS;
}

// But for FAKE_WAITS it waits for nothing: the real one may. Whoever still works on it finds NaNs, or nothing.
CUresult cuMemFree_v2(CUdeviceptr at) {
    Call call{__func__};
    CUresult entered = call.enter();
    TRY(call.unsafe());
    auto block = blocks.find(at);
    if (block == blocks.end() || block->second.context != call.context())
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such memory");
    wait_for_all(call);
    if (!are_whole(at)) call.refuse(CUDA_ERROR_ILLEGAL_ADDRESS, "something wrote beside the %zu bytes", block->second.bytes);
    poison(reinterpret_cast<char*>(at), block->second.bytes);
    call.context()->used -= block->second.bytes;
    static std::deque<Block> gone;
    static size_t kept;
    gone.push_back(block->second);
    kept += block->second.bytes;
    for (; kept > 256u << 20; gone.pop_front()) kept -= gone.front().bytes, free(gone.front().base);
    blocks.erase(block);
    return entered;
}

CUresult cuMemHostAlloc(void** at, size_t bytes, unsigned int flags) {
    Call call{__func__};
    TRY(call.enter());
    TRY(call.unsafe());
    if (!bytes || flags) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no bytes, or flags");
    wait_for_all(call);
    *at = malloc(bytes);
    locked[static_cast<char*>(*at)] = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* at) {
    Call call{__func__};
    TRY(call.unsafe());
    if (!locked.erase(static_cast<char*>(at))) return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such memory");
    free(at);
    return call.enter();
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    Side to = on_device(call.context(), at);
    return work_on(call, {to}, bytes, stream, [=] { memset(to.at, value, bytes); });
}

// From page-locked memory the copy happens later. Other memory is copied now, to where the copy later finds it.
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    TRY(refuse_in_capture(call, stream));
    CUcontext context = call.context();
    if (is_locked(from, bytes))
        return copy(call, on_device(context, to), {nullptr, const_cast<char*>(static_cast<const char*>(from)), true}, bytes, stream);
    auto bounce = std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    TRY(copy(call, on_device(context, to), {nullptr, bounce->data(), false}, bytes, stream));
    return ask(call, stream, "the end of a copy", [bounce] { return CUDA_SUCCESS; });
}

// To memory that is not page-locked the call returns when the copy is done.
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    TRY(refuse_in_capture(call, stream));
    bool later = is_locked(to, bytes);
    TRY(copy(call, {nullptr, static_cast<char*>(to), later}, on_device(call.context(), from), bytes, stream));
    if (!later) finish(call.lock, stream->last);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    return copy(call, on_device(call.context(), to), on_device(call.context(), from), bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream) {
    Call call{__func__};
    TRY(call.enter());
    if (there == here) return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "a copy between devices that stays on one");
    return copy(call, on_device(there, to), on_device(here, from), bytes, stream);
}

} // extern "C"
