//! cuDNN's algorithms by their numbers.

use super::handle::Failure;
use crate::engine::algorithms::{Algorithm, Pass};
use cudarc::cudnn::sys::{
    cudnnConvolutionBwdDataAlgo_t as DataAlgorithm, cudnnConvolutionBwdFilterAlgo_t as FilterAlgorithm,
    cudnnConvolutionFwdAlgo_t as ForwardAlgorithm,
};

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

/// The algorithm of a pass by its number, which may come from a file.
pub(super) fn numbered<T: Copy>(all: &[T], algorithm: Algorithm) -> Result<T, Failure> {
    all.get(algorithm.number as usize).copied().ok_or(Failure::unsupported("the algorithm's number"))
}

/// An algorithm's name, without the common prefix of its pass.
pub(super) fn name(pass: Pass, algorithm: Algorithm) -> String {
    let number = algorithm.number as usize;
    let name = match pass {
        Pass::Forward => FORWARD.get(number).map(|name| format!("{name:?}")),
        Pass::Data => DATA.get(number).map(|name| format!("{name:?}")),
        Pass::Filter => FILTER.get(number).map(|name| format!("{name:?}")),
    };
    let short = name.and_then(|name| Some(name.split_once("_ALGO_")?.1.to_lowercase()));
    short.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::algorithms::Math;
    use crate::engine::faults::Fault;

    #[test]
    fn tables_are_in_the_order_of_the_numbers() {
        assert!(FORWARD.iter().enumerate().all(|(number, &each)| each as usize == number));
        assert!(DATA.iter().enumerate().all(|(number, &each)| each as usize == number));
        assert!(FILTER.iter().enumerate().all(|(number, &each)| each as usize == number));
    }

    #[test]
    fn names_are_short_and_unknown_numbers_no_panic() {
        let of = |number| Algorithm { number, math: Math::Default };
        assert_eq!(name(Pass::Forward, of(1)), "implicit_precomp_gemm");
        assert_eq!(name(Pass::Filter, of(99)), "99");
        assert!(numbered(&DATA, of(6)).is_err_and(|failure| failure.fault() == Fault::Refused));
    }
}
