//! Convolutions and dense layers by kernels of our own, on the emulated GPU, against the f64 reference.

use crate::harness::*;
use program::{
    Activation, Backend, Conv2d, Error, Layout, Linear, Pad, Precision, Result, RmspropStep, Run, RunMut,
    SgdStep, Shape, Span, Velocity, View, ViewMut, WeightDecay, WeightSpans, Write,
};
use tensor_cuda::Turn;

const ALONE: Placement = PLACEMENTS[0];
const SAME: Pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };

/// How many shapes are drawn.
const RANDOM_CASES: usize = 20;

/// An arena with weights and a bias somewhere in it.
struct Arena {
    values: Vec<f32>,
    w: Span,
    b: Span,
}

impl Arena {
    /// Weights as the format of activations has them, so that the reference computes with the same.
    fn draw(name: &str, precision: Precision, weights: usize, outputs: usize) -> Arena {
        let (w, b) = (Span::new(3, weights), Span::new(weights + 8, outputs));
        let values = numbers(name, b.end() + 2).iter().map(|&x| rounded(precision, x)).collect();
        Arena { values, w, b }
    }
}

/// Rounding of a sum that is stored before something is added to it, relative to the largest.
fn twice(precision: Precision) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => 2e-6,
        Precision::Bf16 => 4e-3,
        Precision::Fp16 => 5e-4,
    }
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    conv: Conv2d,
    x: Shape,
    act: Activation,
    bias: bool,
    place: Placement,
    write: Write,
}

impl Convolution {
    fn new(outputs: usize, kernel: [usize; 2], stride: [usize; 2], pad: Pad, x: Shape) -> Convolution {
        let conv = Conv2d { inputs: x.c, outputs, kernel, stride, pad };
        Convolution { conv, x, act: Activation::None, bias: false, place: ALONE, write: Write::Set }
    }
}

impl Case for Convolution {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let (conv, shape) = (&self.conv, self.conv.output(self.x)?);
        let arena = Arena::draw("params", precision, conv.weights(), conv.outputs);
        let (w, b) = (arena.w, self.bias.then_some(arena.b));
        let mut params = upload(device, &arena.values)?;
        let mut grads = upload(device, &numbers("grads", arena.values.len()))?;
        let x = Operand::draw("x", self.x, self.place).on(device, precision)?;
        let dy = Operand::draw("dy", shape, self.place).on(device, precision)?;
        let mut y = Operand::draw("y", shape, self.place).on(device, precision)?;
        let mut dx = Operand::draw("dx", self.x, self.place).on(device, precision)?;

        device.prepare_conv2d(conv, self.x, true)?;
        device.conv2d_fwd(conv, self.act, x.view(), Run::new(&params, WeightSpans { w, b }), y.view_mut())?;
        device.conv2d_bwd_data(conv, dy.view(), Run::new(&params, w), dx.view_mut(), self.write)?;
        device.conv2d_bwd_filter(conv, x.view(), dy.view(), RunMut::new(&mut grads, WeightSpans { w, b }))?;
        device.finish_grads(&mut grads, w)?;
        let twice = twice(precision);
        let mut outputs = vec![y.output(device, "y", twice)?, dx.output(device, "dx", twice)?];
        outputs.push(Output(
            "dw and db",
            download(device, &grads, Span::new(0, b.unwrap_or(w).end()))?,
            3e-6,
        ));

        // The parameters change: the device must not go on with what it made of the old ones.
        let other = Arena::draw("other", precision, conv.weights(), conv.outputs);
        device.upload(&other.values, &mut params, 0)?;
        device.conv2d_fwd(conv, Activation::None, x.view(), Run::new(&params, w.into()), y.view_mut())?;
        outputs.push(y.output(device, "y with other parameters", twice)?);
        Ok(outputs)
    }
}

#[derive(Clone, Copy, Debug)]
struct Dense {
    linear: Linear,
    n: usize,
    act: Activation,
    place: Placement,
    write: Write,
}

