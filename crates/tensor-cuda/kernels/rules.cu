// Steps of optimizers over flat arenas in f32, one kernel for each rule.
//
// Layout: parameters, gradients and state are runs of n numbers. Gradients of half precision carry the loss scale.
// Geometry: any number of blocks of 256 threads, which take 4 numbers at a time where `vector` is 4.
// Writes: parameters and state in place. Nothing moves once the step's state is halted, nor in a step whose gradients
// overflowed.
#include "towers.cuh"

// What an optimizer steps over: n parameters, their gradients, and up to two numbers that it remembers of each.
struct Arenas {
    float* params;
    const float* grads;
    float* state[2];
};

// Calls rule(p, g, s) with the numbers from `from` to `to`, V at a time; s are the STATES numbers remembered, if any.
template <int V, int STATES, class Rule>
__device__ inline void for_run(const Arenas& all, u64 from, u64 to, Rule rule) {
    for (u64 k = from + global_thread() * V; k < to; k += global_threads() * V) {
        float p[V], g[V], s[2][V] = {};
        load<V>(all.params + k, p);
        load<V>(all.grads + k, g);
#pragma unroll
        for (int j = 0; j < STATES; ++j) load<V>(all.state[j] + k, s[j]);
#pragma unroll
        for (int i = 0; i < V; ++i) rule(p[i], g[i], s[0][i], s[1][i]);
        store<V>(all.params + k, p);
#pragma unroll
        for (int j = 0; j < STATES; ++j) store<V>(all.state[j] + k, s[j]);
    }
}

template <int STATES, class Rule>
__device__ inline void for_all(const Arenas& all, u64 n, u32 vector, Rule rule) {
    u64 wide = vector == 4 ? n / 4 * 4 : 0;
    for_run<4, STATES>(all, 0, wide, rule);
    for_run<1, STATES>(all, wide, n, rule);
}

// The kernel of a rule. It takes the arenas of the rule's state; the number of steps before this one, if the rule counts them; the
// run's own factor of the learning rate; its weight decay, which is g += penalty p (coupled), or p *= 1 - lr shrink (decoupled);
// and then the rule's constants.
#define STEP(rule, ...)                                                                                                        \
    KERNEL step_##rule(const StepState* state, float* params, const float* grads, float* first, float* second,                 \
                       const float* steps, u64 n, float multiplier, float penalty, float shrink, u32 vector, __VA_ARGS__)

// All conventions of SGD as one formula: v = m v + into g, then p += out (of_v v + of_g g). With a momentum of 0
// the velocity is not touched.
STEP(sgd, float momentum, float keras, float nesterov) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    if (momentum == 0.0f) {
        for_all<0>({params, grads}, n, vector, [=](float& p, float g, float&, float&) {
            g *= unscale;
            p = p * keep - lr * (g + penalty * p);
        });
        return;
    }
    // The learning rate enters the velocity (Keras) or leaves with it (PyTorch).
    float into = keras != 0.0f ? -lr : 1.0f, out = keras != 0.0f ? 1.0f : -lr;
    // Nesterov looks one step ahead: m v + into g in place of v.
    float of_v = nesterov != 0.0f ? momentum : 1.0f, of_g = nesterov != 0.0f ? into : 0.0f;
    for_all<1>({params, grads, {first}}, n, vector, [=](float& p, float g, float& v, float&) {
        g = g * unscale + penalty * p;
        v = momentum * v + into * g;
        p = p * keep + out * (of_v * v + of_g * g);
    });
}

// a = rho a + (1 - rho) g^2, then p -= lr g / (sqrt(a + inside) + outside).
STEP(rmsprop, float rho, float inside, float outside) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    for_all<1>({params, grads, {first}}, n, vector, [=](float& p, float g, float& a, float&) {
        g = g * unscale + penalty * p;
        a = rho * a + (1.0f - rho) * g * g;
        p = p * keep - lr * g / (sqrtf(a + inside) + outside);
    });
}

