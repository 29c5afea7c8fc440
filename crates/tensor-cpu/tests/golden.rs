//! Both devices against values from PyTorch and Keras, made by `tests/golden/ops.py`.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

#[path = "golden/spatial.rs"]
mod spatial;

use safetensors::SafeTensors;
use spatial::{pixels, sides, windows};
use towers_optim::{Rmsprop, Sgd, Velocity, WeightDecay};
use towers_program::ops::{
    Activate, ActivationGradient, AveragePool, AveragePoolGradient, BatchNormInfer, BatchNormInputGradient,
    BatchNormTrain, BatchNormWeightGradient, ChannelShuffle, Conv2dForward, Conv2dInputGradient,
    Conv2dWeightGradient, CrossEntropy, Depthwise, DepthwiseForward, DepthwiseInputGradient,
    DepthwiseWeightGradient, GroupNorm, GroupNormGradient, MaxPool, MaxPoolGradient,
};
use towers_program::{
    Activation, Arena, BatchNorm, Conv2d, Device, Labels, Layout, Op, Pad, ParamRun, Pool2d, Shape, Span,
    StepArgs, Storage, Target, TensorId, Trial, TrialRun, View, ViewMut, Write,
};
use towers_tensor_cpu::Buffer;

/// The golden file.
struct Golden(Vec<u8>);

impl Golden {
    fn open() -> Self {
        Golden::of("ops")
    }

    fn of(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");
        let path = format!("{folder}/{name}.safetensors");
        Golden(std::fs::read(path).expect("the golden file is in the repository"))
    }

    fn bytes(&self, name: &str) -> (Vec<usize>, Vec<u8>) {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        (tensor.shape().to_vec(), tensor.data().to_vec())
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let (_, bytes) = self.bytes(name);
        bytes.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect()
    }

    /// The same, which f32 holds exactly.
    fn exact(&self, name: &str) -> Vec<f32> {
        let numbers = self.numbers(name);
        let exact: Vec<f32> = numbers.iter().map(|&x| x as f32).collect();
        assert!(exact.iter().zip(numbers).all(|(&a, b)| f64::from(a) == b), "{name} is not exact");
        exact
    }

    fn labels(&self, name: &str) -> Vec<u32> {
        let (_, bytes) = self.bytes(name);
        bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
    }

    fn layout(&self, name: &str) -> Layout {
        let shape = match self.bytes(name).0[..] {
            [n, h, w, c] => Shape::new(n, h, w, c),
            [n, c] => Shape::vectors(n, c),
            ref other => panic!("{name} has {} dimensions", other.len()),
        };
        Layout::contiguous(shape)
    }
}

/// The numbers of a host's buffer, without rounding.
fn read(buffer: &Storage) -> Vec<f64> {
    let wide = |buffer: &Buffer| buffer.iter().map(|&x| f64::from(x)).collect();
    buffer.as_f64().map_or_else(|| wide(buffer.get().unwrap()), <[f64]>::to_vec)
}

/// The golden tensor `name`, whose numbers f32 holds exactly.
fn load(device: &Device, golden: &Golden, name: &str) -> Storage {
    let numbers = golden.exact(name);
    let mut buffer = device.alloc(numbers.len()).unwrap();
    device.upload(&numbers, &mut buffer, 0).unwrap();
    buffer
}

fn expect(device: &Device, golden: &Golden, name: &str, got: &[f64]) {
    let tolerance = if device.kind() == "reference" { 1e-13 } else { 1e-6 };
    let expected = golden.numbers(name);
    let magnitude = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    assert_eq!(got.len(), expected.len(), "{name}");
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let near = (got - expected).abs() <= tolerance * magnitude;
        assert!(near, "{name}[{k}] is {got}, not {expected} (largest {magnitude}), on {}", device.name());
    }
}

/// Ops with golden operands.
struct Ops<'a> {
    golden: &'a Golden,
    trial: Trial,
}

impl<'a> Ops<'a> {
    fn new(golden: &'a Golden, n: usize) -> Self {
        Ops { golden, trial: Trial::new(n) }
    }

