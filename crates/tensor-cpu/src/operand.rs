//! Operands as slices, once their places are known to lie inside their buffers. Runs serve both backends.

use crate::Buffer;
use crate::element::Element;
use core::any::Any;
use core::ops::{AddAssign, DerefMut};
use towers_optim::UpdateRule;
use towers_program::{Error, GradNorms, ParamRun, Result, Span, Storage, View, ViewMut};

/// The tensor as a slice, once its layout is known to fit, and its numbers to be of this type.
pub(crate) fn read<'a, E: Element>(
    op: &'static str,
    what: &'static str,
    x: View<'a, Buffer>,
) -> Result<View<'a, [E]>> {
    x.layout.check(op, what, x.data.len())?;
    x.try_map(|data| numbers(op, what, data))
}

/// The same, to write.
pub(crate) fn write<'a, E: Element>(
    op: &'static str,
    what: &'static str,
    y: ViewMut<'a, Buffer>,
) -> Result<ViewMut<'a, [E]>> {
    y.layout.check(op, what, y.data.len())?;
    y.try_map(|data| numbers_mut(op, what, data))
}

/// A run of a buffer, whose numbers must be of this type.
pub(crate) fn run_of<'a, E: Element>(
    op: &'static str,
    what: &'static str,
    data: &'a Buffer,
    at: Span,
) -> Result<&'a [E]> {
    run(op, what, numbers(op, what, data)?, at)
}

/// The same, to write.
pub(crate) fn run_of_mut<'a, E: Element>(
    op: &'static str,
    what: &'static str,
    data: &'a mut Buffer,
    at: Span,
) -> Result<&'a mut [E]> {
    run_mut(op, what, numbers_mut(op, what, data)?, at)
}

fn numbers<'a, E: Element>(op: &'static str, what: &'static str, data: &'a Buffer) -> Result<&'a [E]> {
    data.numbers().ok_or_else(|| other_format::<E>(op, what, data))
}

fn numbers_mut<'a, E: Element>(
    op: &'static str,
    what: &'static str,
    data: &'a mut Buffer,
) -> Result<&'a mut [E]> {
    let other = other_format::<E>(op, what, data);
    data.numbers_mut().ok_or(other)
}

fn other_format<E: Element>(op: &'static str, what: &'static str, data: &Buffer) -> Error {
    let (value, accepted) = (data.format().name(), E::FORMAT.name());
    Error::Option { op, what, value, accepted }
}

/// Code with some tensors to read and, behind an arrow, to write, once their layouts are known to fit and their numbers to be of
/// one type; each has a name for errors. It is compiled for each type, and a success.
macro_rules! tensors {
    ($op:expr, $x:ident: $what:literal $(, $more:ident: $of:literal)* $(=> $($y:ident: $to:literal),+)?; $code:expr) => {
        $crate::element::typed!($x.data, |E| {
            let $x = $crate::operand::read::<E>($op, $what, $x)?;
            $(let $more = $crate::operand::read::<E>($op, $of, $more)?;)*
            $($(let $y = $crate::operand::write::<E>($op, $to, $y)?;)+)?
            $code;
            Ok(())
        })
    };
}
pub(crate) use tensors;

/// Refuses an output of another shape than the input's.
pub(crate) fn alike(op: &'static str, x: View<Buffer>, y: &ViewMut<Buffer>) -> Result<()> {
    Error::check_shape(op, "the output", y.layout.shape, x.layout.shape)
}

/// A run of an arena.
pub(crate) fn run<'a, T>(op: &'static str, what: &'static str, data: &'a [T], at: Span) -> Result<&'a [T]> {
    at.check(op, what, data.len())?;
    Ok(&data[at.range()])
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

