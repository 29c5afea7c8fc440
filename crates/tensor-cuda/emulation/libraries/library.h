// What the stand-ins for NVIDIA's libraries have in common: numbers, complaints, objects.
//
// They compute on host memory, when a stream of the stand-in for the driver comes to it. A wrong call returns the documented status
// and leaves a line that begins with FAKE, as there. With REAL_HEADERS NVIDIA's own headers take the place of the types below.
#pragma once

#include "../driver/work.h"
#include "../half.h"
#include <mutex>
#include <set>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

inline CUdeviceptr address(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }

inline bool is_aligned(const void* at, size_t bytes) { return address(at) % bytes == 0; }

// Says what is wrong with a call, whose status it returns.
template <class Status>
Status refuse(const char* name, Status status, const std::string& why) {
    fprintf(stderr, "FAKE: %s: status %d: %s\n", name, static_cast<int>(status), why.c_str());
    return status;
}

// Whether a word is in a list of the environment, which is separated by commas.
inline bool says(const char* variable, const char* word) {
    const char* list = getenv(variable);
    return list && ("," + std::string(list) + ",").find("," + std::string(word) + ",") != std::string::npos;
}

// A failure that the environment orders, as WHICH:WHEN:STATUS. WHICH is the number of an algorithm, or `all`. WHEN is `always`, `add`
// (to what was there), `recorded`, `spoiled` (recorded, with a status that may say that all went well) or `lost` (with the device).
struct Failure {
    char which[16] = "", when[16] = "";
    int status = 0;

    explicit Failure(const char* variable) {
        const char* ordered = getenv(variable);
        if (ordered && sscanf(ordered, "%15[^:]:%15[^:]:%d", which, when, &status) != 3) abort();
    }

    // Whether a call fails, after it has done the damage.
    bool strikes(size_t algorithm, bool adds, CUstream stream, CUcontext context, const std::function<void()>& damage) const {
        bool recorded = fake_is_captured(stream);
        bool is_time = !strcmp(when, "always") || !strcmp(when, "lost") || (adds && !strcmp(when, "add")) ||
                       (recorded && (!strcmp(when, "recorded") || !strcmp(when, "spoiled")));
        if (!is_time || (strcmp(which, "all") && std::to_string(algorithm) != which)) return false;
        if (recorded) fake_spoil(stream);
        else if (!strcmp(when, "lost")) fake_break(context);
        else damage();
        return true;
    }
};

// Formats of numbers, which NVIDIA's libraries number in several ways.
enum class Format { F32, F16, BF16 };

inline size_t bytes_of(Format format) { return format == Format::F32 ? 4 : 2; }

inline float number(Format format, const char* all, size_t k) {
    if (format == Format::F32) {
        float x;
        return memcpy(&x, all + 4 * k, 4), x;
    }
    unsigned short half;
    memcpy(&half, all + 2 * k, 2);
    return format == Format::F16 ? emulation::half_to_float(half) : emulation::as_float(unsigned(half) << 16);
}

inline void set_number(Format format, char* all, size_t k, float x) {
    if (format == Format::F32) {
        memcpy(all + 4 * k, &x, 4);
        return;
    }
    unsigned int bits = emulation::as_bits(x);
    unsigned int rounded = x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
    unsigned short half = format == Format::F16 ? emulation::float_to_half(x) : static_cast<unsigned short>(rounded >> 16);
    memcpy(all + 2 * k, &half, 2);
}

// As tensor cores take an f32: with 10 bits of its fraction.
inline float to_tf32(float x) { return emulation::as_float((emulation::as_bits(x) + 0x1000u) & ~0x1fffu); }

// What an operation reads and writes, the latter with what was there where `beta` is not 0.
struct Factors {
    float alpha, beta;

    Factors(const void* alpha, const void* beta) {
        memcpy(&this->alpha, alpha, 4);
        memcpy(&this->beta, beta, 4);
    }

    void store(Format format, char* all, size_t k, float sum) const {
        set_number(format, all, k, beta == 0 ? alpha * sum : alpha * sum + beta * number(format, all, k));
    }
};

// The objects of a library that are alive. What was given back is never freed, so no new object is mistaken for an old one.
struct Objects {
    const char* library;
    std::mutex lock;
    std::set<const void*> live;

    template <class T>
    T* add(T* object) {
        std::lock_guard<std::mutex> guard(lock);
        return live.insert(object), object;
    }
    bool has(const void* object) {
        std::lock_guard<std::mutex> guard(lock);
        return live.count(object) > 0;
    }
    bool remove(const void* object) {
        std::lock_guard<std::mutex> guard(lock);
        return live.erase(object) > 0;
    }
    // As the call of that name, whose status is `wrong` where there is no such object, and 0 otherwise.
    template <class Status>
    Status give_back(const char* name, const void* object, Status wrong) {
        return remove(object) ? Status{} : refuse(name, wrong, "no such object");
    }
    // At the end of the process.
    ~Objects() { printf("%s: %zu left over\n", library, live.size()), fflush(stdout); }
};
