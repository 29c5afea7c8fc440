// Copies from global to shared memory that go on beside their thread: cp.async of 16 bytes, in groups.
//
// On a GPU a copy is done at any time from where it is asked for to where its group is waited for. Here it is done at once, and
// who accesses its target meanwhile is in a race with it. Included by shim.h.
#pragma once

namespace emulation {

// Null for zeros.
__attribute__((noinline)) MACHINE void begin_copy(void* to, const void* from, Line line) {
    if (reinterpret_cast<size_t>(to) % 16 != 0 || reinterpret_cast<size_t>(from) % 16 != 0)
        fail("a copy of 16 bytes is not aligned to them in %s:%d", line.file, line.line);
    Thread& mine = machine.threads[machine.current];
    if (mine.copies == MAX_COPIES) fail("a thread has more than %u copies under way in %s:%d", MAX_COPIES, line.file, line.line);
    mine.under_way[mine.copies++] = {static_cast<char*>(to), mine.group};
    if (from) note(from, 16, false, Kind::plain, __builtin_return_address(0));
    note(to, 16, true, Kind::copy, __builtin_return_address(0));
    if (from) memcpy(to, from, 16);
    else memset(to, 0, 16);
}

MACHINE void commit_copies() { ++machine.threads[machine.current].group; }

// Waits until all groups but the newest `others` are done.
MACHINE void wait_copies(unsigned int others) {
    Thread& mine = machine.threads[machine.current];
    unsigned int left = 0;
    for (unsigned int k = 0; k < mine.copies; ++k) {
        const Copy& copy = mine.under_way[k];
        if (copy.group + others < mine.group) races_end_copy(copy.to);
        else mine.under_way[left++] = copy;
    }
    mine.copies = left;
}

} // namespace emulation
