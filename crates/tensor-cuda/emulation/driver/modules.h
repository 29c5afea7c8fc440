// Modules and kernels: what the stand-in of NVRTC made, an object of the emulation.
#pragma once

#include "memory.h"
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>

constexpr int STATIC_SHARED = 1024; // what every kernel is said to have

// As in emulation/launch.h.
struct Launch {
    unsigned int grid[3], block[3], shared, order;
    unsigned long long seed;
    const void* allocations = nullptr; // the driver checks its memory itself
    unsigned int allocation_count = 0;
};

struct CUmod_st {
    CUcontext context;
    const char* (*run)(unsigned int, const Launch*, const unsigned long long*);
    const char* (*signature)(unsigned int);
    std::vector<CUfunction> functions;
    std::set<CUstream> streams; // that were asked for them
    std::mutex busy; // an object runs one launch at a time
};

struct CUfunc_st {
    CUmodule module;
    unsigned int number;
    std::string name;
    unsigned int dynamic = 48u << 10; // bytes of shared memory that a launch may ask for
    bool loaded = false;
};
inline Handles<CUmod_st> modules;
inline long launches;

static bool has_function(CUfunction function) {
    for (CUmodule module : modules.live)
        for (CUfunction other : module->functions)
            if (other == function) return true;
    return false;
}

// Runs a kernel. Pointers must point into memory of the context, and the memory around it stays as it is.
static CUresult run(CUcontext context, CUfunction function, const Launch& launch, const std::vector<unsigned long long>& words) {
    const char *letters = function->module->signature(function->number), *name = function->name.c_str();
    std::vector<Place> places;
    for (size_t k = 0; k < words.size(); ++k)
        if (letters[k] == 'p' && words[k]) places.push_back({words[k], 0});
    long number = __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
    if (number == setting("FAKE_BREAK", 0) || !are_fine(name, context, places, false)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::lock_guard<std::mutex> alone(function->module->busy);
    const char* message = function->module->run(function->number, &launch, words.data());
    if (message) fprintf(stderr, "FAKE: %s: %s\n", name, message);
    return message ? CUDA_ERROR_LAUNCH_FAILED : are_fine(name, context, places, true) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Call call{__func__};
    TRY(call.enter());
    TRY(call.unsafe());
    wait_for_all(call);
    const char* bytes = static_cast<const char*>(image);
    // PTX is text: here the name of the object's file.
    std::string path = !strncmp(bytes, "// ", 3) ? bytes + 3 : "";
    if (path.empty()) {
        Elf64_Ehdr head;
        memcpy(&head, bytes, sizeof head);
        if (memcmp(head.e_ident, ELFMAG, SELFMAG)) return call.refuse(CUDA_ERROR_INVALID_IMAGE, "no ELF file");
        size_t size = head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
        int file = memfd_create("kernels", 0);
        if (write(file, bytes, size) != static_cast<ssize_t>(size)) return call.refuse(CUDA_ERROR_OUT_OF_MEMORY, "no file");
        path = "/proc/self/fd/" + std::to_string(file);
    }
    void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!object) return call.refuse(CUDA_ERROR_INVALID_IMAGE, "%s", dlerror());
    *module = modules.add(new CUmod_st{call.context()});
    (*module)->run = reinterpret_cast<decltype((*module)->run)>(dlsym(object, "towers_launch"));
    (*module)->signature = reinterpret_cast<decltype((*module)->signature)>(dlsym(object, "towers_signature"));
    auto names = static_cast<const char* const*>(dlsym(object, "towers_names"));
    for (unsigned int k = 0; names[k]; ++k) (*module)->functions.push_back(new CUfunc_st{*module, k, names[k]});
    return CUDA_SUCCESS;
}

// Its object stays: the stacks of its threads are in use.
CUresult cuModuleUnload(CUmodule module) {
    Call call{__func__};
    TRY(call.unsafe());
    if (!modules.has(module)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such module");
    for (CUstream stream : module->streams)
        if (streams.has(stream) && stream->last && !stream->last->yet && !module->context->broken)
            call.refuse(CUDA_ERROR_INVALID_HANDLE, "a stream is at work");
    modules.live.erase(module);
    return call.enter();
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    Call call{__func__};
    TRY(call.enter());
    if (!modules.has(module)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such module");
    for (CUfunction other : module->functions)
        if (other->name == name) return *function = other, CUDA_SUCCESS;
    return call.refuse(CUDA_ERROR_NOT_FOUND, "no kernel %s", name);
}

CUresult cuFuncLoad(CUfunction function) {
    Call call{__func__};
    TRY(call.enter());
    if (!has_function(function)) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such function");
    if (!function->loaded) wait_for_all(call);
    function->loaded = true;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction function) {
    Call call{__func__};
    TRY(call.enter());
    if (!has_function(function) || which != CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such function or attribute");
    *value = STATIC_SHARED;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    Call call{__func__};
    TRY(call.enter());
    if (!has_function(function) || which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "no such function or attribute");
    if (value < 0 || value > MOST_SHARED - STATIC_SHARED) return call.refuse(CUDA_ERROR_INVALID_VALUE, "too much shared memory");
    function->dynamic = static_cast<unsigned int>(value);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void** args, void** extra) {
    Call call{__func__};
    TRY(call.enter());
    if (!has_function(function) || extra) return call.refuse(CUDA_ERROR_INVALID_HANDLE, "no such function, or more than arguments");
    if (function->module->context != call.context()) return call.refuse(CUDA_ERROR_INVALID_CONTEXT, "a kernel of another context");
    auto fits = [](unsigned int x, unsigned int most) { return x > 0 && x <= most; };
    if (!fits(gx, 0x7fffffff) || !fits(gy, 65535) || !fits(gz, 65535) || !fits(bx, 1024) || !fits(by, 1024) ||
        !fits(bz, 64) || 1ull * bx * by * bz > 1024 || shared > function->dynamic)
        return call.refuse(CUDA_ERROR_INVALID_VALUE, "%s on %u x %u x %u blocks of %u x %u x %u threads, %u bytes",
                           function->name.c_str(), gx, gy, gz, bx, by, bz, shared);
    if (!function->loaded) TRY(call.unsafe());
    std::vector<unsigned long long> words;
    for (const char* letter = function->module->signature(function->number); *letter; ++letter) {
        words.push_back(0);
        memcpy(&words.back(), args[words.size() - 1], *letter == 'p' || *letter == 'U' ? 8 : 4);
    }
    function->module->streams.insert(stream);
    static unsigned long long count;
    Launch launch{{gx, gy, gz}, {bx, by, bz}, shared, static_cast<unsigned int>(count % 3), ++count * 0x9e3779b97f4a7c15 | 1};
    CUcontext context = call.context();
    return ask(call, stream, function->name, [=] { return run(context, function, launch, words); });
}

} // extern "C"
