//! Convolutions by cuDNN.
//!
//! Sources, by NVIDIA's names: "cuDNN API Reference", `cudnn_ops` and `cudnn_cnn` libraries (cudnnSetTensor4dDescriptor,
//! cudnnSetFilter4dDescriptor, cudnnSetConvolutionMathType, cudnnFindConvolution*AlgorithmEx,
//! cudnnGetConvolution*Algorithm_v7, cudnnConvolutionForward, -BackwardData, -BackwardFilter); "cuDNN Developer Guide",
//! Legacy API (Tensor Core operations) and Odds and Ends (reproducibility, thread safety).
//!
//! Tensors are NHWC without gaps, filters (k, h, w, c), which cuDNN also calls NHWC. Operands are f32, bf16
//! or f16, sums f32, as the reference lists them: `FLOAT_CONFIG`, `PSEUDO_BFLOAT16_CONFIG` and
//! `PSEUDO_HALF_CONFIG`. The legacy calls are used and not the graph API: they choose among the same kernels
//! for a plain convolution.
//!
//! A cuDNN 9.28 without a GPU accepted the descriptors in all formats and computed the outputs' sizes from
//! them, and its headers have the types of these calls. The rest is not yet tested, since no GPU was
//! available:
//! 1. NHWC filters in f32 (`FMA_MATH` and TF32) have an algorithm in all three passes, and in bf16 and f16 (`TENSOR_OP_MATH`)
//!    the one with tensor cores: `implicit_precomp_gemm` forward and `1` backward. `tests/libraries.rs` prints the choices;
//!    "own kernels" there means that cuDNN offered nothing.
//! 2. Under `FMA_MATH` the answers say `FMA_MATH` too, as PyTorch took for granted as long as it used these calls. If they said
//!    `DEFAULT_MATH`, no algorithm would pass the filter in [`algorithms`](super::algorithms), and fp32 would run on our own
//!    kernels.
//! 3. `beta = 1` works with every algorithm of the backward pass for data (for `Write::Add`). One that fails
//!    is replaced by the next, and at last by our own kernels.
//! 4. The calls can be captured in a graph after a first run. None of them allocates or synchronizes then.
//!    One that can't be captured is replaced in the same way.
//! 5. The algorithm that is faster alone, on the same operands again and again, is faster in a step too.
//! 6. Operands aligned to 16 bytes suffice for the kernels with tensor cores.
//! 7. 3 input channels in bf16 do not fall back to something slow (cuDNN pads channels to 8 by itself).
//! 8. The legacy calls reach the kernels of current GPUs: their names in a profile begin with `sm90` on
//!    Hopper. If most begin with `sm80`, the graph API is worth its descriptors.
//! 9. Two convolutions of a captured step may run side by side, each with its own scratch memory, since cuDNN
//!    keeps no state of a call in the handle. If not, results would differ from those under
//!    `TOWERS_CUDA_GRAPH=sequential`.

mod convolutions;
mod handle;
mod numbers;
mod problem;

use super::algorithms::{Algorithms, Choice, Key, Pass, Times};
use super::contest;
use super::own;
use super::store::Store;
use crate::driver::{Driver, Ptr};
use crate::gpus::Device;
use crate::libraries::{CUDNN, driver_version};
use crate::lock::lock;
use crate::number;
use crate::version::Version;
use crate::{Cuda, Options, cache};
use convolutions::{Beside, Convolutions};
use handle::{Failure, Handle};
use problem::{Operands, Problem, Scratch};
use program::{Conv2d, Error, Precision, Result, Shape, Write};
use std::sync::{Arc, Mutex};

/// The most scratch memory of an algorithm. More would rarely save time, and limits the batch size.
const MOST_SCRATCH: usize = 256 << 20;

/// cuDNN on one device and stream.
pub(crate) struct Cudnn {
    precision: Precision,
    version: Version,
    state: Mutex<State>,
}

/// The state behind the lock.
struct State {
    convolutions: Convolutions,
    algorithms: Algorithms,
}