/// See `Backend::optimizer_step`. `step` moves one run: it takes the rule with the run's weight decay, the learning rate, the
/// number of the step, from 1, and the shape of a matrix. Then come parameters, gradients and a slice of state for each of the
/// rule's names; other slices are empty.
pub(crate) fn optimizer_step<T, B>(
    rule: &UpdateRule,
    lr: f32,
    params: &mut Storage,
    grads: &Storage,
    state: &mut [&mut Storage],
    runs: &[ParamRun],
    step: impl Fn(UpdateRule, f32, u64, [usize; 2], &mut [T], &[T], [&mut [T]; 2]),
) -> Result<()>
where
    T: Copy + AddAssign + From<u8> + Into<f64>,
    B: Any + DerefMut<Target = [T]>,
{
    let op = "optimizer_step";
    let (arenas, counts) = ParamRun::state_in(rule, runs);
    let needed = arenas + usize::from(counts);
    Error::check_len(op, "the state, in arenas,", Span::new(0, state.len().min(needed)), needed)?;
    let (params, grads) = (arena::<T, B>(params)?, grads.on::<B>(op)?);
    let (arenas, counted) = state.split_at_mut(state.len() - usize::from(counts));
    let mut remembered: [&mut [T]; 2] = Default::default();
    for (to, from) in remembered.iter_mut().zip(arenas) {
        *to = arena::<T, B>(from)?;
    }
    let mut counted = match counted.first_mut() {
        Some(counted) => Some(run_mut(op, "the number of steps", arena::<T, B>(counted)?, Span::new(0, 1))?),
        None => None,
    };
    let taken: f64 = counted.as_ref().map_or(0.0, |steps| steps[0].into());
    let mut counts_this = false;
    for run @ &ParamRun { at, lr_multiplier, .. } in runs {
        let rule = run.rule_in(rule);
        counts_this |= rule.counts_steps() && at.len > 0;
        let (params, grads) =
            (run_mut(op, "the parameters", params, at)?, self::run(op, "the gradients", grads, at)?);
        let mut parts: [&mut [T]; 2] = Default::default();
        for ((part, whole), name) in parts.iter_mut().zip(&mut remembered).zip(rule.state()) {
            *part = run_mut(op, name, whole, at)?;
        }
        step(rule, lr * lr_multiplier, taken as u64 + 1, run.shape()?, params, grads, parts);
    }
    if let Some(steps) = &mut counted {
        steps[0] += T::from(u8::from(counts_this));
    }
    Ok(())
}

/// The places of gradients in arenas of `len` numbers, and one norm for each.
pub(crate) fn norms_of<'a, T: 'a, B: Any + DerefMut<Target = [T]>>(
    op: &'static str,
    of: &'a mut GradNorms,
    len: usize,
) -> Result<(&'a [Span], &'a mut [T])> {
    let GradNorms { at, norms, .. } = of;
    at.iter().try_for_each(|at| at.check(op, "a gradient", len))?;
    let norms = run_mut(op, "the norms", norms.on_mut::<B>(op)?, Span::new(0, at.len()))?;
    Ok((at, norms))
}

fn arena<T, B: Any + DerefMut<Target = [T]>>(data: &mut Storage) -> Result<&mut [T]> {
    Ok(data.on_mut::<B>("optimizer_step")?)
}

#[cfg(test)]
mod tests {
    use crate::Cpu;
    use crate::simd::Level;
    use towers_program::{Backend, Layout, Result, Shape, Span, View, ViewMut, Write};

    /// Tensors of two formats don't meet, and none stands in for an arena.
    #[test]
    fn formats_are_not_mixed() -> Result<()> {
        let cpu = Cpu::with_simd(1, Level::Portable).with_portable_bf16();
        let (mut narrow, mut wide) = (cpu.alloc_activations(6)?, cpu.alloc(6)?);
        let at = Layout::contiguous(Shape::vectors(2, 3));
        let refused = cpu.copy(View::new(&narrow, at), ViewMut::new(&mut wide, at), Write::Set).unwrap_err();
        assert_eq!(refused.to_string(), "copy: the output is f32, but must be bf16");
        let refused = cpu.copy(View::new(&wide, at), ViewMut::new(&mut narrow, at), Write::Set).unwrap_err();
        assert_eq!(refused.to_string(), "copy: the output is bf16, but must be f32");
        let first = Span::new(0, 3);
        assert!(cpu.ema_step(0.9, 1.0, &narrow, first, &mut wide, first).is_err());
        assert!(cpu.ema_step(0.9, 1.0, &wide, first, &mut narrow, first).is_err());
        Ok(())
    }
}