    /// A golden batch.
    fn batch(&mut self, name: &str) -> TensorId {
        self.trial.activations(self.golden.layout(name), &self.golden.exact(name))
    }

    /// Room for a result.
    fn room(&mut self, at: Layout) -> TensorId {
        self.trial.activations(at, &vec![0.0; at.end()])
    }

    fn parameter(&mut self, name: &str) -> TensorId {
        self.trial.run(Arena::Parameters, &self.golden.exact(name))
    }

    fn run_of(&mut self, arena: Arena, values: &[f32]) -> TensorId {
        self.trial.run(arena, values)
    }

    fn set(&mut self, op: impl Into<Op>, operands: &[TensorId], results: &[TensorId]) {
        self.trial.step(op, operands, results, Write::Set);
    }

    fn run<'d>(self, device: &'d Device, args: &StepArgs) -> TrialRun<'d> {
        let mut run = self.trial.on(&**device).unwrap();
        run.run(args).unwrap();
        run
    }
}

/// What a tensor holds, without rounding.
fn left(run: &TrialRun<'_>, id: TensorId) -> Vec<f64> {
    let executable = &run.executable;
    let (arena, at) = (executable.program().tensor(id).arena, executable.layout(id, executable.batch()));
    let buffer = match arena {
        Arena::Activations => &run.activations,
        Arena::Statistics => &run.statistics,
        _ => &run.gradients,
    };
    read(buffer)[at.offset..at.end()].to_vec()
}

fn batch_norm(device: &Device) {
    let golden = Golden::open();
    let (c, at) = (5, golden.layout("bn.0.x"));
    let bn = BatchNorm { epsilon: 1.0 / 1024.0, act: Activation::Relu };
    let args = StepArgs::inference(at.shape.n);
    // The mean, then the variance.
    let (mut running, both) = (device.alloc(2 * c).unwrap(), Span::new(0, 2 * c));
    device.fill(1.0, &mut running, Span::new(c, c)).unwrap();
    for step in 0..2 {
        let name = |what: &str| format!("bn.{step}.{what}");
        let mut ops = Ops::new(&golden, at.shape.n);
        let (x, dy) = (ops.batch(&name("x")), ops.batch(&name("dy")));
        let (y, dx) = (ops.room(at), ops.room(at));
        let (gamma, beta) = (ops.parameter("bn.gamma"), ops.parameter("bn.beta"));
        let saved = ops.run_of(Arena::Statistics, &[0.0; 10]);
        let [dgamma, dbeta] = [(); 2].map(|()| ops.run_of(Arena::Gradients, &[0.0; 5]));
        let sums = ops.run_of(Arena::Gradients, &[0.0; 10]);
        ops.set(BatchNormTrain { bn }, &[x, gamma, beta], &[y, saved, sums]);
        ops.set(BatchNormWeightGradient { bn }, &[x, gamma, beta, saved, dy], &[dgamma, dbeta]);
        let op = BatchNormInputGradient { bn, shared: false };
        ops.set(op, &[x, gamma, beta, saved, dy, dgamma, dbeta], &[dx]);
        let run = ops.run(device, &args);
        for (what, id) in [("y", y), ("dx", dx), ("dgamma", dgamma), ("dbeta", dbeta)] {
            expect(device, &golden, &name(what), &left(&run, id));
        }
        // PyTorch's momentum is the weight of the new value.
        let (sums, scale) = (run.executable.span(sums), 1.0 / at.shape.n as f32);
        device.ema_step(0.875, scale, &run.gradients, sums, &mut running, both).unwrap();
    }
    let mut ops = Ops::new(&golden, at.shape.n);
    let (x, y) = (ops.batch("bn.0.x"), ops.room(at));
    let (gamma, beta) = (ops.parameter("bn.gamma"), ops.parameter("bn.beta"));
    let [mean, variance] = [(); 2].map(|()| ops.run_of(Arena::Averages, &[0.0; 5]));
    ops.set(BatchNormInfer { bn }, &[x, gamma, beta, mean, variance], &[y]);
    let mut run = ops.trial.on(&**device).unwrap();
    for (from, to) in [(0, mean), (c, variance)] {
        let (from, to) = (Span::new(from, c), run.executable.span(to));
        device.ema_step(0.0, 1.0, &running, from, &mut run.averages, to).unwrap();
    }
    run.run(&args).unwrap();
    expect(device, &golden, "bn.infer", &left(&run, y));
}

