//! The table of layers: Keras' class, its options, and the layer that they make.

use super::depthwise;
use super::options::Options;
use super::site::Site;
use super::zeros::Tensor;
use towers_layers::{
    Add, AveragePooling2D, BatchNormalization, ChannelShuffle, ChannelSlice, Concatenate, Conv2D, Cropping2D,
    Dense, Dropout, Flatten, GlobalAveragePooling2D, GroupNormalization, Initializer, Layer,
    LayerNormalization, LocalResponseNormalization, MaxPooling2D, Multiply, PReLU, Rescaling, Reshape,
    Result, UpSampling2D, ZeroPadding2D,
};
use towers_program::{Activation, Conv2d, Noise};

/// A class of layers.
#[derive(Clone, Copy)]
pub(super) struct Class {
    /// Keras' name.
    pub(super) name: &'static str,
    /// The options that are read.
    pub(super) options: &'static [&'static str],
    /// Whether it reads several tensors, or one.
    pub(super) joins: bool,
    /// Whether an activation behind it can be computed in the same op.
    pub(super) fuses: fn(Activation) -> bool,
    /// Whether it gives no negative numbers if it gets none.
    pub(super) keeps_sign: bool,
    /// Whether it can add zeros before it to its own padding, and computes the same.
    pub(super) pads: fn(&Options<'_>, &Tensor) -> bool,
    /// Adds the layer to a graph.
    pub(super) build: fn(&mut Site<'_>) -> Result<Tensor>,
}

/// The names of the classes.
pub const CLASSES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut k = 0;
    while k < names.len() {
        names[k] = TABLE[k].name;
        k += 1;
    }
    names
};

/// The options that a class takes, by Keras' names. `None` for an unknown class.
///
/// ```
/// assert_eq!(towers_models::options_of("Dropout"), Some(&["rate", "noise_shape"][..]));
/// ```
pub fn options_of(class: &str) -> Option<&'static [&'static str]> {
    Some(find(class)?.options)
}

pub(super) fn find(class: &str) -> Option<&'static Class> {
    TABLE.iter().find(|known| known.name == class)
}

/// A class without options that reads one tensor.
const PLAIN: Class = Class {
    name: "",
    options: &[],
    joins: false,
    fuses: |_| false,
    keeps_sign: false,
    pads: |_, _| false,
    build: flatten,
};

