//! Batch normalization over the whole batch of several replicas, each of which has a part of it.

use super::batch_norm::options;
use super::exchange::{AllReduce, Join};
use super::{BatchNormInputGradient, BatchNormRecompute, BatchNormWeightGradient, per_channel};
use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{BatchNorm, Error, Result, Shape, Step, TensorId};

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

signatures! {
    BatchNormMoments { x: batch "the input" } -> { stats: statistic "the statistics" }
    SyncBatchNorm {
        x: batch "the input", stats: statistic "the replicas' statistics", gamma: parameter "gamma",
        beta: parameter "beta"; bias: parameter "the bias"
    } -> {
        y: batch "the output", saved: statistic "the saved statistics", sums: gradient "the sums"
    }
}

impl Rule for BatchNormMoments {
    fn name(&self) -> &'static str {
        "batch_norm_moments"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormMoments { x } = self.operands_of(shapes)?;
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

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::SyncBatchNorm { x, stats, gamma, beta, bias } = self.operands_of(shapes)?;
        let replicas = stats.c.div_ceil(BatchNorm::stats_len(x.c)).max(1);
        let expected = Shape::vectors(1, replicas.saturating_mul(BatchNorm::stats_len(x.c)));
        Error::check_shape(self.name(), "the replicas' statistics", stats, expected)?;
        for (what, run) in [("gamma", gamma), ("beta", beta)] {
            per_channel(self.name(), what, run, x.c)?;
        }
        bias.map_or(Ok(()), |bias| per_channel(self.name(), "the bias", bias, x.c))?;
        Ok(vec![x, Shape::vectors(1, 2 * x.c), Shape::vectors(1, 2 * x.c)])
    }

    // The gradients of gamma and beta remain this replica's: they are added up with all others when the pass is done. What the input's
    // gradient needs is added up here.
    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::SyncBatchNorm { x, gamma, beta, .. } = self.operands_of(&step.operands)?;
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

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        let operands::SyncBatchNorm { x, gamma, beta, .. } = self.operands_of(&step.operands).ok()?;
        Some((BatchNormRecompute { bn: self.bn }.into(), vec![x, gamma, beta, step.results[1]]))
    }
}
