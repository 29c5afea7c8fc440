//! How near the memory-bound ops come to the speed of memory, at MiniGoogLeNet's shapes (batch 64), with tensors of f32 or of bf16.
//!
//! ```text
//! cargo run --release -p towers-tensor-cpu --example ops_bench [THREADS] [--bf16]
//! ```
//!
//! Each line divides the bytes that an op must read and write by its best time. Bytes count once, or twice
//! for the input of a batch normalization, whose statistics need a separate pass. `share` compares with a
//! copy of a buffer much larger than the caches. Small tensors that stay in a cache exceed it.

mod arguments;

use core::ops::Range;
use std::hint::black_box;
use std::time::{Duration, Instant};
use towers_optim::{Adam, Clip, Rmsprop, Sgd, WeightDecay};
use towers_program::ops::*;
use towers_program::{
    Activation, Arena, Backend, BatchNorm, GradNorms, Layout, Noise, Op, Pad, ParamRun, Pool2d, Result,
    Shape, Span, StepArgs, TensorId, Trial, View, ViewMut, Write,
};
use towers_tensor_cpu::Cpu;

/// The device, and the GB/s of a copy of a large buffer on it.
struct Bench {
    cpu: Cpu,
    copy: f64,
    /// Bytes of a number of a tensor.
    bytes: f64,
}

/// The best of the times of half a second's calls, in seconds.
fn best(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < Duration::from_millis(500) {
        let call_start = Instant::now();
        call()?;
        best = best.min(call_start.elapsed().as_secs_f64());
    }
    Ok(best)
}

impl Bench {
    fn new(cpu: Cpu) -> Result<Self> {
        let bytes = if cpu.is_bf16() { 2.0 } else { 4.0 };
        let at = Layout::contiguous(Shape::vectors(1, 64 << 20));
        let (mut x, mut y) = (cpu.alloc_activations(at.end())?, cpu.alloc_activations(at.end())?);
        cpu.upload(&numbers(at.end()), &mut x, 0)?;
        let seconds = best(|| cpu.copy(View::new(&x, at), ViewMut::new(&mut y, at), Write::Set))?;
        let copy = 2.0 * bytes * at.end() as f64 / seconds / 1e9;
        println!("{}, {}, copy {copy:.1} GB/s\n", cpu.name(), towers_tensor_cpu::simd_level());
        println!("{:<16} {:>20} {:>9} {:>8} {:>6}", "op", "shape", "ms", "GB/s", "share");
        Ok(Bench { cpu, copy, bytes })
    }

    /// Times a call that moves so many numbers of tensors.
    fn line(&self, op: &str, shape: Shape, moved: usize, call: impl FnMut() -> Result<()>) -> Result<()> {
        let seconds = best(call)?;
        let speed = self.bytes * moved as f64 / seconds / 1e9;
        let (shape, ms, share) = (shape.to_string(), seconds * 1e3, 100.0 * speed / self.copy);
        println!("{op:<16} {shape:>20} {ms:>9.3} {speed:>8.1} {share:>5.0}%");
        Ok(())
    }

    /// Times steps of a trial, each with its name and the numbers of tensors that it moves.
    fn steps(&self, trial: Trial, shape: Shape, lines: &[(String, Range<usize>, usize)]) -> Result<()> {
        let (mut run, args) = (trial.on(&self.cpu)?, StepArgs::inference(shape.n));
        lines.iter().try_for_each(|(name, steps, moved)| {
            self.line(name, shape, *moved, || run.run_steps(steps.clone(), &args))
        })
    }

