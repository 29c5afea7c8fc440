//! Every pass against [`Reference`], for every instruction set that this processor has.

use super::{Pass, winograd};
use crate::simd::Level;
use crate::{Cpu, Reference};
use towers_program::ops::{
    Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient, LinearForward, LinearInputGradient,
    LinearWeightGradient,
};
use towers_program::{
    Activation, Arena, Conv2d, Error, Layout, Linear, Pad, Shape, StepArgs, TensorId, Trial, TrialRun, Write,
};

/// Numbers in -1..1, the same for the same seed.
pub(super) fn random(len: usize, mut seed: u64) -> Vec<f32> {
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The same, as a device computes with them: tests of bf16 begin with numbers that need no rounding, and so see every other
/// error.
fn random_for(cpu: &Cpu, len: usize, seed: u64) -> Vec<f32> {
    let narrow = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    let numbers = random(len, seed).into_iter();
    if cpu.is_bf16() { numbers.map(narrow).collect() } else { numbers.collect() }
}

/// The layout of some channels of a tensor with `extra` more of them, not the first ones.
pub(super) fn slice(shape: Shape, extra: usize) -> Layout {
    Layout { offset: extra / 2, shape, stride: shape.c + extra }
}

/// Elements of a buffer that just holds the tensor.
pub(super) fn room(at: Layout) -> usize {
    at.end()
}

/// A trial on the reference, with all that it has left in f64.
pub(super) fn reference(trial: &Trial, n: usize) -> TrialRun<'static> {
    let mut run = trial.clone().on(&Reference).unwrap();
    run.run(&StepArgs::inference(n)).unwrap();
    run
}

/// The numbers of a tensor there, with those around it: so many from the start of its memory.
pub(super) fn whole<'r>(run: &'r TrialRun, id: TensorId, len: usize) -> &'r [f64] {
    let executable = &run.executable;
    let offset = executable.layout(executable.program().root(id).0, 1).offset;
    let buffer = match executable.program().tensor(id).arena {
        Arena::Activations => &run.activations,
        _ => &run.gradients,
    };
    &buffer.as_f64().unwrap()[offset..][..len]
}

/// Both passes of a trial, to compare what they have left.
struct Compared<'a> {
    cpu: &'a Cpu,
    got: TrialRun<'a>,
    want: TrialRun<'static>,
    n: usize,
    what: String,
}

impl<'a> Compared<'a> {
    /// On `n` samples. Nothing may be written outside of the results.
    #[track_caller]
    fn run(cpu: &'a Cpu, trial: Trial, n: usize, what: String) -> Self {
        let want = reference(&trial, n);
        let mut got = trial.on(cpu).unwrap();
        let room = || [cpu.scratch(0).len(), cpu.weights(0).len()];
        let prepared = room();
        got.run(&StepArgs::inference(n)).unwrap();
        assert_eq!(room(), prepared, "an op allocated: {what}");
        assert_eq!(got.changed_outside(n).unwrap(), None, "{what}");
        Compared { cpu, got, want, n, what }
    }

    /// `|got - want|` is at most what sums of so many products may differ by, and what rounding to the format of activations adds.
    #[track_caller]
    fn close(&self, name: &str, id: TensorId, products: usize) {
        let executable = &self.want.executable;
        let (arena, at) = (executable.program().tensor(id).arena, executable.layout(id, self.n));
        let is_stored = arena == Arena::Activations;
        let rounding = if is_stored && self.cpu.is_bf16() { 1.0 / 256.0 } else { 0.0 };
        let tolerance = 2e-7 * (products as f64).sqrt().max(4.0) * 8.0 + rounding;
        let got = self.got.read(id, self.n).unwrap();
        let buffer = if is_stored { &self.want.activations } else { &self.want.gradients };
        let buffer = buffer.as_f64().unwrap();
        let pixels =
            (0..at.shape.rows()).flat_map(|row| &buffer[at.offset + row * at.stride..][..at.shape.c]);
        assert_eq!(got.len(), at.shape.len());
        for (i, (&got, &want)) in got.iter().zip(pixels).enumerate() {
            let error = (f64::from(got) - want).abs();
            let what = &self.what;
            assert!(error <= tolerance * want.abs().max(1.0), "{name}[{i}], {what}: {got} instead of {want}");
        }
    }
}

/// How many times as many products make transformed sums differ as much as direct ones, see [`close`].
const WINOGRAD: usize = 4 * 4;

