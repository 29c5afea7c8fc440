//! What this crate takes from NVIDIA's headers, as cudarc declares it.

use core::any::type_name_of_val;
use core::mem::{offset_of, size_of};
use cudarc::{cublaslt, cudnn, driver, nccl, nvrtc};

macro_rules! functions {
    ($($library:ident { $($name:ident($($arg:tt)*))* })*) => {
        vec![$($((stringify!($name), {
            let declared: unsafe fn($($arg),*) -> _ = $library::sys::$name;
            type_name_of_val(&declared)
        }),)*)*]
    };
}

/// The functions, by name, with the names of their types.
pub(super) fn functions() -> Vec<(&'static str, &'static str)> {
    functions! {
    driver {
        cuCtxEnablePeerAccess(_ _)
        cuCtxGetStreamPriorityRange(_ _)
        cuCtxPopCurrent_v2(_)
        cuCtxPushCurrent_v2(_)
        cuCtxSetCurrent(_)
        cuDeviceGet(_ _)
        cuDeviceGetAttribute(_ _ _)
        cuDeviceGetCount(_)
        cuDeviceGetName(_ _ _)
        cuDevicePrimaryCtxRelease_v2(_)
        cuDevicePrimaryCtxRetain(_ _)
        cuDeviceTotalMem_v2(_ _)
        cuDriverGetVersion(_)
        cuEventCreate(_ _)
        cuEventDestroy_v2(_)
        cuEventQuery(_)
        cuEventRecord(_ _)
        cuEventSynchronize(_)
        cuFuncGetAttribute(_ _ _)
        cuFuncLoad(_)
        cuFuncSetAttribute(_ _ _)
        cuGetErrorName(_ _)
        cuGetErrorString(_ _)
        cuGraphDestroy(_)
        cuGraphExecDestroy(_)
        cuGraphGetEdges_v2(_ _ _ _ _)
        cuGraphGetNodes(_ _ _)
        cuGraphInstantiateWithFlags(_ _ _)
        cuGraphKernelNodeSetAttribute(_ _ _)
        cuGraphLaunch(_ _)
        cuGraphNodeGetType(_ _)
        cuGraphUpload(_ _)
        cuInit(_)
        cuLaunchKernel(_ _ _ _ _ _ _ _ _ _ _)
        cuMemAlloc_v2(_ _)
        cuMemFreeHost(_)
        cuMemFree_v2(_)
        cuMemGetInfo_v2(_ _)
        cuMemHostAlloc(_ _ _)
        cuMemcpyDtoDAsync_v2(_ _ _ _)
        cuMemcpyDtoHAsync_v2(_ _ _ _)
        cuMemcpyHtoDAsync_v2(_ _ _ _)
        cuMemcpyPeerAsync(_ _ _ _ _ _)
        cuMemsetD8Async(_ _ _ _)
        cuModuleGetFunction(_ _ _)
        cuModuleLoadData(_ _)
        cuModuleUnload(_)
        cuStreamBeginCapture_v2(_ _)
        cuStreamCreate(_ _)
        cuStreamDestroy_v2(_)
        cuStreamEndCapture(_ _)
        cuStreamGetCaptureInfo_v3(_ _ _ _ _ _ _)
        cuStreamQuery(_)
        cuStreamSynchronize(_)
        cuStreamUpdateCaptureDependencies_v2(_ _ _ _ _)
        cuStreamWaitEvent(_ _ _)
    }
    nvrtc {
        nvrtcCompileProgram(_ _ _)
        nvrtcCreateProgram(_ _ _ _ _ _)
        nvrtcDestroyProgram(_)
        nvrtcGetCUBIN(_ _)
        nvrtcGetCUBINSize(_ _)
        nvrtcGetErrorString(_)
        nvrtcGetNumSupportedArchs(_)
        nvrtcGetPTX(_ _)
        nvrtcGetPTXSize(_ _)
        nvrtcGetProgramLog(_ _)
        nvrtcGetProgramLogSize(_ _)
        nvrtcGetSupportedArchs(_)
        nvrtcVersion(_ _)
    }
    cublaslt {
        cublasLtCreate(_)
        cublasLtDestroy(_)
        cublasLtGetStatusString(_)
        cublasLtGetVersion()
        cublasLtMatmul(_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _)
        cublasLtMatmulAlgoGetHeuristic(_ _ _ _ _ _ _ _ _ _)
        cublasLtMatmulDescCreate(_ _ _)
        cublasLtMatmulDescDestroy(_)
        cublasLtMatmulDescSetAttribute(_ _ _ _)
        cublasLtMatmulPreferenceCreate(_)
        cublasLtMatmulPreferenceDestroy(_)
        cublasLtMatmulPreferenceSetAttribute(_ _ _ _)
        cublasLtMatrixLayoutCreate(_ _ _ _ _)
        cublasLtMatrixLayoutDestroy(_)
        cublasLtMatrixLayoutGetAttribute(_ _ _ _ _)
    }
    cudnn {
        cudnnCnnVersionCheck()
        cudnnConvolutionBackwardData(_ _ _ _ _ _ _ _ _ _ _ _ _)
        cudnnConvolutionBackwardFilter(_ _ _ _ _ _ _ _ _ _ _ _ _)
        cudnnConvolutionForward(_ _ _ _ _ _ _ _ _ _ _ _ _)
        cudnnCreate(_)
        cudnnCreateConvolutionDescriptor(_)
        cudnnCreateFilterDescriptor(_)
        cudnnCreateTensorDescriptor(_)
        cudnnDestroy(_)
        cudnnDestroyConvolutionDescriptor(_)
        cudnnDestroyFilterDescriptor(_)
        cudnnDestroyTensorDescriptor(_)
        cudnnGetConvolution2dForwardOutputDim(_ _ _ _ _ _ _)
        cudnnGetConvolutionBackwardDataAlgorithm_v7(_ _ _ _ _ _ _ _)
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(_ _ _ _ _ _ _ _)
        cudnnGetConvolutionForwardAlgorithm_v7(_ _ _ _ _ _ _ _)
        cudnnGetCudartVersion()
        cudnnGetErrorString(_)
        cudnnGetLastErrorString(_ _)
        cudnnGetVersion()
        cudnnOpsVersionCheck()
        cudnnSetConvolution2dDescriptor(_ _ _ _ _ _ _ _ _)
        cudnnSetConvolutionGroupCount(_ _)
        cudnnSetConvolutionMathType(_ _)
        cudnnSetFilter4dDescriptor(_ _ _ _ _ _ _)
        cudnnSetStream(_ _)
        cudnnSetTensor4dDescriptor(_ _ _ _ _ _ _)
    }
    nccl {
        ncclAllGather(_ _ _ _ _ _)
        ncclAllReduce(_ _ _ _ _ _ _)
        ncclBroadcast(_ _ _ _ _ _ _)
        ncclCommAbort(_)
        ncclCommDestroy(_)
        ncclCommFinalize(_)
        ncclCommGetAsyncError(_ _)
        ncclCommInitRankConfig(_ _ _ _ _)
        ncclGetErrorString(_)
        ncclGetLastError(_)
        ncclGetUniqueId(_)
        ncclGetVersion(_)
        ncclGroupEnd()
        ncclGroupStart()
        ncclRecv(_ _ _ _ _ _)
        ncclSend(_ _ _ _ _ _)
    }
    }
}