/// All classes. A new one is an entry here.
const TABLE: &[Class] = &[
    Class { name: "Activation", options: &["activation"], build: activation, ..PLAIN },
    Class { name: "Add", joins: true, fuses: without_input, keeps_sign: true, build: add, ..PLAIN },
    Class {
        name: "AveragePooling2D",
        options: &["pool_size", "strides", "padding", "ceil_mode", "count_include_pad"],
        keeps_sign: true,
        build: average_pooling,
        ..PLAIN
    },
    Class {
        name: "BatchNormalization",
        options: &["momentum", "epsilon", "center", "scale"],
        fuses: |_| true,
        build: batch_normalization,
        ..PLAIN
    },
    Class { name: "ChannelShuffle", options: &["groups"], keeps_sign: true, build: channel_shuffle, ..PLAIN },
    Class {
        name: "ChannelSlice",
        options: &["start", "channels"],
        keeps_sign: true,
        build: channel_slice,
        ..PLAIN
    },
    Class { name: "Concatenate", joins: true, keeps_sign: true, build: concatenate, ..PLAIN },
    Class {
        name: "Conv2D",
        options: &[
            "filters",
            "kernel_size",
            "strides",
            "padding",
            "dilation_rate",
            "groups",
            "activation",
            "use_bias",
            "kernel_initializer",
        ],
        fuses: without_input,
        pads: |_, _| true,
        build: conv2d,
        ..PLAIN
    },
    Class { name: "Cropping2D", options: &["cropping"], keeps_sign: true, build: cropping, ..PLAIN },
    Class {
        name: "CustomScaleLayer",
        options: &["scale"],
        joins: true,
        fuses: without_input,
        build: scaled_add,
        ..PLAIN
    },
    Class {
        name: "Dense",
        options: &["units", "activation", "use_bias", "kernel_initializer"],
        fuses: without_input,
        build: dense,
        ..PLAIN
    },
    Class {
        name: "DepthwiseConv2D",
        options: depthwise::OPTIONS,
        fuses: without_input,
        pads: |_, _| true,
        build: depthwise::depthwise_conv2d,
        ..PLAIN
    },
    Class { name: "Dropout", options: &["rate", "noise_shape"], keeps_sign: true, build: dropout, ..PLAIN },
    Class { name: "ELU", options: &["alpha"], build: activation, ..PLAIN },
    Class { name: "Flatten", keeps_sign: true, ..PLAIN },
    Class {
        name: "GlobalAveragePooling2D",
        options: &["keepdims"],
        keeps_sign: true,
        build: global_average_pooling,
        ..PLAIN
    },
    Class {
        name: "GlobalMaxPooling2D",
        options: &["keepdims"],
        keeps_sign: true,
        build: global_max_pooling,
        ..PLAIN
    },
    Class {
        name: "GroupNormalization",
        options: &["groups", "epsilon", "center", "scale"],
        fuses: |_| true,
        build: group_normalization,
        ..PLAIN
    },
    Class { name: "LeakyReLU", options: &["negative_slope", "alpha"], build: activation, ..PLAIN },
    Class {
        name: "LayerNormalization",
        options: &["epsilon", "center", "scale"],
        build: layer_normalization,
        ..PLAIN
    },
    Class {
        name: "LayerScale",
        options: &["init_values", "projection_dim"],
        build: depthwise::layer_scale,
        ..PLAIN
    },
    Class {
        name: "LocalResponseNormalization",
        options: &["size", "alpha", "beta", "bias"],
        keeps_sign: true,
        build: local_response_normalization,
        ..PLAIN
    },
    Class {
        name: "MaxPooling2D",
        options: &["pool_size", "strides", "padding", "ceil_mode"],
        keeps_sign: true,
        // Zeros before it are part of the image, in which the last window of a `ceil_mode` must begin.
        pads: |options, x| x.is_never_negative && !options.flag("ceil_mode", false).unwrap_or(false),
        build: max_pooling,
        ..PLAIN
    },
    Class { name: "Multiply", joins: true, keeps_sign: true, build: multiply, ..PLAIN },
    Class { name: "PReLU", options: &["shared_axes", "alpha_initializer"], build: prelu, ..PLAIN },
    Class {
        name: "ReLU",
        options: &["max_value", "negative_slope", "threshold"],
        build: activation,
        ..PLAIN
    },
    Class { name: "Rescaling", options: &["scale", "offset"], build: rescaling, ..PLAIN },
    Class { name: "Reshape", options: &["target_shape"], keeps_sign: true, build: reshape, ..PLAIN },
    Class {
        name: "SeparableConv2D",
        options: depthwise::SEPARABLE,
        fuses: without_input,
        pads: |_, _| true,
        build: depthwise::separable_conv2d,
        ..PLAIN
    },
    Class { name: "Softmax", build: activation, ..PLAIN },
    Class { name: "SpatialDropout2D", options: &["rate"], keeps_sign: true, build: spatial_dropout, ..PLAIN },
    Class {
        name: "StochasticDepth",
        options: &["drop_path_rate"],
        keeps_sign: true,
        build: stochastic_depth,
        ..PLAIN
    },
    Class {
        name: "UpSampling2D",
        options: &["size", "interpolation"],
        keeps_sign: true,
        build: upsampling,
        ..PLAIN
    },
    Class { name: "ZeroPadding2D", options: &["padding"], keeps_sign: true, build: zero_padding, ..PLAIN },
];

/// Convolutions, dense layers and sums can't fuse an activation whose gradient needs its input.
fn without_input(act: Activation) -> bool {
    !act.reads_input()
}

fn activation(site: &mut Site<'_>) -> Result<Tensor> {
    match site.act {
        Activation::None => Ok(site.inputs[0]),
        act => site.add(act),
    }
}

fn add(site: &mut Site<'_>) -> Result<Tensor> {
    chain(site, |act| Add::new().activation(act))
}

fn multiply(site: &mut Site<'_>) -> Result<Tensor> {
    chain(site, |_| Multiply)
}

/// Layers of two inputs for all inputs, one after the other. The largest tensor comes first, over which others may be spread.
fn chain<L: Layer + 'static>(site: &mut Site<'_>, layer: fn(Activation) -> L) -> Result<Tensor> {
    let mut inputs = site.values()?;
    if let Some(largest) = inputs.iter().map(|&x| site.graph.shape(x).per_sample()).max() {
        let first = inputs.iter().position(|&x| site.graph.shape(x).per_sample() == largest).unwrap_or(0);
        inputs[..=first].rotate_right(1);
    }
    let (name, mut sum) = (site.options.name, inputs[0]);
    for (k, &x) in inputs.iter().enumerate().skip(1) {
        let last = k + 1 == inputs.len();
        let part = if last { name.to_owned() } else { format!("{name}_part{k}") };
        sum = site.graph.add_named(&part, layer(if last { site.act } else { Activation::None }), [sum, x])?;
    }
    Ok(Tensor::of(sum))
}