/// All three passes of one convolution. `extra` channels lie between pixels.
#[track_caller]
fn check(cpu: &Cpu, conv: Conv2d, x: Shape, extra: usize) {
    let y = conv.output(x).unwrap();
    let what = format!("{:?} {:?} {conv:?} of {x} with {extra} more channels", cpu.simd(), cpu.bf16());
    let (xl, yl) = (slice(x, extra), slice(y, extra / 2));
    let (xs, dys) = (random_for(cpu, room(xl), 1), random_for(cpu, room(yl), 2));
    // Prepared for one sample more.
    let mut trial = Trial::new(x.n + 1).shifted(5);
    let (of_x, dy) = (trial.activations(xl, &xs), trial.activations(yl, &dys));
    let w = trial.run(Arena::Parameters, &random_for(cpu, conv.weights(), 3));
    let b = trial.run(Arena::Parameters, &random_for(cpu, conv.outputs, 4));
    let [plain, relu] = [(); 2].map(|()| trial.activations(yl, &dys));
    trial.step(Conv2dForward { conv, act: Activation::None }, &[of_x, w], &[plain], Write::Set);
    trial.step(Conv2dForward { conv, act: Activation::Relu }, &[of_x, w, b], &[relu], Write::Set);
    let gradients = [Write::Set, Write::Add].map(|mode| {
        let dx = trial.activations(xl, &xs);
        trial.step(Conv2dInputGradient { conv, x: x.with_n(1) }, &[dy, w], &[dx], mode);
        (dx, mode)
    });
    // Not asking for the bias's gradient, which is not this module's.
    let dw = trial.run(Arena::Gradients, &random(conv.weights(), 5));
    trial.step(Conv2dWeightGradient { conv, bias: false }, &[of_x, dy], &[dw], Write::Set);

    let products = conv.weights() / conv.outputs.max(1);
    // Blocks of groups may be, where the whole is not.
    let transformed = !cpu.is_bf16() && (conv.groups > 1 || winograd::choose(cpu, &conv, y).is_some());
    let lost = if transformed { WINOGRAD } else { 1 };
    let compared = Compared::run(cpu, trial, x.n, what);
    compared.close("forward", plain, lost * products);
    compared.close("forward with a bias and ReLU", relu, lost * products);
    for (dx, mode) in gradients {
        compared.close(&format!("backward data {mode:?}"), dx, lost * conv.weights() / conv.inputs.max(1));
    }
    compared.close("backward filter", dw, lost * y.rows());
}

pub(super) fn square(inputs: usize, outputs: usize, kernel: usize, stride: usize, pad: usize) -> Conv2d {
    let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
    Conv2d { stride: [stride; 2], pad, ..Conv2d::new(inputs, outputs, [kernel; 2]) }
}

#[test]
fn channels_of_all_sizes() {
    for cpu in Cpu::of_every_kind(2) {
        for c in [1, 3, 5, 16, 17, 32, 48, 80, 96] {
            for k in [1, 3, 5, 16, 17, 32, 48, 80, 96, 112] {
                check(&cpu, square(c, k, 3, 1, 1), Shape::new(2, 4, 5, c), (c + k) % 7);
                check(&cpu, square(c, k, 1, 1, 0), Shape::new(3, 3, 5, c), (c + k) % 5);
            }
        }
    }
}

#[test]
fn kernels_strides_and_paddings() {
    let pads = [
        Pad::VALID,
        Pad { top: 1, bottom: 1, left: 1, right: 1 },
        Pad { top: 0, bottom: 1, left: 0, right: 1 },
        Pad { top: 2, bottom: 0, left: 1, right: 3 },
    ];
    for cpu in Cpu::of_every_kind(2) {
        for kernel in [[1, 1], [2, 2], [3, 3], [5, 5], [3, 1], [1, 4]] {
            for stride in [[1, 1], [2, 2], [3, 3], [1, 2], [3, 2]] {
                for pad in pads {
                    for (n, h, w, c, k) in [(1, 7, 9, 3, 5), (2, 8, 6, 17, 20), (5, 5, 5, 6, 33)] {
                        let conv = Conv2d { stride, pad, ..Conv2d::new(c, k, kernel) };
                        check(&cpu, conv, Shape::new(n, h, w, c), (n + kernel[0] + stride[0]) % 2 * 3);
                    }
                }
            }
        }
    }
}

