use crate::options::batch_size;
use crate::subject::model;
use crate::{BenchMode, BenchOptions, Error, Result};
use towers_config::{Config, pipeline_cuts};
use towers_layers::{Mode, Work};
use towers_models::Model;

/// The programs that the CPU runs for a recipe, in print: one for each stage, as the first of its replicas. Each has its steps, with their
/// costs and where their tensors lie.
///
/// Where no `split_at` says it, the network is cut so that all stages have about as many multiply-adds. A run cuts it by the clock.
///
/// # Errors
/// For a configuration that makes no sense.
pub fn programs(config: &Config, options: &BenchOptions) -> Result<Vec<String>> {
    config.check()?;
    let (model, batch) = (model(config)?, batch_size(config, options));
    let cuts = pipeline_cuts(config.stages(), &config.placement.devices.split_at, &model, |piece| {
        Ok::<_, Error>(cost(piece))
    })?;
    let stages = model.split(&cuts).map_err(towers_config::Error::Cut)?;
    let replicas = config.placement.devices.replicas;
    let across = (config.training.sync_batch_norm && replicas > 1).then_some([0, replicas]);
    let text = |stage: &Model| {
        let mode = match options.mode {
            BenchMode::Infer => Mode::Inference,
            BenchMode::Train => Mode::Training,
        };
        let placed = stage.graph().executable(stage.logits(), batch, mode, true, across)?;
        Ok(placed.to_string())
    };
    stages.iter().map(text).collect()
}

/// Multiply-adds of a piece of a network.
fn cost(piece: &Model) -> u64 {
    let both = |work: &Work| work.multiply_adds + work.backward_multiply_adds;
    piece.graph().work().iter().map(both).sum::<usize>() as u64
}
