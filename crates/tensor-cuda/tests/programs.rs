//! Programs of every op on the emulated GPU and on the f64 reference: run from end to end, again, and as a capture.

use crate::harness::*;
use core::cell::RefCell;
use towers_philox::{Philox, domain};
use towers_program::ops::{
    Activate, Add, AveragePool, BatchNormInfer, BatchNormTrain, Concat, Conv2dForward, CrossEntropy, Dropout,
    LinearForward, MaxPool, Reshape, Scale,
};
use towers_program::passes::{Training, inference, training};
use towers_program::{
    Activation, Arena, Backend, BatchNorm, Builder, CapturedGraph as _, Conv2d, Executable, Ints, Linear,
    Memory, Noise, Op, Pad, Parameter, Phase, Pool2d, Precision, Program, ReplayArgs, Result, Shape, Span,
    Step, StepArgs, Storage, Target, TensorId,
};
use towers_tensor_cpu::Reference;

/// The largest batch, and the one that runs.
const BATCH: usize = 5;
const N: usize = 4;
const CLASSES: u32 = 6;

/// A forward program that grows layer by layer.
struct Net {
    builder: Builder,
    /// The runs of the arenas, by name: parameters, averages and sums share one numbering.
    runs: Vec<(String, Span)>,
    trains: bool,
}

impl Net {
    fn new(trains: bool) -> Net {
        Net { builder: Builder::new(Shape::new(1, 8, 8, 3)), runs: Vec::new(), trains }
    }

    fn len(&self) -> usize {
        self.runs.last().map_or(0, |(_, span)| span.end())
    }

    fn run(&mut self, name: &str, len: usize) -> Span {
        let span = Span::new(self.len(), len);
        self.runs.push((name.to_owned(), span));
        span
    }

    fn parameter(&mut self, name: &str, len: usize) -> TensorId {
        let span = self.run(name, len);
        self.builder.parameter(Parameter { name: name.to_owned(), span, trained: true })
    }

    fn fixed(&mut self, name: &str, arena: Arena, len: usize) -> TensorId {
        let span = self.run(name, len);
        self.builder.fixed(name, arena, span)
    }

    fn push(&mut self, name: &str, op: impl Into<Op>, operands: &[TensorId]) -> TensorId {
        self.builder.layer(name);
        self.builder.push(op, operands, &[]).expect("the operands fit")[0]
    }

    fn conv(
        &mut self,
        name: &str,
        [kernel, outputs]: [usize; 2],
        bias: bool,
        act: Activation,
        x: TensorId,
    ) -> TensorId {
        let shape = self.builder.shape(x);
        let pad = Pad::same(shape.h, shape.w, [kernel; 2], [1; 2]);
        let conv = Conv2d { pad, ..Conv2d::new(shape.c, outputs, [kernel; 2]) };
        let mut operands = vec![x, self.parameter(&format!("{name}/kernel"), conv.weights())];
        operands.extend(bias.then(|| self.parameter(&format!("{name}/bias"), outputs)));
        self.push(name, Conv2dForward { conv, act }, &operands)
    }

    fn batch_norm(&mut self, name: &str, act: Activation, x: TensorId) -> TensorId {
        let (bn, c) = (BatchNorm { epsilon: 1e-3, act }, self.builder.shape(x).c);
        let [gamma, beta] = ["gamma", "beta"].map(|run| self.parameter(&format!("{name}/{run}"), c));
        self.builder.layer(name);
        if self.trains {
            let sums = self.fixed(&format!("{name}/sums"), Arena::Gradients, 2 * c);
            self.builder.push(BatchNormTrain { bn }, &[x, gamma, beta], &[sums]).expect("the operands fit")[0]
        } else {
            let [mean, var] = ["mean", "var"].map(|run| self.fixed(run, Arena::Averages, c));
            self.push(name, BatchNormInfer { bn }, &[x, gamma, beta, mean, var])
        }
    }

    fn dense(&mut self, name: &str, outputs: usize, act: Activation, x: TensorId) -> TensorId {
        let linear = Linear { inputs: self.builder.shape(x).c, outputs };
        let w = self.parameter(&format!("{name}/kernel"), linear.inputs * outputs);
        let b = self.parameter(&format!("{name}/bias"), outputs);
        self.push(name, LinearForward { linear, act }, &[x, w, b])
    }

