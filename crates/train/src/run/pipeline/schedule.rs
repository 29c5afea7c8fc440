//! The passes of a stage over the micro-batches of a step.

use crate::data::{Piece, Share};
use crate::run::passes::Passes;
use crate::run::step::StepOptions;
use crate::{Error, Result};
use towers_layers::{Draws, Network};
use towers_parallel::{Exchanges, Pass, Stage, in_flight, one_forward_one_backward};
use towers_program::Span;

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
    options: &StepOptions,
) -> Result<()> {
    let StepOptions { draws, label_smoothing, global_batch, .. } = *options;
    let micro_batches = passes.shards().own().len();
    let max_in_flight = max_in_flight(stage, micro_batches);
    let all = Span::new(0, network.arena().grads.len());
    for pass in one_forward_one_backward(stage.stages(), stage.number(), micro_batches) {
        let (Pass::Forward(own) | Pass::Backward(own)) = pass;
        network.choose_micro_batch(own % max_in_flight)?;
        let piece = batch.piece_of(passes.shards(), own);
        let draws = Draws { first_sample: piece.first_sample, ..draws };
        let ends = (pass == Pass::Backward(own)).then_some(all);
        passes.with_shard(network, own, ends, |network| {
            if pass == Pass::Forward(own) {
                put_in_place(network, &piece)?;
            }
            let mut exchanges = Exchanges::of_stage(stage);
            let others = Some(&mut exchanges as _);
            let passed = match pass {
                Pass::Forward(_) => network.forward_pass(draws, others),
                Pass::Backward(_) => network.backward_pass(draws, label_smoothing, global_batch, others),
            };
            exchanges.end(passed).map(drop)
        })?;
    }
    Ok(())
}

/// The passes over a batch of the validation data. The last stage leaves metrics, the others zeros. After each pass of
/// the last stage, `ended` may read its results.
pub(crate) fn evaluate(
    passes: &mut Passes,
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
    mut ended: impl FnMut(&mut Network, &Piece<'_>) -> Result<()>,
) -> Result<()> {
    network.choose_micro_batch(0)?;
    let metrics = network.arena().metrics;
    for own in 0..passes.shards().own().len() {
        let piece = batch.piece_of(passes.shards(), own);
        passes.with_shard(network, own, Some(metrics), |network| {
            put_in_place(network, &piece)?;
            let mut exchanges = Exchanges::of_stage(stage);
            let passed = network.evaluate_pass_with(Some(&mut exchanges));
            exchanges.end::<Error>(passed)?;
            if stage.is_last() { ended(network, &piece) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// Loads a micro-batch: images and labels, or only the labels if another stage has the images.
fn put_in_place(network: &mut Network, piece: &Piece<'_>) -> Result<()> {
    piece.send(network)?;
    piece.load(network)
}
