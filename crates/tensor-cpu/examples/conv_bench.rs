//! The speed of every convolution and dense layer of the recipes' networks, beside the CPU's peak.
//!
//! `cargo run --release -p towers-tensor-cpu --example conv_bench -- [THREADS] [keras_cnn|minigooglenet|resnet18|resnext50|pointwise] [LAYER] [--bf16]`
//!
//! With one thread, time is the processor's, so that other programs on the machine hardly show; with more it is the
//! wall clock's. For each layer and pass: milliseconds, GFLOP/s, and the share of the fused multiply-add peak of that many threads.
//! The last lines predict the images a second of training if these layers were all of the work.

mod arguments;

use std::time::Instant;
use towers_program::ops::{
    Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient, LinearForward, LinearInputGradient,
    LinearWeightGradient,
};
use towers_program::{
    Activation, Arena, Backend, Conv2d, Layout, Linear, Op, Pad, Result, Shape, StepArgs, Trial, Write,
};
use towers_tensor_cpu::{Cpu, Roofline};

struct Layer {
    name: String,
    conv: Conv2d,
    x: Shape,
    /// Whether the network's input needs no gradient.
    first: bool,
    dense: bool,
}

impl Layer {
    fn conv(x: Shape, k: usize, kernel: usize, stride: usize, same: bool) -> Layer {
        let pad = if same { Pad::same(x.h, x.w, [kernel; 2], [stride; 2]) } else { Pad::VALID };
        let conv = Conv2d { stride: [stride; 2], pad, ..Conv2d::new(x.c, k, [kernel; 2]) };
        let name = format!("{}x{} {kernel}x{kernel}/{stride} {}->{k}", x.h, x.w, x.c);
        Layer { name, conv, x, first: x.c == 3, dense: false }
    }

    fn dense(n: usize, inputs: usize, outputs: usize) -> Layer {
        let layer = Layer::conv(Shape::vectors(n, inputs), outputs, 1, 1, false);
        Layer { name: format!("dense {inputs}->{outputs}"), dense: true, ..layer }
    }
}

fn keras_cnn(n: usize) -> Vec<Layer> {
    let at = |h, c| Shape::new(n, h, h, c);
    vec![
        Layer::conv(at(32, 3), 32, 3, 1, true),
        Layer::conv(at(32, 32), 32, 3, 1, false),
        Layer::conv(at(15, 32), 64, 3, 1, true),
        Layer::conv(at(15, 64), 64, 3, 1, false),
        Layer::dense(n, 2304, 512),
        Layer::dense(n, 512, 10),
    ]
}

fn minigooglenet(n: usize) -> Vec<Layer> {
    let mut layers = vec![Layer::conv(Shape::new(n, 32, 32, 3), 96, 3, 1, true)];
    let mut inception = |h, c, a, b| {
        layers.push(Layer::conv(Shape::new(n, h, h, c), a, 1, 1, true));
        layers.push(Layer::conv(Shape::new(n, h, h, c), b, 3, 1, true));
        a + b
    };
    let c = inception(32, 96, 32, 32);
    let c = inception(32, c, 32, 48);
    let c = inception(15, c + 80, 112, 48);
    let c = inception(15, c, 96, 64);
    let c = inception(15, c, 80, 80);
    let c = inception(15, c, 48, 96);
    let c = inception(7, c + 96, 176, 160);
    inception(7, c, 176, 160);
    layers.push(Layer::conv(Shape::new(n, 32, 32, 80), 80, 3, 2, false));
    layers.push(Layer::conv(Shape::new(n, 15, 15, 144), 96, 3, 2, false));
    layers.push(Layer::dense(n, 336, 10));
    layers
}

/// The 3x3 layers of ResNet-18 for 32x32 images, each once.
fn resnet18(n: usize) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut inputs = 64;
    for (side, c) in [(32, 64), (16, 128), (8, 256), (4, 512)] {
        if c > inputs {
            layers.push(Layer::conv(Shape::new(n, 2 * side, 2 * side, inputs), c, 3, 2, true));
        }
        layers.push(Layer::conv(Shape::new(n, side, side, c), c, 3, 1, true));
        inputs = c;
    }
    layers
}

/// The grouped layers of ResNeXt50-32x4d.
fn resnext50(n: usize) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (side, c) in [(56, 128), (28, 256), (14, 512), (7, 1024)] {
        let mut grouped = |side, stride| {
            let mut layer = Layer::conv(Shape::new(n, side, side, c), c, 3, stride, false);
            layer.conv.pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };
            layer.conv.groups = 32;
            layer.name += "/32";
            layers.push(layer);
        };
        if c > 128 {
            grouped(2 * side, 2);
        }
        grouped(side, 1);
    }
    layers
}

/// The 1x1 layers of ResNet50 and ConvNeXt-Tiny.
fn pointwise(n: usize) -> Vec<Layer> {
    let resnet50 = [(56, 64, 256), (28, 128, 512), (14, 256, 1024), (7, 512, 2048)];
    let convnext = [(56, 96, 384), (28, 192, 768), (14, 384, 1536), (7, 768, 3072)];
    let both = |(side, few, many)| {
        let layer = |inputs, outputs| Layer::conv(Shape::new(n, side, side, inputs), outputs, 1, 1, true);
        [layer(few, many), layer(many, few)]
    };
    resnet50.into_iter().chain(convnext).flat_map(both).collect()
}

