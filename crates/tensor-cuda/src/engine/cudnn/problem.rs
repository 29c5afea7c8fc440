//! One convolution of one batch size for cuDNN: its descriptors, and the calls of its three passes.

use super::algorithms::{Algorithm, DATA, FILTER, FORWARD, Math};
use super::handle::{Handle, check};
use crate::driver::Ptr;
use crate::engine::faults::Failure;
use crate::engine::owned::{Owned, owned};
use crate::format::Format;
use crate::layer::Pass;
use crate::number::number;
use core::ffi::{c_int, c_void};
use core::mem::size_of;
use cudarc::cudnn::sys::{self, cudnnStatus_t as Status};
use towers_program::{Conv2d, Precision, Shape};

/// The operands of a convolution: `x` and `y` also stand for their gradients, `w` for the weights'. Each pass
/// writes one of them.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) x: Ptr,
    pub(super) w: Ptr,
    pub(super) y: Ptr,
}

/// Scratch memory: what cuDNN calls a workspace.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    pub(super) ptr: Ptr,
    pub(super) bytes: usize,
}

/// The descriptors of a convolution.
pub(super) struct Problem {
    precision: Precision,
    x: Owned<sys::cudnnTensorStruct>,
    w: Owned<sys::cudnnFilterStruct>,
    y: Owned<sys::cudnnTensorStruct>,
    conv: Owned<sys::cudnnConvolutionStruct>,
}

/// Room for all answers about a pass: up to 8 algorithms, each with several ways to multiply.
const MOST: usize = 32;

/// The three structures `cudnnConvolution*AlgoPerf_t`, which have one layout, with numbers where these have
/// enums. A later cuDNN may write a number that the enums of 9.1 lack.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Performance {
    algorithm: u32,
    status: u32,
    milliseconds: f32,
    /// Bytes of scratch memory, with this kind of math.
    memory: usize,
    determinism: u32,
    math: u32,
    reserved: [c_int; 3],
}

const _: () = {
    assert!(size_of::<Performance>() == size_of::<sys::cudnnConvolutionFwdAlgoPerf_t>());
    assert!(size_of::<Performance>() == size_of::<sys::cudnnConvolutionBwdDataAlgoPerf_t>());
    assert!(size_of::<Performance>() == size_of::<sys::cudnnConvolutionBwdFilterAlgoPerf_t>());
};

impl Performance {
    fn algorithm(self) -> Option<Algorithm> {
        let math =
            Math::of_number(self.math).filter(|_| self.status == Status::CUDNN_STATUS_SUCCESS as u32)?;
        let deterministic = self.determinism == sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC as u32;
        Some(Algorithm { number: self.algorithm, math, deterministic, workspace: self.memory })
    }
}

/// A size for cuDNN. One that does not fit becomes one that cuDNN refuses.
fn int(size: usize) -> c_int {
    c_int::try_from(size).unwrap_or(c_int::MIN)
}

fn pointer(ptr: Ptr) -> *mut c_void {
    ptr.0 as *mut c_void
}

impl Problem {
    /// Whether cuDNN can compute it at all: equal padding on both sides, tensors of less than 2^31 elements,
    /// none empty.
    pub(super) fn fits(conv: &Conv2d, x: Shape) -> bool {
        let pad = conv.pad;
        let sizes = conv.output(x).map(|y| [x.len(), y.len(), conv.weights()]);
        pad.top == pad.bottom
            && pad.left == pad.right
            && sizes.is_ok_and(|sizes| sizes.iter().all(|size| (1..=i32::MAX as usize).contains(size)))
    }

    pub(super) fn new(precision: Precision, conv: &Conv2d, x: Shape, y: Shape) -> Result<Problem, Failure> {
        let data = match Format::of_activations(precision) {
            Format::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            Format::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
            Format::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
        };
        Ok(Problem {
            precision,
            x: tensor(data, x)?,
            w: filter(data, conv)?,
            y: tensor(data, y)?,
            conv: convolution(conv)?,
        })
    }

    /// Sets how to multiply. No other part of a descriptor changes.
    fn set_math(&self, math: Math) -> Result<(), Failure> {
        use sys::cudnnMathType_t as Type;
        let math = match math {
            Math::Default => Type::CUDNN_DEFAULT_MATH,
            Math::TensorOp => Type::CUDNN_TENSOR_OP_MATH,
            Math::Fma => Type::CUDNN_FMA_MATH,
        };
        // SAFETY: the descriptor is alive.
        let status = unsafe { number!(sys::cudnnSetConvolutionMathType(self.conv.raw(), math)) };
        check("cudnnSetConvolutionMathType", status)
    }