/// Convolutions with groups and dilation, by `tests/golden/grouped.py`.
fn grouped_convolutions(device: &Device) {
    let golden = Golden::of("grouped");
    let pad = |v: usize, u: usize| Pad { top: v, bottom: v, left: u, right: u };
    for (name, conv) in [
        ("groups", Conv2d { groups: 4, pad: pad(1, 1), ..Conv2d::new(8, 12, [3, 3]) }),
        ("uneven", Conv2d { groups: 3, stride: [2; 2], pad: pad(1, 0), ..Conv2d::new(12, 6, [3, 2]) }),
        ("dilation", Conv2d { dilation: [2, 3], pad: pad(2, 3), ..Conv2d::new(3, 4, [3, 3]) }),
        (
            "both",
            Conv2d {
                groups: 2,
                dilation: [2; 2],
                stride: [2, 1],
                pad: pad(2, 2),
                ..Conv2d::new(6, 6, [2, 3])
            },
        ),
    ] {
        let name = |what: &str| format!("{name}.{what}");
        let (of_x, of_y) = (golden.layout(&name("x")), golden.layout(&name("dy")));
        let mut ops = Ops::new(&golden, of_x.shape.n);
        let (x, dy, w) = (ops.batch(&name("x")), ops.batch(&name("dy")), ops.parameter(&name("w")));
        let (y, dx) = (ops.room(of_y), ops.room(of_x));
        let dw = ops.run_of(Arena::Gradients, &vec![0.0; conv.weights()]);
        ops.set(Conv2dForward { conv, act: Activation::None }, &[x, w], &[y]);
        ops.set(Conv2dInputGradient { conv, x: of_x.shape.with_n(1) }, &[dy, w], &[dx]);
        ops.set(Conv2dWeightGradient { conv, bias: false }, &[x, dy], &[dw]);
        let run = ops.run(device, &StepArgs::inference(of_x.shape.n));
        for (what, id) in [("y", y), ("dx", dx), ("dw", dw)] {
            expect(device, &golden, &name(what), &left(&run, id));
        }
    }
}

fn channel_shuffle(device: &Device) {
    let golden = Golden::of("grouped");
    let at = golden.layout("shuffle.x");
    let mut ops = Ops::new(&golden, at.shape.n);
    let (x, y, back) = (ops.batch("shuffle.x"), ops.room(at), ops.room(at));
    let shuffle = ChannelShuffle { groups: 3 };
    ops.set(shuffle, &[x], &[y]);
    ops.set(shuffle.inverse(at.shape.c), &[y], &[back]);
    let run = ops.run(device, &StepArgs::inference(at.shape.n));
    expect(device, &golden, "shuffle.y", &left(&run, y));
    expect(device, &golden, "shuffle.x", &left(&run, back));
}

/// All activations but ReLU, alone and behind a normalization.
fn activations(device: &Device) {
    let trivial = [Activation::None, Activation::Relu];
    Activation::ALL.into_iter().filter(|act| !trivial.contains(act)).for_each(|act| activation(device, act));
}

