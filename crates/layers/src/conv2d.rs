use crate::activation::check_fused;
use crate::{Initializer, Layer, Lower, ParamSpec, Role};
use towers_program::ops::Depthwise;
use towers_program::{Activation, Conv2d, Error, Pad, Result, Shape, TensorId, ops};

/// Zeros around an image: Keras' two kinds, or given widths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// None.
    #[default]
    Valid,
    /// For `ceil(size / stride)` outputs.
    Same,
    /// The same width on each side: PyTorch's `padding=N`, in Keras a `ZeroPadding2D(N)` before a layer
    /// without padding. For a stride of 1 and a kernel of `2 N + 1` it is [`Padding::Same`]. With larger
    /// strides the windows lie elsewhere.
    Pixels(usize),
    /// Another width on each side, as `ZeroPadding2D(((top, bottom), (left, right)))` before a layer without
    /// padding.
    Sides(Pad),
}

impl Padding {
    pub(crate) fn resolve(self, x: Shape, kernel: [usize; 2], stride: [usize; 2]) -> Pad {
        match self {
            Padding::Valid => Pad::VALID,
            Padding::Same if stride.contains(&0) => Pad::VALID,
            Padding::Same => Pad::same(x.h, x.w, kernel, stride),
            Padding::Pixels(n) => Pad { top: n, bottom: n, left: n, right: n },
            Padding::Sides(pad) => pad,
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
    dilation: [usize; 2],
    groups: usize,
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
            dilation: [1; 2],
            groups: 1,
            padding: Padding::Valid,
            activation: Activation::None,
            use_bias: true,
            kernel_initializer: Initializer::GlorotUniform,
            kernel_trainable: true,
        }
    }

    /// Windows of another number of rows than columns.
    pub fn kernel_size(self, kernel: [usize; 2]) -> Self {
        Conv2D { kernel, ..self }
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
        self.strides_by([stride; 2])
    }

    /// Rows and columns from one window to the next, where they differ.
    pub fn strides_by(self, stride: [usize; 2]) -> Self {
        Conv2D { stride, ..self }
    }

    /// Rows and columns from one element of the kernel to the next: Keras' `dilation_rate`. Not as in Keras, such a layer may have
    /// strides too.
    pub fn dilation_rate(self, dilation: [usize; 2]) -> Self {
        Conv2D { dilation, ..self }
    }

    /// Parts into which the channels of the input and the filters are divided. Each filter reads those of its part.
    pub fn groups(self, groups: usize) -> Self {
        Conv2D { groups, ..self }
    }

    /// The activation after the convolution. GELU must be a separate layer.
    pub fn activation(self, activation: Activation) -> Self {
        Conv2D { activation, ..self }
    }

    /// Whether there is a bias.
    pub fn use_bias(self, use_bias: bool) -> Self {
        Conv2D { use_bias, ..self }
    }

    /// The initializer of the weights.
    pub fn kernel_initializer(self, kernel_initializer: Initializer) -> Self {
        Conv2D { kernel_initializer, ..self }
    }

    /// Whether the weights are trained. The bias always is.
    pub fn kernel_trainable(self, kernel_trainable: bool) -> Self {
        Conv2D { kernel_trainable, ..self }
    }

    fn spec(&self, x: Shape) -> Conv2d {
        let conv = Conv2d {
            stride: self.stride,
            dilation: self.dilation,
            groups: self.groups,
            ..Conv2d::new(x.c, self.filters, self.kernel)
        };
        Conv2d { pad: self.padding.resolve(x, conv.extent(), self.stride), ..conv }
    }
}

impl Layer for Conv2D {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let shape = vec![self.kernel[0], self.kernel[1], self.spec(inputs[0]).group_inputs(), self.filters];
        let mut params = weights_and_bias(shape, self.kernel_initializer, self.use_bias);
        params[0].role = Role::trained(self.kernel_trainable);
        params
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let shape = to.shape(inputs[0]);
        at_least_one("conv2d", "filters", self.filters)?;
        check_fused("conv2d", self.activation)?;
        let twice = self.kernel.iter().fold(2, |n, &side| side.saturating_mul(n)).saturating_mul(shape.c);
        if matches!(self.kernel_initializer, Initializer::Whitening { .. }) && self.filters != twice {
            let (value, accepted) =
                (self.filters as f64, "twice the numbers of a patch, for its initializer");
            return Err(Error::Value { op: "conv2d", what: "filters", value, accepted });
        }
        let passes_on = matches!(self.kernel_initializer, Initializer::Whitening { .. } | Initializer::Dirac);
        if passes_on && self.groups != 1 {
            let (value, accepted) = (self.groups as f64, "1, for its initializer");
            return Err(Error::Value { op: "conv2d", what: "the number of groups", value, accepted });
        }
        let operands = [inputs, to.params()].concat();
        let (conv, act) = (self.spec(shape), self.activation);
        if self.groups > 1 && self.groups == shape.c && self.filters.is_multiple_of(shape.c) {
            // With a group for each channel it is a depthwise convolution, whose weights lie alike.
            let Conv2d { inputs, kernel, stride, dilation, pad, .. } = conv;
            let multiplier = self.filters / inputs;
            let conv = Depthwise { inputs, multiplier, kernel, stride, dilation, pad };
            return to.push(ops::DepthwiseForward { conv, act }, &operands);
        }
        to.push(ops::Conv2dForward { conv, act }, &operands)
    }
}

/// Refuses a layer without outputs.
pub(crate) fn at_least_one(op: &'static str, what: &'static str, outputs: usize) -> Result<()> {
    if outputs > 0 { Ok(()) } else { Err(Error::Value { op, what, value: 0.0, accepted: "at least 1" }) }
}

/// The parameters of a layer that multiplies: a kernel of this shape, and a bias of its last dimension.
pub(crate) fn weights_and_bias(shape: Vec<usize>, init: Initializer, use_bias: bool) -> Vec<ParamSpec> {
    let outputs = shape.last().copied().unwrap_or(0);
    let mut params = vec![ParamSpec { name: "kernel", shape, init, role: Role::Trainable }];
    if use_bias {
        let init = Initializer::Zeros;
        params.push(ParamSpec { name: "bias", shape: vec![outputs], init, role: Role::Trainable });
    }
    params
}