    /// A batch normalization of a whole tensor whose output is the last channels of `width`.
    fn batch_norm(&self, act: Activation, shape: Shape, width: usize) -> Result<()> {
        let (c, len, bn, mut trial) =
            (shape.c, shape.len(), BatchNorm { epsilon: 1e-3, act }, Trial::new(shape.n));
        let slice = Layout { offset: width - c, shape, stride: width };
        let [x, dx] = [(); 2].map(|()| batch(&mut trial, Layout::contiguous(shape)));
        let [y, dy] = [(); 2].map(|()| batch(&mut trial, slice));
        let (gamma, beta) =
            (trial.run(Arena::Parameters, &vec![1.0; c]), trial.run(Arena::Parameters, &vec![0.0; c]));
        let saved = trial.run(Arena::Statistics, &vec![0.0; 2 * c]);
        let [dgamma, dbeta, sums] = [c, c, 2 * c].map(|len| trial.run(Arena::Gradients, &vec![0.0; len]));
        trial.step(BatchNormTrain { bn }, &[x, gamma, beta], &[y, saved, sums], Write::Set);
        trial.step(
            BatchNormWeightGradient { bn },
            &[x, gamma, beta, saved, dy],
            &[dgamma, dbeta],
            Write::Set,
        );
        let op = BatchNormInputGradient { bn, shared: false };
        trial.step(op, &[x, gamma, beta, saved, dy, dgamma, dbeta], &[dx], Write::Set);
        let name = act.name();
        let lines = [(format!("norm, {name}"), 0..1, 3 * len), (format!("norm, {name} bwd"), 1..3, 5 * len)];
        self.steps(trial, shape, &lines)
    }

    fn pooling(&self, name: &str, pool: Pool2d, shape: Shape) -> Result<()> {
        let (at, out, mut trial) =
            (Layout::contiguous(shape), Layout::contiguous(pool.output(shape)?), Trial::new(shape.n));
        let [x, dx] = [at; 2].map(|at| batch(&mut trial, at));
        let [y, dy] = [out; 2].map(|at| batch(&mut trial, at));
        let (forward, both) = (at.end() + out.end(), 2 * (at.end() + out.end()));
        let backward = if name == "max pool" {
            trial.step(MaxPool { pool }, &[x], &[y], Write::Set);
            trial.step(MaxPoolGradient { pool }, &[x, y, dy], &[dx], Write::Set);
            both
        } else {
            trial.step(AveragePool { pool }, &[x], &[y], Write::Set);
            trial.step(AveragePoolGradient { pool, x: shape.with_n(1) }, &[dy], &[dx], Write::Set);
            forward
        };
        self.steps(trial, shape, &[(name.to_owned(), 0..1, forward), (format!("{name} bwd"), 1..2, backward)])
    }

    fn elementwise(&self, shape: Shape) -> Result<()> {
        let (at, mut trial, mut lines) = (Layout::contiguous(shape), Trial::new(shape.n), Vec::new());
        let x = batch(&mut trial, at);
        let mut line = |name: String, op: Op, moved, mode| {
            let y = batch(&mut trial, at);
            trial.step(op, &[x], &[y], mode);
            lines.push((name, lines.len()..lines.len() + 1, moved * at.end()));
        };
        line("add".to_owned(), Scale { factor: 1.0 }.into(), 3, Write::Add);
        line("relu".to_owned(), Activate { act: Activation::Relu }.into(), 2, Write::Set);
        line("gelu".to_owned(), Activate { act: Activation::Gelu }.into(), 2, Write::Set);
        line(
            "dropout".to_owned(),
            Dropout { rate: 0.25, noise: Noise::Element, domain: 1 }.into(),
            2,
            Write::Set,
        );
        for act in [Activation::Relu, Activation::Gelu] {
            let dy = batch(&mut trial, at);
            let dx = trial.in_place_of(dy);
            trial.step(ActivationGradient { act }, &[x, dy], &[dx], Write::Set);
            lines.push((format!("{} bwd", act.name()), lines.len()..lines.len() + 1, 3 * at.end()));
        }
        self.steps(trial, shape, &lines)
    }

