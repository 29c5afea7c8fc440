//! Every op of [`Cuda`] against the f64 reference: on a GPU where there is one, and with the feature `emulation` also on
//! the emulated one.

use std::env::var_os;
use std::sync::{LazyLock, Mutex, MutexGuard, Once, PoisonError};
use towers_conformance::Subject;
use towers_program::{Backend, Precision};
use towers_tensor_cuda::{Cuda, Options};

/// A device that the tests of a format share: to open one takes long, and only one thread may use it at a time.
type Shared = LazyLock<Mutex<Subject>>;

fn lock(shared: &'static Shared) -> MutexGuard<'static, Subject> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The factor on gradients that half precision begins with.
const LOSS_SCALE: f32 = 65536.0;

fn subject(cuda: Cuda) -> Subject {
    let precision = cuda.options().precision;
    let loss_scale = if precision == Precision::Fp16 { LOSS_SCALE } else { 1.0 };
    let device = (format!("{} in {precision}", cuda.name()), cuda);
    Subject::new([device]).precision(precision).loss_scale(loss_scale)
}

/// The first GPU; without one none, saying why, or a failure if `TOWERS_REQUIRE_CUDA` is 1.
fn gpu(precision: Precision) -> Subject {
    static SAID: Once = Once::new();
    match Cuda::new(Options { precision, ..Options::default() }) {
        Ok(cuda) => subject(cuda),
        Err(why) => {
            let required = var_os("TOWERS_REQUIRE_CUDA").is_some_and(|value| value == "1");
            assert!(!required, "cuda is required, but {why}");
            SAID.call_once(|| println!("SKIPPED: cuda: {why}"));
            Subject::absent()
        }
    }
}

/// The emulated GPU; where there is none, which is said, no device.
#[cfg(feature = "emulation")]
fn emulated(precision: Precision) -> Subject {
    static SAID: Once = Once::new();
    match Cuda::emulated(precision) {
        Ok(cuda) => subject(cuda).slow(),
        Err(why) => {
            assert!(why.to_string().contains("the emulation needs"), "{why}");
            SAID.call_once(|| println!("SKIPPED: emulated cuda: {why}"));
            Subject::absent()
        }
    }
}

/// A module with the whole suite on one device.
macro_rules! on {
    ($name:ident: $subject:expr) => {
        mod $name {
            use super::*;

            static SUBJECT: Shared = LazyLock::new(|| Mutex::new($subject));

            towers_conformance::suite!(*lock(&SUBJECT));
        }
    };
}

on!(gpu_fp32: gpu(Precision::Fp32));
on!(gpu_tf32: gpu(Precision::Tf32));
on!(gpu_bf16: gpu(Precision::Bf16));
on!(gpu_fp16: gpu(Precision::Fp16));

#[cfg(feature = "emulation")]
on!(emulated_fp32: emulated(Precision::Fp32));
#[cfg(feature = "emulation")]
on!(emulated_bf16: emulated(Precision::Bf16));
#[cfg(feature = "emulation")]
on!(emulated_fp16: emulated(Precision::Fp16));