#[test]
fn small_and_odd_images() {
    for cpu in Cpu::of_every_kind(2) {
        for (n, h, w) in [(1, 1, 1), (5, 1, 1), (3, 1, 40), (2, 40, 1), (1, 33, 17), (9, 7, 7), (0, 4, 4)] {
            check(&cpu, square(8, 24, 3, 1, 1), Shape::new(n, h, w, 8), 2);
            check(&cpu, square(3, 24, 3, 1, 1), Shape::new(n, h, w, 3), 0);
            check(&cpu, square(40, 24, 1, 1, 0), Shape::new(n, h, w, 40), 4);
            check(&cpu, square(2, 20, 3, 2, 1), Shape::new(n, h, w, 2), 4);
        }
        // More taps than one pass takes; a stride larger than the kernel.
        check(&cpu, square(2, 3, 11, 1, 5), Shape::new(2, 12, 11, 2), 1);
        check(&cpu, square(6, 18, 9, 1, 4), Shape::new(1, 9, 10, 6), 1);
        check(&cpu, square(18, 6, 2, 4, 0), Shape::new(2, 11, 10, 18), 1);
        // Nothing to add up.
        check(&cpu, square(0, 34, 3, 1, 1), Shape::new(2, 4, 3, 0), 1);
        check(&cpu, square(34, 0, 3, 1, 1), Shape::new(2, 4, 3, 34), 1);
        // A stride that is larger than the image.
        let stride = [u32::MAX as usize; 2];
        check(&cpu, Conv2d { stride, ..square(18, 6, 3, 1, 1) }, Shape::new(2, 4, 3, 18), 1);
        check(&cpu, Conv2d { stride, ..square(3, 6, 3, 1, 1) }, Shape::new(2, 4, 3, 3), 0);
    }
}

/// Padded as Keras' "same" does.
fn same(inputs: usize, outputs: usize, kernel: [usize; 2], stride: [usize; 2], x: Shape) -> Conv2d {
    let along = |axis: usize, size: usize| {
        let outputs = size.div_ceil(stride[axis]);
        let all = ((outputs - 1) * stride[axis] + kernel[axis]).saturating_sub(size);
        (all / 2, all - all / 2)
    };
    let ((top, bottom), (left, right)) = (along(0, x.h), along(1, x.w));
    Conv2d { stride, pad: Pad { top, bottom, left, right }, ..Conv2d::new(inputs, outputs, kernel) }
}

/// Images of one row, of which not all pixels are read or written.
#[test]
fn rows_with_gaps() {
    for cpu in Cpu::of_every_kind(2) {
        check(&cpu, square(64, 32, 1, 2, 0), Shape::new(64, 1, 2, 64), 0);
        for w in [4, 5, 7] {
            let x = Shape::new(64, 1, w, 64);
            check(&cpu, same(64, 32, [3, 3], [3, 3], x), x, 0);
        }
        let x = Shape::new(20, 3, 4, 17);
        check(
            &cpu,
            Conv2d { pad: Pad { left: 2, right: 3, ..Pad::VALID }, ..same(17, 32, [3, 3], [3, 1], x) },
            x,
            0,
        );
    }
}

/// Of these no two parts of an image need the same room.
#[test]
fn kernels_as_large_as_images() {
    for (n, h, w, c, kernel) in [
        (8, 8, 8, 64, [10, 10]),
        (2, 8, 8, 4, [10, 10]),
        (1, 2, 20, 3, [4, 4]),
        (5, 3, 11, 15, [6, 4]),
        (9, 3, 13, 40, [6, 5]),
    ] {
        let x = Shape::new(n, h, w, c);
        for outputs in [7, 40] {
            for cpu in Cpu::of_every_kind(2) {
                check(&cpu, same(c, outputs, kernel, [1, 1], x), x, 0);
            }
        }
    }
    let x = Shape::new(3, 2, 56, 65);
    let pad = Pad { top: 3, bottom: 3, left: 2, right: 2 };
    for cpu in Cpu::of_every_kind(2) {
        check(&cpu, Conv2d { pad, ..Conv2d::new(65, 33, [7, 3]) }, x, 0);
    }
}

