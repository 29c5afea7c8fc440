//! The runs of parameters and statistics that batch normalization works with, once they are known to fit. They serve both
//! backends.

use crate::operand::{run, run_mut, runs_mut};
use core::ops::{Deref, DerefMut};
use program::{
    AffineSpans, BatchNorm, Error, NormGrads, NormInfer, NormSaved, NormTrain, Result, Run, RunMut, Shape,
    Span,
};

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
    pub(crate) fn new<B: DerefMut<Target = [T]>>(
        op: &'static str,
        bn: &BatchNorm,
        [x, y]: [Shape; 2],
        norm: NormTrain<'a, B>,
    ) -> Result<Self> {
        let NormTrain { affine: Run { data: params, at: AffineSpans { gamma, beta } }, bias, saved, sums } =
            norm;
        let (RunMut { data: grads, at: sums }, c) = (sums, x.c);
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
    pub(crate) fn new<B: Deref<Target = [T]>>(
        op: &'static str,
        bn: &BatchNorm,
        [x, y]: [Shape; 2],
        norm: NormInfer<'a, B>,
    ) -> Result<Self> {
        let NormInfer { params, running, at } = norm;
        bn.check_infer(op, x, y, at)?;
        Ok(Infer {
            gamma: run(op, "gamma", params, at.affine.gamma)?,
            beta: run(op, "beta", params, at.affine.beta)?,
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
    /// `y` is the output, or its gradient.
    pub(crate) fn new<B: Deref<Target = [T]>>(
        op: &'static str,
        bn: &BatchNorm,
        norm: NormSaved<'a, B>,
        (what, y): (&'static str, Shape),
    ) -> Result<Self> {
        let NormSaved { x, affine: Run { data: params, at: AffineSpans { gamma, beta } }, saved } = norm;
        let x = x.layout.shape;
        bn.check(op, x, x, &[("gamma", gamma), ("beta", beta)])?;
        Error::check_shape(op, what, y, x)?;
        Ok(Saved {
            gamma: run(op, "gamma", params, gamma)?,
            beta: run(op, "beta", params, beta)?,
            saved: run(op, "the saved statistics", saved, Span::new(0, 2 * x.c))?,
        })
    }
}

/// dgamma and dbeta of `c` channels, to write.
pub(crate) fn gradients<'a, T, B: DerefMut<Target = [T]>>(
    op: &'static str,
    grads: RunMut<'a, B, AffineSpans>,
    c: usize,
) -> Result<[&'a mut [T]; 2]> {
    let RunMut { data, at: AffineSpans { gamma, beta } } = grads;
    Error::check_len(op, "dgamma", gamma, c)?;
    Error::check_len(op, "dbeta", beta, c)?;
    runs_mut(op, "dgamma and dbeta", data, gamma, beta)
}

/// dgamma and dbeta of `c` channels over a whole batch.
pub(crate) fn whole<'a, T, B: Deref<Target = [T]>>(
    op: &'static str,
    whole: &NormGrads<'a, B>,
    c: usize,
) -> Result<[&'a [T]; 2]> {
    let Run { data, at: AffineSpans { gamma, beta } } = whole.grads;
    Error::check_len(op, "dgamma", gamma, c)?;
    Error::check_len(op, "dbeta", beta, c)?;
    Ok([run(op, "dgamma", data, gamma)?, run(op, "dbeta", data, beta)?])
}

/// The statistics of all replicas, see [`BatchNorm::stats_len`].
pub(crate) fn stats<'a, T, B: Deref<Target = [T]>>(
    op: &'static str,
    stats: Run<'a, B>,
    c: usize,
) -> Result<&'a [T]> {
    BatchNorm::replicas(op, stats.at, c)?;
    run(op, "the replicas' statistics", stats.data, stats.at)
}

/// Where a replica leaves its statistics.
pub(crate) fn own_stats<'a, T, B: DerefMut<Target = [T]>>(
    op: &'static str,
    stats: RunMut<'a, B>,
    c: usize,
) -> Result<&'a mut [T]> {
    Error::check_len(op, "the statistics", stats.at, BatchNorm::stats_len(c))?;
    run_mut(op, "the statistics", stats.data, stats.at)
}