    /// A network with every op that a layer makes, and the arenas' runs.
    fn of_all_ops(trains: bool) -> (Program, Vec<(String, Span)>) {
        use Activation::{Gelu, None, Relu};
        let mut net = Net::new(trains);
        let pool = |size, stride, pad: usize| {
            Pool2d::new([size; 2], [stride; 2], Pad { top: pad, bottom: pad, left: pad, right: pad })
        };
        let x = net.conv("stem", [3, 8], true, None, net.builder.input());
        let x = net.batch_norm("stem norm", Relu, x);
        // Branches that meet; the last one reads another, so that one of both is copied.
        let a = net.conv("a", [1, 8], true, Relu, x);
        let b = net.push("b pool", MaxPool { pool: pool(3, 1, 1) }, &[x]);
        let b = net.conv("b", [3, 5], false, None, b);
        let b = net.batch_norm("b norm", None, b);
        let c = net.conv("c", [1, 3], true, None, b);
        let x = net.push("concat", Concat, &[a, b, c]);
        let y = net.conv("residual", [3, 16], true, None, x);
        let y = net.batch_norm("residual norm", Gelu, y);
        let x = net.push("sum", Add { act: Relu }, &[y, x]);
        let twice = net.push("sum of one", Add { act: None }, &[x, x]);
        let x = net.push("gelu", Activate { act: Gelu }, &[twice]);
        let x = if trains {
            net.push("dropout", Dropout { rate: 0.3, noise: Noise::Element, domain: domain("dropout") }, &[x])
        } else {
            x
        };
        let x = net.push("scale", Scale { factor: 0.5 }, &[x]);
        let x = net.push("max pool", MaxPool { pool: pool(2, 2, 0) }, &[x]);
        let x = net.push("relu", Activate { act: Relu }, &[x]);
        let small = net.push("average pool", AveragePool { pool: pool(2, 2, 0) }, &[x]);
        // A reshaped tensor inside of another one.
        let small = net.push("spread", Reshape { to: Shape::new(1, 4, 4, 4) }, &[small]);
        let x = net.push("both", Concat, &[x, small]);
        let shape = net.builder.shape(x);
        let x = net.push("flatten", Reshape { to: shape.flatten() }, &[x]);
        let x = net.dense("dense", 10, Relu, x);
        let logits = net.dense("logits", CLASSES as usize, None, x);
        let labels = net.builder.fixed("labels", Arena::Labels, Span::new(0, Target::WORDS));
        let metrics = net.fixed("metrics", Arena::Gradients, 2);
        let op = CrossEntropy { gradient: trains, multi_label: false };
        net.builder.layer("loss");
        let loss = net.builder.in_phase(Phase::Loss).push(op, &[logits, labels], &[metrics]);
        let output_gradient = trains.then(|| loss.expect("the operands fit")[0]);
        (Program { output_gradient, ..net.builder.finish(logits) }, net.runs)
    }
}

/// A placed program with the numbers that it reads.
struct Case {
    program: Executable,
    runs: Vec<(String, Span)>,
    args: StepArgs,
}

/// The memory of a program on a device.
struct Arenas {
    activations: Storage,
    statistics: Storage,
    params: Storage,
    grads: Storage,
    averages: Storage,
    labels: Ints,
}

impl Case {
    fn inference() -> Case {
        let (program, runs) = Net::of_all_ops(false);
        let program = Executable::place(inference(program), BATCH, 0).expect("the program is sound");
        Case { program, runs, args: StepArgs::inference(N) }
    }

    fn training(recompute: bool, sync_batch_norm: Option<[usize; 2]>, rest: usize) -> Case {
        let (program, runs) = Net::of_all_ops(true);
        let program =
            training(program, Training { input_gradient: true, recompute, sync_batch_norm, bucket: None });
        let program = program
            .and_then(|program| Executable::place(program, BATCH, rest))
            .expect("the program is sound");
        let args = StepArgs {
            global_batch: N,
            seed: 11,
            step: 3,
            first_sample: 8,
            label_smoothing: 0.1,
            targets: true,
            ..StepArgs::inference(N)
        };
        Case { program, runs, args }
    }

    fn len(&self) -> usize {
        self.runs.last().map_or(0, |(_, span)| span.end())
    }

