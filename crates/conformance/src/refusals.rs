//! Operands that do not fit are refused by every device as by the reference, with an error that names them, and never a
//! panic. What a program's shapes forbid is refused before a device sees it: the tests of `program` show that.

use crate::operand::{ALONE, Operand};
use crate::{Bench, Ops, Subject};
use towers_optim::{Rmsprop, WeightDecay};
use towers_program::ops::{
    BatchNormInfer, BatchNormTrain, CrossEntropy, LinearForward, LinearWeightGradient,
};
use towers_program::{
    Activation, Arena, Backend, BatchNorm, Error, ImageSet, Layout, Linear, LoadImages, ParamRun, Result,
    Shape, Span, StepArgs, View, ViewMut,
};
use towers_tensor_cpu::Reference;

/// Runs a block on the reference and on every device, with `$device` bound to each.
macro_rules! on_each {
    ($subject:ident, |$device:ident| $body:expr) => {{
        fn check($device: &dyn Backend) -> Result<()> {
            $body
            Ok(())
        }
        check(&Reference).expect("the reference takes what fits");
        for bench in $subject.benches() {
            check(bench.device).expect("the device takes what fits");
        }
    }};
}

/// Asserts that a result is an error of one variant.
macro_rules! refused {
    ($result:expr, $variant:ident { $($fields:tt)* }) => {
        let result = $result;
        assert!(matches!(result, Err(Error::$variant { $($fields)* })), "{} gave {result:?}", stringify!($result));
    };
}

fn at(n: usize, h: usize, w: usize, c: usize) -> Layout {
    Layout::contiguous(Shape::new(n, h, w, c))
}

/// Copies and fills.
pub fn transfers_out_of_bounds(subject: &Subject) {
    on_each!(subject, |d| {
        let (mut a, mut ints) = (d.alloc(4)?, d.alloc_ints(2)?);
        refused!(d.upload(&[0.0; 3], &mut a, 2), OutOfBounds { op: "upload", end: 5, len: 4, .. });
        refused!(d.download(&a, 4, &mut [0.0]), OutOfBounds { op: "download", .. });
        refused!(d.upload_ints(&[0; 3], &mut ints), OutOfBounds { op: "upload_ints", .. });
        refused!(d.fill(1.0, &mut a, Span::new(3, 2)), OutOfBounds { op: "fill", .. });
    });
}

