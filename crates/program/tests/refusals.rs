//! Operands that do not fit are refused when a program is made, with an error that names them. No device sees them.

use towers_program::ops::*;
use towers_program::{
    Activation, Arena, BatchNorm, Builder, Conv2d, Executable, Home, Layout, Linear, Noise, Op, Pad,
    Parameter, Pool2d, Shape, Span, Step, Target, TensorId, Trial, Write,
};

const CONV: Conv2d = Conv2d::new(2, 3, [3; 2]);
const POOL: Pool2d = Pool2d::new([2; 2], [2; 2], Pad::VALID);
const RELU: Activation = Activation::Relu;
const BN: BatchNorm = BatchNorm { epsilon: 1e-3, act: RELU };
const LINEAR: Linear = Linear { inputs: 2, outputs: 3 };
const RESPONSE: LocalResponseNorm = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, bias: 1.0 };

fn image(h: usize, w: usize, c: usize) -> Shape {
    Shape::new(1, h, w, c)
}

fn run(len: usize) -> Shape {
    Shape::vectors(1, len)
}

/// What an op says to operands of these shapes.
fn told(op: impl Into<Op>, operands: &[Shape]) -> String {
    op.into().shapes(operands).map_or_else(|error| error.to_string(), |_| "nothing".to_owned())
}

#[track_caller]
fn refused(op: impl Into<Op>, operands: &[Shape], says: &str) {
    let told = told(op, operands);
    assert!(told.contains(says), "{told}");
}

#[test]
fn convolutions() {
    let forward = Conv2dForward { conv: CONV, act: RELU };
    let (x, y, w, b) = (image(5, 5, 2), image(3, 3, 3), run(54), run(3));
    assert_eq!(told(forward, &[x, w, b]), "nothing");
    refused(forward, &[x], "the list of operands");
    refused(forward, &[image(5, 5, 3), w, b], "the input has shape (1, 5, 5, 3)");
    refused(forward, &[x, run(53), b], "the weights");
    refused(forward, &[x, w, run(4)], "the bias");
    refused(forward, &[image(2, 5, 2), w, b], "the kernel");
    let still = Conv2d { stride: [0, 1], ..CONV };
    refused(Conv2dForward { conv: still, act: RELU }, &[x, w, b], "the kernel");
    let normalized = Conv2dNormalized { conv: CONV, bn: BN };
    assert_eq!(told(normalized, &[x, w, b, b, b, b]), "nothing");
    assert_eq!(told(normalized, &[x, w, b, b, b, b, b]), "nothing");
    refused(normalized, &[x, w, b, b, b, run(2)], "the variance");
    refused(normalized, &[x, w, b, run(2), b, b], "beta");
    refused(normalized, &[x, w, b, b, b, b, run(2)], "the bias");
    refused(Conv2dInputGradient { conv: CONV, x }, &[image(3, 4, 3), w], "dy");
    refused(Conv2dWeightGradient { conv: CONV, bias: true }, &[x, image(4, 3, 3)], "dy");
    assert_eq!(told(Conv2dWeightGradient { conv: CONV, bias: true }, &[x, y]), "nothing");
}

/// Sizes whose products do not fit into a machine word must not wrap around into sizes that fit.
#[test]
fn absurd_convolutions() {
    const MAX: usize = usize::MAX;
    // Three times this overflows a word by 1.
    const THIRD: usize = MAX / 3 * 2 + 1;
    assert_eq!(THIRD.wrapping_mul(3), 1);
    let valid = Conv2d::new(1, 1, [1; 2]);
    let forward = |conv| Conv2dForward { conv, act: RELU };
    let tall = Conv2d { kernel: [3, 1], pad: Pad { top: 1, bottom: 1, ..Pad::VALID }, ..valid };
    refused(forward(tall), &[Shape::new(3, THIRD, 1, 1), run(3)], "the kernel");
    let around = Conv2d { pad: Pad { top: MAX, bottom: 1, ..Pad::VALID }, ..valid };
    refused(forward(around), &[image(1, 1, 1), run(1)], "the kernel");
    let apart = Conv2d { pad: Pad { top: 1 << 60, ..Pad::VALID }, stride: [1 << 59, 1], ..valid };
    refused(forward(apart), &[image(1, 1, 1), run(1)], "the kernel");
    let wide = Conv2d { inputs: 1 << 32, outputs: 1 << 32, ..valid };
    refused(forward(wide), &[image(1, 1, 1 << 32), run(0)], "the weights");
}