fn activation(device: &Device, act: Activation) {
    let first = ["gelu", "silu", "elu", "sigmoid", "tanh"].contains(&act.name());
    let golden = Golden::of(if first { "ops" } else { "activations" });
    let name = |what: &str| format!("{}.{what}", act.name());
    let at = golden.layout(&name("x"));
    let bn = BatchNorm { epsilon: 1.0 / 1024.0, act };
    let mut ops = Ops::new(&golden, at.shape.n);
    let (x, dy) = (ops.batch(&name("x")), ops.batch(&name("dy")));
    let [y, dx, of_norm, dx_of_norm] = [(); 4].map(|()| ops.room(at));
    ops.set(Activate { act }, &[x], &[y]);
    ops.set(ActivationGradient { act }, &[if act.reads_input() { x } else { y }, dy], &[dx]);
    let (gamma, beta) = (ops.run_of(Arena::Parameters, &[1.0; 5]), ops.parameter(&name("bn.beta")));
    let saved = ops.run_of(Arena::Statistics, &[0.0; 10]);
    let [dgamma, dbeta] = [(); 2].map(|()| ops.run_of(Arena::Gradients, &[0.0; 5]));
    let sums = ops.run_of(Arena::Gradients, &[0.0; 10]);
    ops.set(BatchNormTrain { bn }, &[x, gamma, beta], &[of_norm, saved, sums]);
    ops.set(BatchNormWeightGradient { bn }, &[x, gamma, beta, saved, dy], &[dgamma, dbeta]);
    let op = BatchNormInputGradient { bn, shared: false };
    ops.set(op, &[x, gamma, beta, saved, dy, dgamma, dbeta], &[dx_of_norm]);
    let run = ops.run(device, &StepArgs::inference(at.shape.n));
    for (what, id) in [("y", y), ("dx", dx), ("bn.y", of_norm), ("bn.dx", dx_of_norm), ("bn.dbeta", dbeta)] {
        expect(device, &golden, &name(what), &left(&run, id));
    }
}

fn group_norm(device: &Device) {
    let golden = Golden::open();
    let (at, op) =
        (golden.layout("gn.x"), GroupNorm { groups: 3, epsilon: 1.0 / 1024.0, act: Activation::Relu });
    let mut ops = Ops::new(&golden, at.shape.n);
    let (x, dy) = (ops.batch("gn.x"), ops.batch("gn.dy"));
    let (y, dx) = (ops.room(at), ops.room(at));
    let (gamma, beta) = (ops.parameter("gn.gamma"), ops.parameter("gn.beta"));
    let [dgamma, dbeta] = [(); 2].map(|()| ops.run_of(Arena::Gradients, &[0.0; 6]));
    ops.set(op, &[x, gamma, beta], &[y]);
    ops.set(GroupNormGradient { norm: op }, &[x, gamma, beta, dy], &[dx, dgamma, dbeta]);
    let run = ops.run(device, &StepArgs::inference(at.shape.n));
    for (what, id) in [("y", y), ("dx", dx), ("dgamma", dgamma), ("dbeta", dbeta)] {
        expect(device, &golden, &format!("gn.{what}"), &left(&run, id));
    }
}

fn depthwise(device: &Device) {
    let golden = Golden::of("depthwise");
    let pad = |[top, left]: [usize; 2]| Pad { top, bottom: top, left, right: left };
    for (case, multiplier, kernel, stride, dilation, before) in [
        ("3s1", 1, [3; 2], [1; 2], [1; 2], [1; 2]),
        ("5s2", 1, [5; 2], [2; 2], [1; 2], [2; 2]),
        ("2x3", 2, [2, 3], [2, 1], [1, 2], [1, 2]),
        ("7s1", 1, [7; 2], [1; 2], [1; 2], [3; 2]),
    ] {
        let name = |what: &str| format!("{case}.{what}");
        let (x_at, y_at) = (golden.layout(&name("x")), golden.layout(&name("y")));
        let inputs = x_at.shape.c;
        let conv = Depthwise { inputs, multiplier, kernel, stride, dilation, pad: pad(before) };
        let mut ops = Ops::new(&golden, x_at.shape.n);
        let (x, dy, y, dx) = (ops.batch(&name("x")), ops.batch(&name("dy")), ops.room(y_at), ops.room(x_at));
        let (w, b) = (ops.parameter(&name("w")), ops.parameter(&name("b")));
        let [dw, db] =
            [conv.weights(), conv.outputs()].map(|len| ops.run_of(Arena::Gradients, &vec![0.0; len]));
        ops.set(DepthwiseForward { conv, act: Activation::Relu }, &[x, w, b], &[y]);
        ops.set(DepthwiseInputGradient { conv, x: x_at.shape.with_n(1) }, &[dy, w], &[dx]);
        ops.set(DepthwiseWeightGradient { conv, bias: true }, &[x, dy], &[dw, db]);
        let run = ops.run(device, &StepArgs::inference(x_at.shape.n));
        for (what, id) in [("y", y), ("dx", dx), ("dw", dw), ("db", db)] {
            expect(device, &golden, &name(what), &left(&run, id));
        }
    }
}