macro_rules! constants {
    ($($library:ident::$type:ident { $($name:ident)* })*) => {
        vec![$($((stringify!($name), $library::sys::$type::$name as i64),)*)*]
    };
}

/// The constants, with their values.
pub(super) fn constants() -> Vec<(&'static str, i64)> {
    let mut all = constants! {
    cublaslt::cublasLtMatmulDescAttributes_t {
        CUBLASLT_MATMUL_DESC_TRANSA
        CUBLASLT_MATMUL_DESC_TRANSB
    }
    cublaslt::cublasLtMatmulPreferenceAttributes_t {
        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
    }
    cublaslt::cublasLtMatrixLayoutAttribute_t {
        CUBLASLT_MATRIX_LAYOUT_COLS
        CUBLASLT_MATRIX_LAYOUT_ROWS
    }
    cublaslt::cublasLtReductionScheme_t {
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
    }
    cublaslt::cublasComputeType_t {
        CUBLAS_COMPUTE_32F
        CUBLAS_COMPUTE_32F_FAST_TF32
    }
    cublaslt::cublasStatus_t {
        CUBLAS_STATUS_ALLOC_FAILED
        CUBLAS_STATUS_ARCH_MISMATCH
        CUBLAS_STATUS_INVALID_VALUE
        CUBLAS_STATUS_LICENSE_ERROR
        CUBLAS_STATUS_NOT_INITIALIZED
        CUBLAS_STATUS_NOT_SUPPORTED
        CUBLAS_STATUS_SUCCESS
    }
    driver::cudaError_enum {
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        CUDA_ERROR_DEVICE_UNAVAILABLE
        CUDA_ERROR_ILLEGAL_ADDRESS
        CUDA_ERROR_LAUNCH_FAILED
        CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_NOT_READY
        CUDA_ERROR_NO_DEVICE
        CUDA_ERROR_OPERATING_SYSTEM
        CUDA_ERROR_OUT_OF_MEMORY
        CUDA_ERROR_STUB_LIBRARY
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        CUDA_ERROR_SYSTEM_NOT_READY
        CUDA_ERROR_UNKNOWN
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION
        CUDA_SUCCESS
    }
    cublaslt::cudaDataType_t {
        CUDA_R_16BF
        CUDA_R_16F
        CUDA_R_32F
    }
    cudnn::cudnnConvolutionBwdDataAlgo_t {
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_0
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED
    }
    cudnn::cudnnConvolutionBwdFilterAlgo_t {
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED
    }
    cudnn::cudnnConvolutionFwdAlgo_t {
        CUDNN_CONVOLUTION_FWD_ALGO_DIRECT
        CUDNN_CONVOLUTION_FWD_ALGO_FFT
        CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING
        CUDNN_CONVOLUTION_FWD_ALGO_GEMM
        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
        CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
    }
    cudnn::cudnnConvolutionMode_t {
        CUDNN_CROSS_CORRELATION
    }
    cudnn::cudnnDataType_t {
        CUDNN_DATA_BFLOAT16
        CUDNN_DATA_FLOAT
        CUDNN_DATA_HALF
    }
    cudnn::cudnnMathType_t {
        CUDNN_DEFAULT_MATH
        CUDNN_FMA_MATH
        CUDNN_TENSOR_OP_MATH
    }
    cudnn::cudnnDeterminism_t {
        CUDNN_DETERMINISTIC
    }
    cudnn::cudnnStatus_t {
        CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
        CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
        CUDNN_STATUS_RUNTIME_FP_OVERFLOW
        CUDNN_STATUS_RUNTIME_IN_PROGRESS
        CUDNN_STATUS_SUCCESS
    }
    cudnn::cudnnTensorFormat_t {
        CUDNN_TENSOR_NHWC
    }
    driver::CUdevice_attribute_enum {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    }
    driver::CUevent_flags_enum {
        CU_EVENT_DISABLE_TIMING
    }
    driver::CUgraphNodeType_enum {
        CU_GRAPH_NODE_TYPE_KERNEL
    }
    driver::CUlaunchAttributeID_enum {
        CU_LAUNCH_ATTRIBUTE_PRIORITY
    }
    driver::CUfunction_attribute_enum {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    }
    driver::CUstreamCaptureMode_enum {
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    }
    driver::CUstreamCaptureStatus_enum {
        CU_STREAM_CAPTURE_STATUS_ACTIVE
        CU_STREAM_CAPTURE_STATUS_NONE
    }
    driver::CUstream_flags_enum {
        CU_STREAM_NON_BLOCKING
    }
    driver::CUstreamUpdateCaptureDependencies_flags_enum {
        CU_STREAM_SET_CAPTURE_DEPENDENCIES
    }
    nvrtc::nvrtcResult {
        NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
        NVRTC_ERROR_COMPILATION
        NVRTC_SUCCESS
    }
    nccl::ncclDataType_t {
        ncclFloat32
    }
    nccl::ncclResult_t {
        ncclInProgress
        ncclInvalidUsage
        ncclSuccess
    }
    nccl::ncclRedOp_t {
        ncclSum
    }
    };
    // A type that cudarc declares as a set of flags.
    let by_node = driver::sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    all.push(("CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY", by_node.0.into()));
    all
}

