//! Convolutions by cuDNN.
//!
//! Sources, by NVIDIA's names: "cuDNN API Reference", `cudnn_ops` and `cudnn_cnn` libraries (cudnnSetTensor4dDescriptor,
//! cudnnSetFilter4dDescriptor, cudnnSetConvolutionGroupCount, cudnnSetConvolutionMathType, cudnnGetConvolution*Algorithm_v7, cudnnConvolutionForward,
//! -BackwardData, -BackwardFilter); "cuDNN Developer Guide", Legacy API (Tensor Core operations) and Odds and Ends
//! (reproducibility, thread safety).
//!
//! Tensors are NHWC without gaps, filters (k, h, w, c), which cuDNN also calls NHWC. Operands are f32, bf16
//! or f16, sums f32, as the reference lists them: `FLOAT_CONFIG`, `PSEUDO_BFLOAT16_CONFIG` and
//! `PSEUDO_HALF_CONFIG`.
//!
//! The legacy calls are used and not the graph API: docs/gpu.md says why. With cuDNN 9.19 on an H200 they chose
//! kernels for tensor cores in bf16: `implicit_precomp_gemm` forward, `1` backward; on most layers of `sm90`, on
//! some of `sm80`. `beta = 1` and captures in a graph worked. Convolutions side by side in a graph had the bits
//! of those one after the other, each with its own scratch memory. Inputs of 3 channels are slow, since cuDNN
//! pads them first: [`small_window`](super::small_window) computes them instead.

mod algorithms;
mod handle;
mod problem;

use super::faults::Failure;
use super::own;
use crate::driver::{Driver, Ptr};
use crate::layer::Pass;
use crate::libraries::{CUDNN, driver_version};
use crate::lock::lock;
use crate::number;
use crate::place::Place;
use crate::version::Version;
use crate::{Cuda, Options};
use algorithms::Algorithm;
use core::fmt;
use handle::Handle;
use problem::{Operands, Problem, Scratch};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use towers_program::{Conv2d, Error, Precision, Result, Shape, Write};

/// cuDNN on one device and stream.
pub(crate) struct Cudnn {
    precision: Precision,
    version: Version,
    state: Mutex<State>,
}

/// The state behind the lock.
struct State {
    handle: Handle,
    /// `None` if cuDNN can't compute the pass.
    plans: HashMap<Key, Option<Plan>>,
}

/// A pass, and the algorithms that are left of those allowed, the fastest first. Without any, our own kernels
/// compute it.
struct Plan {
    problem: Problem,
    algorithms: Vec<Algorithm>,
}

/// A pass of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    pass: Pass,
    precision: Precision,
    conv: Conv2d,
    /// The input's shape, or for gradients the shape of the input's gradient.
    x: Shape,
}

impl fmt::Display for Key {
    /// One line with every relevant number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = match self.pass {
            Pass::Forward => "forward",
            Pass::Data => "data",
            Pass::Filter => "filter",
        };
        let Shape { n, h, w, c } = self.x;
        let Conv2d { outputs, kernel: [kh, kw], stride: [sy, sx], dilation, groups, pad, .. } = self.conv;
        write!(f, "{pass} {} x {n}x{h}x{w}x{c} filters {outputs}x{kh}x{kw} ", self.precision)?;
        write!(f, "stride {sy}x{sx} pad {},{},{},{}", pad.top, pad.bottom, pad.left, pad.right)?;
        if dilation != [1, 1] {
            write!(f, " dilation {}x{}", dilation[0], dilation[1])?;
        }
        if groups == 1 { Ok(()) } else { write!(f, " groups {groups}") }
    }
}

impl Plan {
    /// The plan of a convolution that [`Problem::fits`].
    fn new(handle: &Handle, key: &Key) -> Result<Plan, Failure> {
        let unsupported = |_| Failure::refused("the convolution's shapes do not fit");
        let y = key.conv.output(key.x).map_err(unsupported)?;
        let problem = Problem::new(key.precision, &key.conv, key.x, y)?;
        let algorithms = problem.algorithms(handle, key.pass)?;
        Ok(Plan { problem, algorithms })
    }
}

impl State {
    fn plan(&mut self, cuda: &Cuda, key: &Key) -> Result<(Option<&mut Plan>, &Handle)> {
        let State { handle, plans } = self;
        let plan = match plans.entry(*key) {
            Entry::Occupied(known) => known.into_mut(),
            // A call into cuDNN could disturb a capture.
            Entry::Vacant(_) if cuda.is_capturing() => {
                let message =
                    format!("a convolution must run once before it is captured, but this did not: {key}");
                return Err(cuda.error(message));
            }
            Entry::Vacant(place) => {
                let plan = Plan::new(handle, key).map(Some);
                let none = |failure| cuda.drop_algorithm(failure, Write::Set, key).map(|()| None);
                place.insert(plan.or_else(none)?)
            }
        };
        Ok((plan.as_mut(), handle))
    }
}

impl Cudnn {
    /// cuDNN, if it is installed and works, or the reason.
    pub(crate) fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Cudnn, String> {
        let version = CUDNN.find().map_err(|error| error.to_string())?.version;
        check_cuda(version, runtime_version(), driver_version())?;
        driver.make_current().map_err(|error| error.to_string())?;
        let failed = |failure: Failure| format!("cuDNN is installed, but does not start: {}", failure.what);
        let handle = handle::handle(driver).map_err(failed)?;
        let state = State { handle, plans: HashMap::new() };
        Ok(Cudnn { precision: options.precision, version, state: Mutex::new(state) })
    }

