// Group normalization and the activation after it. A block works on one group of one sample, whose numbers it reads again from the
// cache: a thread takes every MOST_THREADS-th number, neighbours side by side. Geometry: grid (samples * groups), blocks of MOST_THREADS.
#include "towers.cuh"

constexpr u32 MOST_THREADS = 256;

// The block's group, with its statistics: first around its first number, since sums of large numbers would lose digits, and then
// around the mean of that, in case the number stands out.
struct Group {
    u32 sample, first, size, count; // its first channel, channels, numbers
    float mean, inverse;

    __device__ Group(const act_t* x, u32 stride, u32 pixels, u32 channels, u32 groups, float epsilon) {
        sample = blockIdx.x / groups;
        size = channels / groups;
        first = blockIdx.x % groups * size;
        count = pixels * size;
        const act_t* own = of(x, stride, pixels);
        float pivot = to_float(own[0]), total = 0.0f, squares = 0.0f;
        for (u32 i = threadIdx.x; i < count; i += MOST_THREADS) total += to_float(own[at(i, stride)]) - pivot;
        float about = pivot + block_sum(total) / count;
        total = 0.0f;
        for (u32 i = threadIdx.x; i < count; i += MOST_THREADS) {
            float away = to_float(own[at(i, stride)]) - about;
            total += away;
            squares += away * away;
        }
        float away = block_sum(total) / count, variance = block_sum(squares) / count - away * away;
        mean = about + away;
        inverse = 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + epsilon); // by rounding; a NaN stays
    }

    // The group's numbers in a tensor.
    template <class T>
    __device__ T* of(T* x, u32 stride, u32 pixels) const {
        return x + static_cast<u64>(sample) * pixels * stride + first;
    }

    // The place of its i-th number there.
    __device__ u64 at(u32 i, u32 stride) const { return static_cast<u64>(i / size) * stride + i % size; }
};

// y = act((x - mean) * gamma * inverse + beta)
KERNEL group_norm(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 pixels, u32 channels, u32 groups,
                  const float* gamma, const float* beta, float epsilon, Act act) {
    Group group(x, x_stride, pixels, channels, groups, epsilon);
    const act_t* from = group.of(x, x_stride, pixels);
    act_t* to = group.of(y, y_stride, pixels);
    for (u32 i = threadIdx.x; i < group.count; i += MOST_THREADS) {
        u32 c = group.first + i % group.size;
        float xhat = (to_float(from[group.at(i, x_stride)]) - group.mean) * group.inverse;
        to[group.at(i, y_stride)] = from_float<act_t>(activate(fmaf(xhat, gamma[c], beta[c]), act));
    }
}

// dx = or, if so said, dx +=; partials = the sums of dz and of dz * xhat of each channel of each sample, with dz the gradient before
// the activation.
KERNEL group_norm_gradient(const act_t* x, u32 x_stride, const act_t* dy, u32 dy_stride, act_t* dx, u32 dx_stride,
                           u32 pixels, u32 channels, u32 groups, const float* gamma, const float* beta, float epsilon,
                           Act act, float* partials, u32 add) {
    __shared__ float sums[2][MOST_THREADS];
    Group group(x, x_stride, pixels, channels, groups, epsilon);
    const act_t* values = group.of(x, x_stride, pixels);
    const act_t* above = group.of(dy, dy_stride, pixels);
    float* own = partials + static_cast<u64>(group.sample) * 2 * channels;
    float total = 0.0f, products = 0.0f;
    // A thread has one channel in every so many pixels.
    for (u32 tile = 0; tile < group.size; tile += MOST_THREADS) {
        u32 lanes = min(group.size - tile, MOST_THREADS);
        u32 rows = MOST_THREADS / lanes, lane = threadIdx.x % lanes, row = threadIdx.x / lanes;
        u32 c = group.first + tile + lane;
        float of_dz = 0.0f, of_products = 0.0f;
        for (u32 pixel = row < rows ? row : pixels; pixel < pixels; pixel += rows) {
            float xhat = (to_float(values[static_cast<u64>(pixel) * x_stride + tile + lane]) - group.mean) * group.inverse;
            float dy_here = to_float(above[static_cast<u64>(pixel) * dy_stride + tile + lane]);
            float dz = before(fmaf(xhat, gamma[c], beta[c]), dy_here, act);
            of_dz += dz;
            of_products += dz * xhat;
        }
        sums[0][threadIdx.x] = of_dz; // only the last tile has several rows, whose sums are read
        sums[1][threadIdx.x] = of_products;
        __syncthreads();
        if (threadIdx.x < lanes) {
            for (u32 r = 1; r < rows; ++r) {
                of_dz += sums[0][r * lanes + lane];
                of_products += sums[1][r * lanes + lane];
            }
            own[c] = of_dz;
            own[channels + c] = of_products;
            total += gamma[c] * of_dz;
            products += gamma[c] * of_products;
        }
    }
    total = block_sum(total) / group.count;
    products = block_sum(products) / group.count;
    act_t* to = group.of(dx, dx_stride, pixels);
    for (u32 i = threadIdx.x; i < group.count; i += MOST_THREADS) {
        u32 c = group.first + i % group.size;
        float xhat = (to_float(values[group.at(i, x_stride)]) - group.mean) * group.inverse;
        float dz = before(fmaf(xhat, gamma[c], beta[c]), to_float(above[group.at(i, dy_stride)]), act);
        float gradient = group.inverse * (gamma[c] * dz - total - xhat * products);
        act_t* place = to + group.at(i, dx_stride);
        *place = from_float<act_t>(add ? to_float(*place) + gradient : gradient);
    }
}

// dgamma and dbeta = the samples' sums, in their order. A thread a channel.
KERNEL group_norm_sums(const float* partials, u32 samples, u32 channels, float* dgamma, float* dbeta) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    float of_dz = 0.0f, of_products = 0.0f;
    for (u32 sample = 0; sample < samples; ++sample) {
        const float* own = partials + static_cast<u64>(sample) * 2 * channels;
        of_dz += own[c];
        of_products += own[channels + c];
    }
    dbeta[c] = of_dz;
    dgamma[c] = of_products;
}
