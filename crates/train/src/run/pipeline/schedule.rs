//! The passes of a stage over the micro-batches of a step.

use crate::data::Share;
use crate::run::passes::Passes;
use crate::{Error, Result};
use layers::{Draws, Network};
use parallel::{Exchanges, Pass, Shards, Stage, in_flight, one_forward_one_backward};
use program::Span;

/// The number of micro-batches that a stage holds at a time.
pub(crate) fn max_in_flight(stage: &Stage, micro_batches: usize) -> usize {
    in_flight(stage.stages(), stage.number(), micro_batches).max(1)
}

/// The training passes of a step: one forward, one backward. The gradients of each
/// micro-batch are added to those before.
pub(crate) fn train(
    passes: &mut Passes,
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
    draws: Draws,
    label_smoothing: f32,
) -> Result<()> {
    let micro_batches = passes.shards().own().len();
    let max_in_flight = max_in_flight(stage, micro_batches);
    let (global, all) = (batch.global(), Span::new(0, network.arena().grads.len()));
    for pass in one_forward_one_backward(stage.stages(), stage.number(), micro_batches) {
        let (Pass::Forward(own) | Pass::Backward(own)) = pass;
        network.choose_micro_batch(own % max_in_flight)?;
        let first_sample = passes.first_row(global, own) as u32;
        let draws = Draws { first_sample, ..draws };
        let ends = (pass == Pass::Backward(own)).then_some(all);
        passes.with_shard(network, own, ends, |network, shards| {
            if pass == Pass::Forward(own) {
                put_in_place(network, batch, shards, own)?;
            }
            let exchanges = Exchanges::of_stage(stage);
            exchanges.run(|exchange| match pass {
                Pass::Forward(_) => Ok::<_, Error>(network.forward_pass(draws, Some(exchange))?),
                Pass::Backward(_) => {
                    Ok(network.backward_pass(draws, label_smoothing, global, Some(exchange))?)
                }
            })?;
            Ok(())
        })?;
    }
    Ok(())
}

/// The passes over a batch of the validation data. The last stage leaves metrics, the others zeros.
pub(crate) fn evaluate(
    passes: &mut Passes,
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
) -> Result<()> {
    network.choose_micro_batch(0)?;
    let metrics = network.arena().metrics;
    for own in 0..passes.shards().own().len() {
        passes.with_shard(network, own, Some(metrics), |network, shards| {
            put_in_place(network, batch, shards, own)?;
            let exchanges = Exchanges::of_stage(stage);
            exchanges.run(|exchange| Ok::<_, Error>(network.evaluate_pass_with(Some(exchange))?))?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Loads a micro-batch: images and labels, or only the labels if another stage has the images.
fn put_in_place(network: &mut Network, batch: &Share, shards: &Shards, own: usize) -> Result<()> {
    let piece = batch.piece_of(shards, own);
    piece.send(network)?;
    let device = network.device().clone();
    piece.load(&device, network)
}
