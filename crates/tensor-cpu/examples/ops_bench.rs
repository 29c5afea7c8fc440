//! How near the memory-bound ops come to the speed of memory, at MiniGoogLeNet's shapes (batch 64), with tensors of f32 or of bf16.
//!
//! ```text
//! cargo run --release -p tensor-cpu --example ops_bench [THREADS] [--bf16]
//! ```
//!
//! Each line counts the bytes that an op must read and write at least once (twice for the input of a batch
//! normalization, whose statistics need a pass of their own) and divides by its best time. `share` compares with a copy of a
//! buffer much larger than the caches; small tensors that stay in a cache exceed it.

mod arguments;

use program::{
    Activation, AdamStep, AffineSpans, Backend, BatchNorm, DropoutMask, Layout, Moments, NormSaved,
    NormTrain, OptimizerStep, Pad, Pool2d, Result, RmspropStep, Run, RunMut, SgdStep, Shape, SoftmaxXent,
    Span, Velocity, View, ViewMut, WeightDecay, Write,
};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tensor_cpu::{Buffer, Cpu};

/// The device, and what a copy of a large buffer reached on it in GB/s.
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
        let (x, mut y) = (numbers(&cpu, at)?, cpu.alloc_activations(at.end())?);
        let seconds = best(|| cpu.copy(View::new(&x, at), ViewMut::new(&mut y, at), Write::Set))?;
        let copy = 2.0 * bytes * at.end() as f64 / seconds / 1e9;
        println!("{}, {}, copy {copy:.1} GB/s\n", cpu.name(), tensor_cpu::simd_level());
        println!("{:<16} {:>20} {:>9} {:>8} {:>6}", "op", "shape", "ms", "GB/s", "share");
        Ok(Bench { cpu, copy, bytes })
    }

    /// Times an op that moves so many numbers of tensors.
    fn line(&self, op: &str, shape: Shape, moved: usize, call: impl FnMut() -> Result<()>) -> Result<()> {
        let seconds = best(call)?;
        let speed = self.bytes * moved as f64 / seconds / 1e9;
        let (shape, ms, share) = (shape.to_string(), seconds * 1e3, 100.0 * speed / self.copy);
        println!("{op:<16} {shape:>20} {ms:>9.3} {speed:>8.1} {share:>5.0}%");
        Ok(())
    }

    /// A batch normalization whose input is a tensor of its own and whose output is the last channels of `width`.
    fn batch_norm(&self, act: Activation, shape: Shape, width: usize) -> Result<()> {
        let (cpu, c, len) = (&self.cpu, shape.c, shape.len());
        let (alone, wide) = (Layout::contiguous(shape), Layout::contiguous(shape.with_c(width)));
        let slice = wide.channels(width - c..width);
        let (x, dy) = (numbers(cpu, alone)?, numbers(cpu, wide)?);
        let (mut y, mut dx) = (cpu.alloc_activations(wide.end())?, cpu.alloc_activations(alone.end())?);
        let (mut params, mut saved, mut grads) = (cpu.alloc(2 * c)?, cpu.alloc(2 * c)?, cpu.alloc(4 * c)?);
        let (first, second, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
        cpu.fill(1.0, &mut params, first)?;
        let bn = BatchNorm { epsilon: 1e-3, act };
        let affine = Run::new(&params, AffineSpans { gamma: first, beta: second });
        let x = View::new(&x, alone);
        self.line(&format!("norm, {}", act.name()), shape, 3 * len, || {
            let y = ViewMut::new(&mut y, slice);
            let sums = RunMut::new(&mut grads, sums);
            cpu.bn_act_fwd_train(&bn, x, NormTrain { affine, bias: None, saved: &mut saved, sums }, y)
        })?;
        self.line(&format!("norm, {} bwd", act.name()), shape, 5 * len, || {
            let (dy, dx) = (View::new(&dy, slice), ViewMut::new(&mut dx, alone));
            let norm = NormSaved { x, affine, saved: &saved };
            cpu.bn_act_bwd(&bn, norm, dy, RunMut::new(&mut grads, affine.at), dx, Write::Set)
        })
    }

    fn pooling(&self, name: &str, pool: Pool2d, shape: Shape) -> Result<()> {
        let cpu = &self.cpu;
        let (at, out) = (Layout::contiguous(shape), Layout::contiguous(pool.output(shape)?));
        let (x, dy) = (numbers(cpu, at)?, numbers(cpu, out)?);
        let (mut y, mut dx) = (cpu.alloc_activations(out.end())?, cpu.alloc_activations(at.end())?);
        let (x, dy) = (View::new(&x, at), View::new(&dy, out));
        let max = name == "max pool";
        self.line(name, shape, at.end() + out.end(), || {
            let y = ViewMut::new(&mut y, out);
            if max { cpu.maxpool_fwd(&pool, x, y) } else { cpu.avgpool_fwd(&pool, x, y) }
        })?;
        let y = View::new(&y, out);
        let moved = if max { 2 * at.end() + 2 * out.end() } else { at.end() + out.end() };
        self.line(&format!("{name} bwd"), shape, moved, || {
            let dx = ViewMut::new(&mut dx, at);
            if max {
                cpu.maxpool_bwd(&pool, x, y, dy, dx, Write::Set)
            } else {
                cpu.avgpool_bwd(&pool, dy, dx, Write::Set)
            }
        })
    }

    fn elementwise(&self, shape: Shape) -> Result<()> {
        let (cpu, at) = (&self.cpu, Layout::contiguous(shape));
        let (x, mut y) = (numbers(cpu, at)?, cpu.alloc_activations(at.end())?);
        let x = View::new(&x, at);
        let mask = DropoutMask { rate: 0.25, key: [1, 2], step: 0, first_sample: 0 };
        self.line("add", shape, 3 * at.end(), || cpu.copy(x, ViewMut::new(&mut y, at), Write::Add))?;
        for act in [Activation::Relu, Activation::Gelu] {
            let (forward, backward) = (act.name(), format!("{} bwd", act.name()));
            self.line(forward, shape, 2 * at.end(), || cpu.act_fwd(act, x, ViewMut::new(&mut y, at)))?;
            self.line(&backward, shape, 3 * at.end(), || {
                cpu.act_bwd_in_place(act, x, ViewMut::new(&mut y, at))
            })?;
        }
        self.line("dropout", shape, 2 * at.end(), || {
            cpu.dropout(&mask, x, ViewMut::new(&mut y, at), Write::Set)
        })
    }

    fn loss(&self, shape: Shape) -> Result<()> {
        let (cpu, at) = (&self.cpu, Layout::contiguous(shape));
        let (x, mut dx) = (numbers(cpu, at)?, cpu.alloc_activations(at.end())?);
        let (labels, mut sums) = (cpu.alloc_ints(shape.n)?, cpu.alloc(2)?);
        let xent = SoftmaxXent { label_smoothing: 0.0, scale: 1.0, mixed: false };
        self.line("cross-entropy", shape, 2 * at.end(), || {
            let dx = Some(ViewMut::new(&mut dx, at));
            cpu.softmax_xent(&xent, View::new(&x, at), &labels, dx, &mut sums, Span::new(0, 2))
        })
    }

    fn optimizers(&self, len: usize) -> Result<()> {
        let (cpu, shape, at) = (&self.cpu, Shape::vectors(1, len), Span::new(0, len));
        let (mut params, grads, mut state) = (cpu.alloc(len)?, cpu.alloc(len)?, cpu.alloc(len)?);
        let moved = (5.0 * 4.0 / self.bytes) as usize * len;
        let (velocity, weight_decay) = (Velocity::Keras, WeightDecay::None);
        let sgd = SgdStep { lr: 0.0, momentum: 0.9, nesterov: false, velocity, weight_decay };
        self.line("SGD", shape, moved, || cpu.sgd_step(&sgd, &mut params, &grads, &mut state, at))?;
        let rmsprop =
            RmspropStep { lr: 0.0, rho: 0.9, epsilon: 1e-7, epsilon_inside_root: false, weight_decay };
        self.line("RMSprop", shape, moved, || {
            cpu.rmsprop_step(&rmsprop, &mut params, &grads, &mut state, at)
        })?;
        let adam =
            AdamStep { lr: 0.0, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, epsilon_hat: true, weight_decay };
        let (mut mean_square, mut steps) = (cpu.alloc(len)?, cpu.alloc(1)?);
        self.line("Adam", shape, moved / 5 * 7, || {
            let moments = Moments { mean: &mut state, mean_square: &mut mean_square, steps: &mut steps };
            let step = OptimizerStep::Adam(adam, moments);
            cpu.optimizer_step(step, &mut params, &grads, &[rmsprop.whole(at)])
        })?;
        black_box(&params);
        Ok(())
    }
}

/// Normally distributed numbers.
fn numbers(cpu: &Cpu, at: Layout) -> Result<Buffer> {
    let mut rng = philox::Philox::new(1, philox::domain("bench"), [0, 0]);
    let block: Vec<f32> = (0..65_536).map(|_| rng.normal() as f32).collect();
    let mut buffer = cpu.alloc_activations(at.end())?;
    for start in (0..at.end()).step_by(block.len()) {
        cpu.upload(&block[..block.len().min(at.end() - start)], &mut buffer, start)?;
    }
    Ok(buffer)
}

fn main() -> Result<()> {
    let Some((cpu, _)) = arguments::device() else { return Ok(()) };
    let bench = Bench::new(cpu)?;
    let pool = |kernel, stride| Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad: Pad::VALID };
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