    fn loss(&self, shape: Shape) -> Result<()> {
        let (at, mut trial) = (Layout::contiguous(shape), Trial::new(shape.n));
        let (x, dx) = (batch(&mut trial, at), batch(&mut trial, at));
        let (labels, metrics) = (trial.labels(&[]), trial.run(Arena::Gradients, &[0.0; 2]));
        trial.step(
            CrossEntropy { gradient: true, multi_label: false },
            &[x, labels],
            &[dx, metrics],
            Write::Set,
        );
        self.steps(trial, shape, &[("cross-entropy".to_owned(), 0..1, 2 * at.end())])
    }

    fn optimizers(&self, len: usize) -> Result<()> {
        let (cpu, shape, at) = (&self.cpu, Shape::vectors(1, len), Span::new(0, len));
        let (mut params, grads, mut state) = (cpu.alloc(len)?, cpu.alloc(len)?, cpu.alloc(len)?);
        let moved = (5.0 * 4.0 / self.bytes) as usize * len;
        let runs = [ParamRun::new(at, WeightDecay::None)];
        self.line("SGD", shape, moved, || {
            let sgd = Sgd::keras().momentum(0.9).into();
            cpu.optimizer_step(&sgd, 0.0, &mut params, &grads, &mut [&mut state], &runs)
        })?;
        self.line("RMSprop", shape, moved, || {
            let rmsprop = Rmsprop::keras2().into();
            cpu.optimizer_step(&rmsprop, 0.0, &mut params, &grads, &mut [&mut state], &runs)
        })?;
        let (mut mean_square, mut steps) = (cpu.alloc(len)?, cpu.alloc(1)?);
        self.line("Adam", shape, moved / 5 * 7, || {
            let state = &mut [&mut state, &mut mean_square, &mut steps];
            cpu.optimizer_step(&Adam::keras().into(), 0.0, &mut params, &grads, state, &runs)
        })?;
        let clip = Clip::GlobalNorm(1.0);
        let (table, norms) = (cpu.alloc_ints(2)?, cpu.alloc(1)?);
        let mut of = GradNorms { at: vec![at], table, norms };
        let mut grads = cpu.alloc(len)?;
        // Each round begins with gradients that are too long.
        self.line("fill and clip", shape, moved / 5 * 4, || {
            cpu.fill(1.0, &mut grads, at)?;
            cpu.clip_grads(clip, &mut grads, &mut of)
        })?;
        black_box(&params);
        Ok(())
    }
}

/// Normally distributed numbers, over and over.
fn numbers(len: usize) -> Vec<f32> {
    let mut rng = towers_philox::Philox::new(1, towers_philox::domain("bench"), [0, 0]);
    let block: Vec<f32> = (0..len.min(65_536)).map(|_| rng.normal() as f32).collect();
    block.into_iter().cycle().take(len).collect()
}

fn batch(trial: &mut Trial, at: Layout) -> TensorId {
    trial.activations(at, &numbers(at.end()))
}

fn main() -> Result<()> {
    let Some((cpu, _)) = arguments::device() else { return Ok(()) };
    let bench = Bench::new(cpu)?;
    let pool = |kernel, stride| Pool2d::new([kernel; 2], [stride; 2], Pad::VALID);
    for (side, c, width) in
        [(32, 96, 96), (32, 32, 64), (32, 48, 80), (15, 112, 160), (15, 48, 144), (7, 176, 336)]
    {
        for act in [Activation::Relu, Activation::Gelu] {
            bench.batch_norm(act, Shape::new(64, side, side, c), width)?;
        }
    }
    bench.pooling("max pool", pool(3, 2), Shape::new(64, 32, 32, 80))?;
    bench.pooling("max pool", pool(3, 2), Shape::new(64, 15, 15, 144))?;
    bench.pooling("max pool", pool(2, 2), Shape::new(64, 32, 32, 32))?;
    bench.pooling("average pool", pool(7, 1), Shape::new(64, 7, 7, 336))?;
    bench.elementwise(Shape::new(64, 32, 32, 64))?;
    bench.loss(Shape::vectors(64, 10))?;
    bench.optimizers(1_652_826)
}
