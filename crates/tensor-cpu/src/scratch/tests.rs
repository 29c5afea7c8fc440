//! Every step finds the scratch memory that it needs, with tensors inside of others too, as concatenations have them.

use crate::Cpu;
use towers_program::ops::*;
use towers_program::{
    Activation, Arena, BatchNorm, Conv2d, Layout, Linear, Op, Pad, Pool2d, Result, Shape, StepArgs, TensorId,
    Trial, Write,
};

const SHAPE: Shape = Shape { n: 5, h: 9, w: 11, c: 20 };
const ACT: Activation = Activation::Gelu;

/// A program whose activations lie among so many other channels.
struct Steps {
    trial: Trial,
    beside: usize,
}

impl Steps {
    fn batch(&mut self, shape: Shape) -> TensorId {
        let layout = Layout { offset: self.beside / 3, shape, stride: shape.c + self.beside };
        self.trial.activations(layout, &vec![0.25; layout.end()])
    }

    fn runs<const N: usize>(&mut self, arena: Arena, len: usize) -> [TensorId; N] {
        [(); N].map(|()| self.trial.run(arena, &vec![0.5; len]))
    }

    fn add(&mut self, op: impl Into<Op>, operands: &[TensorId], results: &[TensorId]) {
        self.trial.step(op, operands, results, Write::Set);
    }

    fn convolution(&mut self, kernel: usize, stride: usize) {
        let pad = Pad::same(SHAPE.h, SHAPE.w, [kernel; 2], [stride; 2]);
        let conv = Conv2d { stride: [stride; 2], pad, ..Conv2d::new(20, 20, [kernel; 2]) };
        let small = conv.output(SHAPE).expect("it fits");
        let ([x, dx], y) = ([(); 2].map(|()| self.batch(SHAPE)), self.batch(small));
        let [w] = self.runs(Arena::Parameters, conv.weights());
        let ([dw], [db]) = (self.runs(Arena::Gradients, conv.weights()), self.runs(Arena::Gradients, 20));
        self.add(Conv2dForward { conv, act: ACT }, &[x, w], &[y]);
        self.add(Conv2dInputGradient { conv, x: SHAPE.with_n(1) }, &[y, w], &[dx]);
        self.add(Conv2dWeightGradient { conv, bias: true }, &[x, y], &[dw, db]);
    }

    fn depthwise(&mut self, kernel: usize, stride: usize) {
        let pad = Pad::same(SHAPE.h, SHAPE.w, [kernel; 2], [stride; 2]);
        let (kernel, stride) = ([kernel; 2], [stride; 2]);
        let conv = Depthwise { inputs: 20, multiplier: 1, kernel, stride, dilation: [1; 2], pad };
        let small = conv.output(SHAPE).expect("it fits");
        let ([x, dx], y) = ([(); 2].map(|()| self.batch(SHAPE)), self.batch(small));
        let [w] = self.runs(Arena::Parameters, conv.weights());
        let ([dw], [db]) = (self.runs(Arena::Gradients, conv.weights()), self.runs(Arena::Gradients, 20));
        self.add(DepthwiseForward { conv, act: ACT }, &[x, w], &[y]);
        self.add(DepthwiseInputGradient { conv, x: SHAPE.with_n(1) }, &[y, w], &[dx]);
        self.add(DepthwiseWeightGradient { conv, bias: true }, &[x, y], &[dw, db]);
    }

    fn dense(&mut self) {
        let linear = Linear { inputs: 20, outputs: 30 };
        let [x, dx] = [(); 2].map(|()| self.batch(Shape::vectors(SHAPE.n, 20)));
        let y = self.batch(Shape::vectors(SHAPE.n, 30));
        let [w] = self.runs(Arena::Parameters, 600);
        let ([dw], [db]) = (self.runs(Arena::Gradients, 600), self.runs(Arena::Gradients, 30));
        self.add(LinearForward { linear, act: ACT }, &[x, w], &[y]);
        self.add(LinearInputGradient { linear }, &[y, w], &[dx]);
        self.add(LinearWeightGradient { linear, bias: true }, &[x, y], &[dw, db]);
    }

    fn batch_norm(&mut self) {
        let bn = BatchNorm { epsilon: 1e-3, act: ACT };
        let [x, y, dx] = [(); 3].map(|()| self.batch(SHAPE));
        let [gamma, beta] = self.runs(Arena::Parameters, 20);
        let ([saved], [sums]) = (self.runs(Arena::Statistics, 40), self.runs(Arena::Gradients, 40));
        let [dgamma, dbeta] = self.runs(Arena::Gradients, 20);
        self.add(BatchNormTrain { bn }, &[x, gamma, beta], &[y, saved, sums]);
        self.add(BatchNormWeightGradient { bn }, &[x, gamma, beta, saved, y], &[dgamma, dbeta]);
        let of_input = BatchNormInputGradient { bn, shared: false };
        self.add(of_input, &[x, gamma, beta, saved, y, dgamma, dbeta], &[dx]);
    }

    fn group_norm(&mut self) {
        let norm = GroupNorm { groups: 4, epsilon: 1e-3, act: ACT };
        let [x, y, dx] = [(); 3].map(|()| self.batch(SHAPE));
        let [gamma, beta] = self.runs(Arena::Parameters, 20);
        let [dgamma, dbeta] = self.runs(Arena::Gradients, 20);
        self.add(norm, &[x, gamma, beta], &[y]);
        self.add(GroupNormGradient { norm }, &[x, gamma, beta, y], &[dx, dgamma, dbeta]);
    }

    fn pools(&mut self) {
        let pool = Pool2d::new([3; 2], [2; 2], Pad::VALID);
        let small = pool.output(SHAPE).expect("it fits");
        let ([x, dx], y) = ([(); 2].map(|()| self.batch(SHAPE)), self.batch(small));
        self.add(MaxPoolGradient { pool }, &[x, y, y], &[dx]);
        self.add(AveragePoolGradient { pool, x: SHAPE.with_n(1) }, &[y], &[dx]);
    }
}

#[test]
fn no_step_needs_more_than_was_reserved() -> Result<()> {
    type Build = fn(&mut Steps);
    let all: [(&str, Build); 9] = [
        ("3x3", |steps| steps.convolution(3, 1)),
        ("strided", |steps| steps.convolution(3, 2)),
        ("1x1", |steps| steps.convolution(1, 1)),
        ("depthwise", |steps| steps.depthwise(3, 1)),
        ("depthwise, strided", |steps| steps.depthwise(5, 2)),
        ("dense", Steps::dense),
        ("batch norm", Steps::batch_norm),
        ("group norm", Steps::group_norm),
        ("pools", Steps::pools),
    ];
    for ((name, build), beside) in all.into_iter().flat_map(|all| [0, 45].map(|beside| (all, beside))) {
        for cpu in Cpu::of_every_kind(2) {
            let mut steps = Steps { trial: Trial::new(SHAPE.n), beside };
            build(&mut steps);
            let mut trial = steps.trial.on(&cpu)?;
            let reserved = cpu.scratch(0).len();
            for n in 1..=SHAPE.n {
                trial.run(&StepArgs::inference(n))?;
                let what = format!("{name} of {n} samples, {beside} channels beside, {:?}", cpu.simd());
                assert_eq!(cpu.scratch(0).len(), reserved, "{what}");
            }
        }
    }
    Ok(())
}