// m = beta1 m + take1 g, a = beta2 a + take2 g^2, then p -= rate m / (sqrt(a) + epsilon): in the t-th step the means fall
// short by c = 1 - beta^t, which the rate makes up for, and epsilon where it stands for PyTorch's (`hat` is 0). The logarithms
// of beta make c exact where beta^t is nearly 1.
STEP(adam, float beta1, float take1, float log_beta1, float beta2, float take2, float log_beta2, float epsilon, float hat) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    float t = steps[0] + 1.0f, c1 = -expm1f(t * log_beta1), root = sqrtf(-expm1f(t * log_beta2));
    float rate = lr * root / c1, outside = hat != 0.0f ? epsilon : epsilon * root;
    for_all<2>({params, grads, {first, second}}, n, vector, [=](float& p, float g, float& m, float& a) {
        g = g * unscale + penalty * p;
        m = beta1 * m + take1 * g;
        a = beta2 * a + take2 * g * g;
        p = p * keep - rate * m / (sqrtf(a) + outside);
    });
}

// NAdam: the means of step_adam, then p -= (of_g g + of_m m) / (sqrt(a) + outside). The t-th step has the momentum
// u(t) = beta1 (1 - e^(t log_ratio) / 2), and U(t) = u(1) u(2) ... u(t). One thread of a block computes both shares; its loop
// ends where no further factor changes 1 - U.
STEP(nadam, float beta1, float take1, float log_ratio, float beta2, float take2, float log_beta2, float epsilon) {
    __shared__ float share[2];
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    float t = steps[0] + 1.0f, root = sqrtf(-expm1f(t * log_beta2)), outside = epsilon * root;
    if (threadIdx.x == 0) {
        float ratio = expf(log_ratio), power = 1.0f, product = 1.0f;
        for (float k = 0.0f; k < t && product > 1e-9f; k += 1.0f) {
            power *= ratio;
            product *= beta1 * (1.0f - 0.5f * power);
        }
        float now = beta1 * (1.0f - 0.5f * expf(log_ratio * t)), next = beta1 * (1.0f - 0.5f * expf(log_ratio * (t + 1.0f)));
        share[0] = (1.0f - now) / (1.0f - product);
        share[1] = next / (1.0f - product * next);
    }
    __syncthreads();
    float of_g = lr * root * share[0], of_m = lr * root * share[1];
    for_all<2>({params, grads, {first, second}}, n, vector, [=](float& p, float g, float& m, float& a) {
        g = g * unscale + penalty * p;
        m = beta1 * m + take1 * g;
        a = beta2 * a + take2 * g * g;
        p = p * keep - (of_g * g + of_m * m) / (sqrtf(a) + outside);
    });
}

// Lion: p -= lr sign(beta1 m + take1 g), then m = beta2 m + take2 g. The sign of 0 is 0, that of NaN is NaN.
STEP(lion, float beta1, float take1, float beta2, float take2) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, keep = 1.0f - lr * shrink;
    for_all<1>({params, grads, {first}}, n, vector, [=](float& p, float g, float& m, float&) {
        g = g * unscale + penalty * p;
        float c = beta1 * m + take1 * g, sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c;
        m = beta2 * m + take2 * g;
        p = p * keep - lr * sign;
    });
}

// Rules of whole tensors take two passes. measure_RULE leaves two sums of squares of each block in `sums`; step_RULE adds those
// of all blocks in their order, and scales the step by the tensor's trust ratio. Either weight decay is w = penalty + shrink.
#define MEASURE(rule, ...)                                                                                                     \
    KERNEL measure_##rule(const StepState* state, const float* params, const float* grads, float* first, float* second,        \
                          const float* steps, u64 n, float penalty, float shrink, double* sums, __VA_ARGS__)

__device__ inline void leave_sums(double* sums, double p, double u) {
    p = block_sum(p);
    u = block_sum(u);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = p;
        sums[2 * blockIdx.x + 1] = u;
    }
}

// The norms of the tensor and of what it moves by.
struct Norms {
    double p, u;
};
__device__ inline Norms norms_of(const double* sums, u32 blocks) {
    __shared__ double norm[2];
    if (threadIdx.x < 2) {
        double sum = 0.0;
        for (u32 k = 0; k < blocks; ++k) sum += sums[2 * k + threadIdx.x];
        norm[threadIdx.x] = sqrt(sum);
    }
    __syncthreads();
    return {norm[0], norm[1]};
}

// `ratio` for a tensor with a weight decay, unless a norm is 0.
__device__ inline float trust_ratio(float w, Norms of, double ratio) {
    return w != 0.0f && of.p > 0.0 && of.u > 0.0 ? static_cast<float>(ratio) : 1.0f;
}