    fn arenas(&self, device: &dyn Backend, precision: Precision) -> Result<Arenas> {
        let draw = |name: &str, len| -> Vec<f32> {
            let mut rng = Philox::new(7, domain(name), [0, 0]);
            (0..len).map(|_| rounded(precision, rng.normal() as f32)).collect()
        };
        let mut params = Vec::new();
        for (name, span) in &self.runs {
            let is_kernel = name.ends_with("/kernel");
            // Of about the size that keeps activations as large as they are.
            let scale = if is_kernel { 0.25 } else { 1.0 };
            params.extend(draw(name, span.len).into_iter().map(|x| rounded(precision, scale * x)));
        }
        let averages: Vec<f32> = draw("averages", self.len()).into_iter().map(|x| x.abs() + 0.5).collect();
        let mut activations = device.alloc_activations(self.program.len(Arena::Activations))?;
        let input = self.program.layout(self.program.program().input, N);
        assert!(input.is_contiguous());
        device.upload(&draw("input", input.shape.len()), &mut activations, input.offset)?;
        let mut labels = device.alloc_ints(BATCH * Target::WORDS)?;
        let target = |k: u32| {
            Target {
                other: (k + 2) % CLASSES,
                share: 0.75,
                weights: [1.25, 0.75],
                ..Target::label(k % CLASSES)
            }
            .to_words()
        };
        let all = 0..N as u32;
        let words: Vec<u32> = if self.args.targets {
            all.flat_map(target).collect()
        } else {
            all.map(|k| k % CLASSES).collect()
        };
        device.upload_ints(&words, &mut labels)?;
        Ok(Arenas {
            activations,
            statistics: device.alloc(self.program.len(Arena::Statistics))?,
            params: upload(device, &params)?,
            grads: device.alloc(self.len())?,
            averages: upload(device, &averages)?,
            labels,
        })
    }

    /// All steps.
    fn run(&self, device: &dyn Backend, arenas: &mut Arenas) -> Result<()> {
        let Arenas { activations, statistics, params, grads, averages, labels } = arenas;
        let memory = Memory { activations, statistics, params, grads: &mut *grads, averages, labels };
        device.run(&self.program, 0..self.program.program().steps.len(), &self.args, memory)?;
        device.finish_grads(grads, Span::new(0, self.len()))
    }

    /// What a run left: the output, the input's gradient, and each run of the gradients' arena.
    fn left(&self, device: &dyn Backend, arenas: &Arenas) -> Result<Vec<(String, Vec<f32>)>> {
        let program = self.program.program();
        let mut left = Vec::new();
        for (name, id) in [("output", Some(program.output)), ("the input's gradient", program.input_gradient)]
        {
            let Some(id) = id else { continue };
            let layout = self.program.layout(id, N);
            assert!(layout.is_contiguous(), "what is kept has memory of its own");
            let at = Span::new(layout.offset, layout.shape.len());
            left.push((name.to_owned(), download(device, &arenas.activations, at)?));
        }
        for (name, span) in &self.runs {
            left.push((name.clone(), download(device, &arenas.grads, *span)?));
        }
        Ok(left)
    }

    fn run_anew(&self, device: &dyn Backend, precision: Precision) -> Result<Vec<(String, Vec<f32>)>> {
        let mut arenas = self.arenas(device, precision)?;
        device.prepare(&self.program)?;
        self.run(device, &mut arenas)?;
        self.left(device, &arenas)
    }

    /// Asserts that the emulated GPU agrees with the reference.
    fn agree(&self) {
        let expected = self.run_anew(&Reference, Precision::Fp32).expect("the reference runs the program");
        let got = self.run_anew(&emulated(Precision::Fp32), Precision::Fp32).expect("it runs");
        for ((name, expected), (_, got)) in expected.iter().zip(&got) {
            assert_close(name, got, expected, TOLERANCE, 0.0);
        }
    }
}

/// Of convolutions and normalizations one behind the other; each alone has as much.
const TOLERANCE: f32 = 1e-5;

fn names(case: &Case) -> Vec<&'static str> {
    case.program.program().steps.iter().map(|step| step.op.name()).collect()
}

#[test]
fn a_training_step_has_the_gradients_of_the_reference() {
    for recompute in [false, true] {
        let case = Case::training(recompute, None, 0);
        assert_eq!(names(&case).contains(&"batch_norm_recompute"), recompute);
        let steps = &case.program.program().steps;
        assert!(steps.iter().any(|step| step.onto.is_some()));
        let is_part = |step: &Step| !case.program.layout(step.results[0], N).is_contiguous();
        assert!(steps.iter().any(|step| matches!(step.op, Op::Reshape(_)) && is_part(step)));
        case.agree();
    }
}

