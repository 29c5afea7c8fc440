// Finds races: two threads that access the same memory, one of them writing, with nothing that orders the accesses.
//
// The compiler (-fsanitize=thread) puts a call before each access of a kernel to memory that another thread could see. For
// every two bytes the last write and the reads since are kept. An access must come after them by what a GPU promises, so a
// race is found whatever the order in which the threads run:
// - __syncthreads orders all threads of a block, __syncwarp the lanes of its mask. Shuffles, votes and mma order nothing.
// - An atomic may meet others. Between blocks, a fence before an atomic releases what its thread knows of; a fence after an
//   atomic acquires what earlier atomics on the same word released. (PTX manual, "Memory Consistency Model".)
// - A copy (cp.async) writes from where it is asked for to where its thread waits for it.
// Blocks of a launch run side by side; launches do not. What is released is what the block itself wrote, not what it
// acquired from others: that is stricter than a GPU, and no kernel needs it.
//
// It also finds accesses outside of all allocations. Included by machine.h.
#pragma once

namespace emulation {

// Who accessed: a thread of a block (below MAX_THREADS), several lanes of a warp (WARPS + warp), several threads of a block, or
// of several blocks.
constexpr unsigned short WARPS = MAX_THREADS, SEVERAL = WARPS + MAX_THREADS / WARP, BLOCKS = SEVERAL + 1;
enum class Kind : unsigned short { plain, atomic, copy };

// An access that may still matter. Its time is that of its thread's last synchronization.
struct Access {
    unsigned int block; // counted over all launches, from 1
    unsigned int time;
    unsigned short who;
    Kind kind;
    unsigned int place; // in the object's code
};

// Two bytes of memory: who wrote last, and who has read since.
struct Cell {
    Access write, read;
};
constexpr size_t CELL = 2, PAGE = 4096, MAX_PAGES = 1 << 15, PLACES = 2 * MAX_PAGES;

struct Page {
    size_t number;
    unsigned int launch;
    Cell* cells;
};

// What a thread of this block has released by an atomic, after a fence.
struct Release {
    const void* word;
    unsigned int block, warp, barrier, known[WARP];
    unsigned int next; // of the same block; 0 is none
};

// An atomic that came behind the first `releases` releases, and the time of the fence after it; 0 is none yet.
struct Observation {
    const void* word;
    unsigned int releases, thread, fence;
};

template <class T>
struct List {
    T* all;
    unsigned int count, room;

