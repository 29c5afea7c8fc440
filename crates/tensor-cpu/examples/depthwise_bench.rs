//! The speed of depthwise convolutions, of the layers of MobileNetV2, EfficientNet-B0 and ConvNeXt-Tiny.
//!
//! `cargo run --release -p towers-tensor-cpu --example depthwise_bench -- [THREADS] [LAYER] [--bf16]`
//!
//! For each layer and pass: milliseconds, the share of the fused multiply-add peak, and the share of the bandwidth of a copy that
//! the smallest possible traffic would need: both tensors once. `docs/benchmarks/depthwise_torch.py` measures
//! PyTorch's.

mod arguments;

use std::time::Instant;
use towers_program::ops::{Depthwise, DepthwiseForward, DepthwiseInputGradient, DepthwiseWeightGradient};
use towers_program::{Activation, Arena, Backend, Layout, Pad, Result, Shape, StepArgs, Trial, Write};
use towers_tensor_cpu::{Cpu, Roofline};

/// Pixels of a side, channels, kernel, stride.
const LAYERS: [[usize; 4]; 14] = [
    [112, 32, 3, 1],
    [112, 96, 3, 2],
    [56, 144, 3, 1],
    [56, 144, 3, 2],
    [28, 192, 3, 1],
    [28, 192, 3, 2],
    [14, 576, 3, 1],
    [14, 576, 3, 2],
    [7, 960, 3, 1],
    [56, 144, 5, 2],
    [28, 240, 5, 1],
    [14, 672, 5, 1],
    [56, 96, 7, 1],
    [14, 384, 7, 1],
];

const BATCH: usize = 16;

/// The seconds that a call takes: of this program's processors for one thread, by the wall's clock for several.
fn seconds(threads: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let processor = PROCESSOR.filter(|_| threads == 1);
    let (begin, before) = (Instant::now(), processor.map(|time| time()));
    call()?;
    Ok(match (processor, before) {
        (Some(time), Some(before)) => time() - before,
        _ => begin.elapsed().as_secs_f64(),
    })
}

/// The processors' time of this program.
#[cfg(target_os = "linux")]
const PROCESSOR: Option<fn() -> f64> = Some(|| {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
});
#[cfg(not(target_os = "linux"))]
const PROCESSOR: Option<fn() -> f64> = None;

/// The smallest time of a call: other programs only ever add.
fn smallest(threads: usize, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let (begin, mut best, mut calls) = (Instant::now(), f64::MAX, 0);
    while calls < 5 || (begin.elapsed().as_secs_f64() < 0.3 && calls < 1000) {
        best = best.min(seconds(threads, &mut call)?);
        calls += 1;
    }
    Ok(best)
}

/// Forward, input gradient, weight gradient, in seconds.
fn passes(cpu: &Cpu, conv: Depthwise, x: Shape) -> Result<[f64; 3]> {
    let (of_x, of_y) = (Layout::contiguous(x), Layout::contiguous(conv.output(x)?));
    let numbers = |len: usize| (0..len).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect::<Vec<f32>>();
    let mut trial = Trial::new(x.n);
    let [x_id, dx] = [of_x; 2].map(|at| trial.activations(at, &numbers(at.end())));
    let [y, dy] = [of_y; 2].map(|at| trial.activations(at, &numbers(at.end())));
    let w = trial.run(Arena::Parameters, &numbers(conv.weights()));
    let dw = trial.run(Arena::Gradients, &numbers(conv.weights()));
    trial.step(DepthwiseForward { conv, act: Activation::None }, &[x_id, w], &[y], Write::Set);
    trial.step(DepthwiseInputGradient { conv, x: x.with_n(1) }, &[dy, w], &[dx], Write::Set);
    trial.step(DepthwiseWeightGradient { conv, bias: false }, &[x_id, dy], &[dw], Write::Set);
    let (mut run, args) = (trial.on(cpu)?, StepArgs::inference(x.n));
    let mut seconds = [0.0; 3];
    for (step, seconds) in seconds.iter_mut().enumerate() {
        *seconds = smallest(cpu.threads(), || run.run_steps(step..step + 1, &args))?;
    }
    Ok(seconds)
}

fn main() -> Result<()> {
    let Some((cpu, args)) = arguments::device() else { return Ok(()) };
    let Roofline { gflops, gigabytes, threads } = Roofline::measure(&cpu)?;
    println!("{}, {threads} threads: {gflops:.0} GFLOP/s, {gigabytes:.1} GB/s of a copy", cpu.name());
    println!("{:20}{:^24}{:^24}{:^24}", "", "forward", "input gradient", "weight gradient");
    for [side, channels, kernel, stride] in LAYERS {
        let name = format!("{side}x{side}x{channels} {kernel}x{kernel}/{stride}");
        if args.get(1).is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let x = Shape::new(BATCH, side, side, channels);
        let pad = Pad { top: kernel / 2, bottom: kernel / 2, left: kernel / 2, right: kernel / 2 };
        let conv = Depthwise {
            inputs: channels,
            multiplier: 1,
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1; 2],
            pad,
        };
        let gflop = 2.0 * conv.multiply_adds(x) as f64 / 1e9;
        let gigabyte = (x.len() + conv.output(x)?.len()) as f64 * 4e-9;
        print!("{name:20}");
        for seconds in passes(&cpu, conv, x)? {
            let [peak, copy] = [gflop / gflops, gigabyte / gigabytes].map(|floor| 100.0 * floor / seconds);
            print!("{:9.3} {peak:4.0}% {copy:4.0}%   ", seconds * 1e3);
        }
        println!();
    }
    Ok(())
}