fn reshape(site: &mut Site<'_>) -> Result<Tensor> {
    let target = site.options.target_shape()?;
    let x = site.inputs[0].without_zeros(&site.options)?;
    let len = site.graph.shape(x).per_sample();
    // One extent may be left open, as -1.
    let known = target.iter().flatten().fold(1_usize, |len, &side| len.saturating_mul(side));
    let filled: Vec<usize> = target.iter().map(|side| side.unwrap_or(len / known.max(1))).collect();
    match filled[..] {
        [h, w, c] => site.add(Reshape::to([h, w, c])),
        [c] if c == len => site.add(Flatten),
        _ => Err(site
            .options
            .refuse(format!("it gives {filled:?}, but must give an image or a vector of {len} numbers"))),
    }
}

/// The second input times a number, added to the first: the layer of Keras' InceptionResNetV2.
fn scaled_add(site: &mut Site<'_>) -> Result<Tensor> {
    let &[x, residual] = &site.values()?[..] else {
        return Err(site.options.refuse("it takes two inputs"));
    };
    let name = site.options.name;
    let scaled = Rescaling::new(site.options.number("scale", 1.0)?);
    let scaled = site.graph.add_named(&format!("{name}_scaled"), scaled, residual)?;
    Ok(Tensor::of(site.graph.add_named(name, Add::new().activation(site.act), [x, scaled])?))
}

fn concatenate(site: &mut Site<'_>) -> Result<Tensor> {
    let inputs = site.values()?;
    Ok(Tensor::of(site.graph.add_named(site.options.name, Concatenate, inputs)?))
}

fn channel_shuffle(site: &mut Site<'_>) -> Result<Tensor> {
    let groups = site.options.needed("groups")?;
    site.add(ChannelShuffle::new(groups))
}

fn channel_slice(site: &mut Site<'_>) -> Result<Tensor> {
    let (start, channels) = (site.options.place("start")?, site.options.needed("channels")?);
    site.add(ChannelSlice::new(start, channels))
}

fn conv2d(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    let (filters, kernel) = (options.needed("filters")?, options.needed_pair("kernel_size")?);
    let strides = options.pair("strides")?.unwrap_or([1; 2]);
    let dilation = options.pair("dilation_rate")?.unwrap_or([1; 2]);
    let extent = Conv2d { dilation, ..Conv2d::new(1, 1, kernel) }.extent();
    let padding = site.inputs[0].padding(site.graph, options.padding()?, extent, strides);
    let conv = Conv2D::new(filters, 1)
        .kernel_size(kernel)
        .strides_by(strides)
        .dilation_rate(dilation)
        .groups(options.size("groups")?.unwrap_or(1))
        .padding(padding)
        .use_bias(options.flag("use_bias", true)?)
        .kernel_initializer(options.initializer("kernel_initializer")?)
        .activation(site.act);
    site.add_padded(conv)
}

fn dense(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    let units = match (options.size("units")?, site.classes) {
        (Some(units), _) | (None, Some(units)) => units,
        (None, None) => {
            return Err(options.refuse("`units` is missing; only the last Dense may leave it out"));
        }
    };
    let use_bias = options.flag("use_bias", true)?;
    let initializer = options.initializer("kernel_initializer")?;
    // On an image it is a convolution of single pixels. The last one gives the scores of classes.
    if site.classes.is_none() && !site.graph.is_vectors(site.inputs[0].value) {
        let conv = Conv2D::new(units, 1).use_bias(use_bias).kernel_initializer(initializer);
        return site.add(conv.activation(site.act));
    }
    let dense = Dense::new(units).use_bias(use_bias).kernel_initializer(initializer).activation(site.act);
    site.add(dense)
}

fn batch_normalization(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    let norm = BatchNormalization::new()
        .momentum(options.number("momentum", 0.99)?)
        .epsilon(options.number("epsilon", 1e-3)?)
        .center(options.flag("center", true)?)
        .scale(options.flag("scale", true)?)
        .activation(site.act);
    site.add(norm)
}

fn group_normalization(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    // Keras: -1 is a group for each channel.
    let groups = match options.spec.options.get("groups").and_then(serde_json::Value::as_i64) {
        Some(-1) => site.graph.shape(site.inputs[0].value).c,
        _ => options.size("groups")?.unwrap_or(32),
    };
    let norm = GroupNormalization::new()
        .groups(groups)
        .epsilon(options.number("epsilon", 1e-3)?)
        .center(options.flag("center", true)?)
        .scale(options.flag("scale", true)?)
        .activation(site.act);
    site.add(norm)
}

