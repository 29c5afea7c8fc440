// Softmax over the channels of each pixel, and its cross-entropy with integer labels.
//
// A single logit (c = 1) is that of the second of two classes; the first one's is 0. So a sigmoid and its binary cross-entropy
// are a softmax and its cross-entropy.
//
// Layout: rows of c logits with a row stride; outputs alike. Labels: one u32 a row; mixed ones five, the label, the other
// label, and the bits of how much the first counts and of both weights. Multi-hot ones a bit for each class, 32 to a word.
// Geometry: `team` threads, a power of two up to 32, share a row; blocks of BLOCK threads, any number for softmax. For
// softmax_xent and sigmoid_xent exactly as many as make a team for every row, so that the shapes decide in which order
// losses are added.
// Writes: all outputs =.
#include "towers.cuh"

// Combines the values of a team, on all of its threads. All threads of a warp call it.
template <class T, class Combine>
__device__ inline T over_team(T x, u32 team, Combine combine) {
    for (u32 lane = team / 2; lane > 0; lane /= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, lane));
    return x;
}
__device__ inline float team_sum(float x, u32 team) {
    return over_team(x, team, [](float a, float b) { return a + b; });
}

// What to compare of logit k for the largest: a NaN is never larger than another, and none is larger than a NaN that
// comes first.
__device__ inline float rank(float x, u32 k) {
    return x == x ? x : __uint_as_float(k == 0 ? 0x7f800000u : 0xff800000u);
}

// A row as one thread of its team sees it: it takes every `team`-th logit.
struct Row {
    const act_t* x;
    u32 c, member, team; // c classes
    u32 absent;          // 1 if the first class has no logit
    float largest;       // of the ranks; with a NaN in the row, total is NaN
    float total;         // of the exponentials of x - largest

    __device__ inline float logit(u32 k) const { return k < absent ? 0.0f : to_float(x[k - absent]); }
};

// With c = 0 for threads that have no row, and only take part in the shuffles.
__device__ inline Row read_row(const act_t* x, u32 c, u32 team) {
    Row row = {x, c == 1 ? 2 : c, threadIdx.x % team, team, c == 1, __uint_as_float(0xff800000u), 0.0f};
    for (u32 k = row.member; k < row.c; k += team) row.largest = fmaxf(row.largest, rank(row.logit(k), k));
    row.largest = over_team(row.largest, team, [](float a, float b) { return fmaxf(a, b); });
    for (u32 k = row.member; k < row.c; k += team) row.total += expf(row.logit(k) - row.largest);
    row.total = team_sum(row.total, team);
    return row;
}

template <class T>
__device__ inline void probabilities(const act_t* x, u32 x_stride, T* y, u32 y_stride, u32 rows, u32 c, u32 team) {
    u64 teams = global_threads() / team, warp_first = global_thread() / 32 * 32 / team, own = global_thread() / team;
    for (u64 shift = 0; warp_first + shift < rows; shift += teams) { // the same for all threads of a warp
        u64 r = own + shift;
        bool real = r < rows;
        Row row = read_row(x + (real ? r : 0) * x_stride, real ? c : 0, team);
        float scale = 1.0f / row.total;
        for (u32 k = row.member + row.absent; k < row.c; k += team) {
            y[r * y_stride + k - row.absent] = from_float<T>(expf(row.logit(k) - row.largest) * scale);
        }
    }
}

KERNEL softmax(const act_t* x, u32 x_stride, act_t* y, u32 y_stride, u32 rows, u32 c, u32 team) {
    probabilities(x, x_stride, y, y_stride, rows, c, team);
}

KERNEL softmax_f32(const act_t* x, u32 x_stride, float* y, u32 y_stride, u32 rows, u32 c, u32 team) {
    probabilities(x, x_stride, y, y_stride, rows, c, team);
}

// What a row is compared with.
struct Target {
    u32 label, other;
    float share;         // of the label; the other one has the rest
    float first, second; // factors on the loss of each

    __device__ float weight() const { return first + (1.0f - share) * (second - first); }
};

__device__ inline Target read_target(const u32* labels, u32 targets, u64 r) {
    if (!targets) return {labels[r], labels[r], 1.0f, 1.0f, 1.0f};
    const u32* words = labels + 5 * r;
    return {words[0], words[1], __uint_as_float(words[2]), __uint_as_float(words[3]), __uint_as_float(words[4])};
}

// The cross-entropy with the smoothed target.
__device__ inline float loss_of(const Row& row, const Target& target, float smoothing) {
    float log_total = logf(row.total), below = 0.0f;
    if (smoothing != 0.0f) {
        for (u32 k = row.member; k < row.c; k += row.team) below += row.largest - row.logit(k);
        below = team_sum(below, row.team);
    }
    if (target.label >= row.c || target.other >= row.c) return __uint_as_float(0x7fc00000u);
    float own = target.first * (row.largest - row.logit(target.label) + log_total);
    if (target.share < 1.0f) {
        float other = target.second * (row.largest - row.logit(target.other) + log_total);
        own = target.share * own + (1.0f - target.share) * other;
    }
    float hard = (1.0f - smoothing) * own;
    return smoothing == 0.0f ? hard : hard + target.weight() * (smoothing * (below / row.c + log_total));
}