#[test]
fn dense_layers() {
    let forward = LinearForward { linear: LINEAR, act: RELU };
    assert_eq!(told(forward, &[run(2), run(6), run(3)]), "nothing");
    refused(forward, &[image(2, 1, 2), run(6), run(3)], "the input");
    refused(forward, &[run(2), run(5), run(3)], "the weights");
    refused(forward, &[run(2), run(6), run(2)], "the bias");
    refused(LinearInputGradient { linear: LINEAR }, &[run(2), run(6)], "dy");
    refused(LinearWeightGradient { linear: LINEAR, bias: false }, &[run(2), run(2)], "dy");
}

#[test]
fn normalizations() {
    let (x, c, both) = (image(2, 1, 3), run(3), run(6));
    let train = BatchNormTrain { bn: BN };
    assert_eq!(told(train, &[x, c, c]), "nothing");
    refused(train, &[x, run(2), c], "gamma");
    refused(train, &[x, c, c, run(4)], "the bias");
    refused(train, &[x, c], "the list of operands");
    refused(BatchNormRecompute { bn: BN }, &[x, c, c, run(5)], "the saved statistics");
    refused(BatchNormInfer { bn: BN }, &[x, c, c, c, run(2)], "the variance");
    let joined = SyncBatchNorm { bn: BN };
    assert_eq!(told(joined, &[x, run(14), c, c]), "nothing");
    refused(joined, &[x, run(13), c, c], "the replicas' statistics");
    refused(joined, &[x, run(0), c, c], "the replicas' statistics");
    refused(BatchNormWeightGradient { bn: BN }, &[x, c, c, both, image(4, 1, 3)], "dy");
    let gradient = BatchNormInputGradient { bn: BN, shared: true };
    assert_eq!(told(gradient, &[x, c, c, both, x, both]), "nothing");
    refused(gradient, &[x, c, c, both, x, run(2)], "the saved statistics");
    refused(gradient, &[x, c, c, both, x, c, c], "the list of operands");
    let gradient = BatchNormInputGradient { bn: BN, shared: false };
    refused(gradient, &[x, c, c, both, x, c, run(2)], "beta");
    refused(BatchNormInferGradient { epsilon: 1e-3 }, &[x, c, run(2)], "the variance");
}

#[test]
fn elements() {
    let (x, wide) = (image(2, 2, 3), image(2, 3, 2));
    refused(Add { act: RELU }, &[x, wide], "add");
    refused(ActivationGradient { act: RELU }, &[x, wide], "dy");
    for rate in [-0.1, 1.0, f32::NAN] {
        refused(Dropout { rate, noise: Noise::Element, domain: 0 }, &[x], "rate");
    }
    refused(Reshape { to: run(11) }, &[x], "the input");
}

#[test]
fn windows() {
    let (x, y) = (image(4, 4, 3), image(2, 2, 3));
    refused(AveragePool { pool: POOL }, &[image(1, 4, 3)], "the window");
    let padded = Pool2d { pad: Pad { top: 2, ..Pad::VALID }, ..POOL };
    refused(MaxPool { pool: padded }, &[x], "the window");
    refused(MaxPoolGradient { pool: POOL }, &[x, y, x], "dy");
    refused(AveragePoolGradient { pool: POOL, x }, &[x], "dy");
    // No window may lie in the padding alone: an image without pixels has no other ones.
    let around = Pool2d { pad: Pad { top: 1, bottom: 1, ..Pad::VALID }, ..POOL };
    refused(MaxPool { pool: around }, &[image(0, 2, 3)], "the window");
    let counted = Pool2d { counted: Pad { left: 1, ..Pad::VALID }, ..POOL };
    refused(AveragePool { pool: counted }, &[x], "the window");
}

