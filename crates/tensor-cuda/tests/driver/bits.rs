//! Steps that are recorded and replayed, on the stand-in and on the emulated GPU.

use towers_optim::{Sgd, WeightDecay};
use towers_program::ops::{Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient};
use towers_program::{
    Activation, Arena, Backend, CapturedGraph as _, Conv2d, Layout, Pad, ParamRun, Precision, ReplayArgs,
    Shape, StepArgs, Trial, TrialRun, Write,
};
use towers_tensor_cuda::Cuda;

const CONV: Conv2d =
    Conv2d { pad: Pad { top: 1, bottom: 1, left: 1, right: 1 }, ..Conv2d::new(5, 9, [3, 3]) };

/// Numbers around 0.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|k| ((k * 7 + seed * 5) % 13) as f32 / 13.0 - 0.5).collect()
}

/// The results of steps, of which all but the first are replays. The host continues at once: it prepares a
/// batch while the step before it may not have begun.
fn steps(cuda: &Cuda) -> Vec<u32> {
    let (shape, mut trial) = (Shape::new(3, 8, 8, CONV.inputs), Trial::new(3));
    let out = CONV.output(shape).unwrap();
    let batch = |trial: &mut Trial, seed, shape: Shape| {
        trial.activations(Layout::contiguous(shape), &numbers(seed, shape.len()))
    };
    let (x, y, dx) = (batch(&mut trial, 1, shape), batch(&mut trial, 5, out), batch(&mut trial, 6, shape));
    let len = CONV.weights();
    let w = trial.run(Arena::Parameters, &numbers(2, len));
    let dw = trial.run(Arena::Gradients, &numbers(3, len));
    trial.step(Conv2dForward { conv: CONV, act: Activation::Relu }, &[x, w], &[y], Write::Set);
    trial.step(Conv2dInputGradient { conv: CONV, x: shape.with_n(1) }, &[y, w], &[dx], Write::Set);
    trial.step(Conv2dWeightGradient { conv: CONV, bias: false }, &[dx, y], &[dw], Write::Set);
    let mut run = trial.on(cuda).unwrap();
    let mut velocity = cuda.alloc(len).unwrap();
    cuda.upload(&numbers(4, len), &mut velocity, 0).unwrap();
    // The weights lie as their gradients do.
    let at = run.executable.span(w);
    assert_eq!((at, at.offset), (run.executable.span(dw), 0));
    let mut step = |run: &mut TrialRun<'_>, lr: f32| {
        let (sgd, all) =
            (Sgd::keras().momentum(0.9).nesterov(), ParamRun::new(at, WeightDecay::Decoupled(0.01)));
        run.run(&StepArgs::inference(3)).unwrap();
        let (params, state) = (&mut run.parameters, &mut [&mut velocity]);
        cuda.optimizer_step(&sgd.into(), lr, params, &run.gradients, state, &[all]).unwrap();
    };
    step(&mut run, 0.1);
    cuda.begin_capture().unwrap();
    step(&mut run, 0.0);
    let graph = cuda.end_capture().unwrap();
    for k in 0..6 {
        run.write(x, &numbers(10 + k, shape.len())).unwrap();
        graph.replay(&ReplayArgs { lr: 0.1 / (k + 1) as f32, ..ReplayArgs::default() }).unwrap();
    }
    let mut moved = vec![0.0; len];
    cuda.download(&velocity, 0, &mut moved).unwrap();
    let left = [x, y, dx, w].into_iter().flat_map(|id| run.read(id, 3).unwrap());
    left.chain(moved).map(f32::to_bits).collect()
}

pub fn compare() {
    assert!(steps(&super::open().unwrap()) == steps(&Cuda::emulated(Precision::Fp32).unwrap()));
}