fn cross_entropy(device: &Device) {
    for loss in ["xent", "bce"] {
        cross_entropy_of(device, loss);
    }
}

/// `xent` of several logits, or `bce` of a single one.
fn cross_entropy_of(device: &Device, loss: &str) {
    let golden = Golden::open();
    let key = |what: &str| format!("{loss}.{what}");
    let at = golden.layout(&key("logits"));
    for (name, label_smoothing) in [("hard", 0.0), ("smooth", 0.125), ("weighted", 0.125)] {
        let targets = name == "weighted";
        if targets && loss == "bce" {
            continue;
        }
        let mut ops = Ops::new(&golden, at.shape.n);
        let (logits, dlogits) = (ops.batch(&key("logits")), ops.room(at));
        let mut labels = golden.labels(&key("labels"));
        if targets {
            let weights = golden.exact(&key("weights"));
            let target = |label| Target { weights: [weights[label as usize]; 2], ..Target::label(label) };
            labels = labels.into_iter().flat_map(|label| target(label).to_words()).collect();
        }
        let labels = ops.trial.labels(&labels);
        let metrics = ops.run_of(Arena::Gradients, &[0.0; 2]);
        ops.set(CrossEntropy { gradient: true, multi_label: false }, &[logits, labels], &[dlogits, metrics]);
        let args = StepArgs { label_smoothing, targets, global_batch: 8, ..StepArgs::inference(at.shape.n) };
        let run = ops.run(device, &args);
        expect(device, &golden, &key(&format!("{name}.dlogits")), &left(&run, dlogits));
        expect(device, &golden, &key(&format!("{name}.loss")), &left(&run, metrics)[..1]);
        if loss == "bce" {
            expect(device, &golden, "bce.correct", &left(&run, metrics)[1..]);
        }
    }
    let (logits, mut y) = (load(device, &golden, &key("logits")), device.alloc(at.end()).unwrap());
    device.softmax(View::new(&logits, at), ViewMut::new(&mut y, at)).unwrap();
    expect(device, &golden, &key("probabilities"), &read(&y));
}

/// Multi-hot labels, of Keras and PyTorch.
fn multi_label(device: &Device) {
    let golden = Golden::open();
    let at = golden.layout("multi_label.logits");
    let (n, classes) = (at.shape.n, at.shape.c);
    let rows: Vec<u8> = golden.labels("multi_label.labels").into_iter().map(|has| has as u8).collect();
    let words: Vec<u32> = rows.chunks(classes).flat_map(Labels::multi_hot).collect();
    for (name, label_smoothing) in [("hard", 0.0), ("smooth", 0.125)] {
        let mut ops = Ops::new(&golden, n);
        let (logits, dlogits) = (ops.batch("multi_label.logits"), ops.room(at));
        let labels = ops.trial.labels_of(&words, Labels::MultiHot.words(classes));
        let metrics = ops.run_of(Arena::Gradients, &[0.0; 2]);
        let loss = CrossEntropy { gradient: true, multi_label: true };
        ops.set(loss, &[logits, labels], &[dlogits, metrics]);
        let run = ops.run(device, &StepArgs { label_smoothing, global_batch: 8, ..StepArgs::inference(n) });
        expect(device, &golden, &format!("multi_label.{name}.dlogits"), &left(&run, dlogits));
        expect(device, &golden, &format!("multi_label.{name}.loss"), &left(&run, metrics)[..1]);
        expect(device, &golden, "multi_label.correct", &left(&run, metrics)[1..]);
    }
}

