//! Operands as slices, once their places are known to lie inside their buffers. Runs serve both backends.

use crate::Buffer;
use tensor_backend::{Error, ParamRun, Result, Shape, SoftmaxXent, Span, View, ViewMut};

/// The tensor as a slice, once its layout is known to fit.
pub(crate) fn read<'a>(op: &'static str, what: &'static str, x: View<'a, Buffer>) -> Result<View<'a, [f32]>> {
    x.layout.check(op, what, x.data.len())?;
    Ok(View::new(x.data, x.layout))
}

/// The tensor as a slice to write, once its layout is known to fit.
pub(crate) fn write<'a>(
    op: &'static str,
    what: &'static str,
    y: ViewMut<'a, Buffer>,
) -> Result<ViewMut<'a, [f32]>> {
    y.layout.check(op, what, y.data.len())?;
    Ok(ViewMut::new(y.data, y.layout))
}

/// What an op reads and what it writes.
type Pair<'a> = (View<'a, [f32]>, ViewMut<'a, [f32]>);

/// Both tensors as slices, once they are known to have one shape.
pub(crate) fn pair<'a>(op: &'static str, x: View<'a, Buffer>, y: ViewMut<'a, Buffer>) -> Result<Pair<'a>> {
    Error::check_shape(op, "the output", y.layout.shape, x.layout.shape)?;
    Ok((read(op, "the input", x)?, write(op, "the output", y)?))
}

/// A run of an arena.
pub(crate) fn run<'a, T>(op: &'static str, what: &'static str, data: &'a [T], at: Span) -> Result<&'a [T]> {
    at.check(op, what, data.len())?;
    Ok(&data[at.range()])
}

/// The weights of a layer and its bias, if it has one.
pub(crate) fn weights<'a, T>(
    op: &'static str,
    params: &'a [T],
    w: Span,
    b: Option<Span>,
) -> Result<(&'a [T], Option<&'a [T]>)> {
    let b = b.map(|b| run(op, "the bias", params, b)).transpose()?;
    Ok((run(op, "the weights", params, w)?, b))
}

/// A run of an arena, to write.
pub(crate) fn run_mut<'a, T>(
    op: &'static str,
    what: &'static str,
    data: &'a mut [T],
    at: Span,
) -> Result<&'a mut [T]> {
    at.check(op, what, data.len())?;
    Ok(&mut data[at.range()])
}

/// Two runs of one arena, to write: a gradient of weights and one of biases.
pub(crate) fn runs_mut<'a, T>(
    op: &'static str,
    what: &'static str,
    data: &'a mut [T],
    a: Span,
    b: Span,
) -> Result<(&'a mut [T], &'a mut [T])> {
    a.check(op, what, data.len())?;
    b.check(op, what, data.len())?;
    data.get_disjoint_mut([a.range(), b.range()]).map(|[a, b]| (a, b)).map_err(|_| Error::Value {
        op,
        what: "the start of a run of gradients",
        value: b.offset as f64,
        accepted: "outside of the other run",
    })
}

/// What an optimizer steps over: parameters, gradients, and what it remembers of them, of which there may be nothing.
pub(crate) type Stepped<'a, T> = (&'a mut [T], &'a [T], &'a mut [T]);

/// The same run of all three arenas; of `memory`, which has a name, only where the step looks at it.
fn stepped<'a, T>(
    op: &'static str,
    params: &'a mut [T],
    grads: &'a [T],
    (what, memory): (&'static str, &'a mut [T]),
    at: Span,
    remembers: bool,
) -> Result<Stepped<'a, T>> {
    let (params, grads) = (run_mut(op, "the parameters", params, at)?, run(op, "the gradients", grads, at)?);
    let at = if remembers { at } else { Span::new(0, 0) };
    Ok((params, grads, run_mut(op, what, memory, at)?))
}

/// Calls `step` with what lies in each of the runs.
pub(crate) fn for_runs<T>(
    op: &'static str,
    params: &mut [T],
    grads: &[T],
    (what, memory): (&'static str, &mut [T]),
    runs: &[ParamRun],
    remembers: bool,
    mut step: impl FnMut(&ParamRun, &mut [T], &[T], &mut [T]),
) -> Result<()> {
    for run in runs {
        let (params, grads, memory) = stepped(op, params, grads, (what, memory), run.at, remembers)?;
        step(run, params, grads, memory);
    }
    Ok(())
}

/// The labels of a batch of logits of this shape, once the loss is known to make sense.
pub(crate) fn labels<'a>(
    op: &'static str,
    xent: &SoftmaxXent,
    logits: Shape,
    dlogits: Option<Shape>,
    labels: &'a [u32],
    metrics: Span,
) -> Result<&'a [u32]> {
    xent.check(op)?;
    Error::check_shape(op, "the logits", logits, logits.flatten())?;
    dlogits.map_or(Ok(()), |dlogits| Error::check_shape(op, "dlogits", dlogits, logits))?;
    Error::check_len(op, "the metrics", metrics, 2)?;
    run(op, "the labels", labels, Span::new(0, xent.words(logits.n)))
}
