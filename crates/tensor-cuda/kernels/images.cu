// A batch of images out of a set that lies on the device: cut out, moved, normalized, in one pass.
//
// images: bytes (N, H, W, C). labels: one an image. draws: a table of 12 words a row, in the order of ImageDraw::to_words
// (crates/tensor-backend/src/images.rs, where AxisDraw::tap defines what tap() below does); place k of the batch is row
// turn->first + k. means: floats (H, W, C) that are subtracted first, then (H, W, C) that are subtracted after the scale.
// A draw that makes no sense gives NaN and the label 2^32 - 1, and nothing is read for it.
//
// Geometry: one dimension, ceil(h w / 256) blocks an image, a thread a pixel.
#include "towers.cuh"

enum Fill : u32 { CONSTANT, NEAREST, REFLECT, WRAP, MIRROR };

// The most pixels of an image, and the farthest that one is moved: no place overflows.
constexpr i32 MOST = 1 << 28;

// What happens along one axis.
struct Axis {
    i32 shift;
    float weight;
    i32 crop;
    u32 blank_start, blank_end;
};

struct __align__(16) Draw {
    u32 image;
    u32 flips;
    Axis rows, columns;
};
static_assert(sizeof(Draw) == 48, "a row of the table is 12 words");

// A place reads (1 - weight) * pixel[low] + weight * pixel[high]; or, if it isn't inside, the constant.
struct Tap {
    u32 low, high;
    float weight;
    bool inside;
};

__device__ inline bool makes_sense(const Axis& a) {
    return a.shift >= -MOST && a.shift <= MOST && a.crop >= -MOST && a.crop <= MOST && a.weight >= 0.0f &&
           a.weight < 1.0f;
}

// The remainder that is not negative.
__device__ inline i32 modulo(i32 a, i32 b) {
    i32 rest = a % b;
    return rest < 0 ? rest + b : rest;
}

// The pixel that stands at a place; -1 for the constant.
__device__ inline i32 pixel_at(i32 at, i32 len, u32 fill) {
    if (at >= 0 && at < len) return at;
    switch (fill) {
    case NEAREST:
        return at < 0 ? 0 : len - 1;
    case REFLECT: {
        i32 place = modulo(at, 2 * len);
        return place < len ? place : 2 * len - 1 - place;
    }
    case WRAP:
        return modulo(at, len);
    case MIRROR: {
        i32 place = len == 1 ? 0 : modulo(at, 2 * (len - 1));
        return place < len ? place : 2 * (len - 1) - place;
    }
    default:
        return -1;
    }
}

__device__ inline Tap tap(const Axis& axis, bool flip, u32 out, u32 size, u32 fill) {
    i32 len = static_cast<i32>(size), last = len - 1;
    i32 place = pixel_at(static_cast<i32>(out) + axis.crop, len, fill);
    if (place < 0) return {0, 0, 0.0f, false};
    i32 at = (flip ? last - place : place) + axis.shift, low, high;
    if (at >= 0 && (at < last || (at == last && axis.weight == 0.0f))) {
        low = at;
        high = at < last ? at + 1 : last;
    } else if (fill == CONSTANT) {
        return {0, 0, 0.0f, false};
    } else if (fill == WRAP) {
        // The period is n - 1: the first and the last pixel are the same point; from the left the last is come upon.
        low = last == 0 ? 0 : modulo(at, last);
        high = last == 0 ? 0 : low + 1;
        if (at < 0 && low == 0 && axis.weight == 0.0f) low = high = last;
    } else {
        low = pixel_at(at, len, fill);
        high = pixel_at(at + 1, len, fill);
    }
    return {static_cast<u32>(low), static_cast<u32>(high), axis.weight, true};
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
__device__ inline void load_channels(const u8* image, const float* before, const float* after, u32 c, const Corners& corners,
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
        value[k] = (corners.inside ? mixed : constant) * scale - after[from + k];
    }
#pragma unroll
    for (u32 k = 0; k < C; ++k) x[from + k] = from_float<act_t>(value[k]);
}

// x =, to =
KERNEL load_images(const Turn* turn, const u8* images, const u32* labels, const Draw* draws, u32 count, u32 rows,
                   const float* means, u32 h, u32 w, u32 c, u32 fill, float constant, float scale, act_t* x, u32 stride,
                   u32* to) {
    u32 blocks = ceil_div(h * w, blockDim.x), k = blockIdx.x / blocks;
    u32 pixel = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    if (pixel >= h * w) return;
    x += (static_cast<u64>(k) * h * w + pixel) * stride;

    u64 place = static_cast<u64>(turn->first) + k;
    Draw draw = {};
    bool good = place < rows;
    if (good) {
        draw = draws[place];
        good = draw.image < count && makes_sense(draw.rows) && makes_sense(draw.columns);
    }
    if (pixel == 0) to[k] = good ? labels[draw.image] : 0xffffffffu;

    u32 i = pixel / w, j = pixel % w;
    bool blank = i >= draw.rows.blank_start && i < draw.rows.blank_end && j >= draw.columns.blank_start &&
                 j < draw.columns.blank_end;
    if (!good || blank) {
        float value = good ? 0.0f : __uint_as_float(0x7fc00000u);
        for (u32 ch = 0; ch < c; ++ch) x[ch] = from_float<act_t>(value);
        return;
    }
    Tap row = tap(draw.rows, draw.flips & 1, i, h, fill), column = tap(draw.columns, draw.flips & 2, j, w, fill);
    Corners corners = {{row.low * w + column.low, row.low * w + column.high, row.high * w + column.low,
                        row.high * w + column.high},
                       row.weight,
                       column.weight,
                       row.inside && column.inside};
    const u8* image = images + static_cast<u64>(draw.image) * h * w * c;
    const float* after = means + static_cast<u64>(h * w + pixel) * c;
    if (c == 3) {
        load_channels<3>(image, means, after, c, corners, constant, scale, 0, x);
    } else {
        for (u32 ch = 0; ch < c; ++ch) load_channels<1>(image, means, after, c, corners, constant, scale, ch, x);
    }
}