    UNSEEN T& push() {
        if (count == room) {
            room = room == 0 ? 64 : 2 * room;
            all = static_cast<T*>(realloc(all, room * sizeof(T)));
            if (!all) abort();
        }
        return all[count++];
    }
};

struct Races {
    unsigned int block, launch;  // the block that runs, and the first of its launch
    unsigned int time, barrier;  // of this block: now, and when all its threads met last
    unsigned int times[MAX_THREADS]; // of each thread's last synchronization
    // Accesses of a lane's warp before these times come before whatever the lane does now.
    unsigned int known[MAX_THREADS][WARP];
    // The same at a thread's last fence: a barrier's time, 0 without a fence, and the lanes'.
    unsigned int fence[MAX_THREADS], fenced[MAX_THREADS][WARP];
    List<Release> releases;           // of this launch; the first is none
    List<Observation> observations;   // of this block
    List<unsigned int> last_releases; // of each block of this launch
    Page pages[PLACES];
    Cell* cells;
    unsigned int used;
    const Allocation* allocations; // by their starts
    const Allocation* last;        // that was accessed
    unsigned int allocation_count;
};
static Races races;

MACHINE unsigned int place_of(const void* code) {
    return static_cast<unsigned int>(static_cast<const char*>(code) - __ehdr_start);
}

MACHINE void races_begin_launch(const Allocation* allocations, unsigned int count) {
    races.launch = races.block + 1;
    races.used = 0;
    races.releases.count = races.last_releases.count = 0;
    races.allocations = allocations;
    races.last = nullptr;
    races.allocation_count = count;
}

MACHINE void races_begin_block() {
    ++races.block;
    races.time = races.barrier = 1;
    races.observations.count = 0;
    for (unsigned int k = 0; k < machine.size; ++k) {
        races.times[k] = 1;
        races.fence[k] = 0;
    }
    memset(races.known, 0, machine.size * sizeof races.known[0]);
}

// All threads of the block have met.
MACHINE void races_meet_block() {
    races.barrier = ++races.time;
    for (unsigned int k = 0; k < machine.size; ++k) races.times[k] = races.time;
}

// The lanes of a mask have met: each knows what any of them knew.
MACHINE void races_meet_warp(unsigned int first, unsigned int mask) {
    ++races.time;
    unsigned int all[WARP] = {};
    for (unsigned int k = 0; k < WARP; ++k) {
        if (!(mask >> k & 1)) continue;
        for (unsigned int lane = 0; lane < WARP; ++lane) {
            unsigned int known = races.known[first + k][lane];
            all[lane] = all[lane] < known ? known : all[lane];
        }
    }
    for (unsigned int k = 0; k < WARP; ++k) all[k] = mask >> k & 1 ? races.time : all[k];
    for (unsigned int k = 0; k < WARP; ++k) {
        if (!(mask >> k & 1)) continue;
        races.times[first + k] = races.time;
        memcpy(races.known[first + k], all, sizeof all);
    }
}

// Whether accesses of a set, of one block, come before a barrier or before what is known of a warp's lanes.
MACHINE bool is_before(const Access& access, unsigned int barrier, unsigned int warp, const unsigned int (&known)[WARP]) {
    if (access.time < barrier) return true;
    if (access.who < WARPS) return access.who / WARP == warp && access.time < known[access.who % WARP];
    if (access.who != WARPS + warp) return false;
    for (unsigned int time : known)
        if (access.time >= time) return false;
    return true;
}

// Whether a fence of this block has acquired what another block did.
__attribute__((noinline)) MACHINE bool is_acquired(const Access& access) {
    unsigned int me = machine.current, block = access.block - races.launch;
    if (access.who == BLOCKS || block >= races.last_releases.count) return false;
    for (unsigned int k = 0; k < races.observations.count; ++k) {
        const Observation& seen = races.observations.all[k];
        Access fence = {races.block, seen.fence, static_cast<unsigned short>(seen.thread), Kind::plain, 0};
        bool mine = seen.thread == me || is_before(fence, races.barrier, me / WARP, races.known[me]);
        if (seen.fence == 0 || !mine) continue;
        for (unsigned int at = races.last_releases.all[block]; at != 0; at = races.releases.all[at].next) {
            const Release& release = races.releases.all[at];
            if (at >= seen.releases || release.word != seen.word) continue;
            if (is_before(access, release.barrier, release.warp, release.known)) return true;
        }
    }
    return false;
}

// Whether an access comes before whatever the current thread does. `first` is the first block that counts.
MACHINE bool is_known(const Access& access, unsigned int first) {
    if (access.block < first) return true;
    if (access.block != races.block) return is_acquired(access);
    unsigned int me = machine.current;
    if (access.who == me || access.time < races.barrier) return true;
    unsigned int(&known)[WARP] = races.known[me];
    if (access.who != WARPS + me / WARP) return is_before(access, races.barrier, me / WARP, known);
    unsigned int own = known[me % WARP];
    known[me % WARP] = ~0u; // of itself a thread knows all
    bool before = is_before(access, races.barrier, me / WARP, known);
    known[me % WARP] = own;
    return before;
}

// Those of an earlier set, and the current thread.
MACHINE Access joined(const Access& set, Access mine) {
    unsigned int warp = mine.who / WARP;
    if (set.block != mine.block) mine.who = BLOCKS;
    else if (set.who == mine.who) return mine;
    else if (set.who >= SEVERAL) mine.who = set.who;
    else if (set.who < WARPS ? set.who / WARP == warp : set.who == WARPS + warp)
        mine.who = static_cast<unsigned short>(WARPS + warp);
    else mine.who = SEVERAL;
    if (set.block == mine.block && set.time > mine.time) mine.time = set.time;
    return mine;
}

// Names an access: who, what, where.
MACHINE void name(const Access& access, bool write, char* text, size_t size) {
    const char* what = access.kind == Kind::copy     ? "still copies"
                       : access.kind == Kind::atomic ? "atomically updates"
                       : write                       ? "writes"
                                                     : "reads";
    char who[48];
    if (access.who < WARPS) snprintf(who, sizeof who, "thread %u", access.who);
    else if (access.who < SEVERAL) snprintf(who, sizeof who, "a thread of warp %u", access.who - WARPS);
    else snprintf(who, sizeof who, "a thread");
    const char* block = access.block == races.block && access.who != BLOCKS ? "" : " of another block";
    snprintf(text, size, "%s%s %s it in {%#x}", who, block, what, access.place);
}

[[noreturn]] __attribute__((noinline)) MACHINE void fail_race(bool shared, const Access& mine, bool writes, const Access& other,
                                                              bool wrote) {
    char a[160], b[160];
    name(mine, writes, a, sizeof a);
    name(other, wrote, b, sizeof b);
    fail("a race in %s memory: %s, and %s", shared ? "shared" : "global", a, b);
}

MACHINE Cell* cells_of(size_t number) {
    size_t at = number % PLACES;
    while (races.pages[at].launch == races.launch && races.pages[at].number != number) at = (at + 1) % PLACES;
    Page& page = races.pages[at];
    if (page.launch == races.launch) return page.cells;
    if (!races.cells) {
        void* all = reserve(MAX_PAGES * (PAGE / CELL) * sizeof(Cell));
        if (!all) fail("no memory to look for races");
        races.cells = static_cast<Cell*>(all);
    }
    if (races.used == MAX_PAGES) fail("a launch accesses more than %zu MiB", MAX_PAGES * PAGE >> 20);
    page = {number, races.launch, races.cells + races.used++ * (PAGE / CELL)};
    return page.cells;
}

// Fails unless the bytes lie in an allocation.
__attribute__((noinline)) MACHINE const Allocation* allocation_of(size_t at, size_t bytes, unsigned int place, bool writes) {
    unsigned int low = 0, high = races.allocation_count; // the first that begins behind `at`
    while (low < high) {
        unsigned int middle = (low + high) / 2;
        if (races.allocations[middle].start <= at) low = middle + 1;
        else high = middle;
    }
    const Allocation* found = low == 0 ? nullptr : races.allocations + low - 1;
    if (found && at - found->start + bytes <= found->bytes) return found;
    const char* what = writes ? "writes" : "reads";
    if (found && at - found->start < found->bytes + PAGE)
        fail("thread %u %s %zu bytes behind the end of an allocation of %llu bytes in {%#x}", machine.current, what,
             at - found->start + bytes - found->bytes, found->bytes, place);
    fail("thread %u %s outside of all allocations in {%#x}", machine.current, what, place);
}

// Whether some bytes are in shared memory.
MACHINE bool is_shared(size_t at, size_t bytes, unsigned int place) {
    if (at - reinterpret_cast<size_t>(machine.fixed) < machine.fixed_bytes) return true;
    size_t dynamic = at - reinterpret_cast<size_t>(dynamic_shared);
    if (dynamic < sizeof dynamic_shared && dynamic + bytes > machine.dynamic)
        fail("thread %u accesses more than the %u bytes of dynamic shared memory in {%#x}", machine.current, machine.dynamic,
             place);
    return dynamic < sizeof dynamic_shared;
}

// The current thread accesses two bytes.
MACHINE void note_cell(Cell& here, const Access& mine, bool writes, bool shared) {
    if (!writes && here.read.block == mine.block && here.read.time == mine.time && here.read.who == mine.who) return;
    unsigned int first = shared ? races.block : races.launch; // that counts
    bool live = here.write.block >= first;
    if (live && here.write.kind == Kind::copy) fail_race(shared, mine, writes, here.write, true);
    bool known = !live || is_known(here.write, first);
    bool both_atomic = mine.kind == Kind::atomic && here.write.kind == Kind::atomic;
    if (!known && !both_atomic) fail_race(shared, mine, writes, here.write, true);
    bool alone = here.read.block < first || is_known(here.read, first);
    if (!writes) {
        here.read = alone ? mine : joined(here.read, mine);
        return;
    }
    if (!alone) fail_race(shared, mine, writes, here.read, false);
    here.write = known ? mine : joined(here.write, mine);
    here.read = {};
}

MACHINE void note(const void* address, size_t bytes, bool writes, Kind kind, const void* code) {
    size_t at = reinterpret_cast<size_t>(address);
    if (at - reinterpret_cast<size_t>(machine.stacks) < MAX_THREADS * STACK || bytes == 0 || !races.allocations) return;
    unsigned int me = machine.current, place = place_of(code);
    bool shared = is_shared(at, bytes, place);
    if (!shared) {
        if (at - reinterpret_cast<size_t>(__ehdr_start) < static_cast<size_t>(_end - __ehdr_start)) return; // as threadIdx
        if (!races.last || at - races.last->start + bytes > races.last->bytes)
            races.last = allocation_of(at, bytes, place, writes);
    }
    Access mine = {races.block, races.times[me], static_cast<unsigned short>(me), kind, place};
    for (size_t cell = at / CELL, end = (at + bytes - 1) / CELL; cell <= end;) {
        Cell* cells = cells_of(cell / (PAGE / CELL));
        do note_cell(cells[cell % (PAGE / CELL)], mine, writes, shared);
        while (++cell <= end && cell % (PAGE / CELL) != 0);
    }
}

// A copy to shared memory is done: from now on it is a write of its thread.
MACHINE void races_end_copy(const char* to) {
    if (!races.allocations) return;
    for (size_t at = reinterpret_cast<size_t>(to) / CELL, end = at + 16 / CELL; at < end; ++at) {
        Access& write = cells_of(at / (PAGE / CELL))[at % (PAGE / CELL)].write;
        write.kind = Kind::plain;
        write.time = races.times[machine.current];
    }
}

// An atomic, on any device: what its thread released goes with it, and it sees what others released there.
MACHINE void note_atomic(const void* word, size_t bytes, const void* code) {
    unsigned int me = machine.current;
    note(word, bytes, true, Kind::atomic, code);
    if (races.releases.count == 0) races.releases.push() = {};
    races.observations.push() = {word, races.releases.count, me, 0};
    if (races.fence[me] == 0) return;
    while (races.last_releases.count <= races.block - races.launch) races.last_releases.push() = 0;
    unsigned int& last = races.last_releases.all[races.block - races.launch];
    unsigned int number = races.releases.count;
    Release& release = races.releases.push();
    release = {word, races.block, me / WARP, races.fence[me], {}, last};
    memcpy(release.known, races.fenced[me], sizeof release.known);
    last = number;
}

// A fence for the device: what comes before it is told from what comes after it.
MACHINE void note_fence() {
    unsigned int me = machine.current;
    races.times[me] = ++races.time;
    races.fence[me] = races.barrier;
    memcpy(races.fenced[me], races.known[me], sizeof races.fenced[me]);
    races.fenced[me][me % WARP] = races.time;
    for (unsigned int k = 0; k < races.observations.count; ++k) {
        Observation& seen = races.observations.all[k];
        if (seen.thread == me && seen.fence == 0) seen.fence = races.time;
    }
}

} // namespace emulation