impl Cudnn {
    /// cuDNN, if it is installed and works, or the reason.
    pub(crate) fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Cudnn, String> {
        let version = CUDNN.find().map_err(|error| error.to_string())?.version;
        check_cuda(version, runtime_version(), driver_version())?;
        driver.make_current().map_err(|error| error.to_string())?;
        let failed = |failure: Failure| format!("cuDNN is installed, but does not start: {failure}");
        let handle = Handle::new(Arc::clone(&driver)).map_err(failed)?;
        // GPUs of one kind share the measurements.
        let model = Device::find(options.gpu).map_or_else(|_| driver.name(), |device| device.name());
        let (library, own) = (format!("cuDNN {version}"), contest::own_version());
        let store = cache::folder().map(|folder| Store::new(&folder, &library, &own, &model));
        let convolutions = Convolutions::new(options.precision, driver, handle);
        let algorithms = Algorithms::new(options.deterministic, MOST_SCRATCH, store);
        let state = Mutex::new(State { convolutions, algorithms });
        Ok(Cudnn { precision: options.precision, version, state })
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
        let State { convolutions, algorithms } = &mut *state;
        let mut library = Beside { cuda, convolutions };
        for &pass in passes.iter().filter(|&&pass| !own::is_ours(cuda, conv, pass, x)) {
            let choice = algorithms.prepare(&mut library, &self.key(pass, conv, x))?;
            if let Choice::Library { workspace, .. } = choice {
                most = most.max(workspace);
            }
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
        let State { convolutions, algorithms } = &mut *state;
        let beta = if write == Write::Add { 1.0 } else { 0.0 };
        loop {
            let choice = algorithms.choice(&mut Beside { cuda, convolutions }, &key, cuda.is_capturing())?;
            let (algorithm, bytes) = match choice {
                Some(Choice::Library { algorithm, workspace, .. }) => (algorithm, workspace),
                Some(Choice::Own { .. }) => return Ok(false),
                None => {
                    let message =
                        format!("a convolution must run once before it is captured, but this did not: {key}");
                    return Err(cuda.error(message));
                }
            };
            let scratch = match cuda.engine_scratch(bytes) {
                Ok(ptr) => Scratch { ptr, bytes },
                // An unplanned batch size may need more than was reserved, when all other memory is in use.
                Err(Error::OutOfMemory { .. }) => {
                    algorithms.refuse(&key);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let operands = Operands { x, w, y };
            // SAFETY: the caller's operands have the shapes of `conv` and `shape`, without gaps, in the device's format.
            let mut run = || unsafe { convolutions.run(&key, algorithm, operands, scratch, beta) };
            let failed = |failure: Failure| (failure.fault(), failure.to_string());
            let Err((fault, what)) = cuda.ask_library(|| run().map_err(failed))? else { return Ok(true) };
            algorithms.fail(&key, algorithm);
            let name = numbers::name(pass, algorithm);
            cuda.drop_algorithm(fault, write, format!("{what}, for {key} by cuDNN's algorithm {name}"))?;
        }
    }

    /// The version, then the choices, a line each.
    pub(crate) fn describe(&self) -> Vec<String> {
        let choices = lock(&self.state).algorithms.choices();
        [format!("cuDNN {}", self.version)].into_iter().chain(choices.into_iter().map(line)).collect()
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

/// A choice, with the times that decided.
fn line((key, choice): (Key, Choice)) -> String {
    match choice {
        Choice::Own { times: Times { library: Some(library), own: Some(own) } } => {
            format!("{key}: own kernels, {own:.4} ms; cuDNN's best {library:.4} ms")
        }
        Choice::Own { .. } => format!("{key}: own kernels"),
        Choice::Library { algorithm, workspace, times: Times { library, own } } => {
            let name = numbers::name(key.pass, algorithm);
            let time = library.map_or("not measured".into(), |time| format!("{time:.4} ms"));
            let beside = own.map_or(String::new(), |time| format!("; own kernels {time:.4} ms"));
            format!("{key}: {name}, {:?}, {workspace} bytes, {time}{beside}", algorithm.math)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::algorithms::{Algorithm, Math};
    use program::Pad;

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

    #[test]
    fn lines_say_both_times() {
        let conv = Conv2d { inputs: 3, outputs: 8, kernel: [3; 2], stride: [1; 2], pad: Pad::VALID };
        let key = Key { pass: Pass::Forward, precision: Precision::Bf16, conv, x: Shape::new(64, 32, 32, 3) };
        let said = |choice| line((key, choice)).split_once(": ").map(|(_, said)| said.to_owned()).unwrap();
        let times = |library, own| Times { library, own };
        let own = |times| said(Choice::Own { times });
        assert_eq!(own(Times::default()), "own kernels");
        assert_eq!(own(times(Some(0.021), Some(0.0123))), "own kernels, 0.0123 ms; cuDNN's best 0.0210 ms");
        let algorithm = Algorithm { number: 1, math: Math::TensorOp };
        let library = |times| said(Choice::Library { algorithm, workspace: 16, times });
        let name = "implicit_precomp_gemm, TensorOp, 16 bytes";
        assert_eq!(library(Times::default()), format!("{name}, not measured"));
        assert_eq!(library(times(Some(0.021), None)), format!("{name}, 0.0210 ms"));
        assert_eq!(
            library(times(Some(0.01), Some(0.02))),
            format!("{name}, 0.0100 ms; own kernels 0.0200 ms")
        );
    }
}
