//! What to say when a device's memory does not suffice: the batch that would fit.

use crate::{Error, Result};
use layers::Mode;
use models::Model;
use tensor::{Device, Precision, cuda};

/// What a device needs beside activations: its libraries' scratch memory, the data, parameters and what goes with them.
const BESIDE: u64 = 1 << 30;

/// The error of a network that could not be built on `device` for batches of `batch` samples. Where memory was short and
/// the device says how much there is, it names the largest batch that would fit.
pub(crate) fn explain(error: layers::Error, model: &Model, device: &Device, batch: usize) -> Error {
    let short = match &error {
        layers::Error::Tensor(error) => matches!(error, tensor::Error::OutOfMemory { .. }),
        layers::Error::Layer { source, .. } => matches!(**source, tensor::Error::OutOfMemory { .. }),
        _ => false,
    };
    match free_memory(device).filter(|_| short) {
        Some(free) => sentence(model, device.precision(), batch, free).map_or(error.into(), Error::Device),
        None => error.into(),
    }
}

fn free_memory(device: &Device) -> Option<u64> {
    let Device::Cuda(gpu) = device else { return None };
    cuda::gpus().ok()?.get(gpu.options().gpu)?.free_memory()
}

fn sentence(model: &Model, precision: Precision, batch: usize, free: u64) -> Option<String> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let needed = bytes(model, precision, batch).ok()?;
    let advice = match largest_batch(model, precision, batch, free) {
        0 => "not even a batch of 1 would fit; use a smaller network, or --device cpu".to_owned(),
        fits => format!("--batch-size {fits} would fit"),
    };
    Some(format!(
        "a batch of {batch} needs about {:.1} GiB of the GPU's memory, of which {:.1} GiB are free; {advice}",
        gib(needed),
        gib(free)
    ))
}

/// Bytes that a network takes for batches of so many samples, roughly.
fn bytes(model: &Model, precision: Precision, batch: usize) -> Result<u64> {
    // GPUs keep what they have computed.
    let numbers = model.activation_len(batch, Mode::Training, false)? as u64;
    let size = match precision {
        Precision::Fp32 | Precision::Tf32 => 4,
        Precision::Bf16 | Precision::Fp16 => 2,
    };
    Ok(numbers.saturating_mul(size).saturating_add(BESIDE))
}

/// The largest batch below `too_large` that fits; 0 if none does.
fn largest_batch(model: &Model, precision: Precision, too_large: usize, free: u64) -> usize {
    let fits = |batch: &usize| bytes(model, precision, *batch).is_ok_and(|bytes| bytes <= free);
    let (mut low, mut high) = (0, too_large);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(&middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_batch_that_fits_is_named() {
        let model = models::minigooglenet(10).unwrap();
        let free = 4 << 30;
        let fits = largest_batch(&model, Precision::Fp32, 100_000, free);
        assert!(bytes(&model, Precision::Fp32, fits).unwrap() <= free);
        assert!(bytes(&model, Precision::Fp32, fits + 1).unwrap() > free);
        let half = largest_batch(&model, Precision::Bf16, 100_000, free);
        assert!((2 * fits..=2 * fits + 1).contains(&half), "{fits} {half}");
        let said = sentence(&model, Precision::Fp32, 100_000, free).unwrap();
        assert!(said.contains(&format!("--batch-size {fits} would fit")), "{said}");
        let said = sentence(&model, Precision::Fp32, 64, 1 << 20).unwrap();
        assert!(said.contains("not even a batch of 1"), "{said}");
    }
}
