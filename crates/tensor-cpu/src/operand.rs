//! Operands as slices, once their places are known to lie inside their buffers. Runs serve both backends.

use crate::Buffer;
use crate::element::Element;
use core::any::Any;
use core::ops::{AddAssign, DerefMut};
use program::{
    Adam, Error, Moments, OptimizerStep, ParamRun, Result, Rmsprop, Sgd, Span, Storage, View, ViewMut,
    WeightDecay,
};

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

/// What an optimizer remembers of parameters, which has a name: arenas that are laid out as theirs.
type Memory<'a, T, const N: usize> = [(&'static str, &'a mut [T]); N];

/// How a step moves a run.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub lr: f32,
    pub weight_decay: WeightDecay,
}

/// The rules of the optimizers, each on one run. The optimizer's state may be empty.
pub(crate) trait Rules<T> {
    fn sgd(&self, rule: &Sgd, rate: Rate, params: &mut [T], grads: &[T], velocity: [&mut [T]; 1]);
    fn rmsprop(&self, rule: &Rmsprop, rate: Rate, params: &mut [T], grads: &[T], mean_square: [&mut [T]; 1]);
    /// The step after `taken` ones; `moments` are the mean and the mean square.
    fn adam(&self, rule: &Adam, rate: Rate, taken: T, params: &mut [T], grads: &[T], moments: [&mut [T]; 2]);
}

/// See `Backend::optimizer_step`.
pub(crate) fn optimizer_step<T: Copy + AddAssign + From<u8>, B: Any + DerefMut<Target = [T]>>(
    rules: &impl Rules<T>,
    step: OptimizerStep,
    lr: f32,
    params: &mut Storage,
    grads: &Storage,
    runs: &[ParamRun],
) -> Result<()> {
    let (params, grads) = (arena::<T, B>(params)?, grads.on::<B>("optimizer_step")?);
    match step {
        OptimizerStep::Sgd(rule, velocity) => {
            let (velocity, remembers) = ([("the velocity", arena::<T, B>(velocity)?)], rule.momentum != 0.0);
            for_runs(
                "sgd_step",
                lr,
                params,
                grads,
                velocity,
                runs,
                remembers,
                |rate, params, grads, velocity| {
                    rules.sgd(&rule, rate, params, grads, velocity);
                },
            )
        }
        OptimizerStep::Rmsprop(rule, squares) => {
            let squares = [("the mean squares", arena::<T, B>(squares)?)];
            for_runs(
                "rmsprop_step",
                lr,
                params,
                grads,
                squares,
                runs,
                true,
                |rate, params, grads, squares| {
                    rules.rmsprop(&rule, rate, params, grads, squares);
                },
            )
        }
        OptimizerStep::Adam(rule, Moments { mean, mean_square, steps }) => {
            let op = "adam_step";
            let moments =
                [("the means", arena::<T, B>(mean)?), ("the mean squares", arena::<T, B>(mean_square)?)];
            let steps = run_mut(op, "the number of steps", arena::<T, B>(steps)?, Span::new(0, 1))?;
            for_runs(op, lr, params, grads, moments, runs, true, |rate, params, grads, moments| {
                rules.adam(&rule, rate, steps[0], params, grads, moments);
            })?;
            steps[0] += T::from(u8::from(runs.iter().any(|run| run.at.len > 0)));
            Ok(())
        }
    }
}

fn arena<T, B: Any + DerefMut<Target = [T]>>(data: &mut Storage) -> Result<&mut [T]> {
    Ok(data.on_mut::<B>("optimizer_step")?)
}

/// Calls `step` with the slices of each of the runs, without `memory` if the step does not use it.
fn for_runs<T, const N: usize>(
    op: &'static str,
    lr: f32,
    params: &mut [T],
    grads: &[T],
    mut memory: Memory<T, N>,
    runs: &[ParamRun],
    remembers: bool,
    mut step: impl FnMut(Rate, &mut [T], &[T], [&mut [T]; N]),
) -> Result<()> {
    for &ParamRun { at, lr_multiplier, weight_decay } in runs {
        let (params, grads) =
            (run_mut(op, "the parameters", params, at)?, run(op, "the gradients", grads, at)?);
        let remembered = if remembers { at } else { Span::new(0, 0) };
        memory.iter().try_for_each(|(what, memory)| remembered.check(op, what, memory.len()))?;
        let rate = Rate { lr: lr * lr_multiplier, weight_decay };
        step(rate, params, grads, memory.each_mut().map(|(_, memory)| &mut memory[remembered.range()]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Cpu;
    use crate::simd::Level;
    use program::{Backend, Layout, Result, Shape, Span, View, ViewMut, Write};

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
