//! Once an op has run, running it again allocates nothing: a training step's memory is known in advance.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use towers_optim::{Adam, Rmsprop, Sgd, WeightDecay};
use towers_program::ops::*;
use towers_program::{
    Activation, Arena, Backend, BatchNorm, Conv2d, Layout, Linear, Noise, Op, Pad, ParamRun, Pool2d, Result,
    Shape, Span, StepArgs, Storage, TensorId, Trial, TrialRun, Write,
};
use towers_tensor_cpu::Cpu;

/// The system's allocator, counting calls of all threads.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RELU: Activation = Activation::Relu;

fn batch(trial: &mut Trial, shape: Shape) -> TensorId {
    trial.activations(Layout::contiguous(shape), &numbers(shape.len()))
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|k| (k % 11) as f32 - 5.0).collect()
}

/// Every op with a separate kernel. Those that add, add.
fn every_op(cpu: &Cpu) -> Result<TrialRun<'_>> {
    let (n, shape, mode) = (4, Shape::new(4, 16, 16, 24), Write::Add);
    let (one, mut to) = (shape.with_n(1), Trial::new(n));
    let pad = Pad::same(16, 16, [3; 2], [1; 2]);
    let conv = Conv2d { pad, ..Conv2d::new(24, 24, [3; 2]) };
    let (linear, pool) = (Linear { inputs: 24, outputs: 10 }, Pool2d::new([3; 2], [2; 2], Pad::VALID));
    let (vectors, classes, pooled) = (Shape::vectors(n, 24), Shape::vectors(n, 10), pool.output(shape)?);
    let (bn, act) = (BatchNorm { epsilon: 1e-3, act: RELU }, RELU);
    let [x, dy] = [shape; 2].map(|shape| batch(&mut to, shape));
    let [w, b, gamma, beta, dense] =
        [conv.weights(), 24, 24, 24, 240].map(|len| to.run(Arena::Parameters, &numbers(len)));
    let [dw, db, dgamma, dbeta, ddense, sums, metrics] =
        [conv.weights(), 24, 24, 24, 240, 48, 2].map(|len| to.run(Arena::Gradients, &numbers(len)));
    let [mean, variance] = [[0.0; 24], [1.0; 24]].map(|run| to.run(Arena::Averages, &run));
    let saved = to.run(Arena::Statistics, &[0.0; 48]);
    let labels = to.labels(&[0; 4]);

    let mut step = |op: Op, operands: &[TensorId], of: Shape, rest: &[TensorId], mode| {
        let result = batch(&mut to, of);
        to.step(op, operands, &[&[result], rest].concat(), mode);
        result
    };
    step(Conv2dForward { conv, act }.into(), &[x, w, b], shape, &[], Write::Set);
    step(Conv2dInputGradient { conv, x: one }.into(), &[dy, w], shape, &[], mode);
    let of_inference = [gamma, beta, mean, variance];
    let normalized = Conv2dNormalized { conv, bn };
    step(normalized.into(), &[&[x, w], &of_inference[..]].concat(), shape, &[], Write::Set);
    step(BatchNormTrain { bn }.into(), &[x, gamma, beta], shape, &[saved, sums], Write::Set);
    step(BatchNormInfer { bn }.into(), &[&[x], &of_inference[..]].concat(), shape, &[], Write::Set);
    let of_input = BatchNormInputGradient { bn, shared: false };
    step(of_input.into(), &[x, gamma, beta, saved, dy, dgamma, dbeta], shape, &[], mode);
    step(Activate { act }.into(), &[x], shape, &[], Write::Set);
    step(Add { act }.into(), &[x, dy], shape, &[], Write::Set);
    step(ActivationGradient { act }.into(), &[x, dy], shape, &[], mode);
    step(Scale { factor: 1.0 }.into(), &[x], shape, &[], mode);
    step(Dropout { rate: 0.5, noise: Noise::Element, domain: 1 }.into(), &[x], shape, &[], mode);
    let largest = step(MaxPool { pool }.into(), &[x], pooled, &[], Write::Set);
    step(MaxPoolGradient { pool }.into(), &[x, largest, largest], shape, &[], mode);
    let mean_of = step(AveragePool { pool }.into(), &[x], pooled, &[], Write::Set);
    step(AveragePoolGradient { pool, x: one }.into(), &[mean_of], shape, &[], mode);
    let (pad, norm) = (ZeroPad { top: 1, bottom: -1, left: 0, right: 0 }, LayerNorm { epsilon: 1e-3 });
    let (response, larger) = (
        LocalResponseNorm { size: 5, alpha: 1.0, beta: 0.75, bias: 1.0 },
        Upsample { by: [2; 2], bilinear: true },
    );
    step(pad.into(), &[x], shape, &[], mode);
    step(norm.into(), &[x, gamma, beta], shape, &[], Write::Set);
    step(LayerNormGradient { norm }.into(), &[x, gamma, dy], shape, &[dgamma, dbeta], mode);
    step(response.into(), &[x], shape, &[], Write::Set);
    step(LocalResponseNormGradient { norm: response }.into(), &[x, dy], shape, &[], mode);
    step(Dropout { rate: 0.5, noise: Noise::Channel, domain: 1 }.into(), &[x], shape, &[], mode);
    let large = step(larger.into(), &[x], Shape::new(4, 32, 32, 24), &[], Write::Set);
    step(UpsampleGradient { upsample: larger }.into(), &[large], shape, &[], mode);
    let (of_dense, logits) = (batch(&mut to, vectors), batch(&mut to, classes));
    let mut step = |op: Op, operands: &[TensorId], of: Shape, rest: &[TensorId], mode| {
        let result = batch(&mut to, of);
        to.step(op, operands, &[&[result], rest].concat(), mode);
    };
    step(LinearForward { linear, act }.into(), &[of_dense, dense], classes, &[], Write::Set);
    step(LinearInputGradient { linear }.into(), &[logits, dense], vectors, &[], mode);
    step(
        CrossEntropy { gradient: true, multi_label: false }.into(),
        &[logits, labels],
        classes,
        &[metrics],
        Write::Set,
    );
    to.step(Conv2dWeightGradient { conv, bias: true }, &[x, dy], &[dw, db], Write::Set);
    to.step(BatchNormWeightGradient { bn }, &[x, gamma, beta, saved, dy], &[dgamma, dbeta], Write::Set);
    to.step(LinearWeightGradient { linear, bias: false }, &[of_dense, logits], &[ddense], Write::Set);
    to.on(cpu)
}

