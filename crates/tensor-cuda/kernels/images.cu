// A batch of images out of a set that lies on the device: cut out, moved, normalized, in one pass.
//
// images: bytes (N, H, W, C). labels: `label` integers an image. draws: a table as crates/program/src/images.rs has it, a row of 1 + h + w pairs
// for each place: the image's number and 0, then what its rows and its columns show. Place k of the batch is row first + k, with the first row of the step's state.
// planes: floats (H, W, C) that are subtracted first, then (H, W, C) that are subtracted after the scale, then (H, W, C) that
// divide. An image that the set lacks gives NaN and the label 2^32 - 1, a place outside of the image NaN, and nothing is read for them.
//
// Geometry: one dimension, ceil(h w / 256) blocks an image, a thread a pixel.
#include "towers.cuh"

// What a row or a column shows: a pixel and the weight of the next, or the constant; blank pixels are 0.
struct __align__(8) Place {
    u32 word;
    float weight;
};

constexpr u32 BLANK = 1u << 31, OUTSIDE = BLANK - 1;

// The two pixels of a place.
struct Tap {
    u32 low, high;
    bool outside, good;
};

__device__ inline Tap tap(const Place& place, u32 len) {
    u32 low = place.word & ~BLANK, high = low + (place.weight != 0.0f);
    bool outside = low == OUTSIDE;
    return {low, high, outside, outside || high < len};
}

__device__ inline float mix(float a, float b, float weight) { return (1.0f - weight) * a + weight * b; }

// The four pixels that a position reads, top to bottom and left to right, and how they are mixed.
struct Corners {
    u32 at[4];
    float down, right;
    bool inside;
};

// The channels [from, from + C) of a pixel. All loads come before the first store, which might lie where they do for all
// that the compiler knows.
template <u32 C>
__device__ inline void load_channels(const u8* image, const float* before, const float* after, const float* divisor, u32 c, const Corners& corners,
                                     float constant, float scale, u32 from, act_t* x) {
    float value[C];
#pragma unroll
    for (u32 k = 0; k < C; ++k) {
        float v[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            u32 at = corners.at[j] * c + from + k;
            v[j] = static_cast<float>(image[at]) - before[at];
        }
        float mixed = mix(mix(v[0], v[2], corners.down), mix(v[1], v[3], corners.down), corners.right);
        value[k] = ((corners.inside ? mixed : constant) * scale - after[from + k]) / divisor[from + k];
    }
#pragma unroll
    for (u32 k = 0; k < C; ++k) x[from + k] = from_float<act_t>(value[k]);
}

// x =, to =
KERNEL load_images(const StepState* state, const u8* images, const u32* labels, u32 label, const Place* draws, u32 count, u32 rows,
                   const float* planes, u32 h, u32 w, u32 c, float constant, float scale, act_t* x, u32 stride, u32* to) {
    u32 blocks = ceil_div(h * w, blockDim.x), k = blockIdx.x / blocks;
    u32 pixel = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (pixel >= h * w) return;
    x += (static_cast<u64>(k) * h * w + pixel) * stride;

    u64 place = static_cast<u64>(state->first) + k;
    const Place* draw = draws + place * (1 + h + w);
    u32 number = place < rows ? draw[0].word : count;
    bool good = number < count;
    for (u32 j = pixel; j < label; j += h * w) to[k * label + j] = good ? labels[number * label + j] : 0xffffffffu;

    Place down = {}, right = {};
    if (good) {
        down = draw[1 + pixel / w];
        right = draw[1 + h + pixel % w];
    }
    Tap row = tap(down, h), column = tap(right, w);
    good = good && row.good && column.good;
    if (!good || (down.word & right.word & BLANK)) {
        float value = good ? 0.0f : __uint_as_float(0x7fc00000u);
        for (u32 ch = 0; ch < c; ++ch) x[ch] = from_float<act_t>(value);
        return;
    }
    bool inside = !row.outside && !column.outside;
    Corners corners = {{0, 0, 0, 0}, down.weight, right.weight, inside};
    if (inside) {
        corners.at[0] = row.low * w + column.low;
        corners.at[1] = row.low * w + column.high;
        corners.at[2] = row.high * w + column.low;
        corners.at[3] = row.high * w + column.high;
    }
    const u8* image = images + static_cast<u64>(number) * h * w * c;
    const float* after = planes + static_cast<u64>(h * w + pixel) * c;
    const float* divisor = after + static_cast<u64>(h * w) * c;
    if (c == 3) {
        load_channels<3>(image, planes, after, divisor, c, corners, constant, scale, 0, x);
    } else {
        for (u32 ch = 0; ch < c; ++ch) load_channels<1>(image, planes, after, divisor, c, corners, constant, scale, ch, x);
    }
}
