//! Batch normalization over the whole batch of several replicas, each of which has a part of it.

use super::batch_norm::options;
use super::exchange::{AllReduce, Join};
use super::{
    BatchNormInputGradient, BatchNormRecompute, BatchNormWeightGradient, count, operands, per_channel,
};
use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{BatchNorm, Error, Kind, Result, Shape, Step, TensorId};

/// One replica's statistics: of each channel the mean, then of each the sum of squared differences from it, then the number of samples.
/// Reads x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormMoments;

/// Batch normalization with the statistics of all replicas. Reads x, those statistics, gamma, beta, and a bias as
/// [`BatchNormTrain`](super::BatchNormTrain) does; writes the same.
///
/// The statistics are joined in the replicas' order to mean and variance of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncBatchNorm {
    /// The normalization.
    pub bn: BatchNorm,
}

impl Rule for BatchNormMoments {
    fn name(&self) -> &'static str {
        "batch_norm_moments"
    }

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("the input")] }
    }

    fn results(&self) -> &'static [Kind] {
        const { &[Kind::statistic("the statistics")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x] = operands(self.name(), shapes)?;
        Ok(vec![Shape::vectors(1, BatchNorm::stats_len(x.c))])
    }
}

impl Rule for SyncBatchNorm {
    fn name(&self) -> &'static str {
        "sync_batch_norm"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::statistic("the replicas' statistics"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::parameter("the bias").optional(),
            ]
        }
    }

    fn results(&self) -> &'static [Kind] {
        const { &[Kind::batch("the output"), Kind::statistic("the saved statistics"), Kind::gradient("the sums")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let (&[x, stats, gamma, beta, ref bias @ ..], 4..=5) = (shapes, shapes.len()) else {
            return Err(count(self.name(), shapes.len(), 5));
        };
        let replicas = stats.c.div_ceil(BatchNorm::stats_len(x.c)).max(1);
        let expected = Shape::vectors(1, replicas.saturating_mul(BatchNorm::stats_len(x.c)));
        Error::check_shape(self.name(), "the replicas' statistics", stats, expected)?;
        for (what, run) in [("gamma", gamma), ("beta", beta)] {
            per_channel(self.name(), what, run, x.c)?;
        }
        bias.iter().try_for_each(|&bias| per_channel(self.name(), "the bias", bias, x.c))?;
        Ok(vec![x, Shape::vectors(1, 2 * x.c), Shape::vectors(1, 2 * x.c)])
    }
}

impl SyncBatchNorm {
    /// The gradients of gamma and beta remain this replica's: they are added up with all others when the pass is done. What the input's
    /// gradient needs is added up here.
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let &[x, _, gamma, beta, ..] = &step.operands[..] else { return Ok(()) };
        let (saved, dy) = (step.results[1], to.of(step));
        let given = to.of_parameters(&[gamma, beta])?;
        let own = to.push(BatchNormWeightGradient { bn: self.bn }, &[x, gamma, beta, saved, dy], &given)?;
        // All replicas exchange, whether or not they want the input's gradient: they run the same program.
        if to.wants(x) {
            let joined = to.push(Join, &own, &[])?;
            let whole = to.push(AllReduce, &joined, &[])?;
            let op = BatchNormInputGradient { bn: self.bn, shared: true };
            let dx = to.push(op, &[x, gamma, beta, saved, dy, whole[0]], &[])?;
            to.add(x, dx[0])?;
        }
        Ok(())
    }

    pub(crate) fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        let &[x, _, gamma, beta, ..] = &step.operands[..] else { return None };
        Some((BatchNormRecompute { bn: self.bn }.into(), vec![x, gamma, beta, step.results[1]]))
    }
}
