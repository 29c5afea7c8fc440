//! Splits a network into pipeline stages that take about the same time.

use crate::Result;
use crate::run::speed::Trial;
use towers_config::pipeline_cuts;
use towers_models::Model;
use towers_program::Device;

/// The timed passes over a piece of a network, after one warm-up pass.
const PASSES: usize = 3;

/// The stages of a network, cut after the layers of `split_at`. If there are none, all stages take about the same time
/// on `device` for a micro-batch of up to `batch` samples. The cuts change no result, so no result depends on a
/// measured time.
pub(crate) fn split(
    stages: usize,
    split_at: &[String],
    model: Model,
    device: &Device,
    batch: usize,
) -> Result<Vec<Model>> {
    if stages == 1 {
        return Ok(vec![model]);
    }
    let cuts = pipeline_cuts(stages, split_at, &model, |piece| measure(piece, device, batch))?;
    Ok(model.split(&cuts)?)
}

/// The nanoseconds of a training pass of a piece over `batch` samples: the fastest of several.
fn measure(piece: &Model, device: &Device, batch: usize) -> Result<u64> {
    let mut trial = Trial::new(piece, device, batch)?;
    trial.pass()?;
    let passes = (0..PASSES).map(|_| trial.pass()).collect::<Result<Vec<_>>>()?;
    Ok(passes.into_iter().min().unwrap_or_default().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece is measured separately, at any position, without side effects: the stages are the whole
    /// network.
    #[test]
    fn measured_stages_are_the_network() {
        let model = towers_models::small_cnn(10).unwrap();
        let layers = model.summary().rows.len();
        let device = towers_tensor_cpu::device(1);
        assert!(model.split(&model.cuts()).unwrap().iter().all(|p| measure(p, &device, 2).unwrap() > 0));
        let stages = split(2, &[], model, &device, 2).unwrap();
        assert_eq!(stages.len(), 2);
        assert_eq!(stages.iter().map(|stage| stage.summary().rows.len()).sum::<usize>(), layers + 1);
    }
}
