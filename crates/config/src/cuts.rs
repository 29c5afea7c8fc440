//! The cuts of a network into pipeline stages.

use crate::{Error, Result};
use towers_layers::Cut;
use towers_models::Model;
use towers_parallel::balance;

/// Cuts a network into `stages` stages, after the layers of `split_at`. If there are none, the greatest
/// `cost` of a stage is as small as possible.
///
/// ```
/// let model = towers_models::small_cnn(10)?;
/// let cuts = towers_config::pipeline_cuts(2, &[], &model, |piece| Ok::<_, towers_config::Error>(piece.summary().trainable as u64))?;
/// assert_eq!(model.split(&cuts)?.len(), 2);
/// # Ok::<(), towers_config::Error>(())
/// ```
///
/// # Errors
/// [`Error::Option`] and [`Error::Cut`] for a place where the network can't be cut; the errors of `cost`.
pub fn pipeline_cuts<E: From<Error>>(
    stages: usize,
    split_at: &[String],
    model: &Model,
    cost: impl Fn(&Model) -> Result<u64, E>,
) -> Result<Vec<Cut>, E> {
    match chosen(stages, split_at, model)? {
        Some(cuts) => Ok(cuts),
        None => balanced(model, stages, cost),
    }
}

/// Checks that a network can be cut into this many stages, after the layers of `split_at` if there are any.
pub(crate) fn check_cuts(stages: usize, split_at: &[String], model: &Model) -> Result<()> {
    let cuts = chosen(stages, split_at, model)?;
    model.split(&cuts.unwrap_or_default()).map_err(Error::Cut)?;
    Ok(())
}

/// The cuts after the layers of `split_at`; `None` if there are none.
fn chosen(stages: usize, layers: &[String], model: &Model) -> Result<Option<Vec<Cut>>> {
    let most = model.cuts().len() + 1;
    if stages > most {
        let accepted = format!("at most {most} for this network");
        return Err(Error::option("devices.pipeline_stages", stages, accepted));
    }
    if layers.is_empty() {
        return Ok(None);
    }
    if layers.len() + 1 != stages {
        let accepted =
            format!("{} layers for {stages} stages: the last one of each but the last", stages - 1);
        return Err(Error::option("devices.split_at", layers.join(","), accepted));
    }
    let cuts = layers.iter().map(|layer| model.cut_behind(layer)).collect::<towers_layers::Result<_>>();
    Ok(Some(cuts.map_err(Error::Cut)?))
}

/// The last layer of each stage except the last, in the form of `--split-at`.
pub fn cut_names(stages: &[Model]) -> String {
    let before = &stages[..stages.len() - 1];
    let last = |stage: &Model| Some(stage.summary().rows.last()?.name.clone());
    before.iter().filter_map(last).collect::<Vec<_>>().join(",")
}

/// Cuts with the least cost of the most expensive stage.
fn balanced<E: From<Error>>(
    model: &Model,
    stages: usize,
    cost: impl Fn(&Model) -> Result<u64, E>,
) -> Result<Vec<Cut>, E> {
    let cuts = model.cuts();
    let pieces = model.split(&cuts).map_err(Error::from)?;
    let costs = pieces.iter().map(cost).collect::<Result<Vec<_>, E>>()?;
    let begins = balance(&costs, stages).unwrap_or_default();
    Ok(begins.into_iter().map(|piece| cuts[piece - 1].clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// The cost is the number of parameters, so that the result is known.
    #[test]
    fn stages_cost_about_as_much() {
        let model = towers_models::minigooglenet(10).unwrap();
        let cost = |piece: &Model| Ok::<_, Error>(piece.summary().trainable as u64);
        let whole = cost(&model).unwrap();
        for stages in 1..=4 {
            let pieces = model.split(&balanced(&model, stages, cost).unwrap()).unwrap();
            let most = pieces.iter().map(|piece| cost(piece).unwrap()).max().unwrap();
            assert_eq!(pieces.len(), stages);
            assert!(most < whole / stages as u64 * 3 / 2, "{most} of {whole} in {stages}");
        }
    }

    #[test]
    fn layers_may_be_named_and_mistakes_are_told() {
        let model = towers_models::minigooglenet(10).unwrap();
        let cuts = chosen(3, &layers(&["concatenate_1", "dropout"]), &model).unwrap().unwrap();
        assert_eq!(cut_names(&model.split(&cuts).unwrap()), "concatenate_1,dropout");
        for (stages, split_at, says) in [
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
            let error = check_cuts(stages, &layers(split_at), &model).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