fn prelu(site: &mut Site<'_>) -> Result<Tensor> {
    let axes = site.options.spec.options.get("shared_axes");
    let is_shared = axes.is_some_and(|axes| *axes == serde_json::json!([1, 2]));
    if !is_shared && !site.graph.is_vectors(site.inputs[0].value) {
        return Err(site
            .options
            .refuse("a PReLU of an image must have shared_axes=[1, 2]: a slope for each channel"));
    }
    let initializer = match site.options.spec.options.get("alpha_initializer") {
        None => Initializer::Zeros,
        Some(_) => site.options.initializer("alpha_initializer")?,
    };
    site.add(PReLU::new().alpha_initializer(initializer))
}

fn layer_normalization(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    let norm = LayerNormalization::new()
        .epsilon(options.number("epsilon", 1e-3)?)
        .center(options.flag("center", true)?)
        .scale(options.flag("scale", true)?);
    site.add(norm)
}

fn local_response_normalization(site: &mut Site<'_>) -> Result<Tensor> {
    let options = &site.options;
    let norm = LocalResponseNormalization::new(options.needed("size")?)
        .alpha(options.number("alpha", 1e-4)?)
        .beta(options.number("beta", 0.75)?)
        .bias(options.number("bias", 1.0)?);
    site.add(norm)
}

fn dropout(site: &mut Site<'_>) -> Result<Tensor> {
    let rate = site.options.needed_number("rate")?;
    let noise = site.options.noise(site.graph.shape(site.inputs[0].value))?;
    site.add(Dropout::new(rate).noise(noise))
}

fn spatial_dropout(site: &mut Site<'_>) -> Result<Tensor> {
    let rate = site.options.needed_number("rate")?;
    site.add(Dropout::new(rate).noise(Noise::Channel))
}

fn stochastic_depth(site: &mut Site<'_>) -> Result<Tensor> {
    let rate = site.options.needed_number("drop_path_rate")?;
    site.add(Dropout::new(rate).noise(Noise::Sample))
}

fn cropping(site: &mut Site<'_>) -> Result<Tensor> {
    let cropping = site.options.sides("cropping", 0)?;
    site.add(Cropping2D::of(cropping))
}

fn upsampling(site: &mut Site<'_>) -> Result<Tensor> {
    let size = site.options.pair("size")?.unwrap_or([2; 2]);
    let bilinear = site.options.one_of("interpolation", ["nearest", "bilinear"])? == 1;
    site.add(UpSampling2D::of(size).bilinear(bilinear))
}

fn flatten(site: &mut Site<'_>) -> Result<Tensor> {
    site.add(Flatten)
}

fn average_pooling(site: &mut Site<'_>) -> Result<Tensor> {
    let (pool, strides, padding) = site.windows()?;
    let pooling = AveragePooling2D::of(pool)
        .strides_by(strides)
        .padding(padding)
        .ceil_mode(site.options.flag("ceil_mode", false)?)
        .count_include_pad(site.options.flag("count_include_pad", false)?);
    site.add(pooling)
}

fn max_pooling(site: &mut Site<'_>) -> Result<Tensor> {
    let ceil_mode = site.options.flag("ceil_mode", false)?;
    let (pool, strides, padding) = site.windows()?;
    site.add_padded(MaxPooling2D::of(pool).strides_by(strides).padding(padding).ceil_mode(ceil_mode))
}

fn global_average_pooling(site: &mut Site<'_>) -> Result<Tensor> {
    if !site.options.flag("keepdims", false)? {
        return site.add(GlobalAveragePooling2D);
    }
    let shape = site.graph.shape(site.inputs[0].value);
    site.add(AveragePooling2D::of([shape.h, shape.w]))
}

fn global_max_pooling(site: &mut Site<'_>) -> Result<Tensor> {
    let shape = site.graph.shape(site.inputs[0].value);
    let pooled = site.add(MaxPooling2D::of([shape.h, shape.w]))?;
    match site.options.flag("keepdims", false)? {
        true => Ok(pooled),
        false => {
            let name = format!("{}_flatten", site.options.name);
            Ok(Tensor::of(site.graph.add_named(&name, Flatten, pooled.value)?))
        }
    }
}

fn rescaling(site: &mut Site<'_>) -> Result<Tensor> {
    let channels = site.graph.shape(site.inputs[0].value).c;
    let (scale, offset) =
        (site.options.numbers("scale", channels, 1.0)?, site.options.numbers("offset", channels, 0.0)?);
    site.add(Rescaling::per_channel(scale, offset))
}

fn zero_padding(site: &mut Site<'_>) -> Result<Tensor> {
    let zeros = site.inputs[0].with_zeros(site.options.sides("padding", 1)?);
    if site.readers_pad {
        return Ok(zeros);
    }
    let value = site.graph.add_named(site.options.name, ZeroPadding2D::of(zeros.zeros()), zeros.value)?;
    Ok(Tensor::of(value))
}
