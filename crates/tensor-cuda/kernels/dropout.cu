// Dropout with the mask of program::DropoutMask: a pure function of key, step, sample and element.
//
// Layout: x and y are n samples of `pixels` pixels of c channels, each with a row stride of its own. Elements of a
// sample count in the order of memory; four neighbours share a call of Philox, with the counter (element / 4, sample,
// step). Where the channels of a sample, or all of it, are dropped together, the counters are those of the first pixel, or
// of the first element.
// Geometry: any number of blocks of 256 threads; a thread takes `vector` elements at a time, PACK or 1 (then it takes
// four in turn). A pack lies within a pixel.
// Writes: y += if `add`, else =.
#include "towers.cuh"

enum : u32 { ELEMENT, CHANNEL, SAMPLE };

struct Mask {
    u32 key0, key1, first_sample, threshold;
    float scale;
    u64 step;
    u32 noise;

    __device__ Words words(u32 sample, u32 quad) const {
        Words counter = {quad, first_sample + sample, static_cast<u32>(step), static_cast<u32>(step >> 32)};
        return philox(counter, key0, key1);
    }

    // The word that decides about an element.
    __device__ u32 word(u32 sample, u32 element, u32 c) const {
        if (noise == SAMPLE) return words(sample, 0).word[0];
        u32 own = noise == CHANNEL ? element % c : element, k = own % 4;
        Words all = words(sample, own / 4);
        u32 low = k & 1 ? all.word[1] : all.word[0], high = k & 1 ? all.word[3] : all.word[2];
        return k & 2 ? high : low;
    }

    __device__ float keep(float x, u32 word) const { return word < threshold ? 0.0f : x * scale; }
};

struct Images {
    u32 n, pixels, c, x_stride, y_stride;
};

// `group` of a sample's groups of G elements, and the sample; divided in 32 bits where these are enough, which is
// several times as fast.
struct Group {
    u32 sample, element;
};
template <int G>
__device__ inline Group group(u64 item, u32 groups) {
    bool small = item >> 32 == 0;
    u32 sample = small ? static_cast<u32>(item) / groups : static_cast<u32>(item / groups);
    return {sample, static_cast<u32>(item - static_cast<u64>(sample) * groups) * G};
}

__device__ inline void drop_packs(Mask mask, const act_t* x, act_t* y, Images s, u32 add) {
    u32 groups = s.pixels * s.c / PACK;
    for (u64 item = global_thread(); item < static_cast<u64>(s.n) * groups; item += global_threads()) {
        Group at = group<PACK>(item, groups);
        u64 pixel = static_cast<u64>(at.sample) * s.pixels + at.element / s.c;
        act_t* to = y + pixel * s.y_stride + at.element % s.c;
        float v[PACK], sum[PACK] = {};
        load<PACK>(x + pixel * s.x_stride + at.element % s.c, v);
        if (add) load<PACK>(to, sum);
#pragma unroll
        for (int quad = 0; quad < PACK / 4; ++quad) {
            u32 first = mask.noise == CHANNEL ? at.element % s.c : at.element;
            Words words = mask.words(at.sample, mask.noise == SAMPLE ? 0 : first / 4 + quad);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float kept = mask.keep(v[4 * quad + k], mask.noise == SAMPLE ? words.word[0] : words.word[k]);
                v[4 * quad + k] = add ? sum[4 * quad + k] + kept : kept;
            }
        }
        store<PACK>(to, v);
    }
}

__device__ inline void drop_singles(Mask mask, const act_t* x, act_t* y, Images s, u32 add) {
    u32 elements = s.pixels * s.c, groups = ceil_div(elements, 4);
    for (u64 item = global_thread(); item < static_cast<u64>(s.n) * groups; item += global_threads()) {
        Group at = group<4>(item, groups);
        Words words = mask.words(at.sample, at.element / 4);
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            u32 element = at.element + k;
            if (element >= elements) break;
            u64 pixel = static_cast<u64>(at.sample) * s.pixels + element / s.c;
            act_t* to = y + pixel * s.y_stride + element % s.c;
            u32 word = mask.noise == ELEMENT ? words.word[k] : mask.word(at.sample, element, s.c);
            float kept = mask.keep(to_float(x[pixel * s.x_stride + element % s.c]), word);
            *to = from_float<act_t>(add ? to_float(*to) + kept : kept);
        }
    }
}

KERNEL dropout(const StepState* state, const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 n, u32 pixels, u32 c,
               u32 key0, u32 key1, u32 first_sample, u32 threshold, float scale, u32 noise, u32 add, u32 vector) {
    Mask mask = {key0, key1, first_sample, threshold, scale, state->step, noise};
    Images s = {n, pixels, c, x_stride, y_stride};
    if (vector == 1) drop_singles(mask, x, y, s, add);
    else drop_packs(mask, x, y, s, add);
}
