use crate::activation::check_fused;
use crate::conv2d::{at_least_one, weights_and_bias};
use crate::{Backward, BackwardReads, Forward, Initializer, Layer, Op, Operation, ParamSpec, Place};
use tensor::{
    Activation, Backend, Error, Linear, Result, Run, RunMut, Shape, Storage, View, ViewMut, WeightSpans,
    Write,
};

/// A fully connected layer, with an activation fused into it.
///
/// Defaults as in Keras: a bias, Glorot-uniform weights. Takes vectors: put a [`Flatten`](crate::Flatten) before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    units: usize,
    activation: Activation,
    use_bias: bool,
    kernel_initializer: Initializer,
}

impl Dense {
    /// `units` outputs.
    pub fn new(units: usize) -> Self {
        let kernel_initializer = Initializer::GlorotUniform;
        Dense { units, activation: Activation::None, use_bias: true, kernel_initializer }
    }

    /// What follows the product; GELU must be a layer of its own.
    pub fn activation(self, activation: Activation) -> Self {
        Dense { activation, ..self }
    }

    /// Whether there is a bias.
    pub fn use_bias(self, use_bias: bool) -> Self {
        Dense { use_bias, ..self }
    }

    /// The weights' first values.
    pub fn kernel_initializer(self, kernel_initializer: Initializer) -> Self {
        Dense { kernel_initializer, ..self }
    }
}

impl Layer for Dense {
    fn kind(&self) -> &'static str {
        "Dense"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Error::check_shape("dense", "the input (flatten it first)", x, x.flatten())?;
        at_least_one("dense", "units", self.units)?;
        check_fused("dense", self.activation)?;
        Ok(Shape::vectors(x.n, self.units))
    }

    fn makes_vectors(&self) -> bool {
        true
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        weights_and_bias(vec![x.c, self.units], self.kernel_initializer, self.use_bias)
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::of_product(self.activation)
    }

    fn lends_output(&self) -> bool {
        self.activation == Activation::None
    }

    fn operation(&self, x: Shape) -> Option<Operation> {
        Some(Operation::Linear(Linear { inputs: x.c, outputs: self.units }, self.activation))
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        let linear = Linear { inputs: place.x.c, outputs: self.units };
        place.device.prepare_linear(&linear, place.x.n, place.training)?;
        Ok(Box::new(DenseOp {
            linear,
            act: self.activation,
            at: WeightSpans { w: place.params[0], b: place.params.get(1).copied() },
        }))
    }
}

struct DenseOp {
    linear: Linear,
    act: Activation,
    at: WeightSpans,
}

impl Op for DenseOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.linear_fwd(&self.linear, self.act, x, Run::new(cx.params, self.at), y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        y: View<Storage>,
        mut dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        if self.act != Activation::None {
            cx.device.act_bwd_in_place(self.act, y, dy.reborrow())?;
        }
        let dy = dy.as_view();
        cx.device.linear_bwd_filter(&self.linear, x, dy, RunMut::new(cx.grads, self.at))?;
        match dx {
            Some((dx, write)) => {
                cx.device.linear_bwd_data(&self.linear, dy, Run::new(cx.params, self.at.w), dx, write)
            }
            None => Ok(()),
        }
    }
}