#[test]
fn sides() {
    let (x, pad) = (image(4, 3, 2), ZeroPad { top: 1, bottom: -2, left: -1, right: 0 });
    assert_eq!(Op::from(pad).shapes(&[x]).unwrap(), [image(3, 2, 2)]);
    assert_eq!(Op::from(-pad).shapes(&[image(3, 2, 2)]).unwrap(), [x]);
    for (bottom, right) in [(-5, 0), (0, -2), (1 << 40, 0), (i64::MIN, 0), ((1 << 30) - 9, (1 << 30) - 9)] {
        refused(ZeroPad { bottom, right, ..pad }, &[x], "the padding");
    }
    let double = Upsample { by: [2, 3], bilinear: false };
    assert_eq!(Op::from(double).shapes(&[x]).unwrap(), [image(8, 9, 2)]);
    assert_eq!(Op::from(UpsampleGradient { upsample: double }).shapes(&[image(8, 9, 2)]).unwrap(), [x]);
    refused(UpsampleGradient { upsample: double }, &[image(8, 10, 2)], "dy");
    for by in [[0, 1], [1, 0], [usize::MAX, 2], [1 << 20, 1 << 20]] {
        refused(Upsample { by, bilinear: true }, &[x], "the number of times");
    }
}

#[test]
fn pixels() {
    let (x, c) = (image(2, 2, 3), run(3));
    let norm = LayerNorm { epsilon: 1e-3 };
    assert_eq!(told(norm, &[x, c, c]), "nothing");
    refused(norm, &[x, c, run(2)], "beta");
    refused(LayerNormGradient { norm }, &[x, c, image(2, 2, 2)], "dy");
    assert_eq!(told(RESPONSE, &[x]), "nothing");
    refused(LocalResponseNorm { size: 0, ..RESPONSE }, &[x], "neighbours");
    refused(LocalResponseNorm { alpha: -1.0, ..RESPONSE }, &[x], "alpha");
    refused(LocalResponseNorm { bias: f32::NAN, ..RESPONSE }, &[x], "bias");
    refused(LocalResponseNorm { beta: f32::INFINITY, ..RESPONSE }, &[x], "beta");
    refused(LocalResponseNormGradient { norm: RESPONSE }, &[x, c], "dy");
}

#[test]
fn losses() {
    let loss = CrossEntropy { gradient: true, multi_label: false };
    assert_eq!(told(loss, &[run(4), run(Target::WORDS)]), "nothing");
    refused(loss, &[image(3, 1, 4), run(Target::WORDS)], "the logits");
    refused(loss, &[run(4), run(1)], "the labels");
}

/// A forward program of one op behind the images, with a parameter of `c` elements: what placing it says.
fn placed(op: impl Into<Op>, shape: Shape, reads: impl Fn(&mut Builder) -> Vec<TensorId>) -> String {
    let mut builder = Builder::new(shape);
    let operands = reads(&mut builder);
    let y = builder.push(op, &operands, &[]).map(|results| results[0]);
    let placed = y.and_then(|y| Executable::place(builder.finish(y), 2, 0));
    placed.map_or_else(|error| error.to_string(), |_| "nothing".to_owned())
}

fn parameter(builder: &mut Builder, name: &str, len: usize) -> TensorId {
    builder.parameter(Parameter { name: name.to_owned(), span: Span::new(0, len), trained: true })
}

/// Parameters and running averages are only ever read.
#[test]
fn results_lie_where_a_program_may_write() {
    for arena in [Arena::Parameters, Arena::Averages, Arena::Labels] {
        for op in ALL {
            assert!(op.results().iter().all(|kind| !kind.arenas.contains(&arena)), "{}", op.name());
        }
    }
    let slice = Slice { from: 0, channels: 2 };
    let told = placed(slice, image(2, 2, 3), |to| vec![parameter(to, "w", 3)]);
    assert_eq!(told, "slice: the input must be in the activations, not in the parameters");
}

/// The sums of a normalization have a place in the gradients, which the caller knows.
#[test]
fn a_normalization_needs_a_place_for_its_sums() {
    let told = placed(BatchNormTrain { bn: BN }, image(2, 2, 3), |to| {
        vec![to.input(), parameter(to, "gamma", 3), parameter(to, "beta", 3)]
    });
    assert_eq!(told, "batch_norm: the sums must be at a place that the caller gives, not free");
}

#[test]
fn operands_lie_in_the_arena_of_their_kind() {
    let norm = GroupNorm { groups: 1, epsilon: 1e-3, act: RELU };
    let vector = run(3);
    let told = placed(norm, vector, |to| vec![to.input(), to.input(), parameter(to, "beta", 3)]);
    assert_eq!(told, "group_norm: gamma must be in the parameters, not in the activations");
    let told = placed(Activate { act: RELU }, vector, |to| vec![parameter(to, "x", 3)]);
    assert_eq!(told, "activate: the input must be in the activations, not in the parameters");
    let told = placed(norm, vector, |to| vec![to.input(), parameter(to, "a", 3), parameter(to, "b", 3)]);
    assert_eq!(told, "nothing");
}