    /// Chooses the algorithms of a layer and reserves their scratch memory. During a capture it does nothing.
    pub(crate) fn prepare(&self, cuda: &Cuda, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        if !Problem::fits(conv, x) || cuda.is_capturing() {
            return Ok(());
        }
        cuda.driver().make_current()?;
        let passes = if training { &[Pass::Forward, Pass::Data, Pass::Filter][..] } else { &[Pass::Forward] };
        let mut most = 0;
        let mut state = lock(&self.state);
        for &pass in passes.iter().filter(|&&pass| !own::is_ours(cuda, conv, pass, x)) {
            let (plan, _) = state.plan(cuda, &self.key(pass, conv, x))?;
            let first = plan.and_then(|plan| plan.algorithms.first());
            most = most.max(first.map_or(0, |algorithm| algorithm.workspace));
        }
        cuda.engine_scratch(most).map(drop)
    }

    /// Computes a pass. `false` if cuDNN can't compute it. `x` and `y` also stand for their gradients.
    pub(crate) fn run(
        &self,
        cuda: &Cuda,
        pass: Pass,
        conv: &Conv2d,
        x: &Place,
        w: Ptr,
        y: &Place,
        write: Write,
    ) -> Result<bool> {
        let (shape, at) = (x.shape, Operands { x: x.ptr, w, y: y.ptr });
        let is_aligned = [at.x, at.w, at.y].iter().all(|ptr| ptr.0.is_multiple_of(16));
        if !is_aligned || !Problem::fits(conv, shape) || own::is_ours(cuda, conv, pass, shape) {
            return Ok(false);
        }
        cuda.driver().make_current()?;
        let key = self.key(pass, conv, shape);
        let mut state = lock(&self.state);
        let (Some(plan), handle) = state.plan(cuda, &key)? else { return Ok(false) };
        let beta = if write == Write::Add { 1.0 } else { 0.0 };
        while let Some(&algorithm) = plan.algorithms.first() {
            let scratch = match cuda.engine_scratch(algorithm.workspace) {
                Ok(ptr) => Scratch { ptr, bytes: algorithm.workspace },
                // An unplanned batch size may need more than was reserved, when all other memory is in use.
                Err(Error::OutOfMemory { .. }) => {
                    plan.algorithms.clear();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            // SAFETY: the caller's operands have the shapes of `conv` and `shape`, without gaps, in the device's format.
            let run = || unsafe { plan.problem.run(handle, pass, algorithm, at, scratch, beta) };
            let Err(failure) = cuda.ask_library(run)? else { return Ok(true) };
            plan.algorithms.remove(0);
            let name = algorithm.name(pass);
            cuda.drop_algorithm(failure, write, format_args!("{key} by cuDNN's algorithm {name}"))?;
        }
        Ok(false)
    }

    /// The version, then the algorithms in use, a line each.
    pub(crate) fn describe(&self) -> Vec<String> {
        let state = lock(&self.state);
        let first = |plan: &Option<Plan>| plan.as_ref()?.algorithms.first().copied();
        let line = |(key, plan): (&Key, &Option<Plan>)| match first(plan) {
            Some(algorithm) => {
                let (name, Algorithm { math, workspace, .. }) = (algorithm.name(key.pass), algorithm);
                format!("{key}: {name}, {math:?}, {workspace} bytes")
            }
            None => format!("{key}: own kernels"),
        };
        let mut lines: Vec<_> = state.plans.iter().map(line).collect();
        lines.sort();
        lines.insert(0, format!("cuDNN {}", self.version));
        lines
    }

    fn key(&self, pass: Pass, conv: &Conv2d, x: Shape) -> Key {
        Key { pass, precision: self.precision, conv: *conv, x }
    }
}

/// The version of CUDA that cuDNN was built with, in its packed form. 0 if it does not say.
fn runtime_version() -> usize {
    type Function = unsafe extern "C" fn() -> usize;
    // SAFETY: the type is that of the function, which takes nothing.
    unsafe { number::function::<Function>("cudnnGetCudartVersion").map_or(0, |function| function()) }
}

/// Builds for CUDA 12 and 13 have files of the same name. A driver runs none that was built for a newer CUDA.
fn check_cuda(cudnn: Version, runtime: usize, driver: Option<Version>) -> Result<(), String> {
    match driver {
        Some(driver) if runtime / 1000 > driver.major() as usize => Err(format!(
            "cuDNN {cudnn} is built for CUDA {}, and the driver for {driver}; {}",
            runtime / 1000,
            CUDNN.hint()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_for_a_newer_cuda_than_the_drivers_is_refused() {
        let (cudnn, driver) = (Version::new(9, 19, 0), |major| Some(Version::new(major, 8, 0)));
        for (runtime, driver) in
            [(12030, driver(12)), (12030, driver(13)), (13000, driver(13)), (13000, None)]
        {
            assert_eq!(check_cuda(cudnn, runtime, driver), Ok(()));
        }
        let why = check_cuda(cudnn, 13000, driver(12)).unwrap_err();
        assert!(why.starts_with("cuDNN 9.19.0 is built for CUDA 13, and the driver for 12.8; "), "{why}");
    }
}
