use crate::activation::check_fused;
use crate::conv2d::at_least_one;
use crate::{Initializer, Layer, Lower, Padding, ParamSpec, Role};
use towers_program::ops::Depthwise;
use towers_program::{Activation, Conv2d, Pad, Result, Shape, TensorId, ops};

/// The windows that move over each channel, and their weights.
#[derive(Clone, Debug, PartialEq)]
struct Windows {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: Padding,
    multiplier: usize,
    initializer: Initializer,
}

impl Windows {
    fn new(kernel_size: usize) -> Self {
        Windows {
            kernel: [kernel_size; 2],
            stride: [1; 2],
            dilation: [1; 2],
            padding: Padding::Valid,
            multiplier: 1,
            initializer: Initializer::GlorotUniform,
        }
    }

    fn spec(&self, op: &'static str, x: Shape) -> Result<Depthwise> {
        let Windows { kernel, stride, dilation, multiplier, .. } = *self;
        at_least_one(op, "depth_multiplier", multiplier)?;
        let conv = Depthwise { inputs: x.c, multiplier, kernel, stride, dilation, pad: Pad::VALID };
        Ok(Depthwise { pad: self.padding.resolve(x, conv.extent(), stride), ..conv })
    }

    fn weights(&self, x: Shape) -> ParamSpec {
        let shape = vec![self.kernel[0], self.kernel[1], x.c, self.multiplier];
        ParamSpec { name: "depthwise_kernel", shape, init: self.initializer, role: Role::Trainable }
    }
}

fn bias(outputs: usize) -> ParamSpec {
    ParamSpec { name: "bias", shape: vec![outputs], init: Initializer::Zeros, role: Role::Trainable }
}

/// The options of windows, for a layer that has them.
macro_rules! window_options {
    () => {
        /// Windows of another number of rows than columns.
        pub fn kernel_size(mut self, kernel: [usize; 2]) -> Self {
            self.windows.kernel = kernel;
            self
        }

        /// `padding="same"`.
        pub fn same(self) -> Self {
            self.padding(Padding::Same)
        }

        /// The padding.
        pub fn padding(mut self, padding: Padding) -> Self {
            self.windows.padding = padding;
            self
        }

        /// Rows and columns from one window to the next.
        pub fn strides(self, stride: usize) -> Self {
            self.strides_by([stride; 2])
        }

        /// Rows and columns from one window to the next, where they differ.
        pub fn strides_by(mut self, stride: [usize; 2]) -> Self {
            self.windows.stride = stride;
            self
        }

        /// Rows and columns from one element of the kernel to the next.
        pub fn dilation_rate(mut self, dilation: [usize; 2]) -> Self {
            self.windows.dilation = dilation;
            self
        }

        /// Filters of each channel.
        pub fn depth_multiplier(mut self, multiplier: usize) -> Self {
            self.windows.multiplier = multiplier;
            self
        }

        /// The initializer of the depthwise weights.
        pub fn depthwise_initializer(mut self, initializer: Initializer) -> Self {
            self.windows.initializer = initializer;
            self
        }

        /// The activation after the convolution. GELU must be a separate layer.
        pub fn activation(self, activation: Activation) -> Self {
            Self { activation, ..self }
        }

        /// Whether there is a bias.
        pub fn use_bias(self, use_bias: bool) -> Self {
            Self { use_bias, ..self }
        }
    };
}

/// A convolution of each channel by itself, with an activation fused into it.
///
/// Defaults as in Keras: one filter a channel, stride 1, valid padding, a bias, Glorot-uniform weights.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthwiseConv2D {
    windows: Windows,
    activation: Activation,
    use_bias: bool,
}

impl DepthwiseConv2D {
    /// Windows of `kernel_size x kernel_size` pixels.
    pub fn new(kernel_size: usize) -> Self {
        let windows = Windows::new(kernel_size);
        DepthwiseConv2D { windows, activation: Activation::None, use_bias: true }
    }

    window_options!();
}

impl Layer for DepthwiseConv2D {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let x = inputs[0];
        let bias = self.use_bias.then(|| bias(x.c.saturating_mul(self.windows.multiplier)));
        [self.windows.weights(x)].into_iter().chain(bias).collect()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        check_fused("depthwise_conv2d", self.activation)?;
        let conv = self.windows.spec("depthwise_conv2d", to.shape(inputs[0]))?;
        let operands = [inputs, to.params()].concat();
        to.push(ops::DepthwiseForward { conv, act: self.activation }, &operands)
    }
}

/// A convolution of each channel by itself, then one of 1x1 over all of them: Keras' `SeparableConv2D`, with its bias and
/// activation behind the second.
///
/// Defaults as in Keras: one filter a channel, stride 1, valid padding, a bias, Glorot-uniform weights.
#[derive(Clone, Debug, PartialEq)]
pub struct SeparableConv2D {
    filters: usize,
    windows: Windows,
    pointwise_initializer: Initializer,
    activation: Activation,
    use_bias: bool,
}

impl SeparableConv2D {
    /// `filters` output channels of windows of `kernel_size x kernel_size` pixels.
    pub fn new(filters: usize, kernel_size: usize) -> Self {
        let (windows, pointwise_initializer) = (Windows::new(kernel_size), Initializer::GlorotUniform);
        SeparableConv2D {
            filters,
            windows,
            pointwise_initializer,
            activation: Activation::None,
            use_bias: true,
        }
    }

    /// The initializer of the 1x1 convolution's weights.
    pub fn pointwise_initializer(self, pointwise_initializer: Initializer) -> Self {
        SeparableConv2D { pointwise_initializer, ..self }
    }

    window_options!();
}

impl Layer for SeparableConv2D {
    fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
        let x = inputs[0];
        let between = x.c.saturating_mul(self.windows.multiplier);
        let pointwise = ParamSpec {
            name: "pointwise_kernel",
            shape: vec![1, 1, between, self.filters],
            init: self.pointwise_initializer,
            role: Role::Trainable,
        };
        let bias = self.use_bias.then(|| bias(self.filters));
        [self.windows.weights(x), pointwise].into_iter().chain(bias).collect()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        check_fused("separable_conv2d", self.activation)?;
        at_least_one("separable_conv2d", "filters", self.filters)?;
        let depthwise = self.windows.spec("separable_conv2d", to.shape(inputs[0]))?;
        let (between, outputs) = (depthwise.outputs(), self.filters);
        let conv = Conv2d::new(between, outputs, [1; 2]);
        let params = to.params().to_vec();
        let act = Activation::None;
        let x = to.push(ops::DepthwiseForward { conv: depthwise, act }, &[inputs[0], params[0]])?;
        let operands = [&[x], &params[1..]].concat();
        to.push(ops::Conv2dForward { conv, act: self.activation }, &operands)
    }
}