// LARS: r = trust |p| / (|g| + w |p| + epsilon), v = momentum v + r (g + w p), p -= lr v. With a momentum of 0 the velocity is
// not touched.
MEASURE(lars, float momentum, float nesterov, float trust, float epsilon) {
    if (state->halted || state->overflow) return;
    float unscale = 1.0f / state->loss_scale;
    double of_p = 0.0, of_g = 0.0;
    for (u64 k = global_thread(); k < n; k += global_threads()) {
        double p = params[k], g = grads[k] * unscale;
        of_p += p * p;
        of_g += g * g;
    }
    leave_sums(sums, of_p, of_g);
}
STEP(lars, float momentum, float nesterov, float trust, float epsilon, const double* sums, u32 blocks) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, unscale = 1.0f / state->loss_scale, w = penalty + shrink;
    Norms of = norms_of(sums, blocks);
    float ratio = trust_ratio(w, of, trust * of.p / (of.u + w * of.p + epsilon));
    if (momentum == 0.0f) {
        for_all<0>({params, grads}, n, vector, [=](float& p, float g, float&, float&) {
            p -= lr * (ratio * (g * unscale + w * p));
        });
        return;
    }
    float of_v = nesterov != 0.0f ? momentum : 1.0f, of_g = nesterov != 0.0f ? 1.0f : 0.0f;
    for_all<1>({params, grads, {first}}, n, vector, [=](float& p, float g, float& v, float&) {
        g = ratio * (g * unscale + w * p);
        v = momentum * v + g;
        p -= lr * (of_v * v + of_g * g);
    });
}

// LAMB: the means of step_adam, u = of_m m / (sqrt(a) + outside) + w p, then p -= lr r u with r = |p| / |u|. The first pass
// updates the means.
struct Direction {
    float of_m, outside, w;
    __device__ inline float operator()(float p, float m, float a) const { return of_m * m / (sqrtf(a) + outside) + w * p; }
};
__device__ inline Direction direction(float t, float log_beta1, float log_beta2, float epsilon, float w) {
    float c1 = -expm1f(t * log_beta1), root = sqrtf(-expm1f(t * log_beta2));
    return {root / c1, epsilon * root, w};
}
MEASURE(lamb, float beta1, float take1, float log_beta1, float beta2, float take2, float log_beta2, float epsilon) {
    if (state->halted || state->overflow) return;
    float unscale = 1.0f / state->loss_scale;
    Direction to = direction(steps[0] + 1.0f, log_beta1, log_beta2, epsilon, penalty + shrink);
    double of_p = 0.0, of_u = 0.0;
    for (u64 k = global_thread(); k < n; k += global_threads()) {
        float p = params[k], g = grads[k] * unscale;
        float m = beta1 * first[k] + take1 * g, a = beta2 * second[k] + take2 * g * g;
        first[k] = m;
        second[k] = a;
        double u = to(p, m, a);
        of_p += static_cast<double>(p) * p;
        of_u += u * u;
    }
    leave_sums(sums, of_p, of_u);
}
STEP(lamb, float beta1, float take1, float log_beta1, float beta2, float take2, float log_beta2, float epsilon,
     const double* sums, u32 blocks) {
    if (state->halted || state->overflow) return;
    float w = penalty + shrink;
    Direction to = direction(steps[0] + 1.0f, log_beta1, log_beta2, epsilon, w);
    Norms of = norms_of(sums, blocks);
    float rate = state->lr * multiplier * trust_ratio(w, of, of.p / of.u);
    for_all<2>({params, grads, {first, second}}, n, vector,
               [=](float& p, float, float& m, float& a) { p -= rate * to(p, m, a); });
}

