// What a compiled kernel file offers the host: its kernels with their parameters' types, and a way to launch them.
#pragma once

#include "machine.h"

namespace emulation {

// A parameter's type as a letter, which the host compares with its argument.
template <class T>
struct Letter {
    static_assert(sizeof(T) == 0, "a kernel's parameter is a pointer, u32, i32, u64 or float");
};
// clang-format off
template <class T> struct Letter<T*> { static constexpr char value = 'p'; };
template <> struct Letter<unsigned int> { static constexpr char value = 'u'; };
template <> struct Letter<int> { static constexpr char value = 'i'; };
template <> struct Letter<unsigned long long> { static constexpr char value = 'U'; };
template <> struct Letter<float> { static constexpr char value = 'f'; };
// clang-format on

// An argument, read from the next word. Braces, unlike a call's parentheses, take them from left to right.
struct Words {
    const unsigned long long* next;
    template <class T>
    UNSEEN T take() {
        T x;
        memcpy(&x, next++, sizeof x);
        return x;
    }
};

template <auto kernel>
struct Entry;
template <class... T, void (*kernel)(T...)>
struct Entry<kernel> {
    static constexpr char signature[] = {Letter<T>::value..., 0};

    struct Thread {
        explicit Thread(T... args) { kernel(args...); }
    };

    static void run(const unsigned long long* words) {
        [[maybe_unused]] Words from{words};
        Thread{from.take<T>()...};
    }
};

struct Kernel {
    const char* signature;
    void (*run)(const unsigned long long* words);
};

// The launch that the host asks for; its mirror image is in src/driver/emulated/object.rs.
struct Launch {
    unsigned int grid[3], block[3], shared;
    Order order;
    unsigned long long seed; // not 0
    const Allocation* allocations; // by their starts; null if accesses are not to be checked
    unsigned int allocation_count;
};

MACHINE unsigned long long common_divisor(unsigned long long a, unsigned long long b) {
    while (b != 0) {
        unsigned long long rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Runs the blocks, in random order from any one on, with steps that visit each once.
MACHINE bool run_grid() {
    unsigned long long x = gridDim.x, y = gridDim.y, blocks = x * y * gridDim.z, first = 0, step = 1;
    if (machine.order == Order::reverse) {
        first = blocks - 1;
        step = blocks - 1;
    } else if (machine.order == Order::random) {
        unsigned int bound = blocks < 0xffffffffu ? static_cast<unsigned int>(blocks) : 0xffffffffu;
        first = random_below(bound);
        step = 1 + random_below(bound);
        while (common_divisor(step, blocks) != 1) ++step;
    }
    unsigned long long at = first;
    for (unsigned long long done = 0; done < blocks; ++done) {
        blockIdx = {static_cast<unsigned int>(at % x), static_cast<unsigned int>(at / x % y),
                    static_cast<unsigned int>(at / (x * y))};
        if (!run_block()) return false;
        at = (at + step) % blocks;
    }
    return true;
}

// Null, or what went wrong.
MACHINE const char* run_launch(const Kernel& kernel, const Launch& launch, const unsigned long long* words) {
    machine.kernel = kernel.run;
    machine.words = words;
    machine.order = launch.order;
    machine.draws = launch.seed;
    machine.size = launch.block[0] * launch.block[1] * launch.block[2];
    machine.dynamic = launch.shared;
    machine.error[0] = 0;
    anchor = 1; // makes the block, if this is the thread's first launch
    dl_iterate_phdr(find_fixed, nullptr);
    races_begin_launch(launch.allocations, launch.allocation_count);
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    machine.frees = 0;
    for (unsigned int k = MAX_THREADS; k-- > 0;) machine.free[machine.frees++] = &machine.fibers[k];
    if (run_grid()) return nullptr;
    for (Fiber& fiber : machine.fibers) fiber.begun = false; // some hold a thread that will not end
    size_t end = strlen(machine.error);
    snprintf(machine.error + end, sizeof machine.error - end, ", in block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z);
    return machine.error;
}

} // namespace emulation

// The kernels of the file, by TOWERS_KERNEL(name) for each, in the host's order.
#define TOWERS_KERNEL(name) {emulation::Entry<&name>::signature, emulation::Entry<&name>::run},
#define TOWERS_KERNELS(...)                                                                                            \
    static const emulation::Kernel towers_kernels[] = {__VA_ARGS__};                                                   \
    extern "C" const char* towers_signature(unsigned int kernel) { return towers_kernels[kernel].signature; }          \
    extern "C" const char* towers_launch(unsigned int kernel, const emulation::Launch* launch,                         \
                                         const unsigned long long* words) {                                            \
        return emulation::run_launch(towers_kernels[kernel], *launch, words);                                          \
    }