impl Case for Dense {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let linear = &self.linear;
        let arena = Arena::draw("params", precision, linear.inputs * linear.outputs, linear.outputs);
        let (w, b) = (arena.w, Some(arena.b));
        let params = upload(device, &arena.values)?;
        let mut grads = upload(device, &numbers("grads", arena.values.len()))?;
        let [inputs, outputs] = [linear.inputs, linear.outputs].map(|c| Shape::vectors(self.n, c));
        let x = Operand::draw("x", inputs, self.place).on(device, precision)?;
        let dy = Operand::draw("dy", outputs, self.place).on(device, precision)?;
        let mut y = Operand::draw("y", outputs, self.place).on(device, precision)?;
        let mut dx = Operand::draw("dx", inputs, self.place).on(device, precision)?;
        device.prepare_linear(linear, self.n, true)?;
        device.linear_fwd(
            linear,
            self.act,
            x.view(),
            Run::new(&params, WeightSpans { w, b }),
            y.view_mut(),
        )?;
        device.linear_bwd_data(linear, dy.view(), Run::new(&params, w), dx.view_mut(), self.write)?;
        device.linear_bwd_filter(
            linear,
            x.view(),
            dy.view(),
            RunMut::new(&mut grads, WeightSpans { w, b }),
        )?;
        device.finish_grads(&mut grads, w)?;
        let twice = twice(precision);
        let gradients = download(device, &grads, Span::new(0, arena.values.len()))?;
        Ok(vec![
            y.output(device, "y", twice)?,
            dx.output(device, "dx", twice)?,
            Output("dw and db", gradients, 3e-6),
        ])
    }
}

#[test]
fn kernels_of_any_size_stride_and_padding() {
    let odd = Pad { top: 0, bottom: 1, left: 2, right: 0 };
    for case in [
        Convolution::new(16, [1, 1], [1, 1], Pad::VALID, Shape::new(2, 5, 5, 8)),
        Convolution::new(24, [3, 3], [1, 1], SAME, Shape::new(2, 6, 6, 16)),
        Convolution::new(8, [3, 3], [2, 2], Pad::VALID, Shape::new(2, 7, 9, 8)),
        Convolution::new(7, [3, 2], [2, 1], odd, Shape::new(2, 6, 5, 5)),
        Convolution::new(16, [3, 2], [1, 2], odd, Shape::new(2, 6, 5, 8)),
        Convolution::new(8, [5, 5], [1, 1], Pad::same(6, 6, [5; 2], [1; 2]), Shape::new(1, 6, 6, 3)),
        // Pixels that no window touches.
        Convolution::new(8, [2, 2], [3, 3], Pad::VALID, Shape::new(1, 9, 8, 8)),
        // One window, as large as the image.
        Convolution::new(8, [4, 6], [1, 1], Pad { top: 1, ..Pad::VALID }, Shape::new(3, 3, 6, 8)),
    ] {
        agree(&case);
    }
}

#[test]
fn more_than_one_tile() {
    for case in [
        // More than 128 pixels and 64 channels, in packs and not.
        Convolution::new(72, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 7, 7, 16)),
        Convolution::new(67, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 7, 7, 9)),
        // More than 128 taps and channels, and more than 64 of both ends.
        Convolution::new(16, [3, 3], [1, 1], SAME, Shape::new(1, 4, 4, 72)),
    ] {
        agree(&case);
    }
}

/// Sums long enough to be cut into parts: forward and backward data along taps and channels, the filter along pixels.
#[test]
fn long_sums() {
    agree(&Convolution::new(40, [3, 3], [1, 1], SAME, Shape::new(1, 3, 3, 40)));
    agree(&Convolution::new(8, [1, 1], [1, 1], Pad::VALID, Shape::new(3, 13, 13, 8)));
    agree(&Convolution {
        write: Write::Add,
        ..Convolution::new(40, [3, 3], [1, 1], SAME, Shape::new(1, 3, 3, 7))
    });
}

/// Convolutions that nobody thought of.
#[test]
fn random_convolutions() {
    let mut rng = draws("convolutions");
    let devices = PRECISIONS.map(emulated);
    for _ in 0..RANDOM_CASES {
        let mut size = |from, to| between(&mut rng, from, to);
        let kernel = [size(1, 4), size(1, 4)];
        let pad = Pad { top: size(0, 3), bottom: size(0, 3), left: size(0, 3), right: size(0, 3) };
        let stride = [size(1, 3), size(1, 3)];
        let [n, h, w] = [size(1, 4), size(1, 9), size(1, 9)];
        let (h, w) = (h.max(kernel[0]), w.max(kernel[1]));
        let c = pick(&mut rng, &[1, 2, 3, 4, 7, 8, 12, 16, 24, 33]);
        let outputs = pick(&mut rng, &[1, 3, 4, 8, 9, 16, 20, 40, 66]);
        let case = Convolution {
            act: pick(&mut rng, &[Activation::None, Activation::Relu]),
            bias: pick(&mut rng, &[true, false]),
            place: pick(&mut rng, &PLACEMENTS),
            write: pick(&mut rng, &[Write::Set, Write::Add]),
            ..Convolution::new(outputs, kernel, stride, pad, Shape::new(n, h, w, c))
        };
        devices.iter().for_each(|device| agree_on(device, &case));
    }
}

