use crate::activation::check_fused;
use crate::{Backward, BackwardReads, Forward, Initializer, Layer, Op, Operation, ParamSpec, Place, Role};
use tensor::{
    Activation, Backend, BatchNorm, Conv2d, Error, NormInfer, NormSpans, Pad, Result, Run, RunMut, Shape,
    Storage, View, ViewMut, WeightSpans, Write,
};

/// Zeros around an image: Keras' two kinds, and a width of one's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// None.
    #[default]
    Valid,
    /// As many outputs as `ceil(size / stride)`.
    Same,
    /// So many on each side: PyTorch's `padding=N`, in Keras a `ZeroPadding2D(N)` before a layer without padding. For a stride of
    /// 1 and a kernel of `2 N + 1` it is [`Padding::Same`]; with larger strides the windows lie elsewhere.
    Pixels(usize),
}

impl Padding {
    pub(crate) fn resolve(self, x: Shape, kernel: [usize; 2], stride: [usize; 2]) -> Pad {
        match self {
            Padding::Valid => Pad::VALID,
            Padding::Same if stride.contains(&0) => Pad::VALID,
            Padding::Same => Pad::same(x.h, x.w, kernel, stride),
            Padding::Pixels(n) => Pad { top: n, bottom: n, left: n, right: n },
        }
    }
}

/// A two-dimensional convolution, with an activation fused into it.
///
/// Defaults as in Keras: stride 1, valid padding, a bias, Glorot-uniform weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2D {
    filters: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    activation: Activation,
    use_bias: bool,
    kernel_initializer: Initializer,
    kernel_trainable: bool,
}

impl Conv2D {
    /// `filters` output channels of `kernel_size x kernel_size` windows.
    pub fn new(filters: usize, kernel_size: usize) -> Self {
        Conv2D {
            filters,
            kernel: [kernel_size; 2],
            stride: [1; 2],
            padding: Padding::Valid,
            activation: Activation::None,
            use_bias: true,
            kernel_initializer: Initializer::GlorotUniform,
            kernel_trainable: true,
        }
    }

    /// `padding="same"`.
    pub fn same(self) -> Self {
        self.padding(Padding::Same)
    }

    /// The padding.
    pub fn padding(self, padding: Padding) -> Self {
        Conv2D { padding, ..self }
    }

    /// Rows and columns from one window to the next.
    pub fn strides(self, stride: usize) -> Self {
        Conv2D { stride: [stride; 2], ..self }
    }

    /// What follows the convolution; GELU must be a layer of its own.
    pub fn activation(self, activation: Activation) -> Self {
        Conv2D { activation, ..self }
    }

    /// Whether there is a bias.
    pub fn use_bias(self, use_bias: bool) -> Self {
        Conv2D { use_bias, ..self }
    }

    /// The weights' first values.
    pub fn kernel_initializer(self, kernel_initializer: Initializer) -> Self {
        Conv2D { kernel_initializer, ..self }
    }

    /// Whether the weights are trained. The bias is in any case.
    pub fn kernel_trainable(self, kernel_trainable: bool) -> Self {
        Conv2D { kernel_trainable, ..self }
    }

    fn spec(&self, x: Shape) -> Conv2d {
        Conv2d {
            inputs: x.c,
            outputs: self.filters,
            kernel: self.kernel,
            stride: self.stride,
            pad: self.padding.resolve(x, self.kernel, self.stride),
        }
    }
}

impl Layer for Conv2D {
    fn kind(&self) -> &'static str {
        "Conv2D"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        at_least_one("conv2d", "filters", self.filters)?;
        check_fused("conv2d", self.activation)?;
        let twice = self.kernel.iter().fold(2, |n, &side| side.saturating_mul(n)).saturating_mul(x.c);
        if matches!(self.kernel_initializer, Initializer::Whitening { .. }) && self.filters != twice {
            let (value, accepted) =
                (self.filters as f64, "twice the numbers of a patch, for its initializer");
            return Err(Error::Value { op: "conv2d", what: "filters", value, accepted });
        }
        self.spec(x).output(x)
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let shape = vec![self.kernel[0], self.kernel[1], x.c, self.filters];
        let mut params = weights_and_bias(shape, self.kernel_initializer, self.use_bias);
        params[0].role = Role::trained(self.kernel_trainable);
        params
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::of_product(self.activation)
    }

    fn lends_output(&self) -> bool {
        self.activation == Activation::None
    }

    fn bias(&self) -> Option<usize> {
        (self.use_bias && self.activation == Activation::None).then_some(1)
    }

    fn folds_normalization(&self) -> bool {
        self.activation == Activation::None
    }

    fn operation(&self, x: Shape) -> Option<Operation> {
        Some(Operation::Conv2d(self.spec(x), self.activation))
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        let conv = self.spec(place.x);
        place.device.prepare_conv2d(&conv, place.x, place.training)?;
        Ok(Box::new(Conv2DOp {
            conv,
            act: self.activation,
            at: WeightSpans { w: place.params[0], b: place.params.get(1).copied() },
            kernel_trainable: self.kernel_trainable,
            without_bias: place.bias_taken_away,
            normalization: place.normalization,
        }))
    }
}

/// Refuses a layer without outputs.
pub(crate) fn at_least_one(op: &'static str, what: &'static str, outputs: usize) -> Result<()> {
    if outputs > 0 { Ok(()) } else { Err(Error::Value { op, what, value: 0.0, accepted: "at least 1" }) }
}

/// The parameters of a layer that multiplies: a kernel of this shape and a bias of its last dimension.
pub(crate) fn weights_and_bias(shape: Vec<usize>, init: Initializer, use_bias: bool) -> Vec<ParamSpec> {
    let outputs = shape.last().copied().unwrap_or(0);
    let mut params = vec![ParamSpec { name: "kernel", shape, init, role: Role::Trainable }];
    if use_bias {
        let init = Initializer::Zeros;
        params.push(ParamSpec { name: "bias", shape: vec![outputs], init, role: Role::Trainable });
    }
    params
}

struct Conv2DOp {
    conv: Conv2d,
    act: Activation,
    at: WeightSpans,
    kernel_trainable: bool,
    /// In training passes.
    without_bias: bool,
    /// In inference passes.
    normalization: Option<(BatchNorm, NormSpans)>,
}

impl Conv2DOp {
    /// The weights in training passes. Nobody writes the gradient of a bias that is left out, so it stays 0.
    fn trained(&self) -> WeightSpans {
        WeightSpans { b: self.at.b.filter(|_| !self.without_bias), ..self.at }
    }
}

impl Op for Conv2DOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        if let (None, Some((bn, at))) = (cx.training, &self.normalization) {
            let Forward { device, params, running, .. } = cx;
            let (weights, norm) = (Run::new(params, self.at), NormInfer { params, running, at: *at });
            return device.conv2d_bn_act_fwd_infer(&self.conv, bn, x, weights, norm, y);
        }
        let at = if cx.training.is_some() { self.trained() } else { self.at };
        cx.device.conv2d_fwd(&self.conv, self.act, x, Run::new(cx.params, at), y)
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
        let (dy, at) = (dy.as_view(), self.trained());
        if self.kernel_trainable || at.b.is_some() {
            cx.device.conv2d_bwd_filter(&self.conv, x, dy, RunMut::new(cx.grads, at))?;
        }
        match dx {
            Some((dx, write)) => {
                cx.device.conv2d_bwd_data(&self.conv, dy, Run::new(cx.params, at.w), dx, write)
            }
            None => Ok(()),
        }
    }
}
