//! Steps that are recorded and replayed, on the stand-in and on the emulated GPU.

use program::{
    Activation, Backend, Conv2d, Layout, Pad, Precision, Run, RunMut, SgdStep, Shape, Span, Velocity, View,
    ViewMut, WeightDecay, Write,
};
use tensor_cuda::{Buffer, Cuda, Turn};

const CONV: Conv2d = Conv2d {
    inputs: 5,
    outputs: 9,
    kernel: [3, 3],
    stride: [1, 1],
    pad: Pad { top: 1, bottom: 1, left: 1, right: 1 },
};

/// Numbers around 0.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|k| ((k * 7 + seed * 5) % 13) as f32 / 13.0 - 0.5).collect()
}

/// What steps leave behind, of which all but the first are replays. The host goes on at once: it prepares a batch while the
/// step before it may not have begun.
fn steps(cuda: &Cuda) -> Vec<u32> {
    let shape = Shape::new(3, 8, 8, CONV.inputs);
    let out = CONV.output(shape).unwrap();
    let weights = Span::new(0, CONV.weights());
    let put = |seed, mut buffer: Buffer| {
        cuda.upload(&numbers(seed, buffer.len()), &mut buffer, 0).unwrap();
        buffer
    };
    let mut x = put(1, cuda.alloc_activations(shape.len()).unwrap());
    let mut y = cuda.alloc_activations(out.len()).unwrap();
    let mut dx = cuda.alloc_activations(shape.len()).unwrap();
    let arena = |seed| put(seed, cuda.alloc(weights.len).unwrap());
    let (mut params, mut grads, mut velocity) = (arena(2), arena(3), arena(4));
    cuda.prepare_conv2d(&CONV, shape, true).unwrap();
    let mut step = |x: &Buffer, lr: f32| {
        let (xl, yl) = (Layout::contiguous(shape), Layout::contiguous(out));
        let sgd = SgdStep {
            lr,
            momentum: 0.9,
            nesterov: true,
            velocity: Velocity::Keras,
            weight_decay: WeightDecay::Decoupled(0.01),
        };
        let of = |buffer| View::new(buffer, xl);
        let w = Run::new(&params, weights);
        let without_bias = Run::new(&params, weights.into());
        cuda.conv2d_fwd(&CONV, Activation::Relu, of(x), without_bias, ViewMut::new(&mut y, yl)).unwrap();
        let dy = View::new(&y, yl);
        cuda.conv2d_bwd_data(&CONV, dy, w, ViewMut::new(&mut dx, xl), Write::Set).unwrap();
        cuda.conv2d_bwd_filter(&CONV, of(&dx), dy, RunMut::new(&mut grads, weights.into())).unwrap();
        cuda.finish_grads(&mut grads, weights).unwrap();
        cuda.sgd_step(&sgd, &mut params, &grads, &mut velocity, weights).unwrap();
    };
    step(&x, 0.1);
    cuda.begin_recording().unwrap();
    step(&x, 0.0);
    let recording = cuda.end_recording().unwrap();
    for k in 0..6 {
        cuda.upload(&numbers(10 + k, shape.len()), &mut x, 0).unwrap();
        recording.replay(&Turn { lr: 0.1 / (k + 1) as f32, ..Turn::default() }).unwrap();
    }
    let bits = |buffer: &Buffer| {
        let mut values = vec![0.0; buffer.len()];
        cuda.download(buffer, 0, &mut values).unwrap();
        values.into_iter().map(f32::to_bits)
    };
    [&x, &y, &dx, &params, &velocity].into_iter().flat_map(bits).collect()
}

pub fn compare() {
    assert!(steps(&super::open().unwrap()) == steps(&Cuda::emulated(Precision::Fp32).unwrap()));
}
