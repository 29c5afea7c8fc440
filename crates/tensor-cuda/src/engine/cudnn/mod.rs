//! Convolutions by cuDNN.
//!
//! Sources, by NVIDIA's names: "cuDNN API Reference", `cudnn_ops` and `cudnn_cnn` libraries (cudnnSetTensor4dDescriptor,
//! cudnnSetFilter4dDescriptor, cudnnSetConvolutionMathType, cudnnGetConvolution*Algorithm_v7, cudnnConvolutionForward,
//! -BackwardData, -BackwardFilter); "cuDNN Developer Guide", Legacy API (Tensor Core operations) and Odds and Ends
//! (reproducibility, thread safety).
//!
//! Tensors are NHWC without gaps, filters (k, h, w, c), which cuDNN also calls NHWC. Operands are f32, bf16
//! or f16, sums f32, as the reference lists them: `FLOAT_CONFIG`, `PSEUDO_BFLOAT16_CONFIG` and
//! `PSEUDO_HALF_CONFIG`.
//!
//! The legacy calls are used and not the graph API. With cuDNN 9.19 on an H200 they chose kernels for tensor
//! cores in bf16: `implicit_precomp_gemm` forward, `1` backward; on most layers of `sm90`, on some of `sm80`.
//! `beta = 1` and captures in a graph worked. Convolutions side by side in a graph had the bits of those one
//! after the other, each with its own scratch memory. Inputs of 3 channels are slow, since cuDNN pads them
//! first: [`small_window`](super::small_window) computes them instead.

mod algorithms;
mod handle;
mod problem;

use super::own;
use super::product::Pass;
use crate::driver::{Driver, Ptr};
use crate::libraries::{CUDNN, driver_version};
use crate::lock::lock;
use crate::number;
use crate::version::Version;
use crate::{Cuda, Options};
use algorithms::Algorithm;
use core::fmt;
use handle::{Failure, Handle};
use problem::{Operands, Problem, Scratch};
use program::{Conv2d, Error, Precision, Result, Shape, Write};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

/// cuDNN on one device and stream.
pub(crate) struct Cudnn {
    precision: Precision,
    version: Version,
    state: Mutex<State>,
}

/// The state behind the lock.
struct State {
    handle: Handle,
    problems: HashMap<(Conv2d, Shape), Problem>,
    /// The algorithms that are left of those allowed, the fastest first. Our own kernels compute what has
    /// none.
    algorithms: HashMap<Key, Vec<Algorithm>>,
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
        let Conv2d { outputs, kernel: [kh, kw], stride: [sy, sx], pad, .. } = self.conv;
        write!(f, "{pass} {} x {n}x{h}x{w}x{c} filters {outputs}x{kh}x{kw} ", self.precision)?;
        write!(f, "stride {sy}x{sx} pad {},{},{},{}", pad.top, pad.bottom, pad.left, pad.right)
    }
}

impl State {
    /// The descriptors of a convolution that [`Problem::fits`].
    fn problem(&mut self, key: &Key) -> Result<(&Problem, &Handle), Failure> {
        let problem = match self.problems.entry((key.conv, key.x)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let unsupported = |_| Failure::unsupported("the convolution's shapes");
                let y = key.conv.output(key.x).map_err(unsupported)?;
                place.insert(Problem::new(key.precision, &key.conv, key.x, y)?)
            }
        };
        Ok((problem, &self.handle))
    }

    /// The algorithm to use; none if our own kernels compute this.
    fn algorithm(&mut self, cuda: &Cuda, key: &Key) -> Result<Option<Algorithm>> {
        if let Some(left) = self.algorithms.get(key) {
            return Ok(left.first().copied());
        }
        // A call into cuDNN could disturb a capture.
        if cuda.is_capturing() {
            return Err(cuda.error(format!(
                "a convolution must run once before it is captured, but this did not: {key}"
            )));
        }
        let listed = self.problem(key).and_then(|(problem, handle)| problem.algorithms(handle, key.pass));
        let listed = listed.or_else(|failure| {
            let what = format!("{failure}, for {key}");
            cuda.drop_algorithm(failure.fault(), Write::Set, what).map(|()| Vec::new())
        })?;
        let first = listed.first().copied();
        self.algorithms.insert(*key, listed);
        Ok(first)
    }
}

impl Cudnn {
    /// cuDNN, if it is installed and works, or the reason.
    pub(crate) fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Cudnn, String> {
        let version = CUDNN.find().map_err(|error| error.to_string())?.version;
        check_cuda(version, runtime_version(), driver_version())?;
        driver.make_current().map_err(|error| error.to_string())?;
        let failed = |failure: Failure| format!("cuDNN is installed, but does not start: {failure}");
        let handle = Handle::new(driver).map_err(failed)?;
        let state = State { handle, problems: HashMap::new(), algorithms: HashMap::new() };
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
            let algorithm = state.algorithm(cuda, &self.key(pass, conv, x))?;
            most = most.max(algorithm.map_or(0, |algorithm| algorithm.workspace));
        }
        cuda.engine_scratch(most).map(drop)
    }

    /// Computes a pass. `false` if cuDNN can't compute it. `x` and `y` also stand for their gradients.
    pub(crate) fn run(
        &self,
        cuda: &Cuda,
        pass: Pass,
        conv: &Conv2d,
        shape: Shape,
        [x, w, y]: [Ptr; 3],
        write: Write,
    ) -> Result<bool> {
        let is_aligned = [x, w, y].iter().all(|ptr| ptr.0.is_multiple_of(16));
        if !is_aligned || !Problem::fits(conv, shape) || own::is_ours(cuda, conv, pass, shape) {
            return Ok(false);
        }
        cuda.driver().make_current()?;
        let key = self.key(pass, conv, shape);
        let mut state = lock(&self.state);
        let beta = if write == Write::Add { 1.0 } else { 0.0 };
        while let Some(algorithm) = state.algorithm(cuda, &key)? {
            let scratch = match cuda.engine_scratch(algorithm.workspace) {
                Ok(ptr) => Scratch { ptr, bytes: algorithm.workspace },
                // An unplanned batch size may need more than was reserved, when all other memory is in use.
                Err(Error::OutOfMemory { .. }) => {
                    state.algorithms.insert(key, Vec::new());
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let at = Operands { x, w, y };
            let mut run = || {
                let (problem, handle) = state.problem(&key)?;
                // SAFETY: the caller's operands have the shapes of `conv` and `shape`, without gaps, in the device's format.
                unsafe { problem.run(handle, pass, algorithm, at, scratch, beta) }
            };
            let failed = |failure: Failure| (failure.fault(), failure.to_string());
            let Err((fault, what)) = cuda.ask_library(|| run().map_err(failed))? else { return Ok(true) };
            state.algorithms.entry(key).or_default().retain(|left| *left != algorithm);
            let name = algorithm.name(pass);
            cuda.drop_algorithm(fault, write, format!("{what}, for {key} by cuDNN's algorithm {name}"))?;
        }
        Ok(false)
    }

    /// The version, then the algorithms in use, a line each.
    pub(crate) fn describe(&self) -> Vec<String> {
        let state = lock(&self.state);
        let line = |(key, left): (&Key, &Vec<Algorithm>)| match left.first() {
            Some(algorithm) => {
                let (name, Algorithm { math, workspace, .. }) = (algorithm.name(key.pass), algorithm);
                format!("{key}: {name}, {math:?}, {workspace} bytes")
            }
            None => format!("{key}: own kernels"),
        };
        let mut lines: Vec<_> = state.algorithms.iter().map(line).collect();
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
