//! Convolutions of each channel by itself.

use super::site::Site;
use super::zeros::Tensor;
use towers_layers::{DepthwiseConv2D, LayerScale, Padding, Result, SeparableConv2D};

/// The options of a depthwise convolution.
pub(super) const OPTIONS: &[&str] = &[
    "kernel_size",
    "strides",
    "padding",
    "dilation_rate",
    "depth_multiplier",
    "activation",
    "use_bias",
    "depthwise_initializer",
];

/// Those of one with a convolution of 1x1 behind it.
pub(super) const SEPARABLE: &[&str] = &[
    "filters",
    "kernel_size",
    "strides",
    "padding",
    "dilation_rate",
    "depth_multiplier",
    "activation",
    "use_bias",
    "depthwise_initializer",
    "pointwise_initializer",
];

/// The options of windows that move over each channel.
struct Windows {
    kernel: [usize; 2],
    strides: [usize; 2],
    dilation: [usize; 2],
    padding: Padding,
    multiplier: usize,
}

impl Windows {
    fn of(site: &Site<'_>) -> Result<Self> {
        let options = &site.options;
        let kernel = options.needed_pair("kernel_size")?;
        let strides = options.pair("strides")?.unwrap_or([1; 2]);
        let dilation = options.pair("dilation_rate")?.unwrap_or([1; 2]);
        let extent = [0, 1].map(|axis| (kernel[axis] - 1) * dilation[axis] + 1);
        let padding = site.inputs[0].padding(site.graph, options.padding()?, extent, strides);
        let multiplier = options.size("depth_multiplier")?.unwrap_or(1);
        Ok(Windows { kernel, strides, dilation, padding, multiplier })
    }
}

pub(super) fn depthwise_conv2d(site: &mut Site<'_>) -> Result<Tensor> {
    let (windows, options) = (Windows::of(site)?, &site.options);
    let conv = DepthwiseConv2D::new(1)
        .kernel_size(windows.kernel)
        .strides_by(windows.strides)
        .dilation_rate(windows.dilation)
        .padding(windows.padding)
        .depth_multiplier(windows.multiplier)
        .use_bias(options.flag("use_bias", true)?)
        .depthwise_initializer(options.initializer("depthwise_initializer")?)
        .activation(site.act);
    site.add_padded(conv)
}

/// The class of `keras.applications`.
pub(super) fn layer_scale(site: &mut Site<'_>) -> Result<Tensor> {
    let (x, options) = (site.graph.shape(site.inputs[0].value), &site.options);
    match options.size("projection_dim")? {
        Some(c) if c != x.c => {
            Err(options.refuse(format!("`projection_dim` is {c}, but its input has {} channels", x.c)))
        }
        _ => site.add(LayerScale::new(options.number("init_values", 1.0)?)),
    }
}

pub(super) fn separable_conv2d(site: &mut Site<'_>) -> Result<Tensor> {
    let (windows, options) = (Windows::of(site)?, &site.options);
    let conv = SeparableConv2D::new(options.needed("filters")?, 1)
        .kernel_size(windows.kernel)
        .strides_by(windows.strides)
        .dilation_rate(windows.dilation)
        .padding(windows.padding)
        .depth_multiplier(windows.multiplier)
        .use_bias(options.flag("use_bias", true)?)
        .depthwise_initializer(options.initializer("depthwise_initializer")?)
        .pointwise_initializer(options.initializer("pointwise_initializer")?)
        .activation(site.act);
    site.add_padded(conv)
}
