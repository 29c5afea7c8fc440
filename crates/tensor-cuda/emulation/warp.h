// What the lanes of a warp do together: shuffles, votes, products of small matrices.
//
// Each is a struct with what a lane brings and takes. The last lane to come does the work for all of them, while the
// others wait. Included by shim.h.
#pragma once

namespace emulation {

// A lane takes the value of another one of its mask.
template <class T>
struct Shuffle {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    T value, taken;
    unsigned int from;

    UNSEEN static void finish(void* const (&offers)[WARP], unsigned int mask) {
        for (unsigned int lane = 0; lane < WARP; ++lane) {
            if (!(mask >> lane & 1)) continue;
            Shuffle& mine = *static_cast<Shuffle*>(offers[lane]);
            if (!(mask >> mine.from & 1)) fail("lane %u takes the value of lane %u, which is not in mask %#x", lane, mine.from, mask);
            mine.taken = static_cast<Shuffle*>(offers[mine.from])->value;
        }
    }
};

inline unsigned int lane() { return machine.current % WARP; }

template <class T>
inline T shuffle(unsigned int mask, T value, unsigned int from, Line line) {
    Shuffle<T> mine{value, value, from};
    meet_warp(mask, Shuffle<T>::finish, &mine, line);
    return mine.taken;
}

// Every lane learns which lanes say yes.
struct Vote {
    bool yes;
    unsigned int all;

    UNSEEN static void finish(void* const (&offers)[WARP], unsigned int mask) {
        unsigned int all = 0;
        for (unsigned int lane = 0; lane < WARP; ++lane)
            if (mask >> lane & 1 && static_cast<Vote*>(offers[lane])->yes) all |= 1u << lane;
        for (unsigned int lane = 0; lane < WARP; ++lane)
            if (mask >> lane & 1) static_cast<Vote*>(offers[lane])->all = all;
    }
};

inline unsigned int vote(unsigned int mask, bool yes, Line line) {
    Vote mine{yes, 0};
    meet_warp(mask, Vote::finish, &mine, line);
    return mine.all;
}

#if TOWERS_ACT != 0
inline float decode(unsigned int half) {
#if TOWERS_ACT == 1
    return as_float(half << 16);
#else
    return half_to_float(static_cast<unsigned short>(half));
#endif
}

// Fragments of mma.sync.m16n8k16. With g = lane / 4 and t = lane % 4, register by register, two 16-bit elements each, the
// lower half first:
// - a (16 x 16): rows g, g + 8, g, g + 8, columns 2t, 2t, 2t + 8, 2t + 8 and the next
// - b (16 x 8): rows 2t, 2t + 8 and the next, column g
// - d (16 x 8): one float a register: rows g, g, g + 8, g + 8, columns 2t, 2t + 1, 2t, 2t + 1
struct Mma {
    // A row of b or of d. The processor's vectors add up all columns at once, each in its own order: the bits are those of
    // one number after the other.
    typedef float Row __attribute__((vector_size(8 * sizeof(float))));

    float (*d)[4];
    const unsigned int (*a)[4];
    const unsigned int (*b)[2];

    UNSEEN static void finish(void* const (&offers)[WARP], unsigned int) {
        float a[16][16];
        Row b[16], d[16];
        for (unsigned int lane = 0; lane < WARP; ++lane) {
            const Mma& mine = *static_cast<const Mma*>(offers[lane]);
            unsigned int g = lane / 4, t = lane % 4;
#pragma GCC unroll 8
            for (unsigned int k = 0; k < 8; ++k) {
                unsigned int half = (*mine.a)[k / 2] >> 16 * (k % 2) & 0xffff;
                a[g + 8 * (k / 2 % 2)][2 * t + 8 * (k / 4) + k % 2] = decode(half);
            }
#pragma GCC unroll 8
            for (unsigned int k = 0; k < 4; ++k) {
                unsigned int half = (*mine.b)[k / 2] >> 16 * (k % 2) & 0xffff;
                b[2 * t + 8 * (k / 2) + k % 2][g] = decode(half);
                d[g + 8 * (k / 2)][2 * t + k % 2] = (*mine.d)[k];
            }
        }
        for (unsigned int row = 0; row < 16; ++row)
            for (unsigned int inner = 0; inner < 16; ++inner) d[row] += a[row][inner] * b[inner];
        for (unsigned int lane = 0; lane < WARP; ++lane) {
            const Mma& mine = *static_cast<const Mma*>(offers[lane]);
            unsigned int g = lane / 4, t = lane % 4;
#pragma GCC unroll 8
            for (unsigned int k = 0; k < 4; ++k) (*mine.d)[k] = d[g + 8 * (k / 2)][2 * t + k % 2];
        }
    }
};
#endif

} // namespace emulation

template <class T>
inline T __shfl_sync(unsigned int mask, T x, int from, int width = 32, TOWERS_LINE) {
    unsigned int lane = emulation::lane(), segment = lane & ~static_cast<unsigned int>(width - 1);
    return emulation::shuffle(mask, x, segment | (static_cast<unsigned int>(from) & static_cast<unsigned int>(width - 1)), {file, line});
}
template <class T>
inline T __shfl_xor_sync(unsigned int mask, T x, int bits, int width = 32, TOWERS_LINE) {
    unsigned int lane = emulation::lane(), from = lane ^ static_cast<unsigned int>(bits);
    unsigned int end = (lane & ~static_cast<unsigned int>(width - 1)) + static_cast<unsigned int>(width);
    return emulation::shuffle(mask, x, from < end ? from : lane, {file, line});
}
template <class T>
inline T __shfl_up_sync(unsigned int mask, T x, unsigned int by, int width = 32, TOWERS_LINE) {
    unsigned int lane = emulation::lane(), place = lane & static_cast<unsigned int>(width - 1);
    return emulation::shuffle(mask, x, place < by ? lane : lane - by, {file, line});
}
template <class T>
inline T __shfl_down_sync(unsigned int mask, T x, unsigned int by, int width = 32, TOWERS_LINE) {
    unsigned int lane = emulation::lane(), place = lane & static_cast<unsigned int>(width - 1);
    return emulation::shuffle(mask, x, place + by < static_cast<unsigned int>(width) ? lane + by : lane, {file, line});
}
inline unsigned int __ballot_sync(unsigned int mask, int yes, TOWERS_LINE) {
    return emulation::vote(mask, yes != 0, {file, line});
}
inline int __any_sync(unsigned int mask, int yes, TOWERS_LINE) {
    return emulation::vote(mask, yes != 0, {file, line}) != 0;
}
inline int __all_sync(unsigned int mask, int yes, TOWERS_LINE) {
    return emulation::vote(mask, yes != 0, {file, line}) == mask;
}

#if TOWERS_ACT != 0
// d += a b over a warp: mma.sync.aligned.m16n8k16.row.col.f32.act_t.act_t.f32. The sums are in float, one after the other;
// a tensor core's differ from them by roundings.
inline void mma_16x8x16(float (&d)[4], const unsigned int (&a)[4], const unsigned int (&b)[2], TOWERS_LINE) {
    emulation::Mma mine{&d, &a, &b};
    emulation::meet_warp(0xffffffffu, emulation::Mma::finish, &mine, {file, line});
}
#endif
