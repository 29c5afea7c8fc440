//! Every pass against the reference, for every instruction set that this processor has.

use super::Depthwise;
use crate::{Cpu, Reference};
use towers_program::ops::{
    DepthwiseForward, DepthwiseInputGradient, DepthwiseNormalized, DepthwiseWeightGradient,
};
use towers_program::{
    Activation, Arena, BatchNorm, Layout, Pad, Shape, StepArgs, TensorId, Trial, TrialRun, Write,
};

/// Numbers in -1..1, the same for the same seed. Where activations are bf16 they need no rounding.
fn random(cpu: &Cpu, len: usize, mut seed: u64) -> Vec<f32> {
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        if cpu.is_bf16() { f32::from_bits(x.to_bits() & 0xffff_0000) } else { x }
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The layout of some channels of a tensor with `extra` more of them, not the first ones.
fn slice(shape: Shape, extra: usize) -> Layout {
    Layout { offset: extra / 2, shape, stride: shape.c + extra }
}

#[track_caller]
fn close(
    cpu: &Cpu,
    got: &TrialRun,
    want: &TrialRun,
    (name, id): (&str, TensorId),
    n: usize,
    products: usize,
    what: &str,
) {
    let activations = got.executable.program().tensor(id).arena == Arena::Activations;
    let rounding = if activations && cpu.is_bf16() { 1.0 / 200.0 } else { 0.0 };
    let tolerance = 2e-7 * (products as f64).sqrt().max(4.0) * 8.0 + rounding;
    let (got, want) = (got.read(id, n).unwrap(), want.read(id, n).unwrap());
    assert_eq!(got.len(), want.len());
    for (i, (&got, &want)) in got.iter().zip(&want).enumerate() {
        let (got, want) = (f64::from(got), f64::from(want));
        let fits = (got - want).abs() <= tolerance * want.abs().max(1.0);
        assert!(fits, "{name}[{i}], {what}: {got} instead of {want}");
    }
}

/// All passes of one convolution. `extra` channels lie between pixels.
#[track_caller]
fn check(cpu: &Cpu, conv: Depthwise, x: Shape, extra: usize) {
    let y = conv.output(x).unwrap();
    let what = format!("{:?} {:?} {conv:?} of {x} with {extra} more channels", cpu.simd(), cpu.bf16());
    let (xl, yl) = (slice(x, extra), slice(y, extra / 2));
    let (xs, dys) = (random(cpu, xl.end(), 1), random(cpu, yl.end(), 2));
    // Prepared for one sample more.
    let mut trial = Trial::new(x.n + 1).shifted(5);
    let (of_x, dy) = (trial.activations(xl, &xs), trial.activations(yl, &dys));
    let w = trial.run(Arena::Parameters, &random(cpu, conv.weights(), 3));
    let [b, gamma, beta, mean] =
        [4, 5, 6, 7].map(|seed| trial.run(Arena::Parameters, &random(cpu, conv.outputs(), seed)));
    let var = random(cpu, conv.outputs(), 8).iter().map(|x| 0.5 + x * x).collect::<Vec<_>>();
    let var = trial.run(Arena::Averages, &var);
    let [plain, relu, silu, normal] = [(); 4].map(|()| trial.activations(yl, &dys));
    let forward = |act| DepthwiseForward { conv, act };
    trial.step(forward(Activation::None), &[of_x, w], &[plain], Write::Set);
    trial.step(forward(Activation::Relu), &[of_x, w, b], &[relu], Write::Set);
    trial.step(forward(Activation::Silu), &[of_x, w, b], &[silu], Write::Set);
    let bn = BatchNorm { epsilon: 1e-3, act: Activation::Relu };
    trial.step(
        DepthwiseNormalized { conv, bn },
        &[of_x, w, gamma, beta, mean, var, b],
        &[normal],
        Write::Set,
    );
    let [set, added] = [Write::Set, Write::Add].map(|write| {
        let dx = trial.activations(xl, &xs);
        trial.step(DepthwiseInputGradient { conv, x: x.with_n(1) }, &[dy, w], &[dx], write);
        dx
    });
    let dw = trial.run(Arena::Gradients, &random(cpu, conv.weights(), 9));
    let db = trial.run(Arena::Gradients, &random(cpu, conv.outputs(), 10));
    let alone = trial.run(Arena::Gradients, &random(cpu, conv.weights(), 11));
    trial.step(DepthwiseWeightGradient { conv, bias: true }, &[of_x, dy], &[dw, db], Write::Set);
    trial.step(DepthwiseWeightGradient { conv, bias: false }, &[of_x, dy], &[alone], Write::Set);

    let mut want = trial.clone().on(&Reference).unwrap();
    want.run(&StepArgs::inference(x.n)).unwrap();
    let mut got = trial.on(cpu).unwrap();
    let prepared = cpu.scratch(0).len();
    got.run(&StepArgs::inference(x.n)).unwrap();
    assert_eq!(cpu.scratch(0).len(), prepared, "an op allocated: {what}");
    assert_eq!(got.changed_outside(x.n).unwrap(), None, "{what}");
    for named in [("plain", plain), ("relu", relu), ("silu", silu), ("normal", normal)] {
        close(cpu, &got, &want, named, x.n, conv.taps(), &what);
    }
    for named in [("dx", set), ("added dx", added)] {
        close(cpu, &got, &want, named, x.n, conv.taps() * conv.multiplier, &what);
    }
    for named in [("dw", dw), ("db", db), ("dw alone", alone)] {
        close(cpu, &got, &want, named, x.n, 4 * y.rows(), &what);
    }
}

fn conv(inputs: usize, multiplier: usize, kernel: [usize; 2], stride: [usize; 2]) -> Depthwise {
    Depthwise { inputs, multiplier, kernel, stride, dilation: [1; 2], pad: Pad::VALID }
}

fn same(conv: Depthwise, x: Shape) -> Depthwise {
    Depthwise { pad: Pad::same(x.h, x.w, conv.extent(), conv.stride), ..conv }
}

#[test]
fn kernels_of_every_size() {
    for cpu in Cpu::of_every_kind(2) {
        for kernel in 1..=13 {
            let x = Shape::new(2, 14, 15, 21);
            let conv = conv(21, 1, [kernel, kernel.max(3) - 2], [1; 2]);
            check(&cpu, conv, x, 0);
            check(&cpu, same(conv, x), x, 3);
            check(&cpu, same(Depthwise { kernel: [kernel; 2], stride: [2; 2], ..conv }, x), x, 0);
        }
    }
}

#[test]
fn strides_dilations_and_paddings() {
    for cpu in Cpu::of_every_kind(2) {
        for (kernel, stride, dilation) in [
            ([3, 3], [2, 1], [1, 2]),
            ([3, 3], [1, 2], [2, 1]),
            ([3, 5], [3, 2], [2, 2]),
            ([2, 3], [2, 4], [3, 2]),
            ([5, 5], [4, 3], [6, 3]),
            ([1, 1], [3, 3], [1, 1]),
            ([1, 2], [5, 7], [1, 2]),
            ([7, 1], [2, 40], [4, 9]),
        ] {
            for pad in [
                Pad::VALID,
                Pad { top: 1, bottom: 0, left: 0, right: 3 },
                Pad { top: 30, bottom: 25, left: 20, right: 11 },
            ] {
                let conv = Depthwise { stride, dilation, pad, ..conv(18, 1, kernel, stride) };
                let x = Shape::new(2, 26, 9, 18);
                if conv.output(x).is_ok() {
                    check(&cpu, conv, x, 4);
                }
            }
        }
    }
}

#[test]
fn several_filters_a_channel() {
    for cpu in Cpu::of_every_kind(2) {
        for (inputs, multiplier) in [(1, 1), (1, 32), (3, 2), (16, 3), (40, 2)] {
            let x = Shape::new(3, 9, 10, inputs);
            let conv = conv(inputs, multiplier, [3; 2], [1; 2]);
            check(&cpu, same(conv, x), x, 2);
            let conv = Depthwise { stride: [2; 2], ..conv };
            check(&cpu, same(conv, x), x, 0);
        }
    }
}

/// Wide images, many channels, one sample: other cuts.
#[test]
fn every_cut() {
    for cpu in Cpu::of_every_kind(2) {
        for (x, kernel, stride) in [
            (Shape::new(1, 40, 70, 48), 3, 1),
            (Shape::new(1, 7, 7, 960), 3, 1),
            (Shape::new(1, 30, 120, 24), 3, 2),
            (Shape::new(2, 14, 14, 384), 7, 1),
            (Shape::new(3, 1, 1, 17), 3, 1),
            (Shape::new(5, 3, 200, 9), 5, 2),
            (Shape::new(40, 2, 2, 33), 3, 1),
        ] {
            check(&cpu, same(conv(x.c, 1, [kernel; 2], [stride; 2]), x), x, 0);
        }
    }
}

#[test]
fn no_samples_have_gradients_of_zero() {
    for cpu in Cpu::of_every_kind(2) {
        let x = Shape::new(0, 5, 5, 20);
        check(&cpu, conv(20, 1, [3; 2], [1; 2]), x, 0);
    }
}

/// The same bits for any number of threads.
#[test]
fn threads_do_not_show() {
    let run = |threads| {
        let cpu = Cpu::new(threads);
        let x = Shape::new(3, 14, 14, 100);
        let conv = same(conv(100, 1, [5; 2], [1; 2]), x);
        let mut trial = Trial::new(3);
        let of = |trial: &mut Trial, seed| {
            let at = Layout::contiguous(x);
            trial.activations(at, &random(&cpu, at.end(), seed))
        };
        let (of_x, dy, y, dx) = (of(&mut trial, 1), of(&mut trial, 2), of(&mut trial, 3), of(&mut trial, 4));
        let w = trial.run(Arena::Parameters, &random(&cpu, conv.weights(), 5));
        let dw = trial.run(Arena::Gradients, &random(&cpu, conv.weights(), 6));
        trial.step(DepthwiseForward { conv, act: Activation::Gelu }, &[of_x, w], &[y], Write::Set);
        trial.step(DepthwiseInputGradient { conv, x: x.with_n(1) }, &[dy, w], &[dx], Write::Add);
        trial.step(DepthwiseWeightGradient { conv, bias: false }, &[of_x, dy], &[dw], Write::Set);
        let mut run = trial.on(&cpu).unwrap();
        run.run(&StepArgs::inference(3)).unwrap();
        [y, dx, dw].map(|id| run.read(id, 3).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>())
    };
    let one = run(1);
    for threads in [2, 3, 5] {
        assert!(run(threads) == one, "{threads} threads");
    }
}