/// Sizes whose products do not fit into a machine word must not wrap around into sizes that fit.
pub fn absurd_sizes(subject: &Subject) {
    const MAX: usize = usize::MAX;
    // Three times this overflows a word by 1.
    const THIRD: usize = MAX / 3 * 2 + 1;
    on_each!(subject, |d| {
        refused!(d.alloc(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        refused!(d.alloc_activations(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        refused!(d.alloc_ints(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        let (x, mut y) = (d.alloc_activations(8)?, d.alloc_activations(8)?);
        assert_eq!(THIRD.wrapping_mul(3), 1);
        for wraps in [at(3, THIRD, 1, 1), at(1 << 32, 1 << 31, 2, 2)] {
            refused!(d.softmax(View::new(&x, wraps), ViewMut::new(&mut y, wraps)), OutOfBounds { .. });
        }
    });
}

/// The tensors of a softmax, and the runs of a running average.
pub fn shapes_and_layouts(subject: &Subject) {
    on_each!(subject, |d| {
        let (x, mut y) = (d.alloc_activations(12)?, d.alloc_activations(12)?);
        let (fits, wide, long) = (at(1, 2, 2, 3), at(1, 2, 3, 2), at(2, 2, 2, 3));
        let mut softmax = |from, to| d.softmax(View::new(&x, from), ViewMut::new(&mut y, to));
        assert!(softmax(fits, fits).is_ok());
        refused!(softmax(fits, wide), Shape { op: "softmax", .. });
        refused!(softmax(long, long), OutOfBounds { op: "softmax", .. });
        refused!(softmax(fits, Layout { stride: 2, ..fits }), NotContiguous { op: "softmax", .. });
        let (running, mut averages) = (d.alloc(4)?, d.alloc(4)?);
        let average = d.ema_step(0.9, 1.0, &running, Span::new(0, 3), &mut averages, Span::new(0, 4));
        refused!(average, Length { op: "ema_step", .. });
    });
}

/// A dense layer, normalizations and a loss: steps with tensors in every arena.
fn every_arena<'a>(bench: &'a Bench<'a>) -> Ops<'a> {
    let (linear, mut ops) = (Linear { inputs: 4, outputs: 3 }, bench.ops(5, ALONE));
    let x = ops.tensor(&Operand::draw("x", Shape::vectors(5, 4), ALONE));
    let [y, z, inferred, dy] = ["y", "z", "inferred", "dy"].map(|name| ops.draw(name, Shape::vectors(5, 3)));
    let w = ops.weights("w", 12);
    let [gamma, beta] = ["gamma", "beta"].map(|name| ops.numbers(Arena::Parameters, name, 3));
    let [mean, variance] = ["mean", "variance"].map(|name| ops.numbers(Arena::Averages, name, 3));
    let saved = ops.numbers(Arena::Statistics, "saved", 6);
    let [sums, metrics, dw] = [6, 2, 12].map(|len| ops.numbers(Arena::Gradients, "grads", len));
    let labels = ops.labels(&[0, 1, 2, 1, 0]);
    let bn = BatchNorm { epsilon: 1e-3, act: Activation::None };
    ops.set(LinearForward { linear, act: Activation::None }, [x, w], [y]);
    ops.set(BatchNormTrain { bn }, [y, gamma, beta], [z, saved, sums]);
    ops.set(BatchNormInfer { bn }, [y, gamma, beta, mean, variance], [inferred]);
    ops.set(CrossEntropy { gradient: true, multi_label: false }, [z, labels], [dy, metrics]);
    ops.set(LinearWeightGradient { linear, bias: false }, [x, dy], [dw]);
    ops
}

/// A program in memory that is too small for it, and on a batch that is too large.
pub fn programs_and_their_memory(subject: &Subject) {
    fn check(bench: &Bench) -> Result<()> {
        let (device, args) = (bench.device, StepArgs::inference(5));
        every_arena(bench).start()?.run(&args)?;
        for arena in Arena::ALL {
            let mut run = every_arena(bench).start()?.run;
            let len = run.executable.len(arena) - 1;
            match arena {
                Arena::Activations => run.activations = device.alloc_activations(len)?,
                Arena::Statistics => run.statistics = device.alloc(len)?,
                Arena::Parameters => run.parameters = device.alloc(len)?,
                Arena::Gradients => run.gradients = device.alloc(len)?,
                Arena::Averages => run.averages = device.alloc(len)?,
                Arena::Labels => run.labels = device.alloc_ints(len)?,
            }
            refused!(run.run_steps(0..5, &args), OutOfBounds { op: "run", .. });
        }
        let mut run = every_arena(bench).start()?.run;
        refused!(run.run_steps(0..5, &StepArgs::inference(6)), OutOfBounds { what: "the batch", .. });
        for label_smoothing in [1.0, -0.5, f32::NAN] {
            refused!(run.run_steps(3..4, &StepArgs { label_smoothing, ..args }), Value { .. });
        }
        Ok(())
    }
    check(&subject.reference()).expect("the reference takes what fits");
    subject.benches().for_each(|bench| check(&bench).expect("the device takes what fits"));
}

/// Arenas that are too short.
pub fn optimizer_arenas(subject: &Subject) {
    on_each!(subject, |d| {
        let (mut params, grads, mut state) = (d.alloc(8)?, d.alloc(8)?, d.alloc(6)?);
        let mut step = |offset, len| {
            let run = ParamRun::new(Span::new(offset, len), WeightDecay::None);
            d.optimizer_step(&Rmsprop::keras2().into(), 0.1, &mut params, &grads, &mut [&mut state], &[run])
        };
        refused!(step(0, 8), OutOfBounds { what: "mean_square", .. });
        refused!(step(5, 4), OutOfBounds { .. });
    });
}

/// A set of images, its table of draws, and the batch.
pub fn image_operands(subject: &Subject) {
    on_each!(subject, |d| {
        let load = LoadImages { height: 2, width: 2, channels: 3, constant: 0.0, scale: 1.0, label: 1 };
        let (mut images, labels) = (d.alloc_bytes(36)?, d.alloc_ints(3)?);
        refused!(d.upload_bytes(&[0; 3], &mut images, 34), OutOfBounds { end: 37, len: 36, .. });
        let draws = d.alloc_ints(4 * load.words())?;
        let (mut x, mut to) = (d.alloc_activations(48)?, d.alloc_ints(4)?);
        let (too_few, mut too_short, planes) = (d.alloc_ints(2)?, d.alloc_ints(1)?, d.alloc(36)?);
        for (labels, to) in [(&too_few, &mut to), (&labels, &mut too_short)] {
            let set = ImageSet { images: &images, labels, planes: &planes };
            let loaded = d.load_images(&load, set, &draws, 2, ViewMut::new(&mut x, at(2, 2, 2, 3)), to);
            assert!(loaded.is_err(), "{} labels into {}", labels.len(), to.len());
        }
        let mut batch = |load: &LoadImages, images, first, planes: usize, x_at| {
            let planes = d.alloc(planes)?;
            let (set, x) =
                (ImageSet { images, labels: &labels, planes: &planes }, ViewMut::new(&mut x, x_at));
            d.load_images(load, set, &draws, first, x, &mut to)
        };
        let (short, fits) = (d.alloc_bytes(35)?, at(2, 2, 2, 3));
        assert!(batch(&load, &images, 2, 36, fits).is_ok());
        refused!(batch(&load, &short, 2, 36, fits), Length { what: "the set of images", .. });
        refused!(batch(&load, &images, 3, 36, fits), OutOfBounds { what: "the table of draws", .. });
        refused!(batch(&load, &images, usize::MAX, 36, fits), OutOfBounds { what: "the table of draws", .. });
        refused!(batch(&load, &images, 2, 35, fits), OutOfBounds { what: "the means and divisors", .. });
        refused!(batch(&load, &images, 2, 36, at(2, 2, 3, 2)), Shape { what: "the batch", .. });
        refused!(batch(&load, &images, 0, 36, Layout { offset: 25, ..fits }), OutOfBounds { .. });
        refused!(batch(&LoadImages { width: 0, ..load }, &images, 2, 36, at(2, 2, 0, 3)), Value { .. });
    });
}