/// A single replica gathers its own statistics, and sums are its own: the caller does nothing.
#[test]
fn statistics_of_a_single_replica_are_exchanged() {
    let case = Case::training(true, Some([0, 1]), 4);
    for name in ["batch_norm_moments", "all_gather", "sync_batch_norm", "join", "all_reduce"] {
        assert!(names(&case).contains(&name), "{name}");
    }
    case.agree();
}

#[test]
fn inference_has_the_outputs_of_the_reference() {
    let case = Case::inference();
    assert!(names(&case).contains(&"conv2d_batch_norm") && !names(&case).contains(&"batch_norm"));
    case.agree();
}

/// Rounding moves a few maxima to another place in their window, and the gradient with them. A wrong operand moves all of it.
#[test]
fn gradients_in_mixed_precision_are_near() {
    let case = Case::training(true, None, 0);
    for precision in [Precision::Bf16, Precision::Fp16] {
        let cuda = emulated(precision);
        cuda.set_loss_scale([1.0, 0.0]).expect("it is set");
        let expected = case.run_anew(&Reference, precision).expect("the reference runs the program");
        let got = case.run_anew(&cuda, precision).expect("it runs");
        for ((name, expected), (_, got)) in expected.iter().zip(&got) {
            let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>().sqrt();
            let apart = norm(&mut got.iter().zip(expected).map(|(a, b)| a - b));
            let size = norm(&mut expected.iter().copied());
            assert!(apart <= 0.1 * size, "{name} in {precision}: {apart} of {size}");
        }
    }
}

/// The emulated driver does the work of a capture in any order that it allows.
#[test]
fn a_recorded_step_leaves_what_the_step_leaves() {
    for (precision, across) in [(Precision::Fp32, None), (Precision::Bf16, Some([0, 1]))] {
        let case = Case::training(precision == Precision::Bf16, across, 3);
        let cuda = emulated(precision);
        let arenas = RefCell::new(case.arenas(&cuda, precision).expect("there is memory"));
        cuda.prepare(&case.program).expect("it is prepared");
        // What a step does not write is of no use to it.
        let begin = || {
            let Arenas { grads, statistics, .. } = &mut *arenas.borrow_mut();
            cuda.fill(7.0, grads, Span::new(0, case.len())).expect("it is filled");
            let all = Span::new(0, case.program.len(Arena::Statistics));
            cuda.fill(7.0, statistics, all).expect("it is filled");
        };
        let run = || case.run(&cuda, &mut arenas.borrow_mut()).expect("it runs");
        let bits = || -> Vec<u32> {
            let left = case.left(&cuda, &arenas.borrow()).expect("it is read");
            left.into_iter().flat_map(|(_, values)| values).map(f32::to_bits).collect()
        };
        begin();
        run();
        let expected = bits();
        begin();
        run();
        assert!(bits() == expected, "a step leaves nothing that changes the next");
        cuda.begin_capture().expect("it begins");
        run();
        let graph = cuda.end_capture().expect("it ends");
        for replay in 0..6 {
            begin();
            graph.replay(&ReplayArgs { step: case.args.step, lr: 0.0, first: 0 }).expect("it is done again");
            assert!(bits() == expected, "replay {replay} in {precision}");
        }
        let [works, chain] = graph.size();
        assert!(chain < works, "branches run beside each other: {works} pieces, {chain} in a chain");
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let (case, cuda) = (Case::inference(), emulated(Precision::Fp32));
    let run = |arenas: &mut Arenas, args: &StepArgs| {
        let Arenas { activations, statistics, params, grads, averages, labels } = arenas;
        let memory = Memory { activations, statistics, params, grads, averages, labels };
        cuda.run(&case.program, 0..1, args, memory).map_err(|error| error.to_string())
    };
    let mut arenas = case.arenas(&cuda, Precision::Fp32).expect("there is memory");
    let error = run(&mut arenas, &StepArgs::inference(BATCH + 1)).expect_err("the batch is too large");
    assert!(error.contains("the batch"), "{error}");
    arenas.averages = upload(&cuda, &[1.0]).expect("there is memory");
    let error = run(&mut arenas, &case.args).expect_err("the averages are too few");
    assert!(error.contains("averages"), "{error}");
}
