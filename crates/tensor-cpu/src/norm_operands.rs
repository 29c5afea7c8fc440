//! The runs of parameters and statistics that batch normalization works with, once they are known to fit. They serve both
//! backends.

use crate::operand::{run, run_mut};
use tensor_backend::{BatchNorm, Error, NormSpans, Result, Shape, Span};

/// What a training pass forward reads and leaves, beside the tensors.
pub(crate) struct Train<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    pub(crate) bias: Option<&'a [T]>,
    /// Means, then inverse deviations.
    pub(crate) saved: &'a mut [T],
    /// The samples' share of the running statistics: of the means, then of the variances.
    pub(crate) sums: &'a mut [T],
}

impl<'a, T> Train<'a, T> {
    pub(crate) fn new(
        op: &'static str,
        bn: &BatchNorm,
        [x, y]: [Shape; 2],
        params: &'a [T],
        [gamma, beta]: [Span; 2],
        bias: Option<Span>,
        saved: &'a mut [T],
        grads: &'a mut [T],
        sums: Span,
    ) -> Result<Self> {
        let c = x.c;
        bn.check(op, x, y, &[("gamma", gamma), ("beta", beta)])?;
        bias.map_or(Ok(()), |bias| Error::check_len(op, "the bias", bias, c))?;
        Error::check_len(op, "the sums", sums, 2 * c)?;
        Ok(Train {
            gamma: run(op, "gamma", params, gamma)?,
            beta: run(op, "beta", params, beta)?,
            bias: bias.map(|bias| run(op, "the bias", params, bias)).transpose()?,
            saved: run_mut(op, "the saved statistics", saved, Span::new(0, 2 * c))?,
            sums: run_mut(op, "the sums", grads, sums)?,
        })
    }
}

/// What inference reads, beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Infer<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    pub(crate) mean: &'a [T],
    pub(crate) var: &'a [T],
}

impl<'a, T> Infer<'a, T> {
    pub(crate) fn new(
        op: &'static str,
        bn: &BatchNorm,
        [x, y]: [Shape; 2],
        params: &'a [T],
        running: &'a [T],
        at: NormSpans,
    ) -> Result<Self> {
        bn.check_infer(op, x, y, at)?;
        Ok(Infer {
            gamma: run(op, "gamma", params, at.gamma)?,
            beta: run(op, "beta", params, at.beta)?,
            mean: run(op, "the mean", running, at.mean)?,
            var: run(op, "the variance", running, at.var)?,
        })
    }
}

/// What a backward pass reads, and a forward pass that is repeated, beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    /// Means, then inverse deviations.
    pub(crate) saved: &'a [T],
}

impl<'a, T> Saved<'a, T> {
    pub(crate) fn new(
        op: &'static str,
        bn: &BatchNorm,
        [x, y]: [Shape; 2],
        params: &'a [T],
        [gamma, beta]: [Span; 2],
        saved: &'a [T],
    ) -> Result<Self> {
        bn.check(op, x, y, &[("gamma", gamma), ("beta", beta)])?;
        Ok(Saved {
            gamma: run(op, "gamma", params, gamma)?,
            beta: run(op, "beta", params, beta)?,
            saved: run(op, "the saved statistics", saved, Span::new(0, 2 * x.c))?,
        })
    }

    /// `results` are the runs of gradients that a half of the backward pass reads or writes.
    pub(crate) fn for_gradients(
        op: &'static str,
        bn: &BatchNorm,
        [x, dy]: [Shape; 2],
        params: &'a [T],
        [gamma, beta]: [Span; 2],
        saved: &'a [T],
        [dgamma, dbeta]: [Span; 2],
    ) -> Result<Self> {
        let spans = [("gamma", gamma), ("beta", beta), ("dgamma", dgamma), ("dbeta", dbeta)];
        bn.check(op, x, x, &spans)?;
        Error::check_shape(op, "dy", dy, x)?;
        Saved::new(op, bn, [x; 2], params, [gamma, beta], saved)
    }
}

/// The statistics of all `replicas`, see [`BatchNorm::stats_len`].
pub(crate) fn stats<'a, T>(op: &'static str, stats: &'a [T], replicas: usize, c: usize) -> Result<&'a [T]> {
    let len = replicas.saturating_mul(BatchNorm::stats_len(c));
    run(op, "the replicas' statistics", stats, Span::new(0, len))
}

/// Where a replica leaves its statistics.
pub(crate) fn own_stats<'a, T>(
    op: &'static str,
    stats: &'a mut [T],
    at: Span,
    c: usize,
) -> Result<&'a mut [T]> {
    Error::check_len(op, "the statistics", at, BatchNorm::stats_len(c))?;
    run_mut(op, "the statistics", stats, at)
}
