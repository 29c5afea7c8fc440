//! The error for too little memory of a GPU, with a batch size that would fit.

use crate::gpus::free_memory;
use crate::{Error, Result};
use towers_layers::Mode;
use towers_models::Model;
use towers_options::{Message, message};
use towers_program::{Device, Precision};

/// The memory that a device needs besides activations: scratch memory of libraries, the data, parameters and
/// optimizer state.
pub(super) const BESIDE: u64 = 1 << 30;

/// The error of a network that could not be built on `device` for batches of `batch` samples. If memory was
/// short and the device reports its size, the error has the largest batch that would fit.
pub(crate) fn explain(error: towers_layers::Error, model: &Model, device: &Device, batch: usize) -> Error {
    let short = match &error {
        towers_layers::Error::Tensor(error) => matches!(error, towers_program::Error::OutOfMemory { .. }),
        towers_layers::Error::Layer { source, .. } => {
            matches!(**source, towers_program::Error::OutOfMemory { .. })
        }
        _ => false,
    };
    match free_memory(device).filter(|_| short) {
        Some(free) => sentence(model, device.precision(), batch, free).map_or(error.into(), Error::Device),
        None => error.into(),
    }
}

fn sentence(model: &Model, precision: Precision, batch: usize, free: u64) -> Option<Message> {
    let needed = bytes(model, precision, batch).ok()?;
    let advice = match largest_batch(model, precision, batch, free) {
        0 => message!(
            "not even a batch of 1 would fit; use a smaller network, or ",
            ["devices.device"],
            " cpu"
        ),
        fits => message!(["batch_size"], " {fits} would fit"),
    };
    let (needed, free) = (gib(needed), gib(free));
    let short = message!(
        "a batch of {batch} needs about {needed:.1} GiB of the GPU's memory, of which {free:.1} GiB are free; "
    );
    Some(short.and(advice))
}

pub(super) fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

pub(super) fn size_of(precision: Precision) -> u64 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => 4,
        Precision::Bf16 | Precision::Fp16 => 2,
    }
}

/// The approximate bytes of a network for batches of this many samples.
fn bytes(model: &Model, precision: Precision, batch: usize) -> Result<u64> {
    // GPUs keep all activations.
    let numbers = model.activation_len(batch, Mode::Training, false)? as u64;
    Ok(numbers.saturating_mul(size_of(precision)).saturating_add(BESIDE))
}

/// The largest batch below `too_large` that fits; 0 if none does.
fn largest_batch(model: &Model, precision: Precision, too_large: usize, free: u64) -> usize {
    largest(too_large, |batch| bytes(model, precision, *batch).is_ok_and(|bytes| bytes <= free))
}

/// The largest number below `too_large` that fits; 0 if none does.
pub(super) fn largest(too_large: usize, fits: impl Fn(&usize) -> bool) -> usize {
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
        let model = towers_models::minigooglenet(10).unwrap();
        let free = 4 << 30;
        let fits = largest_batch(&model, Precision::Fp32, 100_000, free);
        assert!(bytes(&model, Precision::Fp32, fits).unwrap() <= free);
        assert!(bytes(&model, Precision::Fp32, fits + 1).unwrap() > free);
        let half = largest_batch(&model, Precision::Bf16, 100_000, free);
        assert!((2 * fits..=2 * fits + 1).contains(&half), "{fits} {half}");
        let said = sentence(&model, Precision::Fp32, 100_000, free).unwrap().to_string();
        assert!(said.contains(&format!("`batch_size` {fits} would fit")), "{said}");
        let said = sentence(&model, Precision::Fp32, 64, 1 << 20).unwrap().to_string();
        assert!(said.contains("not even a batch of 1"), "{said}");
    }
}
