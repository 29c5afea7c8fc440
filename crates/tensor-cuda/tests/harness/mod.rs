//! The emulated GPU, and what its tests share.

use half::{bf16, f16};
use towers_conformance::{Case, Subject};
use towers_philox::{Philox, domain};
use towers_program::{Backend, Precision, Result, Span, Storage};
use towers_tensor_cuda::Cuda;

pub use towers_conformance::numbers;

/// The precisions with different number formats.
pub const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Bf16, Precision::Fp16];

/// The loss scale that half precision begins with.
pub const FIRST_LOSS_SCALE: f32 = 65536.0;

/// The emulated GPU.
pub fn emulated(precision: Precision) -> Cuda {
    Cuda::emulated(precision).expect("a C++ compiler builds the kernels")
}

/// The emulated GPU, to be compared with the f64 reference.
pub fn subject(precision: Precision) -> Subject {
    let loss_scale = if precision == Precision::Fp16 { FIRST_LOSS_SCALE } else { 1.0 };
    let device = (format!("the emulated GPU in {precision}"), emulated(precision));
    Subject::new([device]).precision(precision).loss_scale(loss_scale)
}

/// Asserts that the emulated GPU agrees with the reference in every format.
pub fn agree(case: &impl Case) {
    PRECISIONS.iter().for_each(|&precision| subject(precision).agree(case));
}

/// Asserts that numbers differ by at most `tolerance` times the largest expected magnitude plus `ulp` times
/// the expected magnitude, and that NaNs are NaNs.
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32, ulp: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let magnitude = expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f32, x| m.max(x.abs()));
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (got - expected).abs() <= tolerance * magnitude + ulp * expected.abs();
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(near || same, "{what}[{k}] is {got}, not {expected} (largest {magnitude})");
    }
}

/// The nearest number of the format of activations.
pub fn rounded(precision: Precision, x: f32) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => x,
        Precision::Bf16 => bf16::from_f32(x).to_f32(),
        Precision::Fp16 => f16::from_f32(x).to_f32(),
    }
}

/// Random draws that depend on `name` alone: a failure can be repeated, and none comes by chance.
pub fn draws(name: &str) -> Philox {
    Philox::new(7, domain(name), [0, 0])
}

/// One of several.
pub fn pick<T: Copy>(rng: &mut Philox, all: &[T]) -> T {
    all[rng.below(all.len() as u32) as usize]
}

/// A number from `from` up to `to` itself.
pub fn between(rng: &mut Philox, from: usize, to: usize) -> usize {
    from + rng.below((to - from + 1) as u32) as usize
}

pub fn upload(device: &dyn Backend, values: &[f32]) -> Result<Storage> {
    let mut buffer = device.alloc(values.len())?;
    device.upload(values, &mut buffer, 0)?;
    Ok(buffer)
}

pub fn download(device: &dyn Backend, buffer: &Storage, at: Span) -> Result<Vec<f32>> {
    let mut values = vec![0.0; at.len];
    device.download(buffer, at.offset, &mut values)?;
    Ok(values)
}
