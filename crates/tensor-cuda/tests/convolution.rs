//! Convolutions and dense layers by our own kernels, on the emulated GPU, at sizes that take other paths in
//! the kernels.

use crate::harness::*;
use towers_conformance::convolution::Convolution;
use towers_conformance::dense::Dense;
use towers_conformance::{ALONE, Placement, SLICE};
use towers_program::ops::{Conv2dForward, Conv2dWeightGradient, LinearWeightGradient};
use towers_program::{
    Activation, Arena, Backend, CapturedGraph as _, Conv2d, Layout, Linear, Pad, Precision, ReplayArgs,
    Result, Shape, Span, StepArgs, Trial, Write,
};

const SAME: Pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };

fn convolution(
    outputs: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    pad: Pad,
    shape: Shape,
) -> Convolution {
    let conv = Conv2d { stride, pad, ..Conv2d::new(shape.c, outputs, kernel) };
    Convolution { conv, shape, place: ALONE, act: Activation::None, bias: false, mode: Write::Set }
}

fn dense(samples: usize, inputs: usize, outputs: usize) -> Dense {
    let linear = Linear { inputs, outputs };
    Dense { linear, samples, place: ALONE, act: Activation::None, bias: true, mode: Write::Set }
}

#[test]
fn kernels_of_any_size_stride_and_padding() {
    let odd = Pad { top: 0, bottom: 1, left: 2, right: 0 };
    for case in [
        convolution(16, [1, 1], [1, 1], Pad::VALID, Shape::new(2, 5, 5, 8)),
        convolution(24, [3, 3], [1, 1], SAME, Shape::new(2, 6, 6, 16)),
        convolution(8, [3, 3], [2, 2], Pad::VALID, Shape::new(2, 7, 9, 8)),
        convolution(7, [3, 2], [2, 1], odd, Shape::new(2, 6, 5, 5)),
        convolution(16, [3, 2], [1, 2], odd, Shape::new(2, 6, 5, 8)),
        convolution(8, [5, 5], [1, 1], Pad::same(6, 6, [5; 2], [1; 2]), Shape::new(1, 6, 6, 3)),
        // Pixels that no window touches.
        convolution(8, [2, 2], [3, 3], Pad::VALID, Shape::new(1, 9, 8, 8)),
        // One window, as large as the image.
        convolution(8, [4, 6], [1, 1], Pad { top: 1, ..Pad::VALID }, Shape::new(3, 3, 6, 8)),
    ] {
        agree(&case);
    }
}

#[test]
fn more_than_one_tile() {
    for case in [
        // More than 128 pixels and 64 channels, in packs and not.
        convolution(72, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 7, 7, 16)),
        convolution(67, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 7, 7, 9)),
        // More than 128 taps and channels, and more than 64 of both ends.
        convolution(16, [3, 3], [1, 1], SAME, Shape::new(1, 4, 4, 72)),
    ] {
        agree(&case);
    }
}

/// Sums long enough to be cut into parts: forward and backward data along taps and channels, the filter along pixels.
#[test]
fn long_sums() {
    agree(&convolution(40, [3, 3], [1, 1], SAME, Shape::new(1, 3, 3, 40)));
    agree(&convolution(8, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 13, 13, 8)));
    agree(&Convolution { mode: Write::Add, ..convolution(40, [3, 3], [1, 1], SAME, Shape::new(1, 3, 3, 7)) });
}

#[test]
fn slices_on_16_bytes_and_not() {
    for place in [ALONE, SLICE, Placement { before: 16, beside: 24 }] {
        for mode in [Write::Set, Write::Add] {
            let plain = convolution(16, [3, 3], [2, 2], SAME, Shape::new(2, 5, 4, 8));
            agree(&Convolution { place, mode, bias: true, act: Activation::Relu, ..plain.clone() });
            agree(&Convolution { place, mode, ..plain });
        }
    }
}

#[test]
fn dense_layers() {
    for case in [dense(1, 600, 24), dense(130, 24, 72), dense(7, 1, 1)] {
        agree(&case);
    }
}

/// Column sums in parts, in several blocks side by side, and in single elements.
#[test]
fn gradients_of_biases() {
    for (samples, outputs) in [(70, 2), (600, 1), (40, 2100), (9, 260)] {
        agree(&dense(samples, 1, outputs));
    }
}

