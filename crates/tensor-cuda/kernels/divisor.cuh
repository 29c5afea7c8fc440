// Division by numbers that the host knows.
#pragma once
#include "towers.cuh"

// Division of numbers below 2^31 by one that the host prepared: its low half is the divisor d, its high half
// ceil(2^(31 + s) / d) with s = ceil(log2 d).
struct Divisor {
    u32 by, magic, shift;
    __device__ explicit Divisor(u64 packed)
        : by(static_cast<u32>(packed)),
          magic(static_cast<u32>(packed >> 32)),
          shift(63 - __clz(static_cast<int>(by - 1))) {}
    __device__ u32 quotient(u32 n) const { return static_cast<u32>(static_cast<u64>(n) * magic >> shift); }
};