/// A clock in seconds: the processor's time of this program for one thread, the wall's for several.
struct Clock {
    start: Instant,
    of_processor: Option<fn() -> f64>,
}

impl Clock {
    fn new(threads: usize) -> Clock {
        Clock { start: Instant::now(), of_processor: PROCESSOR.filter(|_| threads == 1) }
    }

    fn now(&self) -> f64 {
        self.of_processor.map_or_else(|| self.start.elapsed().as_secs_f64(), |seconds| seconds())
    }
}

/// The processor's time of this program.
#[cfg(target_os = "linux")]
const PROCESSOR: Option<fn() -> f64> = Some(|| {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
});
#[cfg(not(target_os = "linux"))]
const PROCESSOR: Option<fn() -> f64> = None;

/// The smallest time of a call, in seconds: other programs only ever add.
fn time(clock: &Clock, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let (begin, mut best, mut calls) = (clock.now(), f64::MAX, 0);
    while calls < 3 || (clock.now() - begin < 0.25 && calls < 1000) {
        let start = clock.now();
        call()?;
        best = best.min(clock.now() - start);
        calls += 1;
    }
    Ok(best)
}

/// Forward, backward data, backward filter, in seconds.
fn passes(cpu: &Cpu, clock: &Clock, layer: &Layer) -> Result<[f64; 3]> {
    let (conv, act, n) = (layer.conv, Activation::None, layer.x.n);
    let (of_x, of_y) = (Layout::contiguous(layer.x), Layout::contiguous(conv.output(layer.x)?));
    let numbers = |len: usize| (0..len).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect::<Vec<f32>>();
    let mut trial = Trial::new(n);
    let [x, dx] = [of_x; 2].map(|at| trial.activations(at, &numbers(at.end())));
    let [y, dy] = [of_y; 2].map(|at| trial.activations(at, &numbers(at.end())));
    let [w, b] = [conv.weights(), conv.outputs].map(|len| trial.run(Arena::Parameters, &numbers(len)));
    let dw = trial.run(Arena::Gradients, &numbers(conv.weights()));
    let ops: [Op; 3] = if layer.dense {
        let linear = Linear { inputs: conv.inputs, outputs: conv.outputs };
        [
            LinearForward { linear, act }.into(),
            LinearInputGradient { linear }.into(),
            LinearWeightGradient { linear, bias: false }.into(),
        ]
    } else {
        [
            Conv2dForward { conv, act }.into(),
            Conv2dInputGradient { conv, x: layer.x.with_n(1) }.into(),
            Conv2dWeightGradient { conv, bias: false }.into(),
        ]
    };
    for (op, operands, result) in
        [(ops[0], &[x, w, b][..], y), (ops[1], &[dy, w], dx), (ops[2], &[x, dy], dw)]
    {
        trial.step(op, operands, &[result], Write::Set);
    }
    let (mut run, args) = (trial.on(cpu)?, StepArgs::inference(n));
    let mut seconds = [0.0; 3];
    for (step, seconds) in seconds.iter_mut().enumerate().filter(|(step, _)| *step != 1 || !layer.first) {
        *seconds = time(clock, || run.run_steps(step..step + 1, &args))?;
    }
    Ok(seconds)
}

fn main() -> Result<()> {
    let Some((cpu, args)) = arguments::device() else { return Ok(()) };
    let clock = Clock::new(cpu.threads());
    let peak = Roofline::measure(&cpu)?.gflops;
    println!("{}: {peak:.0} GFLOP/s of multiply-adds at most", cpu.name());
    for (name, n, layers) in [
        ("keras_cnn", 128, keras_cnn(128)),
        ("minigooglenet", 64, minigooglenet(64)),
        ("resnet18", 64, resnet18(64)),
        ("resnext50", 16, resnext50(16)),
        ("pointwise", 16, pointwise(16)),
    ] {
        if args.get(1).is_some_and(|wanted| wanted != name) {
            continue;
        }
        println!("\n{name}, batch {n}\n{:26}{:^22}{:^22}{:^22}", "", "forward", "bwd data", "bwd filter");
        let (mut total, mut floor) = ([0.0; 3], 0.0);
        for layer in layers.iter().filter(|l| args.get(2).is_none_or(|wanted| l.name.contains(wanted))) {
            let seconds = passes(&cpu, &clock, layer)?;
            let gflop = 2.0 * layer.conv.multiply_adds(layer.x) as f64 / 1e9;
            print!("{:26}", layer.name);
            for (seconds, total) in seconds.into_iter().zip(&mut total) {
                if seconds > 0.0 {
                    let rate = gflop / seconds;
                    print!("{:8.2} {rate:6.0} {:3.0}%   ", seconds * 1e3, rate / peak * 100.0);
                    floor += gflop / peak;
                } else {
                    print!("{:22}", "");
                }
                *total += seconds;
            }
            println!();
        }
        let sum: f64 = total.iter().sum();
        println!("{:26}{:8.2} ms{:19.2} ms{:19.2} ms", "all", total[0] * 1e3, total[1] * 1e3, total[2] * 1e3);
        println!("{:.0} images/s at most ({:.0}% of the peak)", n as f64 / sum, floor / sum * 100.0);
    }
    Ok(())
}