#[test]
fn tensors_of_another_program_are_refused() {
    let far = {
        let mut other = Builder::new(run(3));
        (0..9).map(|_| parameter(&mut other, "w", 3)).last().unwrap()
    };
    let told = placed(Activate { act: RELU }, run(3), |_| vec![far]);
    assert_eq!(told, "activate: the number of a tensor is 18, but must be one of this program's");
}

/// A loss reads its labels from the first one on.
#[test]
fn labels_come_first() {
    let told = placed(CrossEntropy { gradient: false, multi_label: false }, run(3), |to| {
        vec![to.input(), to.fixed("labels", Arena::Labels, Span::new(3, Target::WORDS))]
    });
    assert_eq!(told, "cross_entropy: the labels must be the first in their memory, not behind others");
}

/// Two parameters at one place have two gradients at one place.
#[test]
fn what_is_written_at_one_place_is_refused() {
    let mut builder = Builder::new(run(2));
    let (w, b) = (parameter(&mut builder, "w", 6), parameter(&mut builder, "b", 6));
    let x = builder.input();
    let linear = |act| LinearForward { linear: LINEAR, act };
    builder.push(linear(RELU), &[x, w], &[]).unwrap();
    let y = builder.push(linear(RELU), &[x, b], &[]).unwrap()[0];
    let program = builder.finish(y);
    // Two steps may read one place.
    assert!(Executable::place(program.clone(), 2, 0).is_ok());
    let mut trained = program.clone();
    let mut gradient = |id: TensorId, dy: TensorId| {
        let (dw, _) = program.gradients[id.index()].unwrap();
        let op = Op::from(LinearWeightGradient { linear: LINEAR, bias: false });
        let step = program.steps[0].clone();
        trained.steps.push(Step { op, operands: vec![x, dy], results: vec![dw], ..step });
        Executable::place(trained.clone(), 2, 0).map_err(|error| error.to_string())
    };
    assert!(gradient(w, y).is_ok());
    let error = gradient(b, y).unwrap_err();
    assert!(error.contains("beside what is read or written"), "{error}");
}

/// A step that writes the input behind a reader comes too late: steps between them may lie in the memory of the
/// input. A stage of a pipeline receives its input before all else.
#[test]
fn the_input_is_written_before_it_is_read() {
    let mut builder = Builder::new(run(2));
    let x = builder.input();
    let mut y = x;
    for _ in 0..3 {
        y = builder.push(Activate { act: RELU }, &[y], &[]).unwrap()[0];
    }
    let mut program = builder.finish(y);
    assert!(Executable::place(program.clone(), 2, 0).is_ok());
    let mut stage = program.clone();
    let receive = Receive { from: Neighbor::Previous, shape: run(2) };
    stage.steps.insert(
        0,
        Step { op: receive.into(), operands: vec![], results: vec![x], ..program.steps[0].clone() },
    );
    assert!(Executable::place(stage, 2, 0).is_ok());
    program.steps[1].results = vec![x];
    program.steps[2].operands = vec![x];
    let error = Executable::place(program, 2, 0).unwrap_err().to_string();
    assert!(error.contains("written twice"), "{error}");
}

/// Of two results in one memory, neither is right.
#[test]
fn two_results_in_one_place() {
    let mut trial = Trial::new(4);
    let linear = Linear { inputs: 1, outputs: 3 };
    let [x, dy] = [1, 3].map(|c| trial.activations(Layout::contiguous(Shape::vectors(4, c)), &[]));
    let [dw, db] = [3, 3].map(|len| trial.run(Arena::Gradients, &vec![0.0; len]));
    trial.step(LinearWeightGradient { linear, bias: true }, &[x, dy], &[dw, db], Write::Set);
    let mut program = trial.executable().unwrap().program().clone();
    program.tensors[db.index()].home = Home::In(dw, 0);
    let error = Executable::place(program, 4, 0).unwrap_err().to_string();
    assert!(error.contains("apart from what is read, and from the other results"), "{error}");
}

