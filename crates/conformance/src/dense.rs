//! Dense layers: forward with activation, and both backward passes.

use crate::convolution::TOLERANCE;
use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Activation, Backend, Linear, Result, Shape, Span, WeightSpans, Write};
use proptest::prelude::*;

/// A dense layer forward and backward.
#[derive(Clone, Debug)]
pub struct Dense {
    /// The operator.
    pub linear: Linear,
    /// Of the batch.
    pub samples: usize,
    /// Of all activations.
    pub place: Placement,
    /// What follows.
    pub act: Activation,
    /// Whether there is one.
    pub bias: bool,
    /// How the input's gradient is written.
    pub mode: Write,
}

impl Case for Dense {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, linear) = (bench.device, &self.linear);
        let (of_x, of_y) =
            (Shape::vectors(self.samples, linear.inputs), Shape::vectors(self.samples, linear.outputs));
        let weights = linear.inputs * linear.outputs;
        let (w, b) = (Span::new(1, weights), Span::new(1 + weights, linear.outputs));
        let weights = WeightSpans { w, b: self.bias.then_some(b) };
        let params = bench.weights("params", b.end() + 1)?;
        let mut grads = bench.arena("grads", b.end() + 1)?;
        let x = Operand::draw("x", of_x, self.place).on(bench)?;
        let dy = Operand::draw("dy", of_y, self.place).on(bench)?;
        let mut y = Operand::draw("y", of_y, self.place).on(bench)?;
        let mut dx = Operand::draw("dx", of_x, self.place).on(bench)?;
        device.prepare_linear(linear, self.samples, true)?;
        device.linear_fwd(linear, self.act, x.view(), params.run(weights), y.view_mut())?;
        device.linear_bwd_data(linear, dy.view(), params.run(w), dx.view_mut(), self.mode)?;
        device.linear_bwd_filter(linear, x.view(), dy.view(), grads.run_mut(weights))?;
        device.finish_grads(&mut grads.data, w)?;
        let runs = [("dw", w, TOLERANCE), ("db", b, TOLERANCE)];
        let grads = grads.outputs(bench, &runs[..1 + usize::from(self.bias)])?;
        let mut outputs = vec![y.output(bench, "y", TOLERANCE)?, dx.output(bench, "dx", TOLERANCE)?];
        outputs.extend(grads);
        Ok(outputs.into_iter().map(Output::of_products).collect())
    }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks<B: Backend>(subject: &Subject<B>) {
    for (inputs, outputs, samples) in [(336, 10, 64), (576, 128, 16), (512, 10, 128), (64, 100, 3)] {
        let linear = Linear { inputs, outputs };
        let samples = subject.fit(Shape::vectors(samples, inputs), inputs * outputs).n;
        let case =
            Dense { linear, samples, place: ALONE, act: Activation::None, bias: true, mode: Write::Set };
        subject.agree(&case);
        subject.agree(&Dense { place: WIDE_SLICE, act: Activation::Relu, mode: Write::Add, ..case });
    }
}

/// Sizes and places at random.
pub fn any_dense_layer<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..40_usize, 1..300_usize, 1..70_usize);
    let rest = (placement(), write_mode(), activation(), any::<bool>());
    let cases = (sizes, rest).prop_map(|((samples, inputs, outputs), (place, mode, act, bias))| Dense {
        linear: Linear { inputs, outputs },
        samples,
        place,
        act,
        bias,
        mode,
    });
    subject.agree_on(64, cases);
}

/// No samples: nothing is written but gradients, which are 0.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    for (mode, bias) in [(Write::Set, true), (Write::Add, false)] {
        let linear = Linear { inputs: 24, outputs: 16 };
        subject.agree(&Dense { linear, samples: 0, place: SLICE, act: Activation::Relu, bias, mode });
    }
}