// Whether the label is the place of the largest logit, the first among equals.
__device__ inline bool is_correct(const Row& row, u32 label) {
    u32 first = row.c;
    for (u32 k = row.member; k < row.c; k += row.team) {
        if (k < first && rank(row.logit(k), k) == row.largest) first = k;
    }
    first = over_team(first, row.team, [](u32 a, u32 b) { return a < b ? a : b; });
    return label == first && label < row.c;
}

__device__ inline void write_gradient(const Row& row, const Target& target, float smoothing, float scale, act_t* d) {
    float weight = target.weight(), of_each = weight * (smoothing / row.c), inverse = weight / row.total;
    bool inside = target.label < row.c && target.other < row.c;
    for (u32 k = row.member + row.absent; k < row.c; k += row.team) {
        float hard = k == target.label ? target.share * target.first : 0.0f;
        hard += k == target.other ? (1.0f - target.share) * target.second : 0.0f;
        float wanted = hard == 0.0f ? of_each : (1.0f - smoothing) * hard + of_each;
        float gradient = scale * (expf(row.logit(k) - row.largest) * inverse - wanted);
        d[k - row.absent] = from_float<act_t>(inside ? gradient : __uint_as_float(0x7fc00000u));
    }
}

// The sums over all rows. A block leaves its own in `partials`; the last block adds these up, in order, to `sums`.
__device__ inline void write_sums(float loss, float right, float* partials, u32* counter, float* sums) {
    float losses = block_sum(loss);
    right = block_sum(right);
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = losses;
        partials[2 * blockIdx.x + 1] = right;
    }
    if (!is_last(counter, gridDim.x)) return;
    losses = right = 0.0f;
    for (u32 k = threadIdx.x; k < gridDim.x; k += blockDim.x) {
        losses += partials[2 * k];
        right += partials[2 * k + 1];
    }
    losses = block_sum(losses);
    right = block_sum(right);
    if (threadIdx.x == 0) {
        sums[0] = losses;
        sums[1] = right;
    }
}

// The gradient is multiplied by `scale` and by the loss scale of half precision; d may be null.
KERNEL softmax_xent(const StepState* state, const act_t* x, u32 x_stride, const u32* labels, u32 targets, act_t* d, u32 d_stride,
                    u32 rows, u32 c, u32 team, float smoothing, float scale, float* partials, u32* counter, float* sums) {
    u64 r = global_thread() / team;
    bool real = r < rows;
    Row row = read_row(x + (real ? r : 0) * x_stride, real ? c : 0, team);
    Target target = {0, 0, 1.0f, 1.0f, 1.0f};
    if (real) target = read_target(labels, targets, r);
    float loss = loss_of(row, target, smoothing);
    bool correct = is_correct(row, target.share >= 0.5f ? target.label : target.other);
    if (real && d) write_gradient(row, target, smoothing, scale * state->loss_scale, d + r * d_stride);
    bool counts = real && row.member == 0;
    write_sums(counts ? loss : 0.0f, counts && correct ? 1.0f : 0.0f, partials, counter, sums);
}

// Binary cross-entropy of a sigmoid for each class, with multi-hot labels: as above.
KERNEL sigmoid_xent(const StepState* state, const act_t* x, u32 x_stride, const u32* labels, act_t* d, u32 d_stride, u32 rows,
                    u32 c, u32 team, float smoothing, float scale, float* partials, u32* counter, float* sums) {
    u64 r = global_thread() / team;
    bool real = r < rows;
    u32 member = threadIdx.x % team, end = real ? c : 0;
    const u32* words = labels + (real ? r : 0) * ((c + 31) / 32);
    float loss = 0.0f, right = 0.0f, of_class = 1.0f / c;
    for (u32 k = member; k < end; k += team) {
        float logit = to_float(x[r * x_stride + k]);
        bool has = words[k / 32] >> k % 32 & 1, above = logit > 0.0f;
        float target = has ? 1.0f - smoothing / 2.0f : smoothing / 2.0f;
        // An exponential that does not overflow, and a product that is no number only if the logit is none.
        float small = expf(-fabsf(logit)), wrong = above ? 1.0f - target : target;
        loss += (wrong == 0.0f ? 0.0f : wrong * fabsf(logit)) + log1pf(small);
        right += above == has ? 1.0f : 0.0f;
        float probability = (above ? 1.0f : small) / (1.0f + small);
        if (d) d[r * d_stride + k] = from_float<act_t>(scale * state->loss_scale * (probability - target) * of_class);
    }
    loss = team_sum(loss, team) * of_class;
    right = team_sum(right, team) * of_class;
    bool counts = real && member == 0;
    write_sums(counts ? loss : 0.0f, counts ? right : 0.0f, partials, counter, sums);
}
