//! Dense layers: forward with activation, and both backward passes.

use crate::convolution::TOLERANCE;
use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{LinearForward, LinearInputGradient, LinearWeightGradient};
use towers_program::{Activation, Arena, Linear, Result, Shape, Write};

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
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (linear, bias) = (self.linear, usize::from(self.bias));
        let (of_x, of_y) =
            (Shape::vectors(self.samples, linear.inputs), Shape::vectors(self.samples, linear.outputs));
        let mut ops = bench.ops(self.samples, self.place);
        let (x, dy) = (ops.draw("x", of_x), ops.draw("dy", of_y));
        let (y, dx) = (ops.draw("y", of_y), ops.draw("dx", of_x));
        let (len, c) = (linear.inputs * linear.outputs, linear.outputs);
        let (w, dw) = (ops.weights("w", len), ops.numbers(Arena::Gradients, "dw", len));
        let (b, db) = (ops.weights("b", c), ops.numbers(Arena::Gradients, "db", c));
        let gradients = [dw, db];
        let gradients = &gradients[..1 + bias];
        ops.set(LinearForward { linear, act: self.act }, &[x, w, b][..2 + bias], [y]);
        ops.write(LinearInputGradient { linear }, [dy, w], [dx], self.mode);
        ops.set(LinearWeightGradient { linear, bias: self.bias }, [x, dy], gradients);
        let done = ops.run()?;
        let mut outputs = vec![done.output(y, "y", TOLERANCE)?, done.output(dx, "dx", TOLERANCE)?];
        for (&gradient, name) in gradients.iter().zip(["dw", "db"]) {
            outputs.push(done.output(gradient, name, TOLERANCE)?);
        }
        Ok(outputs.into_iter().map(Output::of_products).collect())
    }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks(subject: &Subject) {
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
#[cfg(feature = "random")]
pub fn any_dense_layer(subject: &Subject) {
    let sizes = (0..40_usize, 1..300_usize, 1..70_usize);
    let rest = (placement(), write_mode(), activation_of_sums(), any::<bool>());
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
pub fn an_empty_batch(subject: &Subject) {
    for (mode, bias) in [(Write::Set, true), (Write::Add, false)] {
        let linear = Linear { inputs: 24, outputs: 16 };
        subject.agree(&Dense { linear, samples: 0, place: SLICE, act: Activation::Relu, bias, mode });
    }
}