// What the compiler calls.
#define TOWERS_SEEN(name, bytes, writes)                                                                     \
    extern "C" __attribute__((visibility("hidden"), noinline)) UNSEEN void name(void* at) {                  \
        emulation::note(at, bytes, writes, emulation::Kind::plain, __builtin_return_address(0));             \
    }
#define TOWERS_SEEN_ALIKE(kind, writes)                 \
    TOWERS_SEEN(__tsan_##kind##1, 1, writes)            \
    TOWERS_SEEN(__tsan_##kind##2, 2, writes)            \
    TOWERS_SEEN(__tsan_##kind##4, 4, writes)            \
    TOWERS_SEEN(__tsan_##kind##8, 8, writes)            \
    TOWERS_SEEN(__tsan_##kind##16, 16, writes)          \
    TOWERS_SEEN(__tsan_unaligned_##kind##2, 2, writes)  \
    TOWERS_SEEN(__tsan_unaligned_##kind##4, 4, writes)  \
    TOWERS_SEEN(__tsan_unaligned_##kind##8, 8, writes)  \
    TOWERS_SEEN(__tsan_unaligned_##kind##16, 16, writes)
TOWERS_SEEN_ALIKE(read, false)
TOWERS_SEEN_ALIKE(write, true)
#undef TOWERS_SEEN_ALIKE
#undef TOWERS_SEEN

extern "C" {
__attribute__((visibility("hidden"))) UNSEEN void __tsan_read_range(void* at, unsigned long bytes) {
    emulation::note(at, bytes, false, emulation::Kind::plain, __builtin_return_address(0));
}
__attribute__((visibility("hidden"))) UNSEEN void __tsan_write_range(void* at, unsigned long bytes) {
    emulation::note(at, bytes, true, emulation::Kind::plain, __builtin_return_address(0));
}
__attribute__((visibility("hidden"))) UNSEEN void __tsan_init() {}
__attribute__((visibility("hidden"))) UNSEEN void __tsan_func_entry(void*) {}
__attribute__((visibility("hidden"))) UNSEEN void __tsan_func_exit() {}
}
