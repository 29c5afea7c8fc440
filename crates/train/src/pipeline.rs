//! A replica as a pipeline: where its network is cut, and the passes of a stage over the micro-batches of a step.

use crate::passes::Passes;
use crate::share::Share;
use crate::speed::Trial;
use crate::{Config, Error, Result};
use layers::{Cut, Draws, Network};
use models::Model;
use parallel::{Exchanges, Pass, Stage, balance, in_flight, one_forward_one_backward};
use program::Device;

/// Passes over a piece of a network that are timed, after one that is not.
const PASSES: usize = 3;

/// The stages of a network: cut where the configuration says, or so that all take about as long on `device` for a micro-batch of
/// up to `batch` samples. Where it is cut changes no result, so no result depends on what a clock says.
pub(crate) fn split(config: &Config, model: Model, device: &Device, batch: usize) -> Result<Vec<Model>> {
    let stages = config.stages();
    if stages == 1 {
        return Ok(vec![model]);
    }
    let cuts = pipeline_cuts(config, &model, |piece| measure(piece, device, batch))?;
    Ok(model.split(&cuts)?)
}

/// Where to cut a network into stages: where the configuration says or, if it doesn't, so that the stage with the greatest `cost` has as
/// little as can be.
///
/// ```
/// let mut config = train::recipe("quick")?;
/// config.placement.devices.pipeline_stages = 2;
/// let model = models::small_cnn(10)?;
/// let cuts = train::pipeline_cuts(&config, &model, |piece| Ok(piece.summary().trainable as u64))?;
/// assert_eq!(model.split(&cuts)?.len(), 2);
/// # Ok::<(), train::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] and [`Error::Cut`] for a place where the network can't be cut; the errors of `cost`.
pub fn pipeline_cuts(
    config: &Config,
    model: &Model,
    cost: impl Fn(&Model) -> Result<u64>,
) -> Result<Vec<Cut>> {
    match chosen(config, model)? {
        Some(cuts) => Ok(cuts),
        None => balanced(model, config.stages(), cost),
    }
}

/// Checks that a network can be cut as the configuration says, before there is any device.
pub(crate) fn check(config: &Config, model: &Model) -> Result<()> {
    let cuts = chosen(config, model)?;
    model.split(&cuts.unwrap_or_default()).map_err(Error::Cut)?;
    Ok(())
}

/// Where the configuration says to cut; `None` where it leaves that to us.
fn chosen(config: &Config, model: &Model) -> Result<Option<Vec<Cut>>> {
    let (stages, layers) = (config.stages(), &config.placement.devices.split_at[..]);
    let most = model.cuts().len() + 1;
    if stages > most {
        let accepted = format!("at most {most} for this network");
        return Err(Error::Option {
            option: "`devices.pipeline_stages`",
            value: stages.to_string(),
            accepted,
        });
    }
    if layers.is_empty() {
        return Ok(None);
    }
    if layers.len() + 1 != stages {
        let accepted =
            format!("{} layers for {stages} stages: the last one of each but the last", stages - 1);
        return Err(Error::Option { option: "`devices.split_at`", value: layers.join(","), accepted });
    }
    let cuts = layers.iter().map(|layer| model.cut_behind(layer)).collect::<layers::Result<_>>();
    Ok(Some(cuts.map_err(Error::Cut)?))
}

/// The last layers of the stages but the last, as `--split-at` takes them.
pub(crate) fn cuts(stages: &[Model]) -> String {
    let before = &stages[..stages.len() - 1];
    let last = |stage: &Model| Some(stage.summary().rows.last()?.name.clone());
    before.iter().filter_map(last).collect::<Vec<_>>().join(",")
}

/// Cuts that leave the busiest stage as little as can be.
fn balanced(model: &Model, stages: usize, cost: impl Fn(&Model) -> Result<u64>) -> Result<Vec<Cut>> {
    let cuts = model.cuts();
    let costs = model.split(&cuts)?.iter().map(cost).collect::<Result<Vec<_>>>()?;
    let begins = balance(&costs, stages).unwrap_or_default();
    Ok(begins.into_iter().map(|piece| cuts[piece - 1].clone()).collect())
}

/// The nanoseconds that a piece of a network takes for a training pass over `batch` samples: the fastest of some.
fn measure(piece: &Model, device: &Device, batch: usize) -> Result<u64> {
    let mut trial = Trial::new(piece, device, batch)?;
    trial.pass()?;
    let passes = (0..PASSES).map(|_| trial.pass()).collect::<Result<Vec<_>>>()?;
    Ok(passes.into_iter().min().unwrap_or_default().as_nanos() as u64)
}

/// How many batches a stage holds at a time.
pub(crate) fn lanes(stage: &Stage, micro_batches: usize) -> usize {
    in_flight(stage.stages(), stage.number(), micro_batches).max(1)
}