    /// The allowed algorithms of a pass, by cuDNN's heuristic the fastest first.
    #[rustfmt::skip]
    pub(super) fn algorithms(&self, handle: &Handle, pass: Pass) -> Result<Vec<Algorithm>, Failure> {
        self.set_math(Math::of(self.precision))?;
        let (h, xd, wd, yd, cd) = (handle.raw.raw(), self.x.raw(), self.w.raw(), self.y.raw(), self.conv.raw());
        let listed = listed(|most, count, list| match pass {
            // SAFETY: descriptors and handle are alive, and `list` has room for `most`.
            Pass::Forward => check("cudnnGetConvolutionForwardAlgorithm_v7", unsafe {
                number!(sys::cudnnGetConvolutionForwardAlgorithm_v7(h, xd, wd, cd, yd, most, count, list.cast()))
            }),
            // SAFETY: as above.
            Pass::Data => check("cudnnGetConvolutionBackwardDataAlgorithm_v7", unsafe {
                number!(sys::cudnnGetConvolutionBackwardDataAlgorithm_v7(h, wd, yd, cd, xd, most, count, list.cast()))
            }),
            // SAFETY: as above.
            Pass::Filter => check("cudnnGetConvolutionBackwardFilterAlgorithm_v7", unsafe {
                number!(sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, xd, yd, cd, wd, most, count, list.cast()))
            }),
        })?;
        Ok(listed.into_iter().filter(|algorithm| algorithm.is_allowed(self.precision)).collect())
    }

    /// Runs a pass. Its output becomes the result plus `beta` (0 or 1) times its old value.
    ///
    /// # Safety
    /// The operands are as large as their descriptors say, the scratch memory as large as the algorithm needs.
    #[rustfmt::skip]
    pub(super) unsafe fn run(
        &self, handle: &Handle, pass: Pass, algorithm: Algorithm, at: Operands, scratch: Scratch, beta: f32,
    ) -> Result<(), Failure> {
        self.set_math(algorithm.math)?;
        let (h, xd, wd, yd, cd) = (handle.raw.raw(), self.x.raw(), self.w.raw(), self.y.raw(), self.conv.raw());
        let (x, w, y) = (pointer(at.x), pointer(at.w), pointer(at.y));
        let (work, bytes) = (pointer(scratch.ptr), scratch.bytes);
        // On the host, and f32 whatever the operands' format is, as sums are.
        let (alpha, beta) = (&1.0_f32, &beta);
        let (alpha, beta) = ((&raw const *alpha).cast(), (&raw const *beta).cast());
        match pass {
            Pass::Forward => {
                let number = algorithm.of(&FORWARD)?;
                // SAFETY: descriptors, handle and both factors are alive, and the caller vouches for the rest.
                check("cudnnConvolutionForward", unsafe {
                    number!(sys::cudnnConvolutionForward(h, alpha, xd, x, wd, w, cd, number, work, bytes, beta, yd, y))
                })
            }
            Pass::Data => {
                let number = algorithm.of(&DATA)?;
                // SAFETY: as above.
                check("cudnnConvolutionBackwardData", unsafe {
                    number!(sys::cudnnConvolutionBackwardData(h, alpha, wd, w, yd, y, cd, number, work, bytes, beta, xd, x))
                })
            }
            Pass::Filter => {
                let number = algorithm.of(&FILTER)?;
                // SAFETY: as above.
                check("cudnnConvolutionBackwardFilter", unsafe {
                    number!(sys::cudnnConvolutionBackwardFilter(h, alpha, xd, x, yd, y, cd, number, work, bytes, beta, wd, w))
                })
            }
        }
    }
}

/// The answer of a call that fills in a list of at most `most`.
fn listed(
    call: impl FnOnce(c_int, *mut c_int, *mut Performance) -> Result<(), Failure>,
) -> Result<Vec<Algorithm>, Failure> {
    let mut list = [Performance::default(); MOST];
    let mut count = 0;
    call(MOST as c_int, &raw mut count, list.as_mut_ptr())?;
    let count = usize::try_from(count).unwrap_or(0);
    Ok(list.iter().take(count).filter_map(|each| each.algorithm()).collect())
}

fn tensor(data: sys::cudnnDataType_t, shape: Shape) -> Result<Owned<sys::cudnnTensorStruct>, Failure> {
    // SAFETY: success leaves a descriptor, which its destructor takes.
    let tensor =
        unsafe { owned!(check, sys::cudnnCreateTensorDescriptor(), sys::cudnnDestroyTensorDescriptor()) }?;
    let Shape { n, h, w, c } = shape;
    let nhwc = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
    // SAFETY: the descriptor was made just now. The order of the sizes is this one for every layout.
    let status = unsafe {
        number!(sys::cudnnSetTensor4dDescriptor(tensor.raw(), nhwc, data, int(n), int(c), int(h), int(w)))
    };
    check("cudnnSetTensor4dDescriptor", status)?;
    Ok(tensor)
}

