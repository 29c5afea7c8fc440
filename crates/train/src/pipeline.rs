//! A replica as a pipeline: where its network is cut, and the passes of a stage over the micro-batches of a step.

use crate::passes::Passes;
use crate::share::Share;
use crate::{Config, Error, Result};
use layers::{Cut, Draws, Network};
use models::Model;
use parallel::{Pass, Stage, balance, in_flight, one_forward_one_backward};

/// An element that an op reads or writes takes about as long as so many multiply-adds.
const MULTIPLY_ADDS_PER_ELEMENT: usize = 8;

/// The stages of a network: cut where the configuration says, or so that all have about as much to do.
pub(crate) fn split(config: &Config, model: Model) -> Result<Vec<Model>> {
    let stages = config.devices.stages();
    let cuts = match &config.devices.split_at[..] {
        [] if stages == 1 => return Ok(vec![model]),
        [] => balanced(&model, stages)?,
        layers if layers.len() + 1 == stages => layers
            .iter()
            .map(|layer| model.cut_behind(layer))
            .collect::<layers::Result<_>>()
            .map_err(Error::Cut)?,
        layers => {
            let accepted =
                format!("{} layers for {stages} stages: the last one of each but the last", stages - 1);
            return Err(Error::Option { option: "--split-at", value: layers.join(","), accepted });
        }
    };
    model.split(&cuts).map_err(Error::Cut)
}

/// Cuts that leave the busiest stage as little as can be.
fn balanced(model: &Model, stages: usize) -> Result<Vec<Cut>> {
    let cuts = model.cuts();
    let costs: Vec<u64> = model.split(&cuts)?.iter().map(cost).collect();
    let Some(chosen) = balance(&costs, stages) else {
        let accepted = format!("at most {} for this network", cuts.len() + 1);
        return Err(Error::Option { option: "--pipeline-stages", value: stages.to_string(), accepted });
    };
    Ok(chosen.into_iter().map(|piece| cuts[piece - 1].clone()).collect())
}

/// About how long a piece of a network takes for a training pass over a sample, in multiply-adds.
fn cost(piece: &Model) -> u64 {
    let work = piece.graph().work().into_iter().map(|work| {
        // Forward, and backward for the weights and for the input; only the very first layer is spared the latter.
        3 * (work.multiply_adds + MULTIPLY_ADDS_PER_ELEMENT * (work.x.len() + work.y.len()))
    });
    work.sum::<usize>() as u64
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
        passes.with_part(network, own, |network, shards| match pass {
            Pass::Forward(_) => {
                take_input(stage, network, batch, shards, own)?;
                network.forward_pass(draws)?;
                send_output(stage, network)
            }
            Pass::Backward(_) => {
                if stage.is_last() {
                    network.loss_pass(label_smoothing, global)?;
                } else {
                    stage.receive_from_behind(|dy| Ok::<_, Error>(network.set_output_gradient(dy)?))?;
                }
                network.backward_pass(draws)?;
                if stage.is_first() {
                    return Ok(());
                }
                stage.send_back(|dx| Ok::<_, Error>(network.read_input_gradient(dx)?))
            }
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
            take_input(stage, network, batch, shards, own)?;
            if stage.is_last() {
                return Ok(network.evaluate_pass()?);
            }
            network.infer_pass()?;
            send_output(stage, network)
        })?;
    }
    Ok(())
}

/// Puts a micro-batch in place: images and labels, or what the stage before made of them.
fn take_input(
    stage: &Stage,
    network: &mut Network,
    batch: &Share,
    shards: &parallel::Shards,
    own: usize,
) -> Result<()> {
    let piece = batch.piece_of(shards, own);
    if stage.is_first() {
        piece.send(network)?;
        let device = network.device().clone();
        return piece.load(&device, network);
    }
    stage.receive_from_before(|x| Ok::<_, Error>(network.set_input(x, piece.labels())?))
}

fn send_output(stage: &Stage, network: &Network) -> Result<()> {
    if stage.is_last() {
        return Ok(());
    }
    stage.send_on(|y| Ok::<_, Error>(network.read_output(y)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(stages: usize, split_at: &[&str]) -> Config {
        let mut config = crate::recipe("quick").unwrap();
        config.devices.pipeline_stages = stages;
        config.devices.split_at = split_at.iter().map(|&layer| layer.to_owned()).collect();
        config
    }

    #[test]
    fn stages_have_about_as_much_to_do() {
        for stages in 1..=4 {
            let model = models::minigooglenet(10).unwrap();
            let whole = cost(&model);
            let stages = split(&config(stages, &[]), model).unwrap();
            let most = stages.iter().map(cost).max().unwrap();
            assert!(most < whole / stages.len() as u64 * 3 / 2, "{most} of {whole} in {}", stages.len());
        }
    }

    #[test]
    fn layers_may_be_named_and_mistakes_are_told() {
        let stages =
            split(&config(3, &["concatenate_1", "dropout"]), models::minigooglenet(10).unwrap()).unwrap();
        let last = |model: &Model| model.summary().rows.last().unwrap().name.clone();
        assert_eq!(stages.iter().map(last).collect::<Vec<_>>(), ["concatenate_1", "dropout", "dense"]);
        for (stages, layers, says) in [
            (
                2,
                &["concatenate_1", "dropout"][..],
                "--split-at is concatenate_1,dropout, but must be 1 layers for 2",
            ),
            (2, &["concatenat_1"], "did you mean `concatenate_1`?"),
            (2, &["conv2d_1"], "two tensors cross there"),
            (3, &["dropout", "concatenate_1"], "a stage would have no layers"),
            (40, &[], "--pipeline-stages is 40, but must be at most 15"),
        ] {
            let error = split(&config(stages, layers), models::minigooglenet(10).unwrap()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