/// Every op.
const ALL: [Op; 43] = [
    Op::Conv2dForward(Conv2dForward { conv: CONV, act: RELU }),
    Op::Conv2dNormalized(Conv2dNormalized { conv: CONV, bn: BN }),
    Op::Conv2dInputGradient(Conv2dInputGradient { conv: CONV, x: Shape::new(1, 5, 5, 2) }),
    Op::Conv2dWeightGradient(Conv2dWeightGradient { conv: CONV, bias: true }),
    Op::LinearForward(LinearForward { linear: LINEAR, act: RELU }),
    Op::LinearInputGradient(LinearInputGradient { linear: LINEAR }),
    Op::LinearWeightGradient(LinearWeightGradient { linear: LINEAR, bias: true }),
    Op::BatchNormTrain(BatchNormTrain { bn: BN }),
    Op::BatchNormInfer(BatchNormInfer { bn: BN }),
    Op::BatchNormInferGradient(BatchNormInferGradient { epsilon: 1e-3 }),
    Op::BatchNormRecompute(BatchNormRecompute { bn: BN }),
    Op::BatchNormMoments(BatchNormMoments),
    Op::SyncBatchNorm(SyncBatchNorm { bn: BN }),
    Op::BatchNormWeightGradient(BatchNormWeightGradient { bn: BN }),
    Op::BatchNormInputGradient(BatchNormInputGradient { bn: BN, shared: true }),
    Op::GroupNorm(GroupNorm { groups: 1, epsilon: 1e-3, act: RELU }),
    Op::GroupNormGradient(GroupNormGradient { norm: GroupNorm { groups: 1, epsilon: 1e-3, act: RELU } }),
    Op::LayerNorm(LayerNorm { epsilon: 1e-3 }),
    Op::LayerNormGradient(LayerNormGradient { norm: LayerNorm { epsilon: 1e-3 } }),
    Op::LocalResponseNorm(RESPONSE),
    Op::LocalResponseNormGradient(LocalResponseNormGradient { norm: RESPONSE }),
    Op::Activate(Activate { act: RELU }),
    Op::ActivationGradient(ActivationGradient { act: RELU }),
    Op::Add(Add { act: RELU }),
    Op::MaxPool(MaxPool { pool: POOL }),
    Op::MaxPoolGradient(MaxPoolGradient { pool: POOL }),
    Op::AveragePool(AveragePool { pool: POOL }),
    Op::AveragePoolGradient(AveragePoolGradient { pool: POOL, x: Shape::new(1, 4, 4, 2) }),
    Op::ZeroPad(ZeroPad { top: 1, bottom: 0, left: -1, right: 0 }),
    Op::Upsample(Upsample { by: [2; 2], bilinear: true }),
    Op::UpsampleGradient(UpsampleGradient { upsample: Upsample { by: [2; 2], bilinear: true } }),
    Op::Dropout(Dropout { rate: 0.5, noise: Noise::Element, domain: 0 }),
    Op::Scale(Scale { factor: 2.0 }),
    Op::Reshape(Reshape { to: Shape::vectors(1, 4) }),
    Op::Concat(Concat),
    Op::Slice(Slice { from: 0, channels: 1 }),
    Op::Join(Join),
    Op::AllGather(AllGather { rank: 0, replicas: 2 }),
    Op::AllReduce(AllReduce),
    Op::AllReduceStart(AllReduceStart { len: 4 }),
    Op::Send(Send { to: Neighbor::Next }),
    Op::Receive(Receive { from: Neighbor::Next, shape: Shape::vectors(1, 4) }),
    Op::CrossEntropy(CrossEntropy { gradient: true, multi_label: false }),
];

/// Two gradients in one run.
#[test]
fn gradients_that_overlap() {
    let mut trial = Trial::new(4);
    let [x, dy] = [2, 3].map(|c| trial.activations(Layout::contiguous(Shape::vectors(4, c)), &[]));
    let [dw, db] = [6, 3].map(|len| trial.run(Arena::Gradients, &vec![0.0; len]));
    trial.step(LinearWeightGradient { linear: LINEAR, bias: true }, &[x, dy], &[dw, db], Write::Set);
    let program = trial.executable().unwrap().program().clone();
    let at = |offset| {
        let mut program = program.clone();
        let Home::At(from) = program.tensor(dw).home else { panic!("a run has a place of its own") };
        program.tensors[db.index()].home = Home::At(from + offset);
        Executable::place(program, 4, 0)
    };
    assert!(at(6).is_ok());
    let error = at(5).unwrap_err().to_string();
    assert!(error.contains("apart from what is read"), "{error}");
}