// Muon: v = momentum v + (1 - momentum) g, the direction u = v, or with Nesterov momentum v + (1 - momentum) g, which the first
// pass leaves in `second`. Products make it orthogonal, then p = keep p - lr adjust u. A `target` other than 0 is the norm that p
// is brought to before. With a momentum of 0 the velocity is not touched.
MEASURE(muon, float momentum, float nesterov) {
    if (state->halted || state->overflow) return;
    float unscale = 1.0f / state->loss_scale, take = 1.0f - momentum;
    float of_v = nesterov != 0.0f ? momentum : 1.0f, of_g = nesterov != 0.0f ? take : 0.0f;
    double of_p = 0.0, of_u = 0.0;
    for (u64 k = global_thread(); k < n; k += global_threads()) {
        float p = params[k], u = grads[k] * unscale + penalty * p;
        if (momentum != 0.0f) {
            float v = momentum * first[k] + take * u;
            first[k] = v;
            u = of_v * v + of_g * u;
        }
        second[k] = u;
        of_p += static_cast<double>(p) * p;
        of_u += static_cast<double>(u) * u;
    }
    leave_sums(sums, of_p, of_u);
}
STEP(muon, float momentum, float nesterov, const double* sums, u32 blocks, float adjust, float target) {
    if (state->halted || state->overflow) return;
    float lr = state->lr * multiplier, keep = 1.0f - lr * shrink, rate = lr * adjust;
    Norms of = norms_of(sums, blocks);
    if (target != 0.0f && lr != 0.0f && of.p > 0.0) keep *= static_cast<float>(target / of.p);
    for_all<0>({params, second}, n, vector, [=](float& p, float u, float&, float&) { p = p * keep - rate * u; });
}

// Brings the norm of a direction, of which the sums are left, to at most 1.
KERNEL muon_scale(float* x, u64 n, const double* sums, u32 blocks, float epsilon) {
    Norms of = norms_of(sums, blocks);
    float scale = static_cast<float>(1.0 / (of.u > epsilon ? of.u : static_cast<double>(epsilon)));
    for (u64 k = global_thread(); k < n; k += global_threads()) x[k] *= scale;
}

// out = of_product a b + of_add add + one I, an m x n matrix row by row; the sums have k terms, in f32 and in their
// order. `down` and `right` are the elements from a row and from a column of an operand to the next; one of them is 1. A block of 64
// threads computes 32 x 32 elements, a thread 4 x 4 of them, going along k by 16.
constexpr u32 SIDE = 32, DEPTH = 16, PATCH = 4;
KERNEL muon_product(u32 m, u32 n, u32 k, const float* a, u32 a_down, u32 a_right, const float* b, u32 b_down, u32 b_right,
                    float* out, const float* add, float of_product, float of_add, float one) {
    __shared__ float rows[DEPTH][SIDE + 1], columns[DEPTH][SIDE + 1];
    u32 row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    u32 down = threadIdx.x / 8 * PATCH, right = threadIdx.x % 8 * PATCH;
    float sums[PATCH][PATCH] = {};
    for (u32 from = 0; from < k; from += DEPTH) {
        for (u32 e = threadIdx.x; e < SIDE * DEPTH; e += 64) {
            // Neighbouring threads read neighbouring elements.
            u32 i = a_right == 1 ? e / DEPTH : e % SIDE, d = a_right == 1 ? e % DEPTH : e / SIDE;
            bool there = row + i < m && from + d < k;
            rows[d][i] = there ? a[static_cast<u64>(row + i) * a_down + static_cast<u64>(from + d) * a_right] : 0.0f;
            i = b_right == 1 ? e % SIDE : e / DEPTH, d = b_right == 1 ? e / SIDE : e % DEPTH;
            there = column + i < n && from + d < k;
            columns[d][i] = there ? b[static_cast<u64>(from + d) * b_down + static_cast<u64>(column + i) * b_right] : 0.0f;
        }
        __syncthreads();
        for (u32 d = 0; d < DEPTH; ++d) {
            float x[PATCH], y[PATCH];
#pragma unroll
            for (u32 i = 0; i < PATCH; ++i) x[i] = rows[d][down + i], y[i] = columns[d][right + i];
#pragma unroll
            for (u32 i = 0; i < PATCH; ++i) {
#pragma unroll
                for (u32 j = 0; j < PATCH; ++j) sums[i][j] += x[i] * y[j];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < PATCH; ++i) {
#pragma unroll
        for (u32 j = 0; j < PATCH; ++j) {
            u32 r = row + down + i, c = column + right + j;
            if (r >= m || c >= n) continue;
            u64 at = static_cast<u64>(r) * n + c;
            float sum = of_product * sums[i][j];
            if (of_add != 0.0f) sum += of_add * add[at];
            out[at] = r == c ? sum + one : sum;
        }
    }
}