#[test]
fn bias_and_activation() {
    for (outputs, act) in [(8, Activation::None), (5, Activation::Relu), (16, Activation::Relu)] {
        let plain = Convolution::new(outputs, [3, 3], [1, 1], SAME, Shape::new(2, 4, 4, 8));
        agree(&Convolution { act, bias: true, ..plain });
        agree(&Convolution { act, ..plain });
    }
}

#[test]
fn slices_and_sums_of_gradients() {
    for place in PLACEMENTS {
        for write in [Write::Set, Write::Add] {
            let plain = Convolution::new(16, [3, 3], [2, 2], SAME, Shape::new(2, 5, 4, 8));
            agree(&Convolution { place, write, bias: true, act: Activation::Relu, ..plain });
            agree(&Convolution { place, write, ..plain });
        }
    }
}

#[test]
fn dense_layers() {
    let plain = Dense {
        linear: Linear { inputs: 40, outputs: 10 },
        n: 3,
        act: Activation::None,
        place: ALONE,
        write: Write::Set,
    };
    let sized = |n, inputs, outputs| Dense { linear: Linear { inputs, outputs }, n, ..plain };
    for case in [
        plain,
        Dense { act: Activation::Relu, place: PLACEMENTS[2], write: Write::Add, ..plain },
        Dense { act: Activation::Relu, place: PLACEMENTS[1], ..sized(5, 16, 24) },
        sized(1, 600, 24),
        sized(130, 24, 72),
        sized(7, 1, 1),
    ] {
        agree(&case);
    }
}

/// Column sums in parts, in several blocks side by side, and in single elements.
#[test]
fn gradients_of_biases() {
    for (n, outputs) in [(70, 2), (600, 1), (40, 2100), (9, 260)] {
        let linear = Linear { inputs: 1, outputs };
        agree(&Dense { linear, n, act: Activation::None, place: ALONE, write: Write::Set });
    }
}

/// Gradients of an empty batch are zeros; a layer without inputs yields its bias.
#[test]
fn nothing_to_do() {
    for shape in [Shape::new(0, 4, 4, 8), Shape::new(2, 4, 4, 0)] {
        agree(&Convolution { bias: true, ..Convolution::new(8, [3, 3], [1, 1], SAME, shape) });
    }
    for write in [Write::Set, Write::Add] {
        let none = Convolution::new(0, [3, 3], [1, 1], SAME, Shape::new(2, 4, 4, 8));
        agree(&Convolution { write, bias: true, place: PLACEMENTS[1], ..none });
    }
    for [n, inputs, outputs] in [[0, 3, 4], [2, 0, 4], [2, 3, 0]] {
        let linear = Linear { inputs, outputs };
        agree(&Dense { linear, n, act: Activation::Relu, place: ALONE, write: Write::Set });
    }
}

/// Two layers in turns on one place of an arena, as no network has them: the gradients of each are its own.
#[test]
fn weights_in_one_place() {
    #[derive(Debug)]
    struct Turns;
    impl Case for Turns {
        fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
            let arena = Arena::draw("params", precision, 8 * 16, 1);
            let params = upload(device, &arena.values)?;
            let mut grads = upload(device, &numbers("grads", arena.values.len()))?;
            let mut outputs = Vec::new();
            for [c, k] in [[8, 16], [16, 8], [8, 16]] {
                let linear = Linear { inputs: c, outputs: k };
                let x = Operand::draw("x", Shape::vectors(3, c), ALONE).on(device, precision)?;
                let mut y = Operand::draw("y", Shape::vectors(3, k), ALONE).on(device, precision)?;
                let none = Activation::None;
                device.linear_fwd(
                    &linear,
                    none,
                    x.view(),
                    Run::new(&params, arena.w.into()),
                    y.view_mut(),
                )?;
                device.linear_bwd_filter(
                    &linear,
                    x.view(),
                    y.view(),
                    RunMut::new(&mut grads, arena.w.into()),
                )?;
                device.finish_grads(&mut grads, arena.w)?;
                outputs.push(y.output(device, "y", 2e-6)?);
                // Of a y that is rounded.
                let dw = download(device, &grads, Span::new(0, arena.values.len()))?;
                outputs.push(Output("dw", dw, twice(precision)));
            }
            Ok(outputs)
        }
    }
    agree(&Turns);
}