fn pooling(device: &Device) {
    let golden = Golden::open();
    for (case, kernel, stride, pad) in [("3s2", 3, 2, 0), ("3s2p1", 3, 2, 1), ("2s2", 2, 2, 0)] {
        let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
        let pool = Pool2d::new([kernel; 2], [stride; 2], pad);
        let name = |what: &str| format!("pool.{case}.{what}");
        let (x_at, y_at) = (golden.layout(&name("x")), golden.layout(&name("dy")));
        let mut ops = Ops::new(&golden, x_at.shape.n);
        let (x, dy) = (ops.batch(&name("x")), ops.batch(&name("dy")));
        let ([largest, mean], [of_largest, of_mean]) =
            ([(); 2].map(|()| ops.room(y_at)), [(); 2].map(|()| ops.room(x_at)));
        ops.set(MaxPool { pool }, &[x], &[largest]);
        ops.set(MaxPoolGradient { pool }, &[x, largest, dy], &[of_largest]);
        ops.set(AveragePool { pool }, &[x], &[mean]);
        ops.set(AveragePoolGradient { pool, x: x_at.shape.with_n(1) }, &[dy], &[of_mean]);
        let run = ops.run(device, &StepArgs::inference(x_at.shape.n));
        let results =
            [("max.y", largest), ("max.dx", of_largest), ("average.y", mean), ("average.dx", of_mean)];
        for (what, id) in results {
            expect(device, &golden, &name(what), &left(&run, id));
        }
    }
}

/// The golden run's learning rate.
fn rate(step: usize) -> f32 {
    if step < 4 { 0.125 } else { 0.03125 }
}

/// Ten steps; `step` gets the arenas of parameters, gradients and state.
fn ten_steps(device: &Device, name: &str, step: impl Fn(usize, &mut Storage, &Storage, &mut Storage, Span)) {
    let golden = Golden::open();
    let grads: Vec<f32> = golden.numbers("step.grads").iter().map(|&x| x as f32).collect();
    let mut params = load(device, &golden, "step.params");
    let len = golden.numbers("step.params").len();
    let (mut now, mut state) = (device.alloc(len).unwrap(), device.alloc(len).unwrap());
    for (k, grads) in grads.chunks_exact(len).enumerate() {
        device.upload(grads, &mut now, 0).unwrap();
        step(k, &mut params, &now, &mut state, Span::new(0, len));
    }
    expect(device, &golden, &format!("step.{name}"), &read(&params));
}

fn optimizers(device: &Device) {
    let (none, coupled, decoupled) =
        (WeightDecay::None, WeightDecay::Coupled(0.03125), WeightDecay::Decoupled(0.03125));
    for (name, momentum, nesterov, velocity, weight_decay) in [
        ("torch.sgd", 0.0, false, Velocity::PyTorch, none),
        ("torch.momentum", 0.875, false, Velocity::PyTorch, coupled),
        ("torch.nesterov", 0.875, true, Velocity::PyTorch, none),
        ("keras.momentum", 0.875, false, Velocity::Keras, decoupled),
        ("keras.nesterov", 0.875, true, Velocity::Keras, none),
    ] {
        ten_steps(device, name, |k, params, grads, state, at| {
            let rule = Sgd { momentum, nesterov, velocity, weight_decay }.into();
            let state: &mut [_] = if momentum == 0.0 { &mut [] } else { &mut [state] };
            let run = ParamRun::new(at, weight_decay);
            device.optimizer_step(&rule, rate(k), params, grads, state, &[run]).unwrap();
        });
    }
    for (name, epsilon_inside_root, weight_decay) in
        [("torch.rmsprop", false, coupled), ("keras.rmsprop", true, decoupled)]
    {
        ten_steps(device, name, |k, params, grads, state, at| {
            let epsilon = 1.0 / 1_048_576.0;
            let rule = Rmsprop { rho: 0.875, epsilon, epsilon_inside_root, weight_decay }.into();
            let run = ParamRun::new(at, weight_decay);
            device.optimizer_step(&rule, rate(k), params, grads, &mut [state], &[run]).unwrap();
        });
    }
}

/// One test a topic and device.
macro_rules! on_every_device {
    ($($topic:ident),*) => {
        mod reference {
            $(#[test] fn $topic() { super::$topic(&towers_tensor_cpu::reference()) })*
        }
        mod cpu {
            $(#[test] fn $topic() { super::$topic(&towers_tensor_cpu::device(2)) })*
        }
    };
}

on_every_device!(
    batch_norm,
    cross_entropy,
    multi_label,
    pooling,
    optimizers,
    grouped_convolutions,
    channel_shuffle,
    activations,
    group_norm,
    depthwise,
    windows,
    sides,
    pixels
);