/// Few and many channels a group, groups that fill no block, one output or input a group.
#[test]
fn groups() {
    for cpu in Cpu::of_every_kind(2) {
        for (c, k, groups) in [
            (32, 32, 8),
            (52, 26, 13),
            (48, 72, 2),
            (6, 6, 6),
            (20, 40, 20),
            (60, 30, 30),
            (40, 5, 5),
            (3, 3, 3),
        ] {
            let conv = Conv2d { groups, ..square(c, k, 3, 1, 1) };
            check(&cpu, conv, Shape::new(2, 6, 5, c), 3);
            check(&cpu, conv, Shape::new(3, 13, 12, c), 0);
            check(&cpu, Conv2d { stride: [2, 2], ..conv }, Shape::new(2, 6, 7, c), 0);
            check(&cpu, Conv2d { groups, ..square(c, k, 1, 1, 0) }, Shape::new(2, 6, 5, c), 1);
            check(&cpu, Conv2d { dilation: [2, 3], ..conv }, Shape::new(2, 6, 7, c), 0);
        }
        let none = Conv2d { groups: 4, ..square(0, 8, 3, 1, 1) };
        check(&cpu, none, Shape::new(2, 6, 5, 0), 1);
        check(&cpu, Conv2d { groups: 4, ..square(8, 0, 3, 1, 1) }, Shape::new(2, 6, 5, 8), 1);
    }
}