/// The training passes of a step: one forward, one backward. Each micro-batch leaves the gradients of this stage in its part.
pub(crate) fn train(
    passes: &mut Passes,
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
    draws: Draws,
    label_smoothing: f32,
) -> Result<()> {
    let micro_batches = passes.shards().own().len();
    let lanes = lanes(stage, micro_batches);
    let global = batch.global();
    for pass in one_forward_one_backward(stage.stages(), stage.number(), micro_batches) {
        let (Pass::Forward(own) | Pass::Backward(own)) = pass;
        network.choose_lane(own % lanes)?;
        let first_sample = passes.first_row(global, own) as u32;
        let draws = Draws { first_sample, ..draws };
        passes.with_part(network, own, |network, shards| {
            if pass == Pass::Forward(own) {
                put_in_place(network, batch, shards, own)?;
            }
            let exchanges = Exchanges::of_stage(stage);
            exchanges.run(|exchange| match pass {
                Pass::Forward(_) => Ok::<_, Error>(network.forward_pass(draws, exchange)?),
                Pass::Backward(_) => Ok(network.backward_pass(draws, label_smoothing, global, exchange)?),
            })?;
            Ok(())
        })?;
    }
    Ok(())
}

/// The passes over a batch of the validation data. The last stage leaves metrics in its parts, the others zeros.
pub(crate) fn evaluate(
    passes: &mut Passes,
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
) -> Result<()> {
    network.choose_lane(0)?;
    for own in 0..passes.shards().own().len() {
        passes.with_part(network, own, |network, shards| {
            put_in_place(network, batch, shards, own)?;
            let exchanges = Exchanges::of_stage(stage);
            exchanges.run(|exchange| Ok::<_, Error>(network.evaluate_pass_with(exchange)?))?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Puts a micro-batch in place: images and labels, or the labels alone of images that other stages have.
fn put_in_place(network: &mut Network, batch: &Share, shards: &parallel::Shards, own: usize) -> Result<()> {
    let piece = batch.piece_of(shards, own);
    piece.send(network)?;
    let device = network.device().clone();
    piece.load(&device, network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(stages: usize, split_at: &[&str]) -> Config {
        let mut config = crate::recipe("quick").unwrap();
        config.placement.devices.pipeline_stages = stages;
        config.placement.devices.split_at = split_at.iter().map(|&layer| layer.to_owned()).collect();
        config
    }

    /// Parameters stand in for time, so that the test knows what is right.
    #[test]
    fn stages_cost_about_as_much() {
        let model = models::minigooglenet(10).unwrap();
        let cost = |piece: &Model| Ok(piece.summary().trainable as u64);
        let whole = cost(&model).unwrap();
        for stages in 1..=4 {
            let pieces = model.split(&balanced(&model, stages, cost).unwrap()).unwrap();
            let most = pieces.iter().map(|piece| cost(piece).unwrap()).max().unwrap();
            assert_eq!(pieces.len(), stages);
            assert!(most < whole / stages as u64 * 3 / 2, "{most} of {whole} in {stages}");
        }
    }

    /// Each piece is measured by itself, wherever it lies, and leaves nothing behind: the stages are whole again.
    #[test]
    fn measured_stages_are_the_network() {
        let model = models::small_cnn(10).unwrap();
        let layers = model.summary().rows.len();
        let device = tensor_cpu::device(1);
        assert!(model.split(&model.cuts()).unwrap().iter().all(|p| measure(p, &device, 2).unwrap() > 0));
        let stages = split(&config(2, &[]), model, &device, 2).unwrap();
        assert_eq!(stages.len(), 2);
        assert_eq!(stages.iter().map(|stage| stage.summary().rows.len()).sum::<usize>(), layers + 1);
    }

    #[test]
    fn layers_may_be_named_and_mistakes_are_told() {
        let split = |config| split(&config, models::minigooglenet(10).unwrap(), &tensor_cpu::device(1), 1);
        let stages = split(config(3, &["concatenate_1", "dropout"])).unwrap();
        assert_eq!(cuts(&stages), "concatenate_1,dropout");
        for (stages, layers, says) in [
            (
                2,
                &["concatenate_1", "dropout"][..],
                "`devices.split_at` is concatenate_1,dropout, but must be 1 layers for 2",
            ),
            (2, &["concatenat_1"], "did you mean `concatenate_1`?"),
            (2, &["conv2d_1"], "two tensors cross there"),
            (3, &["dropout", "concatenate_1"], "a stage would have no layers"),
            (40, &[], "`devices.pipeline_stages` is 40, but must be at most 15"),
        ] {
            let error = check(&config(stages, layers), &models::minigooglenet(10).unwrap()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