fn filter(data: sys::cudnnDataType_t, conv: &Conv2d) -> Result<Owned<sys::cudnnFilterStruct>, Failure> {
    // SAFETY: success leaves a descriptor, which its destructor takes.
    let filter =
        unsafe { owned!(check, sys::cudnnCreateFilterDescriptor(), sys::cudnnDestroyFilterDescriptor()) }?;
    let (Conv2d { outputs: k, kernel: [h, w], .. }, c) = (*conv, conv.group_inputs());
    let nhwc = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
    // SAFETY: the descriptor was made just now. In this layout a filter lies as (k, h, w, c), with the c of a group.
    let status = unsafe {
        number!(sys::cudnnSetFilter4dDescriptor(filter.raw(), data, nhwc, int(k), int(c), int(h), int(w)))
    };
    check("cudnnSetFilter4dDescriptor", status)?;
    Ok(filter)
}

fn convolution(conv: &Conv2d) -> Result<Owned<sys::cudnnConvolutionStruct>, Failure> {
    // SAFETY: success leaves a descriptor, which its destructor takes.
    let descriptor = unsafe {
        owned!(check, sys::cudnnCreateConvolutionDescriptor(), sys::cudnnDestroyConvolutionDescriptor())
    }?;
    let (pad, [down, right], dilation) = (conv.pad, conv.stride.map(int), conv.dilation.map(int));
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let sums = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
    // SAFETY: the descriptor was made just now.
    let status = unsafe {
        let raw = descriptor.raw();
        number!(sys::cudnnSetConvolution2dDescriptor(
            raw,
            int(pad.top),
            int(pad.left),
            down,
            right,
            dilation[0],
            dilation[1],
            mode,
            sums
        ))
    };
    check("cudnnSetConvolution2dDescriptor", status)?;
    if conv.groups > 1 {
        // SAFETY: as above.
        let status =
            unsafe { number!(sys::cudnnSetConvolutionGroupCount(descriptor.raw(), int(conv.groups))) };
        check("cudnnSetConvolutionGroupCount", status)?;
    }
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::CUDNN;
    use towers_program::Pad;

    fn conv(pad: Pad) -> Conv2d {
        Conv2d { stride: [2, 1], pad, ..Conv2d::new(3, 96, [3, 5]) }
    }

    #[test]
    fn what_pads_on_one_side_or_is_too_large_or_empty_does_not_fit() {
        let x = Shape::new(64, 32, 32, 3);
        let both = Pad { top: 1, bottom: 1, left: 2, right: 2 };
        assert!(Problem::fits(&conv(both), x));
        assert!(!Problem::fits(&conv(Pad { top: 0, ..both }), x));
        assert!(!Problem::fits(&conv(Pad { right: 0, ..both }), x));
        assert!(!Problem::fits(&conv(both), x.with_n(0)));
        assert!(!Problem::fits(&conv(both), x.with_n(1 << 21)));
        assert!(!Problem::fits(&conv(both), x.with_c(4)));
        assert!(!Problem::fits(&Conv2d { outputs: 0, ..conv(both) }, x));
    }

    /// Descriptors need no GPU, so an installed library can check them.
    #[test]
    fn cudnn_understands_the_descriptors() -> Result<(), Failure> {
        if let Err(why) = CUDNN.find() {
            println!("SKIPPED: cudnn: {why}");
            return Ok(());
        }
        let conv = conv(Pad { top: 1, bottom: 1, left: 2, right: 2 });
        let (x, y) = (Shape::new(64, 32, 32, 3), Shape::new(64, 16, 32, 96));
        let grouped = Conv2d { groups: 3, dilation: [3, 2], ..conv };
        for (conv, precision) in
            [conv, grouped].into_iter().flat_map(|conv| Precision::ALL.map(|p| (conv, p)))
        {
            let y = conv.output(x).unwrap_or(y);
            let problem = Problem::new(precision, &conv, x, y)?;
            problem.set_math(Math::of(precision))?;
            let [mut n, mut c, mut h, mut w] = [0; 4];
            // SAFETY: the descriptors are alive, and the sizes have room.
            let status = unsafe {
                let (conv, x, filter) = (problem.conv.raw(), problem.x.raw(), problem.w.raw());
                let (n, c, h, w) = (&raw mut n, &raw mut c, &raw mut h, &raw mut w);
                number!(sys::cudnnGetConvolution2dForwardOutputDim(conv, x, filter, n, c, h, w))
            };
            check("cudnnGetConvolution2dForwardOutputDim", status)?;
            assert_eq!([n, h, w, c].map(|size| size as usize), [y.n, y.h, y.w, y.c]);
        }
        let refused = Problem::new(Precision::Fp32, &conv, Shape { h: usize::MAX, ..x }, y).err();
        let message = refused.map(|failure| failure.what).unwrap_or_default();
        assert!(message.starts_with("cudnnSetTensor4dDescriptor: CUDNN_STATUS_"), "{message}");
        println!("{message}");
        Ok(())
    }
}