/// With strides that have a divisor in common with the dilation, and others.
#[test]
fn dilation() {
    for cpu in Cpu::of_every_kind(2) {
        for kernel in [[3, 3], [2, 5], [1, 3]] {
            for dilation in [[2, 2], [1, 4], [6, 3]] {
                for stride in [[1, 1], [2, 2], [3, 4]] {
                    for pad in [Pad::VALID, Pad { top: 5, bottom: 6, left: 2, right: 0 }] {
                        for (n, c, k) in [(1, 3, 5), (2, 17, 20)] {
                            let conv = Conv2d { stride, dilation, pad, ..Conv2d::new(c, k, kernel) };
                            check(&cpu, conv, Shape::new(n, 14, 17, c), (n + kernel[0]) % 2 * 3);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn scratch_memory_that_can_not_be_had_is_an_error() {
    // Weights are rounded in scratch memory.
    let cpu = Cpu::with_simd(1, Level::Portable).with_portable_bf16();
    let conv = Conv2d { inputs: 1 << 24, outputs: 1 << 24, ..square(1, 1, 3, 1, 1) };
    let (x, y) = (Shape::new(1, 8, 8, conv.inputs), Shape::new(1, 8, 8, conv.outputs));
    let [x, y] = [x, y].map(Layout::contiguous);
    let len = super::scratch_len(&cpu, Pass::WeightGradient, &conv, x, y);
    let error = cpu.reserve([len, 0, 0]).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes, .. } if bytes > 1 << 50), "{error}");
}

/// Large enough for several tasks, passes and partitions.
#[test]
fn shapes_of_real_networks() {
    for (conv, x, extra) in [
        (square(3, 96, 3, 1, 1), Shape::new(2, 32, 32, 3), 0),
        (square(64, 48, 3, 1, 1), Shape::new(2, 32, 32, 64), 16),
        (square(32, 40, 3, 1, 0), Shape::new(3, 40, 34, 32), 0),
        (square(32, 40, 3, 1, 0), Shape::new(1, 3, 3000, 32), 0),
        (square(64, 48, 3, 1, 0), Shape::new(9, 13, 13, 64), 8),
        (square(80, 80, 3, 2, 0), Shape::new(3, 32, 32, 80), 0),
        (square(160, 112, 1, 1, 0), Shape::new(10, 15, 15, 160), 48),
        (square(264, 100, 1, 2, 0), Shape::new(3, 15, 14, 264), 8),
        (square(224, 600, 1, 1, 0), Shape::new(3, 9, 11, 224), 8),
        (square(520, 1030, 1, 1, 0), Shape::new(1, 8, 9, 520), 0),
        (square(1030, 260, 1, 1, 0), Shape::new(2, 5, 7, 1030), 3),
        (square(240, 160, 3, 1, 1), Shape::new(9, 7, 7, 240), 0),
    ] {
        // New devices, whose scratch memory no other case has enlarged.
        for cpu in Cpu::of_every_kind(2) {
            check(&cpu, conv, x, extra);
        }
    }
}

#[test]
fn dense_layers() {
    for cpu in Cpu::of_every_kind(2) {
        let cpu = &cpu;
        for (n, inputs, outputs) in
            [(1, 1, 1), (128, 300, 10), (3, 64, 512), (65, 1000, 130), (130, 31, 17), (40, 170_000, 3)]
        {
            let linear = Linear { inputs, outputs };
            let at = |c: usize| slice(Shape::vectors(n, c), n % 3);
            let (xl, yl) = (at(inputs), at(outputs));
            let random = |len, seed| random_for(cpu, len, seed);
            let (xs, dys) = (random(room(xl), 4), random(room(yl), 5));
            let mut trial = Trial::new(n).shifted(1);
            let (x, dy) = (trial.activations(xl, &xs), trial.activations(yl, &dys));
            let (y, dx) = (trial.activations(yl, &dys), trial.activations(xl, &xs));
            let w = trial.run(Arena::Parameters, &random(inputs * outputs, 6));
            let b = trial.run(Arena::Parameters, &random(outputs, 7));
            let dw = trial.run(Arena::Gradients, &random(inputs * outputs, 8));
            trial.step(LinearForward { linear, act: Activation::Relu }, &[x, w, b], &[y], Write::Set);
            trial.step(LinearInputGradient { linear }, &[dy, w], &[dx], Write::Add);
            trial.step(LinearWeightGradient { linear, bias: false }, &[x, dy], &[dw], Write::Set);
            let what = format!("{:?} {:?} {linear:?} of {n}", cpu.simd(), cpu.bf16());
            let compared = Compared::run(cpu, trial, n, what);
            compared.close("forward", y, inputs);
            compared.close("backward data", dx, outputs);
            compared.close("backward filter", dw, n);
        }
    }
}

/// The outputs of all passes of a convolution, back to back.
pub(super) fn all_passes(cpu: &Cpu, conv: Conv2d, x: Shape) -> Vec<u32> {
    let (xl, yl) = (slice(x, 0), slice(conv.output(x).unwrap(), 0));
    let (xs, dys) = (random(room(xl), 7), random(room(yl), 8));
    let mut trial = Trial::new(x.n);
    let (of_x, dy) = (trial.activations(xl, &xs), trial.activations(yl, &dys));
    let (y, dx) = (trial.activations(yl, &dys), trial.activations(xl, &xs));
    let w = trial.run(Arena::Parameters, &random(conv.weights(), 9));
    let dw = trial.run(Arena::Gradients, &random(conv.weights(), 9));
    trial.step(Conv2dForward { conv, act: Activation::Relu }, &[of_x, w], &[y], Write::Set);
    trial.step(Conv2dInputGradient { conv, x: x.with_n(1) }, &[dy, w], &[dx], Write::Add);
    trial.step(Conv2dWeightGradient { conv, bias: false }, &[of_x, dy], &[dw], Write::Set);
    let mut run = trial.on(cpu).unwrap();
    run.run(&StepArgs::inference(x.n)).unwrap();
    [y, dx, dw].into_iter().flat_map(|id| run.read(id, x.n).unwrap()).map(f32::to_bits).collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (conv, x) in [
        (square(3, 40, 3, 1, 1), Shape::new(5, 32, 32, 3)),
        (square(48, 40, 3, 2, 0), Shape::new(11, 15, 15, 48)),
        (square(80, 96, 1, 1, 0), Shape::new(7, 9, 9, 80)),
        (square(200, 70, 3, 1, 1), Shape::new(6, 7, 7, 200)),
        (square(600, 70, 1, 1, 0), Shape::new(100, 1, 1, 600)),
    ] {
        let all = |threads| Cpu::of_every_kind(threads).map(move |cpu| all_passes(&cpu, conv, x));
        let one: Vec<_> = all(1).collect();
        for threads in [2, 3, 5] {
            assert!(all(threads).eq(one.iter().cloned()), "{conv:?}");
        }
    }
}

/// A number that is none reaches every output that depends on it, past a rectifier too.
#[test]
fn nan_is_not_hidden() {
    for cpu in Cpu::of_every_kind(2) {
        let (conv, shape) = (square(4, 20, 1, 1, 0), Shape::new(1, 2, 2, 4));
        let mut numbers = random(16, 1);
        numbers[4] = f32::NAN;
        let mut trial = Trial::new(1);
        let x = trial.activations(Layout::contiguous(shape), &numbers);
        let y = trial.activations(Layout::contiguous(shape.with_c(20)), &[0.0; 80]);
        let w = trial.run(Arena::Parameters, &random(80, 2));
        trial.step(Conv2dForward { conv, act: Activation::Relu }, &[x, w], &[y], Write::Set);
        let mut run = trial.on(&cpu).unwrap();
        run.run(&StepArgs::inference(1)).unwrap();
        let y = run.read(y, 1).unwrap();
        assert!(y.iter().enumerate().all(|(i, y)| y.is_nan() == (20..40).contains(&i)));
    }
}
