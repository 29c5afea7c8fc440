// A multiprocessor: runs the threads of a block, one at a time, each up to where it must wait for others.
//
// A thread runs on a fiber, a stack of its own. It gives way in two places only: at a barrier of the block, and where its
// warp meets (shuffles, votes, mma). A fiber whose thread ends goes on to a thread that has not begun; so a kernel
// that never waits needs one fiber and no switches. Which of the threads that could go on does so is the order's choice:
// forward and reverse keep a queue, random draws. A kernel whose result depends on that lacks a barrier.
//
// ucontext starts a fiber. Later switches are _setjmp and _longjmp, which spare a system call.
//
// All state is static: the host runs one launch at a time in a loaded object.
//
// Kernels are compiled with the instrumentation of a thread sanitizer, which calls races.h. What is MACHINE or UNSEEN is not.
#pragma once

#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

struct uint3 {
    unsigned int x, y, z;
};

// What every thread of a kernel sees. The machine sets them when a thread goes on.
static uint3 threadIdx, blockIdx, blockDim, gridDim;

// Where the object lies in memory.
extern "C" {
extern char __ehdr_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
}

#define UNSEEN __attribute__((no_sanitize("thread")))
#define MACHINE UNSEEN inline

namespace emulation {

constexpr unsigned int MAX_THREADS = 1024, WARP = 32;
constexpr unsigned int MAX_COPIES = 64; // of a thread, under way at once
constexpr size_t STACK = 128 << 10, MAX_DYNAMIC = 227 << 10;
// A NaN as float, bfloat16 and half alike: what memory holds that nobody has written.
constexpr unsigned short POISON = 0xffa5;
// The lowest bytes of a stack: if they changed, it was too small.
constexpr char STACK_END[16] = "end of a stack\n";

enum class Order : unsigned int { forward, reverse, random };

// A place in a kernel file.
struct Line {
    const char* file;
    int line;
};
MACHINE bool same(const Line& a, const Line& b) {
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

struct Fiber {
    char* stack;
    bool begun;
    ucontext_t start;
    jmp_buf at;
};

// What a thread waits for.
enum class Wait { nothing, block, warp, ended };

// A lane's part of a meeting of its warp. The last lane to come does the work for all of them.
using Finish = void (*)(void* const (&offers)[WARP], unsigned int mask);

// A copy of 16 bytes that a thread has asked for, and the group that it belongs to.
struct Copy {
    const char* to;
    unsigned int group;
};

struct Thread {
    Fiber* fiber; // null before it begins
    Wait wait;
    Line line;
    unsigned int mask;
    Finish finish;
    void* offer;
    unsigned int group, copies; // the group that copies go to now; how many are under way
    Copy under_way[MAX_COPIES];
};

// A piece of device memory.
struct Allocation {
    unsigned long long start, bytes;
};

struct Machine {
    void (*kernel)(const unsigned long long* words);
    const unsigned long long* words;
    Order order;
    unsigned long long draws;
    unsigned int size;    // threads of the block
    unsigned int current; // the thread that runs
    unsigned int ended;
    unsigned int arrived, first; // at the barrier: how many, and the first of them
    unsigned int ready[MAX_THREADS], head, count; // a ring of threads that could go on
    unsigned int met[MAX_THREADS / WARP];         // of each warp: lanes that wait in a meeting
    Thread threads[MAX_THREADS];
    Fiber fibers[MAX_THREADS];
    char* stacks; // of all fibers
    Fiber* free[MAX_THREADS];
    unsigned int frees;
    unsigned int dynamic; // bytes of dynamic shared memory
    char* fixed;          // all __shared__ variables
    size_t fixed_bytes;
    jmp_buf host;
    char error[512];
};
static Machine machine;
alignas(1024) static char dynamic_shared[MAX_DYNAMIC];

MACHINE unsigned int random_below(unsigned int n) {
    unsigned long long& x = machine.draws; // xorshift64
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return static_cast<unsigned int>((x >> 32) * n >> 32);
}

MACHINE void make_ready(unsigned int thread) {
    machine.threads[thread].wait = Wait::nothing;
    machine.ready[(machine.head + machine.count++) % MAX_THREADS] = thread;
}

// Takes a thread that could go on; there is one.
MACHINE unsigned int next_ready() {
    unsigned int& first = machine.ready[machine.head];
    if (machine.order == Order::random) {
        unsigned int& other = machine.ready[(machine.head + random_below(machine.count)) % MAX_THREADS];
        unsigned int drawn = other;
        other = first;
        first = drawn;
    }
    machine.head = (machine.head + 1) % MAX_THREADS;
    --machine.count;
    return first;
}

// Lists threads [first, first + n) as ready, in the order's sense.
MACHINE void make_all_ready(unsigned int first, unsigned int n, unsigned int mask = ~0u) {
    for (unsigned int k = 0; k < n; ++k) {
        unsigned int at = machine.order == Order::reverse ? n - 1 - k : k;
        if (mask >> (at % WARP) & 1) make_ready(first + at);
    }
}

// Ends the launch with an error. What the fibers hold is lost, which harms nobody.
[[noreturn]] __attribute__((format(printf, 1, 2))) MACHINE void fail(const char* format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(machine.error, sizeof machine.error, format, args);
    va_end(args);
    _longjmp(machine.host, 1);
}

// Memory that costs nothing until it is written. Null if there is none.
MACHINE void* reserve(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* all = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return all == MAP_FAILED ? nullptr : all;
}

MACHINE void describe(unsigned int thread, char* text, size_t size) {
    const Thread& t = machine.threads[thread];
    const char* what = t.wait == Wait::block ? "waits at the barrier in" : "waits for its warp in";
    if (t.wait == Wait::ended) snprintf(text, size, "thread %u has ended", thread);
    else snprintf(text, size, "thread %u %s %s:%d", thread, what, t.line.file, t.line.line);
}

// No thread can go on, and not all have ended: names one that waits and one that does something else.
[[noreturn]] MACHINE void fail_stuck() {
    unsigned int one = 0, other = 0;
    while (machine.threads[one].wait == Wait::ended) ++one;
    const Thread& waiting = machine.threads[one];
    unsigned int first = waiting.wait == Wait::warp ? one / WARP * WARP : 0;
    for (other = first; other < machine.size; ++other) {
        const Thread& t = machine.threads[other];
        if (t.wait != waiting.wait || !same(t.line, waiting.line)) break;
    }
    char a[160], b[160];
    describe(one, a, sizeof a);
    if (other == machine.size) fail("%s, and not all that it waits for come", a);
    describe(other, b, sizeof b);
    fail("%s, but %s", a, b);
}

void run_fiber();

// Goes on with a thread's fiber. Never comes back.
[[noreturn]] MACHINE void resume(Fiber* fiber) {
    if (fiber->begun) _longjmp(fiber->at, 1);
    fiber->begun = true;
    size_t number = static_cast<size_t>(fiber - machine.fibers);
    if (!fiber->stack) {
        if (!machine.stacks) {
            machine.stacks = static_cast<char*>(reserve(MAX_THREADS * STACK));
            if (!machine.stacks) fail("no memory for the stacks of threads");
        }
        fiber->stack = machine.stacks + number * STACK;
        memcpy(fiber->stack, STACK_END, sizeof STACK_END);
    }
    getcontext(&fiber->start);
    // Stacks that all began on the same bits of an address would share few lines of the processor's caches.
    size_t skip = number * 13 * 64 % (STACK / 4);
    fiber->start.uc_stack.ss_sp = fiber->stack;
    fiber->start.uc_stack.ss_size = STACK - skip;
    fiber->start.uc_link = nullptr;
    makecontext(&fiber->start, run_fiber, 0);
    setcontext(&fiber->start);
    abort();
}

// Makes a thread the current one and gives it a fiber: `mine` if it has none yet and that is free.
MACHINE Fiber* enter(unsigned int thread, Fiber* mine) {
    Thread& t = machine.threads[thread];
    if (!t.fiber) t.fiber = mine ? mine : machine.free[--machine.frees];
    machine.current = thread;
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / (blockDim.x * blockDim.y);
    return t.fiber;
}

// The current thread waits until it is made ready again.
__attribute__((noinline)) MACHINE void give_way() {
    Fiber* mine = machine.threads[machine.current].fiber;
    if (machine.count == 0) fail_stuck();
    Fiber* next = enter(next_ready(), nullptr);
    if (next != mine && _setjmp(mine->at) == 0) resume(next);
    asm volatile("" ::: "memory"); // other threads have run
}

// The life of a fiber: one thread after the other.
__attribute__((noinline)) MACHINE void live(Fiber* mine) {
    machine.kernel(machine.words);
    machine.threads[machine.current].wait = Wait::ended;
    ++machine.ended;
    Fiber* next = nullptr;
    if (machine.count > 0) {
        next = enter(next_ready(), mine);
        if (next == mine) return;
    } else if (machine.ended < machine.size) {
        fail_stuck();
    }
    machine.free[machine.frees++] = mine;
    if (_setjmp(mine->at)) return;
    if (next) resume(next);
    _longjmp(machine.host, 1);
}

MACHINE void run_fiber() {
    Fiber* mine = machine.threads[machine.current].fiber;
    for (;;) live(mine);
}

} // namespace emulation

#include "races.h"

namespace emulation {

// All __shared__ variables are thread_local, and nothing else is but this: so they are the object's block for the host's thread. (A
// section of their own will not do: GCC forgets it in templates.)
static thread_local volatile char anchor;

MACHINE int find_fixed(dl_phdr_info* info, size_t, void*) {
    if (info->dlpi_addr != reinterpret_cast<size_t>(__ehdr_start)) return 0;
    for (unsigned int k = 0; k < info->dlpi_phnum; ++k)
        if (info->dlpi_phdr[k].p_type == PT_TLS) machine.fixed_bytes = info->dlpi_phdr[k].p_memsz;
    machine.fixed = static_cast<char*>(info->dlpi_tls_data);
    return 1;
}

// Doubles what is there already.
MACHINE void poison(char* at, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        size_t next = done == 0 ? sizeof POISON : done;
        if (next > bytes - done) next = bytes - done;
        memcpy(at + done, done == 0 ? reinterpret_cast<const char*>(&POISON) : at, next);
        done += next;
    }
}

MACHINE void check_stacks() {
    for (unsigned int k = 0; k < machine.size && machine.fibers[k].stack; ++k) {
        if (memcmp(machine.fibers[k].stack, STACK_END, sizeof STACK_END) != 0)
            fail("a thread needs more than %zu KiB of stack", STACK >> 10);
    }
}

// Runs all threads of the block at blockIdx. False on an error.
__attribute__((noinline)) MACHINE bool run_block() {
    machine.ended = machine.arrived = machine.head = machine.count = 0;
    memset(machine.met, 0, sizeof machine.met);
    for (unsigned int k = 0; k < machine.size; ++k) {
        machine.threads[k].fiber = nullptr;
        machine.threads[k].group = machine.threads[k].copies = 0;
    }
    races_begin_block();
    make_all_ready(0, machine.size);
    poison(machine.fixed, machine.fixed_bytes);
    poison(dynamic_shared, machine.dynamic);
    if (_setjmp(machine.host) == 0) resume(enter(next_ready(), nullptr));
    if (machine.error[0] == 0 && _setjmp(machine.host) == 0) check_stacks();
    asm volatile("" ::: "memory");
    return machine.error[0] == 0;
}

// Waits until all threads of the block are here.
MACHINE void meet_block(Line line) {
    if (machine.arrived == 0) machine.first = machine.current;
    const Line& other = machine.threads[machine.first].line;
    Thread& mine = machine.threads[machine.current];
    if (machine.arrived > 0 && !same(other, line))
        fail("threads %u and %u wait at different barriers, in %s:%d and %s:%d", machine.first, machine.current,
             other.file, other.line, line.file, line.line);
    mine.wait = Wait::block;
    mine.line = line;
    if (++machine.arrived == machine.size) {
        machine.arrived = 0;
        races_meet_block();
        make_all_ready(0, machine.size);
    }
    give_way();
}

// Waits until all lanes of the mask are here, the last of which does what was to be done with their offers.
MACHINE void meet_warp(unsigned int mask, Finish finish, void* offer, Line line) {
    unsigned int lane = machine.current % WARP, warp = machine.current / WARP, first = warp * WARP;
    if (!(mask >> lane & 1)) fail("lane %u is not in its own mask %#x in %s:%d", lane, mask, line.file, line.line);
    Thread& mine = machine.threads[machine.current];
    mine.wait = Wait::warp;
    mine.line = line;
    mine.mask = mask;
    mine.finish = finish;
    mine.offer = offer;
    unsigned int& met = machine.met[warp];
    met |= 1u << lane;
    if ((met & mask) == mask) {
        void* offers[WARP] = {};
        for (unsigned int k = 0; k < WARP; ++k) {
            if (!(mask >> k & 1)) continue;
            const Thread& other = machine.threads[first + k];
            if (other.mask != mask || other.finish != finish || !same(other.line, line))
                fail("lanes %u and %u of a warp do different things, in %s:%d and %s:%d", k, lane,
                     other.line.file, other.line.line, line.file, line.line);
            offers[k] = other.offer;
        }
        if (finish) finish(offers, mask);
        else races_meet_warp(first, mask);
        met &= ~mask;
        make_all_ready(first, WARP, mask);
    }
    give_way();
}

} // namespace emulation
