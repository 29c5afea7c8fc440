// A stand-in for cuDNN: plain convolutions of NHWC tensors under the names of several algorithms.
//
// The environment: FAKE_CUDNN_LACKS, a list: `all` for algorithms at all, `add` for any that adds to what was there (which shows when
// it runs), `math` for answers that name the kind of products which was asked for. FAKE_CUDNN_FAILS, a failure when one runs. One whose
// status is 4000 or more leaves a result of NaNs. FAKE_CUDNN_WRONG, a list of passes (`forward`, `data`, `filter`) whose sums lack the
// terms of a kernel's first element.
#include "library.h"
#include <atomic>

#if REAL_HEADERS
#include <cudnn.h>
#else
typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000,
} cudnnStatus_t;
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum { CUDNN_TENSOR_NHWC = 1 } cudnnTensorFormat_t;
typedef enum { CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 } cudnnMathType_t;
typedef int cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t;
typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct* cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;
typedef struct {
    int algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdFilterAlgoPerf_t;
typedef CUstream cudaStream_t;
#endif

static Objects objects{"cuDNN", {}, {}};

struct cudnnContext {
    CUcontext context;
    CUstream stream;
    std::atomic<bool> busy{false};
};

// Sizes n, c, h, w; of filters, outputs take the place of samples.
struct cudnnTensorStruct {
    bool set = false;
    Format format{};
    int n = 0, c = 0, h = 0, w = 0;

    size_t numbers() const { return size_t(n) * size_t(c) * size_t(h) * size_t(w); }
    size_t at(int i, int row, int column) const { return ((size_t(i) * size_t(h) + size_t(row)) * size_t(w) + size_t(column)) * size_t(c); }
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
    bool set = false;
    int pad[2] = {}, stride[2] = {}, dilation[2] = {1, 1}, groups = 1;
    int math = CUDNN_DEFAULT_MATH;

    // The size of an output, from top to bottom (0) or across (1).
    int out(int size, int kernel, int k) const { return (size + 2 * pad[k] - (kernel - 1) * dilation[k] - 1) / stride[k] + 1; }
};

enum Pass { DATA, FILTER, FORWARD };

// Of x, w and y, or what stands for them, the one that a pass computes.
template <class T>
static T computed(Pass pass, T x, T w, T y) {
    return pass == DATA ? x : pass == FILTER ? w : y;
}

struct Offer {
    int number;
    bool deterministic;
    bool scratch; // wants some
};
// The fastest first, as the heuristic might list them.
static const std::vector<Offer> offers[] = {
    {{0, false, false}, {1, true, true}},
    {{3, false, true}, {1, true, true}, {0, false, false}},
    {{1, true, true}, {0, true, false}},
};

#define WRONG(why) return refuse(__func__, CUDNN_STATUS_BAD_PARAM, why)

static bool format_of(int type, Format* format) {
    *format = type == CUDNN_DATA_FLOAT ? Format::F32 : type == CUDNN_DATA_HALF ? Format::F16 : Format::BF16;
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

// A pass with all that a call says of it.
struct Problem {
    const char* name;
    Pass pass;
    cudnnHandle_t handle;
    cudnnTensorStruct x, w, y;
    cudnnConvolutionStruct conv;
    std::string why;
    bool held = false;

    Problem(const char* name, Pass pass, cudnnHandle_t handle, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
            const cudnnTensorStruct* y, const cudnnConvolutionStruct* conv)
        : name(name), pass(pass), handle(handle) {
        for (const void* object : {static_cast<const void*>(handle), static_cast<const void*>(x), static_cast<const void*>(w),
                                   static_cast<const void*>(y), static_cast<const void*>(conv)})
            if (!objects.has(object)) why = "no such handle or descriptor";
        if (!why.empty()) return;
        held = !handle->busy.exchange(true);
        if (!held) why = "two threads use one handle";
        if (handle->context != fake_context()) why = "another context is current";
        this->x = *x, this->w = *w, this->y = *y, this->conv = *conv;
        if (!x->set || !w->set || !y->set || !conv->set) why = "a descriptor without a description";
        else if (x->format != w->format || x->format != y->format) why = "several formats";
        else if (x->n != y->n || x->c != w->c * conv->groups || y->c != w->n || w->n % conv->groups != 0 || y->h != conv->out(x->h, w->h, 0) ||
                 y->w != conv->out(x->w, w->w, 1))
            why = "sizes that do not fit";
    }
    Problem(const Problem&) = delete;
    ~Problem() {
        if (held) handle->busy = false;
    }

    // Refuses the call if it is wrong.
    cudnnStatus_t judge() const {
        return why.empty() ? CUDNN_STATUS_SUCCESS : refuse(name, CUDNN_STATUS_BAD_PARAM, why);
    }

    bool is_possible() const { return !says("FAKE_CUDNN_LACKS", "all"); }

    const Offer* offer(int number) const {
        for (const Offer& each : offers[pass])
            if (each.number == number && is_possible()) return &each;
        return nullptr;
    }

    size_t scratch(const Offer& offer) const { return offer.scratch ? 512 + y.numbers() * 4 : 0; }

    template <class Performance>
    cudnnStatus_t list(int most, int* count, Performance* list) const {
        if (most < 1 || !count || !list) return refuse(name, CUDNN_STATUS_BAD_PARAM, "no room");
        *count = 0;
        for (const Offer& each : offers[pass]) {
            if (!is_possible() || *count == most) break;
            Performance& to = list[*count];
            memset(&to, 0, sizeof to);
            int math = says("FAKE_CUDNN_LACKS", "math") ? CUDNN_DEFAULT_MATH : conv.math;
            to.algo = static_cast<decltype(to.algo)>(each.number);
            to.status = CUDNN_STATUS_SUCCESS;
            to.time = -1;
            to.memory = scratch(each);
            to.determinism = each.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
            to.mathType = static_cast<cudnnMathType_t>(math);
            ++*count;
        }
        return CUDNN_STATUS_SUCCESS;
    }

    std::vector<Place> places(const void* xp, const void* wp, const void* yp, const void* scratch, size_t bytes) const {
        size_t size = bytes_of(x.format);
        std::vector<Place> all{{address(xp), x.numbers() * size}, {address(wp), w.numbers() * size}, {address(yp), y.numbers() * size}};
        if (bytes) all.push_back({address(scratch), bytes});
        return all;
    }

    cudnnStatus_t ask(const std::vector<Place>& places, const std::function<void()>& work) const {
        CUresult asked = fake_work(name, handle->stream, places, work);
        return asked == CUDA_SUCCESS ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
    }

    cudnnStatus_t run(int algorithm, const void* alpha, const void* beta, const void* xp, const void* wp, const void* yp, void* scratch,
                      size_t bytes) const;
};

// Calls `term` with the places in x, w and y of all runs of channels that meet: a pixel of x, an element of the kernel, one of y.
template <class Term>
static void meet(const cudnnTensorStruct& x, const cudnnTensorStruct& w, const cudnnTensorStruct& y, const cudnnConvolutionStruct& conv,
                 Term term) {
    for (int i = 0; i < y.n; ++i)
        for (int row = 0; row < y.h; ++row)
            for (int column = 0; column < y.w; ++column)
                for (int ky = 0; ky < w.h; ++ky)
                    for (int kx = 0; kx < w.w; ++kx) {
                        int from = row * conv.stride[0] + ky * conv.dilation[0] - conv.pad[0];
                        int across = column * conv.stride[1] + kx * conv.dilation[1] - conv.pad[1];
                        if (from < 0 || from >= x.h || across < 0 || across >= x.w) continue;
                        term(x.at(i, from, across), ky, kx, y.at(i, row, column));
                    }
}

cudnnStatus_t Problem::run(int algorithm, const void* alpha, const void* beta, const void* xp, const void* wp, const void* yp,
                           void* scratch, size_t bytes) const {
    if (cudnnStatus_t status = judge()) return status;
    const Offer* offer = this->offer(algorithm);
    if (!offer) return CUDNN_STATUS_NOT_SUPPORTED;
    size_t needed = this->scratch(*offer);
    auto wrong = [&](const char* why) { return refuse(name, CUDNN_STATUS_BAD_PARAM, why); };
    if (bytes < needed) return wrong("too little scratch memory");
    for (const void* at : {xp, wp, yp, static_cast<const void*>(scratch)})
        if (!is_aligned(at, 16)) return wrong("an operand that is not at 16 bytes");
    Factors factors(alpha, beta);
    if (factors.beta != 0 && says("FAKE_CUDNN_LACKS", "add")) return CUDNN_STATUS_NOT_SUPPORTED;
    static const Failure failure("FAKE_CUDNN_FAILS");
    auto half_written = [&] {
        void* out = const_cast<void*>(computed(pass, xp, wp, yp));
        size_t size = computed<const cudnnTensorStruct&>(pass, x, w, y).numbers() * bytes_of(x.format);
        if (failure.status >= 4000) ask({{address(out), size}}, [=] { memset(out, 0xff, size); });
    };
    if (failure.strikes(size_t(algorithm), factors.beta != 0, handle->stream, handle->context, half_written))
        return static_cast<cudnnStatus_t>(failure.status);
    bool tf32 = x.format == Format::F32 && conv.math != CUDNN_FMA_MATH;
    char *xs = static_cast<char*>(const_cast<void*>(xp)), *ws = static_cast<char*>(const_cast<void*>(wp)),
         *ys = static_cast<char*>(const_cast<void*>(yp));
    auto work = [=, pass = pass, deterministic = offer->deterministic, x = x, w = w, y = y, conv = conv] {
        if (needed) memset(scratch, 0xff, needed); // NaNs: nobody else keeps anything there
        auto take = [tf32](const cudnnTensorStruct& of, const char* all) {
            std::vector<float> numbers(of.numbers());
            for (size_t k = 0; k < numbers.size(); ++k) {
                float number = ::number(of.format, all, k);
                numbers[k] = tf32 ? to_tf32(number) : number;
            }
            return numbers;
        };
        const cudnnTensorStruct to = computed(pass, x, w, y);
        std::vector<float> xn, wn, yn, sums(to.numbers());
        if (pass != DATA) xn = take(x, xs);
        if (pass != FILTER) wn = take(w, ws);
        if (pass != FORWARD) yn = take(y, ys);
        static const char* const names[] = {"data", "filter", "forward"};
        bool wrong = says("FAKE_CUDNN_WRONG", names[pass]);
        meet(x, w, y, conv, [&](size_t xk, int ky, int kx, size_t yk) {
            if (wrong && ky + kx == 0) return;
            for (int k = 0; k < w.n; ++k) {
                size_t wk = w.at(k, ky, kx), xg = xk + size_t(k / (w.n / conv.groups) * w.c);
                for (size_t c = 0; c < size_t(w.c); ++c) {
                    if (pass == DATA) sums[xg + c] += wn[wk + c] * yn[yk + size_t(k)];
                    if (pass == FILTER) sums[wk + c] += xn[xg + c] * yn[yk + size_t(k)];
                    if (pass == FORWARD) sums[yk + size_t(k)] += xn[xg + c] * wn[wk + c];
                }
            }
        });
        // One that is not deterministic gives other bits every time.
        static std::atomic<unsigned int> run{0};
        float other = deterministic ? 1 : 1 + 0x1p-22f * float(1 + run++ % 3);
        char* out = computed(pass, xs, ws, ys);
        for (size_t k = 0; k < sums.size(); ++k) factors.store(to.format, out, k, sums[k] * other);
    };
    return ask(places(xp, wp, yp, scratch, needed), work);
}

extern "C" {

size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return static_cast<size_t>(getenv("FAKE_CUDNN_CUDA") ? atol(getenv("FAKE_CUDNN_CUDA")) : 13000); }
cudnnStatus_t cudnnOpsVersionCheck() { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnCnnVersionCheck() { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "what cuDNN says"; }
void cudnnGetLastErrorString(char* text, size_t room) { snprintf(text, room, "and why"); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    if (!fake_context()) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = objects.add(new cudnnContext{fake_context(), nullptr});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    if (!objects.remove(handle)) WRONG("no such handle");
    if (handle->context != fake_context()) WRONG("another context is current");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (!objects.has(handle)) WRONG("no such handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
    *tensor = objects.add(new cudnnTensorStruct);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t layout, cudnnDataType_t type, int n, int c,
                                         int h, int w) {
    Format format;
    if (!objects.has(tensor) || !format_of(type, &format) || layout != CUDNN_TENSOR_NHWC) WRONG("no such tensor or format");
    if (n < 1 || c < 1 || h < 1 || w < 1) WRONG("a size");
    tensor->set = true, tensor->format = format, tensor->n = n, tensor->c = c, tensor->h = h, tensor->w = w;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
    return objects.give_back(__func__, tensor, CUDNN_STATUS_BAD_PARAM);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
    *filter = objects.add(new cudnnFilterStruct);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t layout, int k, int c,
                                         int h, int w) {
    return cudnnSetTensor4dDescriptor(reinterpret_cast<cudnnTensorDescriptor_t>(filter), layout, type, k, c, h, w);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
    return objects.give_back(__func__, filter, CUDNN_STATUS_BAD_PARAM);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* conv) {
    *conv = objects.add(new cudnnConvolutionStruct);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t type) {
    if (!objects.has(conv) || mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT) WRONG("no such convolution");
    if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1) WRONG("a size");
    conv->set = true, conv->pad[0] = pad_h, conv->pad[1] = pad_w, conv->stride[0] = u, conv->stride[1] = v;
    conv->dilation[0] = dilation_h, conv->dilation[1] = dilation_w;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
    if (!objects.has(conv) || groups < 1) WRONG("no such convolution, or a number of groups");
    conv->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
    if (!objects.has(conv)) WRONG("no such convolution");
    if (math != CUDNN_DEFAULT_MATH && math != CUDNN_TENSOR_OP_MATH && math != CUDNN_FMA_MATH) WRONG("math that nobody asked for");
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int* n, int* c, int* h, int* width) {
    if (!objects.has(conv) || !objects.has(x) || !objects.has(w)) WRONG("no such descriptor");
    *n = x->n, *c = w->n;
    *h = conv->out(x->h, w->h, 0), *width = conv->out(x->w, w->w, 1);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) {
    return objects.give_back(__func__, conv, CUDNN_STATUS_BAD_PARAM);
}

// The calls of a pass, whose tensors come in an order of their own.
#define OF_PASS(PASS, Name, Algo, Performance, T1, p1, T2, p2, T3, p3)                                                                   \
    cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7(cudnnHandle_t handle, const T1 p1, const T2 p2,                                \
                                                          const cudnnConvolutionDescriptor_t conv, const T3 p3, const int most,         \
                                                          int* count, Performance* list) {                                              \
        Problem problem(__func__, PASS, handle, x, w, y, conv);                                                                          \
        if (cudnnStatus_t status = problem.judge()) return status;                                                                       \
        return problem.list(most, count, list);                                                                                          \
    }                                                                                                                                    \
    cudnnStatus_t cudnnConvolution##Name(cudnnHandle_t handle, const void* alpha, const T1 p1, const void* p1##_at, const T2 p2,         \
                                         const void* p2##_at, const cudnnConvolutionDescriptor_t conv, Algo algorithm, void* scratch,   \
                                         size_t bytes, const void* beta, const T3 p3, void* p3##_at) {                                   \
        Problem problem(__func__, PASS, handle, x, w, y, conv);                                                                          \
        return problem.run(algorithm, alpha, beta, x_at, w_at, y_at, scratch, bytes);                                                    \
    }

OF_PASS(FORWARD, Forward, cudnnConvolutionFwdAlgo_t, cudnnConvolutionFwdAlgoPerf_t, cudnnTensorDescriptor_t, x, cudnnFilterDescriptor_t,
        w, cudnnTensorDescriptor_t, y)
OF_PASS(DATA, BackwardData, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdDataAlgoPerf_t, cudnnFilterDescriptor_t, w,
        cudnnTensorDescriptor_t, y, cudnnTensorDescriptor_t, x)
OF_PASS(FILTER, BackwardFilter, cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionBwdFilterAlgoPerf_t, cudnnTensorDescriptor_t, x,
        cudnnTensorDescriptor_t, y, cudnnFilterDescriptor_t, w)

} // extern "C"