macro_rules! layouts {
    ($($library:ident::$type:ident [$size:expr] { $($field:ident)* })*) => {
        vec![$(
            ($size, size_of::<$library::sys::$type>() as i64),
            $((
                concat!("offsetof(", stringify!($type), ", ", stringify!($field), ")"),
                offset_of!($library::sys::$type, $field) as i64,
            ),)*
        )*]
    };
}

/// The sizes of structures and the offsets of their fields. NCCL's settings grow at their end: 2.27 has the first
/// fields.
pub(super) fn layouts() -> Vec<(&'static str, i64)> {
    layouts! {
        cudnn::cudnnConvolutionFwdAlgoPerf_t ["sizeof(cudnnConvolutionFwdAlgoPerf_t)"] {
            algo status time memory determinism mathType
        }
        cudnn::cudnnConvolutionBwdDataAlgoPerf_t ["sizeof(cudnnConvolutionBwdDataAlgoPerf_t)"] {
            algo status time memory determinism mathType
        }
        cudnn::cudnnConvolutionBwdFilterAlgoPerf_t ["sizeof(cudnnConvolutionBwdFilterAlgoPerf_t)"] {
            algo status time memory determinism mathType
        }
        cublaslt::cublasLtMatmulHeuristicResult_t ["sizeof(cublasLtMatmulHeuristicResult_t)"] {
            algo workspaceSize state wavesCount
        }
        cublaslt::cublasLtMatmulAlgo_t ["sizeof(cublasLtMatmulAlgo_t)"] {}
        nccl::ncclUniqueId ["sizeof(ncclUniqueId)"] { internal }
        nccl::ncclConfig_t ["offsetof(ncclConfig_t, nvlsCTAs) + 3 * sizeof(int)"] {
            size magic version blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName
            collnetEnable CTAPolicy shrinkShare nvlsCTAs
        }
    }
}
