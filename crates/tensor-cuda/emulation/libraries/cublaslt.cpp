// A stand-in for cuBLASLt: a plain product under the names of two algorithms.
//
// The environment: FAKE_CUBLASLT_LACKS, a list of what there is no algorithm for: `all`, or `narrow`, matrices whose columns do not
// begin at multiples of 16 bytes. FAKE_CUBLASLT_FAILS, a failure when one runs. One whose status is 10 or more leaves a result of NaNs.
#include "library.h"
#include <algorithm>

#if REAL_HEADERS
#include <cublasLt.h>
#else
typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
} cublasStatus_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;
typedef enum { CUBLASLT_MATRIX_LAYOUT_ROWS = 2, CUBLASLT_MATRIX_LAYOUT_COLS = 3 } cublasLtMatrixLayoutAttribute_t;
typedef enum { CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4 } cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
} cublasLtMatmulPreferenceAttributes_t;
enum { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2 };
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct { uint64_t data[14]; } *cublasLtMatrixLayout_t;
typedef struct { uint64_t data[32]; } *cublasLtMatmulDesc_t;
typedef struct { uint64_t data[12]; } *cublasLtMatmulPreference_t;
typedef struct { uint64_t data[8]; } cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
typedef CUstream cudaStream_t;
#endif

static Objects objects{"cuBLASLt", {}, {}};

struct cublasLtContext {
    CUcontext context;
};

// Column by column, each `stride` numbers behind the one before.
struct Matrix {
    Format format;
    uint64_t rows, columns;
    int64_t stride;

    size_t bytes() const { return ((columns - 1) * static_cast<uint64_t>(stride) + rows) * bytes_of(format); }
    bool operator==(const Matrix& other) const {
        return format == other.format && rows == other.rows && columns == other.columns && stride == other.stride;
    }
};

struct Product {
    bool tf32;
    int transposed[2];
};

// Without a reduction scheme no sum may be cut into parts.
struct Preference {
    uint64_t scratch;
    uint32_t schemes, aligned[4]; // of A, B, C, D
};