/// Of an arena's gradients those of a run are brought into place, and what is elsewhere stays: its sum may have begun.
#[test]
fn gradients_are_finished_by_runs() {
    let cuda = emulated(Precision::Fp32);
    let linear = Linear { inputs: 70, outputs: 65 };
    let len = linear.inputs * linear.outputs;
    let layers = [0, 1, 2].map(|k| Span::new(k * (len + 3), len));
    let mut grads = cuda.alloc(layers[2].end()).unwrap();
    let x = Operand::draw("x", Shape::vectors(3, 70), ALONE).on(&cuda, Precision::Fp32).unwrap();
    let dy = Operand::draw("dy", Shape::vectors(3, 65), ALONE).on(&cuda, Precision::Fp32).unwrap();
    for w in layers {
        cuda.linear_bwd_filter(&linear, x.view(), dy.view(), RunMut::new(&mut grads, w.into())).unwrap();
    }
    let whole = Span::new(0, grads.len());
    cuda.finish_grads(&mut grads, whole).unwrap();
    let expected = download(&cuda, &grads, layers[0]).unwrap();
    for (finished, run) in
        [(0..1, layers[0]), (1..3, Span::new(len + 1, 2 * len + 5)), (3..3, Span::new(9, 40))]
    {
        cuda.fill(7.0, &mut grads, whole).unwrap();
        cuda.finish_grads(&mut grads, run).unwrap();
        for (k, w) in layers.into_iter().enumerate() {
            let values = download(&cuda, &grads, w).unwrap();
            let expected = if finished.contains(&k) { expected.clone() } else { vec![7.0; len] };
            assert!(values == expected, "layer {k} after {run:?}");
        }
    }
    let outside = Span::new(1, grads.len());
    assert!(cuda.finish_grads(&mut grads, outside).is_err());
}

/// Whatever changes parameters changes what a layer computes with.
#[test]
fn parameters_that_change() {
    #[derive(Debug)]
    struct Changes;
    impl Case for Changes {
        fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
            let linear = Linear { inputs: 70, outputs: 66 };
            let arena = Arena::draw("params", precision, linear.inputs * linear.outputs, 1);
            let (w, len) = (arena.w, arena.values.len());
            let whole = Layout::contiguous(Shape::vectors(1, len));
            let mut params = upload(device, &arena.values)?;
            let other = upload(device, &Arena::draw("other", precision, w.len, 1).values)?;
            let mut state = upload(device, &numbers("state", len).iter().map(|x| x * x).collect::<Vec<_>>())?;
            let x = Operand::draw("x", Shape::vectors(3, linear.inputs), ALONE).on(device, precision)?;
            let mut y = Operand::draw("y", Shape::vectors(3, linear.outputs), ALONE).on(device, precision)?;
            let mut outputs = Vec::new();
            // In half precision a step takes gradients for scaled ones.
            let changes = if precision == Precision::Fp16 { 3 } else { 5 };
            for change in 0..changes {
                match change {
                    0 => {}
                    1 => device.fill(0.5, &mut params, Span::new(7, 200))?,
                    2 => {
                        device.copy(View::new(&other, whole), ViewMut::new(&mut params, whole), Write::Set)?
                    }
                    3 => {
                        let step = SgdStep {
                            lr: 0.5,
                            momentum: 0.0,
                            nesterov: false,
                            velocity: Velocity::Keras,
                            weight_decay: WeightDecay::None,
                        };
                        device.sgd_step(&step, &mut params, &other, &mut state, Span::new(0, len))?;
                    }
                    _ => {
                        let step = RmspropStep {
                            lr: 0.25,
                            rho: 0.5,
                            epsilon: 0.1,
                            epsilon_inside_root: false,
                            weight_decay: WeightDecay::None,
                        };
                        device.rmsprop_step(&step, &mut params, &other, &mut state, Span::new(0, len))?;
                    }
                }
                device.linear_fwd(
                    &linear,
                    Activation::None,
                    x.view(),
                    Run::new(&params, w.into()),
                    y.view_mut(),
                )?;
                outputs.push(y.output(device, "y", twice(precision))?);
            }
            Ok(outputs)
        }
    }
    agree(&Changes);
}

