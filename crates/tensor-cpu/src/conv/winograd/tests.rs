//! Both sizes of tiles against [`Reference`], for every instruction set that this processor has, and how exact they are.

use super::size::Size;
use super::{Pass, backward_filter, grads_scratch_len};
use crate::Cpu;
use crate::conv::sums::Finish;
use crate::conv::tests::{random, reference, room, slice, whole};
use crate::simd::Level;
use towers_program::ops::{Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient};
use towers_program::{Activation, Arena, Conv2d, Pad, Shape, Trial, View, Write};

/// The root mean square of the differences, and the largest one, relative to the root mean square of the
/// expected values.
fn error(got: &[f32], want: &[f64]) -> [f64; 2] {
    let differences = || got.iter().zip(want).map(|(&got, &want)| (f64::from(got) - want).abs());
    let mean = |sum: f64| (sum / want.len().max(1) as f64).sqrt();
    let unit = mean(want.iter().map(|x| x * x).sum()).max(1e-3);
    [mean(differences().map(|d| d * d).sum()) / unit, differences().fold(0.0, f64::max) / unit]
}

/// The errors of the forward pass, the input's gradient and the weights' gradient, in tensors with `extra` channels between
/// pixels that no pass may touch.
fn errors(cpu: &Cpu, size: Size, conv: &Conv2d, x: Shape, extra: usize) -> [[f64; 2]; 3] {
    let y = conv.output(x).unwrap();
    let (xl, yl) = (slice(x, extra), slice(y, extra / 2));
    let (xs, dys) = (random(room(xl), 1), random(room(yl), 2));
    let (weights, bias, old) =
        (random(conv.weights(), 3), random(conv.outputs, 4), random(conv.weights(), 5));
    let mut trial = Trial::new(x.n);
    let (of_x, of_dy) = (trial.activations(xl, &xs), trial.activations(yl, &dys));
    let (of_y, of_dx) = (trial.activations(yl, &dys), trial.activations(xl, &xs));
    let (w, b) = (trial.run(Arena::Parameters, &weights), trial.run(Arena::Parameters, &bias));
    let dw = trial.run(Arena::Gradients, &old);
    let conv_of = *conv;
    trial.step(Conv2dForward { conv: conv_of, act: Activation::Relu }, &[of_x, w, b], &[of_y], Write::Set);
    trial.step(Conv2dInputGradient { conv: conv_of, x: x.with_n(1) }, &[of_dy, w], &[of_dx], Write::Add);
    trial.step(Conv2dWeightGradient { conv: conv_of, bias: false }, &[of_x, of_dy], &[dw], Write::Set);
    let want = reference(&trial, x.n);

    let mut got = dys.clone();
    let finish = Finish { bias: Some(&bias), add: false, affine: None, relu: Some(f32::INFINITY) };
    Pass::forward(size, conv, xl, yl).run(cpu, &xs, &weights, finish, &mut got);
    let forward = error(&got, whole(&want, of_y, got.len()));

    let mut got = xs.clone();
    let finish = Finish { bias: None, add: true, affine: None, relu: None };
    Pass::backward(size, conv, yl, xl).run(cpu, &dys, &weights, finish, &mut got);
    let data = error(&got, whole(&want, of_dx, got.len()));

    let mut got = old;
    backward_filter(cpu, size, conv, View::new(&xs, xl), View::new(&dys, yl), &mut got);
    [forward, data, error(&got, whole(&want, dw, got.len()))]
}

fn conv(inputs: usize, outputs: usize, pad: Pad) -> Conv2d {
    Conv2d { pad, ..Conv2d::new(inputs, outputs, [3; 2]) }
}

const SAME: Pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };

#[test]
fn all_passes_are_those_of_the_reference() {
    let other = Pad { top: 2, bottom: 0, left: 0, right: 3 };
    for &level in Level::available() {
        let cpu = Cpu::with_simd(2, level);
        for size in [Size::Two, Size::Four] {
            for (n, h, w, inputs, outputs, pad) in [
                (1, 4, 4, 16, 16, SAME),
                (2, 7, 7, 33, 20, SAME),
                (3, 5, 9, 5, 50, Pad::VALID),
                (2, 6, 3, 48, 3, other),
                (9, 1, 1, 17, 1, SAME),
                (1, 13, 30, 1, 65, SAME),
                (5, 15, 15, 40, 96, SAME),
                // Weights that are far from the cores.
                (2, 5, 5, 176, 180, SAME),
            ] {
                let (conv, x) = (conv(inputs, outputs, pad), Shape::new(n, h, w, inputs));
                let all = errors(&cpu, size, &conv, x, n * 3);
                assert!(all.iter().all(|e| e[1] < 2e-5), "{level:?} {size:?} {conv:?} of {x}: {all:?}");
            }
        }
    }
}

/// The bounds that docs/determinism.md names.
#[test]
fn transforms_lose_no_more_than_documented() {
    for &level in Level::available() {
        let cpu = Cpu::with_simd(2, level);
        for (size, bound) in [(Size::Two, [8e-7, 6e-6]), (Size::Four, [2e-6, 2e-5])] {
            for (inputs, outputs, side) in [(96, 32, 16), (48, 80, 15), (160, 64, 7)] {
                let all =
                    errors(&cpu, size, &conv(inputs, outputs, SAME), Shape::new(4, side, side, inputs), 0);
                println!("{level:?} {size:?} {inputs} to {outputs} at {side}x{side}: {all:?}");
                let bounded = |e: &[f64; 2]| e[0] < bound[0] && e[1] < bound[1];
                assert!(all.iter().all(bounded), "{level:?} {size:?} {inputs} to {outputs}: {all:?}");
            }
        }
    }
}

#[test]
fn neither_threads_nor_the_rest_of_a_batch_change_a_bit() {
    // The second has weights that are far from the cores, and two rounds of tiles.
    for (conv, x) in
        [(conv(40, 70, SAME), Shape::new(7, 9, 9, 40)), (conv(176, 180, SAME), Shape::new(66, 3, 3, 176))]
    {
        let y = conv.output(x).unwrap();
        let (xs, dys, w) = (random(x.len(), 1), random(y.len(), 2), random(conv.weights(), 3));
        let passes = |cpu: &Cpu, size: Size, n: usize| {
            let (xl, yl) = (slice(x.with_n(n), 0), slice(y.with_n(n), 0));
            let (mut out, mut dw) = (vec![0.0; yl.shape.len()], vec![0.0; w.len()]);
            let finish = Finish { bias: None, add: false, affine: None, relu: None };
            Pass::forward(size, &conv, xl, yl).run(cpu, &xs, &w, finish, &mut out);
            backward_filter(cpu, size, &conv, View::new(&xs, xl), View::new(&dys, yl), &mut dw);
            (out, dw)
        };
        for &level in Level::available() {
            for size in [Size::Two, Size::Four] {
                let (out, dw) = passes(&Cpu::with_simd(1, level), size, x.n);
                for threads in [2, 3, 5] {
                    assert!((out.clone(), dw.clone()) == passes(&Cpu::with_simd(threads, level), size, x.n));
                }
                let (some, _) = passes(&Cpu::with_simd(2, level), size, 3);
                assert!(some == out[..some.len()], "{level:?} {size:?}");
            }
        }
    }
}

#[test]
fn scratch_memory_is_what_was_asked_for() {
    for &level in Level::available() {
        for (conv, x) in
            [(conv(40, 70, SAME), Shape::new(7, 9, 9, 40)), (conv(176, 180, SAME), Shape::new(2, 5, 5, 176))]
        {
            let cpu = Cpu::with_simd(3, level);
            let (xl, yl) = (slice(x, 0), slice(conv.output(x).unwrap(), 0));
            let len = Pass::forward(Size::Four, &conv, xl, yl)
                .scratch_len(&cpu)
                .max(Pass::backward(Size::Four, &conv, yl, xl).scratch_len(&cpu))
                .max(grads_scratch_len(&cpu, Size::Four, &conv, xl, yl));
            errors(&cpu, Size::Four, &conv, x, 0);
            assert_eq!(cpu.scratch(0).len(), len);
        }
    }
}