// What an algorithm was chosen for.
struct Algorithm {
    uint64_t m, n, k, scratch;
    uint32_t aligned[4];
    uint64_t number;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

#define WRONG(why) return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, why)

static bool is_known(int type) { return type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF; }

static Format format_of(int type) {
    return type == CUDA_R_32F ? Format::F32 : type == CUDA_R_16F ? Format::F16 : Format::BF16;
}

template <class T>
static const T& as(const void* object) {
    return *static_cast<const T*>(object);
}

// The sizes of a product, or what is wrong with it.
static const char* fit(const void* product, const void* const (&matrices)[4], uint64_t (&sizes)[3]) {
    if (!objects.has(product)) return "no such product";
    for (const void* matrix : matrices)
        if (!objects.has(matrix)) return "no such matrix";
    const Product& p = as<Product>(product);
    auto size = [&](int which, bool second) {
        const Matrix& matrix = as<Matrix>(matrices[which]);
        return (which < 2 && p.transposed[which]) != second ? matrix.columns : matrix.rows;
    };
    sizes[0] = size(0, false), sizes[1] = size(1, true), sizes[2] = size(0, true);
    if (size(1, false) != sizes[2] || size(3, false) != sizes[0] || size(3, true) != sizes[1]) return "sizes that do not fit";
    if (!(as<Matrix>(matrices[2]) == as<Matrix>(matrices[3]))) return "C is not laid out as D is";
    for (const void* matrix : matrices)
        if (as<Matrix>(matrix).format != as<Matrix>(matrices[0]).format) return "several formats";
    if (p.tf32 && as<Matrix>(matrices[0]).format != Format::F32) return "TF32 of numbers that are no f32";
    return nullptr;
}

static void multiply(const Product& p, const Matrix& a, const Matrix& b, const Matrix& d, const uint64_t (&sizes)[3],
                     const Factors& factors, const char* from[2], char* to) {
    auto at = [&](int which, const Matrix& matrix, uint64_t row, uint64_t column) {
        if (p.transposed[which]) std::swap(row, column);
        float x = number(matrix.format, from[which], column * static_cast<uint64_t>(matrix.stride) + row);
        return p.tf32 ? to_tf32(x) : x;
    };
    for (uint64_t row = 0; row < sizes[0]; ++row)
        for (uint64_t column = 0; column < sizes[1]; ++column) {
            float sum = 0;
            for (uint64_t k = 0; k < sizes[2]; ++k) sum += at(0, a, row, k) * at(1, b, k, column);
            factors.store(d.format, to, column * static_cast<uint64_t>(d.stride) + row, sum);
        }
}

extern "C" {

size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "what cuBLASLt says"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    if (!fake_context()) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = objects.add(new cublasLtContext{fake_context()});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (!objects.remove(handle)) WRONG("no such handle");
    if (handle->context != fake_context()) WRONG("another context is current");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t stride) {
    if (!is_known(type) || !rows || !columns || stride < static_cast<int64_t>(rows)) WRONG("a format or size");
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(objects.add(new Matrix{format_of(type), rows, columns, stride}));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, void* to,
                                                size_t bytes, size_t* written) {
    if (!objects.has(layout) || bytes != 8) WRONG("no such matrix, or another size");
    if (which != CUBLASLT_MATRIX_LAYOUT_ROWS && which != CUBLASLT_MATRIX_LAYOUT_COLS) WRONG("an attribute nobody asked for");
    const Matrix& matrix = as<Matrix>(layout);
    memcpy(to, which == CUBLASLT_MATRIX_LAYOUT_ROWS ? &matrix.rows : &matrix.columns, 8);
    *written = 8;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return objects.give_back(__func__, layout, CUBLAS_STATUS_INVALID_VALUE);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute, cudaDataType scale) {
    if (scale != CUDA_R_32F) WRONG("factors that are no f32");
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) WRONG("sums that nobody asked for");
    bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    *product = reinterpret_cast<cublasLtMatmulDesc_t>(objects.add(new Product{tf32, {0, 0}}));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t which, const void* from,
                                              size_t bytes) {
    int32_t operation;
    if (!objects.has(product) || bytes != sizeof operation) WRONG("no such product, or another size");
    if (which != CUBLASLT_MATMUL_DESC_TRANSA && which != CUBLASLT_MATMUL_DESC_TRANSB) WRONG("an attribute nobody asked for");
    memcpy(&operation, from, sizeof operation);
    if (operation != 0 && operation != 1) WRONG("neither N nor T");
    reinterpret_cast<Product*>(product)->transposed[which - CUBLASLT_MATMUL_DESC_TRANSA] = operation;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    return objects.give_back(__func__, product, CUBLAS_STATUS_INVALID_VALUE);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(objects.add(new Preference{0, 7, {256, 256, 256, 256}}));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which, const void* from, size_t bytes) {
    if (!objects.has(preference)) WRONG("no such preference");
    Preference& p = *reinterpret_cast<Preference*>(preference);
    size_t of = static_cast<size_t>(which) - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    void* to = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? static_cast<void*>(&p.scratch)
               : which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &p.schemes
               : of < 4                                              ? &p.aligned[of]
                                                                     : nullptr;
    if (!to) WRONG("an attribute nobody asked for");
    if (bytes != (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4)) WRONG("another size");
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return objects.give_back(__func__, preference, CUBLAS_STATUS_INVALID_VALUE);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
    uint64_t sizes[3];
    const void* const matrices[] = {a, b, c, d};
    if (!objects.has(handle) || !objects.has(preference) || room < 1) WRONG("no such handle or preference, or no room");
    if (handle->context != fake_context()) WRONG("another context is current");
    if (const char* why = fit(product, matrices, sizes)) WRONG(why);
    *count = 0;
    if (says("FAKE_CUBLASLT_LACKS", "all")) return CUBLAS_STATUS_SUCCESS;
    for (const void* matrix : matrices)
        if (says("FAKE_CUBLASLT_LACKS", "narrow") && as<Matrix>(matrix).stride * bytes_of(as<Matrix>(matrix).format) % 16)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    const Preference& p = as<Preference>(preference);
    // Long sums in two parts, as far as that is allowed.
    uint64_t parts = sizes[2] >= 256 && p.schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ? 2 * sizes[0] * sizes[1] * 4 : 0;
    Algorithm algorithm{sizes[0], sizes[1], sizes[2], std::min(parts, p.scratch), {}, 0};
    std::copy(p.aligned, p.aligned + 4, algorithm.aligned);
    for (; *count < std::min(room, 2); ++*count, ++algorithm.number) {
        cublasLtMatmulHeuristicResult_t& result = results[*count] = {};
        memcpy(&result.algo, &algorithm, sizeof algorithm);
        result.workspaceSize = algorithm.scratch;
        result.state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t al, const void* b, cublasLtMatrixLayout_t bl, const void* beta, const void* c,
                              cublasLtMatrixLayout_t cl, void* d, cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t* chosen,
                              void* scratch, size_t bytes, cudaStream_t stream) {
    uint64_t sizes[3];
    const void* const matrices[] = {al, bl, cl, dl};
    const void* const operands[] = {a, b, c, d};
    if (!objects.has(handle) || !chosen) WRONG("no such handle, or no algorithm");
    if (handle->context != fake_context()) WRONG("another context is current");
    if (const char* why = fit(product, matrices, sizes)) WRONG(why);
    Algorithm algorithm;
    memcpy(&algorithm, chosen, sizeof algorithm);
    if (algorithm.m != sizes[0] || algorithm.n != sizes[1] || algorithm.k != sizes[2]) WRONG("the algorithm of another product");
    if (bytes < algorithm.scratch || !is_aligned(scratch, 16)) WRONG("too little scratch memory, or not at 16 bytes");
    for (int k = 0; k < 4; ++k)
        if (!is_aligned(operands[k], algorithm.aligned[k])) WRONG("operands are less aligned than was said");
    Factors factors(alpha, beta);
    if (c != d && factors.beta != 0) WRONG("C elsewhere than D");
    static const Failure failure("FAKE_CUBLASLT_FAILS");
    auto half_written = [&] {
        size_t size = as<Matrix>(dl).bytes();
        if (failure.status >= 10) fake_work(__func__, stream, {{address(d), size}}, [=] { memset(d, 0xff, size); });
    };
    if (failure.strikes(algorithm.number, factors.beta != 0, stream, fake_context(), half_written))
        return static_cast<cublasStatus_t>(failure.status);
    std::vector<Place> places{{address(scratch), algorithm.scratch}};
    for (int k : {0, 1, 3}) places.push_back({address(operands[k]), as<Matrix>(matrices[k]).bytes()});
    if (!algorithm.scratch) places.erase(places.begin());
    Product p = as<Product>(product);
    Matrix ma = as<Matrix>(al), mb = as<Matrix>(bl), md = as<Matrix>(dl);
    CUresult asked = fake_work(__func__, stream, places, [=] {
        memset(scratch, 0xff, algorithm.scratch); // NaNs: nobody else keeps anything there
        const char* from[] = {static_cast<const char*>(a), static_cast<const char*>(b)};
        const uint64_t all[] = {algorithm.m, algorithm.n, algorithm.k};
        multiply(p, ma, mb, md, all, factors, from, static_cast<char*>(d));
    });
    return asked == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // extern "C"
