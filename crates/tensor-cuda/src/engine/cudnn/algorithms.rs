//! cuDNN's algorithms for a convolution: which are allowed, and their names.
//!
//! cuDNN's heuristic lists them, the fastest first. Its answer depends on the convolution and the device
//! alone. Algorithms that may give other bits another time are left out. So are those that round f32 to TF32
//! in fp32, those without tensor cores in half formats, which our own kernels outrun, and those that need too
//! much scratch memory. The first of the others is used. One that fails
//! gives way to the next; after the last one our own kernels compute the convolution.
//!
//! Nothing is measured: in networks on an H200, measured choices were no faster than the heuristic's.

use crate::engine::faults::Failure;
use crate::layer::Pass;
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as DataAlgorithm, cudnnConvolutionBwdFilterAlgo_t as FilterAlgorithm,
    cudnnConvolutionFwdAlgo_t as ForwardAlgorithm,
};
use towers_program::Precision;

/// The most scratch memory of an algorithm. More would rarely save time, and limits the batch size.
const MOST_SCRATCH: usize = 256 << 20;

/// How cuDNN may multiply, by its numbers. Its `ALLOW_CONVERSION`, which may round f32 to half precision, is
/// left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Math {
    /// By the format's default: f32 may be rounded to TF32.
    Default = 0,
    /// On tensor cores, in the format of the operands.
    TensorOp = 1,
    /// f32 stays f32.
    Fma = 3,
}

impl Math {
    /// The required kind.
    pub(super) fn of(precision: Precision) -> Math {
        match precision {
            Precision::Fp32 => Math::Fma,
            Precision::Tf32 => Math::Default,
            Precision::Bf16 | Precision::Fp16 => Math::TensorOp,
        }
    }

    pub(super) fn of_number(number: u32) -> Option<Math> {
        [Math::Default, Math::TensorOp, Math::Fma].into_iter().find(|&math| math as u32 == number)
    }
}

/// An algorithm by cuDNN's number for it, which differs between the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Algorithm {
    pub(super) number: u32,
    pub(super) math: Math,
    pub(super) deterministic: bool,
    /// Bytes of scratch memory.
    pub(super) workspace: usize,
}

impl Algorithm {
    /// Whether it may be used. cuDNN may answer with another kind of math than the question's.
    pub(super) fn is_allowed(self, precision: Precision) -> bool {
        let multiplies_well = match precision {
            Precision::Fp32 => self.math == Math::Fma,
            Precision::Tf32 => true,
            Precision::Bf16 | Precision::Fp16 => self.math == Math::TensorOp,
        };
        self.deterministic && multiplies_well && self.workspace <= MOST_SCRATCH
    }

    /// Its name, without the common prefix of its pass.
    pub(super) fn name(self, pass: Pass) -> String {
        let number = self.number as usize;
        let name = match pass {
            Pass::Forward => FORWARD.get(number).map(|name| format!("{name:?}")),
            Pass::Data => DATA.get(number).map(|name| format!("{name:?}")),
            Pass::Filter => FILTER.get(number).map(|name| format!("{name:?}")),
        };
        let short = name.and_then(|name| Some(name.split_once("_ALGO_")?.1.to_lowercase()));
        short.unwrap_or_else(|| number.to_string())
    }

    /// The algorithm in the table of its pass. A later cuDNN may have more.
    pub(super) fn of<T: Copy>(self, all: &[T]) -> Result<T, Failure> {
        all.get(self.number as usize).copied().ok_or(Failure::refused("the algorithm's number is unknown"))
    }
}

/// The algorithms of each pass, in the order of their numbers.
pub(super) const FORWARD: [ForwardAlgorithm; 8] = [
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    ForwardAlgorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
];
pub(super) const DATA: [DataAlgorithm; 6] = [
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
    DataAlgorithm::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
];
pub(super) const FILTER: [FilterAlgorithm; 7] = [
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
    FilterAlgorithm::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::faults::Fault;

    const GEMM: Algorithm = Algorithm { number: 1, math: Math::Fma, deterministic: true, workspace: 0 };

    #[test]
    fn tables_are_in_the_order_of_the_numbers() {
        assert!(FORWARD.iter().enumerate().all(|(number, &each)| each as usize == number));
        assert!(DATA.iter().enumerate().all(|(number, &each)| each as usize == number));
        assert!(FILTER.iter().enumerate().all(|(number, &each)| each as usize == number));
    }

    #[test]
    fn names_are_short_and_unknown_numbers_no_panic() {
        let unknown = Algorithm { number: 99, ..GEMM };
        assert_eq!(GEMM.name(Pass::Forward), "implicit_precomp_gemm");
        assert_eq!(unknown.name(Pass::Filter), "99");
        assert!(unknown.of(&DATA).is_err_and(|failure| failure.fault == Fault::Refused));
    }

    #[test]
    fn other_bits_other_multiplications_and_much_memory_are_not_allowed() {
        for (precision, allowed) in [
            (Precision::Fp32, &[Math::Fma][..]),
            (Precision::Tf32, &[Math::Default, Math::TensorOp, Math::Fma]),
            (Precision::Bf16, &[Math::TensorOp]),
            (Precision::Fp16, &[Math::TensorOp]),
        ] {
            for math in [Math::Default, Math::TensorOp, Math::Fma] {
                let gemm = Algorithm { math, ..GEMM };
                assert_eq!(gemm.is_allowed(precision), allowed.contains(&math), "{precision} {math:?}");
                assert!(!Algorithm { deterministic: false, ..gemm }.is_allowed(precision));
                assert!(!Algorithm { workspace: MOST_SCRATCH + 1, ..gemm }.is_allowed(precision));
            }
        }
    }
}
