//! Operands as slices, once their places are known to lie inside their buffers. Runs serve both backends.

use crate::Buffer;
use tensor_backend::{Error, Result, Span, View, ViewMut};

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
