// Copies from global to shared memory that go on beside their thread: cp.async of 16 bytes, in groups.
//
// On a GPU a copy is done at any time from where it is asked for to where its group is waited for. Here it is done at once or
// as late as can be: forward takes the first, reverse the second, random draws. So whoever reads without waiting finds what
// was there before, and a copy to what others still read destroys it. Included by shim.h.
#pragma once

namespace emulation {

inline void carry_out(const Copy& copy) {
    if (copy.from) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
}

inline void begin_copy(void* to, const void* from, Line line) {
    if (reinterpret_cast<size_t>(to) % 16 != 0 || reinterpret_cast<size_t>(from) % 16 != 0)
        fail("a copy of 16 bytes is not aligned to them in %s:%d", line.file, line.line);
    Thread& mine = machine.threads[machine.current];
    Copy copy = {static_cast<char*>(to), static_cast<const char*>(from), mine.group};
    bool late = machine.order == Order::random ? random_below(2) == 1 : machine.order == Order::reverse;
    if (!late) return carry_out(copy);
    if (mine.copies == MAX_COPIES) fail("a thread has more than %u copies under way in %s:%d", MAX_COPIES, line.file, line.line);
    mine.under_way[mine.copies++] = copy;
}

inline void commit_copies() { ++machine.threads[machine.current].group; }

// Waits until all groups but the newest `others` are done.
inline void wait_copies(unsigned int others) {
    Thread& mine = machine.threads[machine.current];
    unsigned int left = 0;
    for (unsigned int k = 0; k < mine.copies; ++k) {
        const Copy& copy = mine.under_way[k];
        if (copy.group + others < mine.group) carry_out(copy);
        else mine.under_way[left++] = copy;
    }
    mine.copies = left;
}

} // namespace emulation
