// Slices of channels and channels in another order: elements that move, a thread for each.
//
// Layout: pixels with row strides, as everywhere. Geometry: blocks of 256 threads in one dimension, as many as fill the device;
// every thread takes elements of the result that lie as many apart as there are threads.
#include "towers.cuh"

// y[i * groups + g] = x[g * each + i], or += it
KERNEL channel_shuffle(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u64 rows, u32 groups, u32 each, u32 add) {
    u32 c = groups * each;
    for (u64 at = global_thread(); at < rows * c; at += global_threads()) {
        u64 row = at / c;
        u32 k = static_cast<u32>(at - row * c), i = k / groups;
        float value = to_float(x[row * x_stride + (k - i * groups) * each + i]);
        act_t& to = y[row * y_stride + k];
        to = from_float<act_t>(add ? to_float(to) + value : value);
    }
}

// y = 0 but for `channels` channels from `from` on, which are those of x
KERNEL slice_gradient(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u64 rows, u32 c, u32 from, u32 channels) {
    for (u64 at = global_thread(); at < rows * c; at += global_threads()) {
        u64 row = at / c;
        u32 k = static_cast<u32>(at - row * c), inside = k - from;
        y[row * y_stride + k] = inside < channels ? x[row * x_stride + inside] : from_float<act_t>(0);
    }
}
