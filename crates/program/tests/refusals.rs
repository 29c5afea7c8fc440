//! Operands that do not fit are refused when a program is made, with an error that names them. No device sees them.

use program::ops::*;
use program::{
    Activation, Arena, BatchNorm, Conv2d, Executable, Home, Layout, Linear, Op, Pad, Pool2d, Shape, Target,
    Trial, Write,
};

const CONV: Conv2d = Conv2d { inputs: 2, outputs: 3, kernel: [3; 2], stride: [1; 2], pad: Pad::VALID };
const POOL: Pool2d = Pool2d { kernel: [2; 2], stride: [2; 2], pad: Pad::VALID };
const RELU: Activation = Activation::Relu;
const BN: BatchNorm = BatchNorm { epsilon: 1e-3, act: RELU };
const LINEAR: Linear = Linear { inputs: 2, outputs: 3 };

fn image(h: usize, w: usize, c: usize) -> Shape {
    Shape::new(1, h, w, c)
}

fn run(len: usize) -> Shape {
    Shape::vectors(1, len)
}

/// What an op says to operands of these shapes.
fn told(op: impl Into<Op>, operands: &[Shape]) -> String {
    op.into().results(operands).map_or_else(|error| error.to_string(), |_| "nothing".to_owned())
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
    refused(normalized, &[x, w, b, b, b, run(2)], "the variance");
    refused(normalized, &[x, w, b, run(2), b, b], "beta");
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
    let valid = Conv2d { inputs: 1, outputs: 1, kernel: [1; 2], stride: [1; 2], pad: Pad::VALID };
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
    refused(gradient, &[x, c, c, both, x, c, run(2)], "beta");
}

#[test]
fn elements() {
    let (x, wide) = (image(2, 2, 3), image(2, 3, 2));
    refused(Add { act: RELU }, &[x, wide], "add");
    refused(ActivationGradient { act: RELU }, &[x, wide], "dy");
    for rate in [-0.1, 1.0, f32::NAN] {
        refused(Dropout { rate, domain: 0 }, &[x], "rate");
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
}

#[test]
fn losses() {
    let loss = CrossEntropy { gradient: true };
    assert_eq!(told(loss, &[run(4), run(Target::WORDS)]), "nothing");
    refused(loss, &[image(3, 1, 4), run(Target::WORDS)], "the logits");
    refused(loss, &[run(4), run(1)], "the labels");
}

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