/// Gradients of an empty batch are zeros; a layer without inputs yields its bias.
#[test]
fn nothing_to_do() {
    for shape in [Shape::new(0, 4, 4, 8), Shape::new(2, 4, 4, 0)] {
        agree(&Convolution { bias: true, ..convolution(8, [3, 3], [1, 1], SAME, shape) });
    }
    for mode in [Write::Set, Write::Add] {
        let none = convolution(0, [3, 3], [1, 1], SAME, Shape::new(2, 4, 4, 8));
        agree(&Convolution { mode, bias: true, place: SLICE, ..none });
    }
    for [samples, inputs, outputs] in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
        agree(&Dense { act: Activation::Relu, ..dense(samples, inputs, outputs) });
    }
}

/// Gradients of a run are brought into place, and the rest of the arena stays: its all-reduce may have begun.
#[test]
fn gradients_are_finished_by_runs() {
    let cuda = emulated(Precision::Fp32);
    let (linear, mut trial) = (Linear { inputs: 70, outputs: 65 }, Trial::new(3));
    let len = linear.inputs * linear.outputs;
    let batch = |c| (Layout::contiguous(Shape::vectors(3, c)), numbers("batch", 3 * c));
    let [x, dy] = [70, 65].map(batch).map(|(at, values)| trial.activations(at, &values));
    let layers = [(); 3].map(|()| trial.run(Arena::Gradients, &vec![0.0; len]));
    for dw in layers {
        trial.step(LinearWeightGradient { linear, bias: false }, &[x, dy], &[dw], Write::Set);
    }
    let mut run = trial.on(&cuda).unwrap();
    run.run(&StepArgs::inference(3)).unwrap();
    let (whole, spans) = (Span::new(0, run.gradients.len()), layers.map(|dw| run.executable.span(dw)));
    let expected = download(&cuda, &run.gradients, spans[0]).unwrap();
    let some = Span::new(spans[0].end() - 3, spans[2].end() + 5 - spans[0].end());
    for (finished, bucket) in [(0..1, spans[0]), (1..3, some), (3..3, Span::new(9, 40))] {
        run.run_steps(0..3, &StepArgs::inference(3)).unwrap();
        cuda.fill(7.0, &mut run.gradients, whole).unwrap();
        cuda.finish_grads(&mut run.gradients, bucket).unwrap();
        for (k, at) in spans.into_iter().enumerate() {
            let values = download(&cuda, &run.gradients, at).unwrap();
            let expected = if finished.contains(&k) { expected.clone() } else { vec![7.0; len] };
            assert!(values == expected, "layer {k} after {bucket:?}");
        }
    }
    assert!(cuda.finish_grads(&mut run.gradients, Span::new(1, whole.len)).is_err());
}

/// A replay computes with the numbers of the day, parameters included.
#[test]
fn a_recorded_step() {
    for precision in PRECISIONS {
        let (cuda, shape) = (emulated(precision), Shape::new(2, 4, 4, 8));
        let conv = Conv2d { pad: SAME, ..Conv2d::new(8, 8, [3; 2]) };
        let draw = |name: &str, len| -> Vec<f32> {
            numbers(name, len).into_iter().map(|x| rounded(precision, x)).collect()
        };
        let (at, mut trial) = (Layout::contiguous(shape), Trial::new(2));
        let [x, y] = ["x", "y"].map(|name| trial.activations(at, &draw(name, shape.len())));
        let [w, b] = [conv.weights(), 8].map(|len| trial.run(Arena::Parameters, &draw("params", len)));
        let [dw, db] = [conv.weights(), 8].map(|len| trial.run(Arena::Gradients, &draw("grads", len)));
        trial.step(Conv2dForward { conv, act: Activation::Relu }, &[x, w, b], &[y], Write::Set);
        trial.step(Conv2dWeightGradient { conv, bias: true }, &[x, y], &[dw, db], Write::Set);
        let (mut run, args) = (trial.on(&cuda).unwrap(), StepArgs::inference(2));

        cuda.begin_capture().unwrap();
        let error = run.run(&args).unwrap_err();
        assert!(error.to_string().contains("run every op once before it is captured"), "{error}");
        cuda.abandon_capture();

        run.run(&args).unwrap();
        cuda.begin_capture().unwrap();
        run.run(&args).unwrap();
        let graph = cuda.end_capture().unwrap();
        run.write(x, &draw("other x", shape.len())).unwrap();
        for (id, len) in [(w, conv.weights()), (b, 8)] {
            run.write(id, &draw("other params", len)).unwrap();
        }
        let left = |run: &towers_program::TrialRun| -> Result<Vec<Vec<f32>>> {
            [y, dw, db].into_iter().map(|id| run.read(id, 2)).collect()
        };
        let before = left(&run).unwrap();
        graph.replay(&ReplayArgs::default()).unwrap();
        let replayed = left(&run).unwrap();
        assert_ne!(replayed, before);
        run.run(&args).unwrap();
        assert_eq!(left(&run).unwrap(), replayed, "{precision}");
    }
}