/// One step of each optimizer.
fn every_optimizer(cpu: &Cpu, [params, grads, mean, mean_square, steps]: &mut [Storage; 5]) -> Result<()> {
    let all = Span::new(0, params.len());
    let runs = [ParamRun::new(all, WeightDecay::None)];
    cpu.ema_step(0.9, 1.0, grads, all, params, all)?;
    let sgd = Sgd::keras().momentum(0.9).nesterov().into();
    cpu.optimizer_step(&sgd, 0.1, params, grads, &mut [mean], &runs)?;
    cpu.optimizer_step(&Rmsprop::keras2().into(), 0.1, params, grads, &mut [mean], &runs)?;
    cpu.optimizer_step(&Adam::keras().into(), 0.1, params, grads, &mut [mean, mean_square, steps], &runs)
}

/// A normalization and a dense layer on vectors.
fn on_vectors(cpu: &Cpu, n: usize) -> Result<TrialRun<'_>> {
    let (mut to, bn) = (Trial::new(n), BatchNorm { epsilon: 1e-3, act: RELU });
    let linear = Linear { inputs: 8, outputs: 4096 };
    let [x, y, z] = [4096; 3].map(|c| batch(&mut to, Shape::vectors(n, c)));
    let narrow = batch(&mut to, Shape::vectors(n, 8));
    let [gamma, beta, w] = [4096, 4096, 8 * 4096].map(|len| to.run(Arena::Parameters, &numbers(len)));
    let saved = to.run(Arena::Statistics, &numbers(2 * 4096));
    let [sums, dw, db] = [2 * 4096, 8 * 4096, 4096].map(|len| to.run(Arena::Gradients, &numbers(len)));
    to.step(BatchNormTrain { bn }, &[x, gamma, beta], &[y, saved, sums], Write::Set);
    to.step(LinearForward { linear, act: RELU }, &[narrow, w], &[z], Write::Set);
    to.step(LinearWeightGradient { linear, bias: true }, &[narrow, x], &[dw, db], Write::Set);
    to.on(cpu)
}

/// The fewest allocations of some runs: beside the first ones threads of the pool may still begin, for which the system allocates.
fn fewest_allocations(mut run: impl FnMut()) -> usize {
    let allocations = |_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    (0..5).map(allocations).min().unwrap()
}

#[test]
fn a_second_run_allocates_nothing() {
    let narrow = Cpu::new(2).with_bf16().unwrap_or_else(|| Cpu::new(2).with_portable_bf16());
    for cpu in [Cpu::new(2), narrow] {
        let mut ops = every_op(&cpu).unwrap();
        let (args, count) = (StepArgs::inference(4), ops.executable.program().steps.len());
        ops.run_steps(0..count, &args).unwrap();
        assert_eq!(fewest_allocations(|| ops.run_steps(0..count, &args).unwrap()), 0);
        let mut arenas = [1000, 1000, 1000, 1000, 1].map(|len| cpu.alloc(len).unwrap());
        every_optimizer(&cpu, &mut arenas).unwrap();
        assert_eq!(fewest_allocations(|| every_optimizer(&cpu, &mut arenas).unwrap()), 0);

        // Fewer rows may be cut into more blocks: still nothing.
        let mut ops = on_vectors(&cpu, 65).unwrap();
        ops.run_steps(0..3, &StepArgs::inference(65)).unwrap();
        let smaller = || (1..65).for_each(|n| ops.run_steps(0..3, &StepArgs::inference(n)).unwrap());
        assert_eq!(fewest_allocations(smaller), 0);
    }
}