/// A replay computes with the numbers of the day, parameters included.
#[test]
fn a_recorded_step() {
    for precision in PRECISIONS {
        let cuda = emulated(precision);
        let case = Convolution::new(8, [3, 3], [1, 1], SAME, Shape::new(2, 4, 4, 8));
        let conv = &case.conv;
        let arena = Arena::draw("params", precision, conv.weights(), conv.outputs);
        let (w, b) = (arena.w, Some(arena.b));
        let whole = Span::new(0, arena.values.len());
        let mut params = upload(&cuda, &arena.values).unwrap();
        let mut grads = upload(&cuda, &numbers("grads", whole.len)).unwrap();
        let mut x = Operand::draw("x", case.x, ALONE).on(&cuda, precision).unwrap();
        let mut y = Operand::draw("y", case.x, ALONE).on(&cuda, precision).unwrap();
        let act = Activation::Relu;
        let step = |x: &Tensor<_>, params: &_, y: &mut Tensor<_>, grads: &mut _| -> Result<()> {
            cuda.conv2d_fwd(conv, act, x.view(), Run::new(params, WeightSpans { w, b }), y.view_mut())?;
            cuda.conv2d_bwd_filter(conv, x.view(), y.view(), RunMut::new(grads, WeightSpans { w, b }))?;
            cuda.finish_grads(grads, w)
        };

        cuda.begin_recording().unwrap();
        let error = step(&x, &params, &mut y, &mut grads).unwrap_err();
        assert!(error.to_string().contains("run every op once before it is recorded"), "{error}");
        cuda.abandon_recording();

        step(&x, &params, &mut y, &mut grads).unwrap();
        cuda.begin_recording().unwrap();
        step(&x, &params, &mut y, &mut grads).unwrap();
        let recording = cuda.end_recording().unwrap();
        let other: Vec<f32> =
            numbers("other x", x.layout.end() + 3).iter().map(|&x| rounded(precision, x)).collect();
        cuda.upload(&other, &mut x.data, 0).unwrap();
        let other = Arena::draw("other", precision, conv.weights(), conv.outputs);
        cuda.upload(&other.values, &mut params, 0).unwrap();
        recording.replay(&Turn::default()).unwrap();
        let replayed =
            [download(&cuda, &y.data, Span::new(0, y.layout.end())), download(&cuda, &grads, whole)];

        step(&x, &params, &mut y, &mut grads).unwrap();
        let run = [download(&cuda, &y.data, Span::new(0, y.layout.end())), download(&cuda, &grads, whole)];
        assert_eq!(replayed.map(Result::unwrap), run.map(Result::unwrap), "{precision}");
    }
}

#[test]
fn operands_that_do_not_fit() {
    let cuda = emulated(Precision::Fp32);
    let conv = Conv2d { inputs: 2, outputs: 4, kernel: [1; 2], stride: [1; 2], pad: Pad::VALID };
    let shape = Shape::new(1, 2, 2, 2);
    let x = Operand::draw("x", shape, ALONE).on(&cuda, Precision::Fp32).unwrap();
    let mut y = Operand::draw("y", shape.with_c(4), ALONE).on(&cuda, Precision::Fp32).unwrap();
    let mut arena = cuda.alloc(12).unwrap();
    let (none, w) = (Activation::None, Span::new(0, 8));
    let error = |result: Result<()>| result.unwrap_err();

    let long = cuda.conv2d_fwd(&conv, none, x.view(), Run::new(&arena, Span::new(5, 8).into()), y.view_mut());
    assert!(matches!(error(long), Error::OutOfBounds { end: 13, len: 12, .. }));
    let short =
        cuda.conv2d_fwd(&conv, none, x.view(), Run::new(&arena, Span::new(0, 7).into()), y.view_mut());
    assert!(matches!(error(short), Error::Length { expected: 8, got: 7, .. }));
    let bias = cuda.conv2d_fwd(
        &conv,
        none,
        x.view(),
        Run::new(&arena, WeightSpans { w, b: Some(Span::new(8, 5)) }),
        y.view_mut(),
    );
    assert!(matches!(error(bias), Error::Length { expected: 4, got: 5, .. }));
    let other = cuda.conv2d_bwd_data(&conv, x.view(), Run::new(&arena, w), y.view_mut(), Write::Set);
    assert!(matches!(error(other), Error::Shape { .. }));
    let both = cuda.conv2d_bwd_filter(
        &conv,
        x.view(),
        y.view(),
        RunMut::new(&mut arena, WeightSpans { w, b: Some(Span::new(6, 4)) }),
    );
    assert!(matches!(error(both), Error::Value { .. }));
}
