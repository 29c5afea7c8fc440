//! Small networks for the tests of passes.

use crate::ops::{
    Add, BatchNormInfer, BatchNormTrain, Concat, Conv2dForward, CrossEntropy, Depthwise, DepthwiseForward,
    MaxPool, Reshape,
};
use crate::passes::{Training, training};
use crate::{
    Activation, Arena, BatchNorm, Builder, Conv2d, Pad, Parameter, Phase, Pool2d, Program, Shape, Span,
    Target, TensorId,
};

/// A forward program that grows layer by layer.
pub(crate) struct Layers {
    builder: Builder,
    /// The end of the parameters' arena.
    end: usize,
    last: Vec<TensorId>,
}

impl Layers {
    pub(crate) fn new([h, w, c]: [usize; 3]) -> Self {
        Layers { builder: Builder::new(Shape::new(1, h, w, c)), end: 0, last: Vec::new() }
    }

    pub(crate) fn input(&self) -> TensorId {
        self.builder.input()
    }

    fn span(&mut self, len: usize) -> Span {
        let span = Span::new(self.end, len);
        self.end += len;
        span
    }

    fn parameter(&mut self, name: String, len: usize) -> TensorId {
        let span = self.span(len);
        self.builder.parameter(Parameter { name, span, trained: true })
    }

    fn spec(&self, outputs: usize, x: TensorId) -> Conv2d {
        let inputs = self.builder.shape(x).c;
        Conv2d::new(inputs, outputs, [1; 2])
    }

    pub(crate) fn conv(&mut self, name: &str, outputs: usize, x: TensorId) -> TensorId {
        self.conv_of(name, name, outputs, x)
    }

    pub(crate) fn conv_of(&mut self, layer: &str, name: &str, outputs: usize, x: TensorId) -> TensorId {
        let conv = self.spec(outputs, x);
        self.builder.layer(layer);
        let w = self.parameter(format!("{name}/kernel"), conv.weights());
        self.last = vec![w];
        self.builder.push(Conv2dForward { conv, act: Activation::None }, &[x, w], &[]).unwrap()[0]
    }

    pub(crate) fn conv_with_activation(
        &mut self,
        name: &str,
        outputs: usize,
        act: Activation,
        x: TensorId,
    ) -> TensorId {
        let conv = self.spec(outputs, x);
        self.builder.layer(name);
        let w = self.parameter(format!("{name}/kernel"), conv.weights());
        self.builder.push(Conv2dForward { conv, act }, &[x, w], &[]).unwrap()[0]
    }

    /// Its windows are 2x2.
    pub(crate) fn max_pool(&mut self, name: &str, x: TensorId) -> TensorId {
        self.builder.layer(name);
        let pool = Pool2d::new([2; 2], [2; 2], Pad::VALID);
        self.builder.push(MaxPool { pool }, &[x], &[]).unwrap()[0]
    }

    /// With the kernel of the convolution before.
    pub(crate) fn conv_shared(&mut self, layer: &str, x: TensorId) -> TensorId {
        let conv = self.spec(self.builder.shape(x).c, x);
        self.builder.layer(layer);
        self.builder.push(Conv2dForward { conv, act: Activation::None }, &[x, self.last[0]], &[]).unwrap()[0]
    }

    pub(crate) fn conv_with_bias(&mut self, name: &str, outputs: usize, x: TensorId) -> TensorId {
        let conv = self.spec(outputs, x);
        self.builder.layer(name);
        let w = self.parameter(format!("{name}/kernel"), conv.weights());
        let b = self.parameter(format!("{name}/bias"), outputs);
        self.builder.push(Conv2dForward { conv, act: Activation::None }, &[x, w, b], &[]).unwrap()[0]
    }

    pub(crate) fn depthwise_with_bias(&mut self, name: &str, x: TensorId) -> TensorId {
        let inputs = self.builder.shape(x).c;
        let (kernel, stride, dilation, pad) = ([1; 2], [1; 2], [1; 2], Pad::VALID);
        let conv = Depthwise { inputs, multiplier: 1, kernel, stride, dilation, pad };
        self.builder.layer(name);
        let w = self.parameter(format!("{name}/depthwise_kernel"), conv.weights());
        let b = self.parameter(format!("{name}/bias"), inputs);
        self.builder.push(DepthwiseForward { conv, act: Activation::None }, &[x, w, b], &[]).unwrap()[0]
    }

    pub(crate) fn batch_norm(&mut self, name: &str, x: TensorId) -> TensorId {
        let (bn, c) = (BatchNorm { epsilon: 1e-3, act: Activation::None }, self.builder.shape(x).c);
        self.builder.layer(name);
        let gamma = self.parameter(format!("{name}/gamma"), c);
        let beta = self.parameter(format!("{name}/beta"), c);
        let span = self.span(2 * c);
        let sums = self.builder.fixed(&format!("{name}/sums"), Arena::Gradients, span);
        self.builder.push(BatchNormTrain { bn }, &[x, gamma, beta], &[sums]).unwrap()[0]
    }

    pub(crate) fn batch_norm_infer(&mut self, name: &str, x: TensorId) -> TensorId {
        let (bn, c) = (BatchNorm { epsilon: 1e-3, act: Activation::None }, self.builder.shape(x).c);
        self.builder.layer(name);
        let gamma = self.parameter(format!("{name}/gamma"), c);
        let beta = self.parameter(format!("{name}/beta"), c);
        let [mean, var] = ["moving_mean", "moving_variance"].map(|run| {
            let span = self.span(c);
            self.builder.fixed(&format!("{name}/{run}"), Arena::Averages, span)
        });
        self.builder.push(BatchNormInfer { bn }, &[x, gamma, beta, mean, var], &[]).unwrap()[0]
    }

    pub(crate) fn add(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.builder.push(Add { act: Activation::None }, &[a, b], &[]).unwrap()[0]
    }

    pub(crate) fn concat(&mut self, all: &[TensorId]) -> TensorId {
        self.builder.push(Concat, all, &[]).unwrap()[0]
    }

    pub(crate) fn finish(self, output: TensorId) -> Program {
        self.builder.finish(output)
    }

    /// The loss of a flattened output.
    pub(crate) fn loss(mut self, output: TensorId) -> Program {
        let shape = self.builder.shape(output);
        let logits = self.builder.push(Reshape { to: shape.flatten() }, &[output], &[]).unwrap()[0];
        let labels = self.builder.fixed("labels", Arena::Labels, Span::new(0, Target::WORDS));
        let metrics = self.span(2);
        let metrics = self.builder.fixed("metrics", Arena::Gradients, metrics);
        let loss = CrossEntropy { gradient: true, multi_label: false };
        let results = self.builder.in_phase(Phase::Loss).push(loss, &[logits, labels], &[metrics]).unwrap();
        Program { output_gradient: Some(results[0]), ..self.builder.finish(logits) }
    }
}

pub(crate) fn training_step(forward: Program, input_gradient: bool) -> Program {
    training(forward, Training { input_gradient, recompute: true, sync_batch_norm: None, bucket: None })
        .unwrap()
}
