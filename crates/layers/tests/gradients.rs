//! The gradients of every layer, of its input and of each of its parameters, against differences of the loss in f64.
#![allow(clippy::unwrap_used)]

use towers_layers::{
    Add, AveragePooling2D, BatchNormalization, ChannelShuffle, ChannelSlice, Concatenate, Conv2D, Cropping2D,
    Dense, DepthwiseConv2D, Dropout, Flatten, Graph, GroupNormalization, Initializer, Layer,
    LayerNormalization, LayerScale, LocalResponseNormalization, Lower, MaxPooling2D, Mode, Multiply, PReLU,
    Padding, ParamSpec, Rescaling, Reshape, Role, SeparableConv2D, UpSampling2D, Value, ZeroPadding2D,
};
use towers_program::{Activation, Conv2d, Linear, Noise, Pad, Shape, TensorId, ops};
use towers_testkit::{GradientCheck, Report};

/// A convolution, the layer, a dense layer: the layer's gradient reaches the first parameters.
fn network(size: [usize; 3], layer: impl Layer + 'static) -> (Graph, Value) {
    let mut graph = Graph::new("one layer", size);
    let x = graph.add_named("before", Conv2D::new(3, 1), graph.input()).unwrap();
    let x = graph.add_named("layer", layer, x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add_named("after", Dense::new(4), x).unwrap();
    (graph, logits)
}

fn check(size: [usize; 3], layer: impl Layer + 'static) -> Report {
    let (graph, logits) = network(size, layer);
    GradientCheck::new().assert(&graph, logits)
}

/// The layer reads the images themselves.
fn check_alone(size: [usize; 3], layer: impl Layer + 'static) -> Report {
    let mut graph = Graph::new("first layer", size);
    let x = graph.add(layer, graph.input()).unwrap();
    let logits = graph.add(Flatten, x).unwrap();
    GradientCheck::new().elements(60).assert(&graph, logits)
}

#[test]
fn conv2d_with_every_padding_stride_and_kernel() {
    for kernel in [1, 2, 3, 5] {
        for padding in [Padding::Valid, Padding::Same] {
            for stride in [1, 2, 3] {
                check([6, 5, 2], Conv2D::new(4, kernel).padding(padding).strides(stride));
            }
        }
    }
}

#[test]
fn conv2d_without_bias_and_with_relu() {
    check([5, 4, 2], Conv2D::new(5, 3).same().use_bias(false));
    check([5, 4, 2], Conv2D::new(5, 3).same().activation(Activation::Relu));
    check([5, 4, 2], Conv2D::new(5, 3).strides(2).use_bias(false).activation(Activation::Relu));
}

#[test]
fn depthwise_conv2d_with_every_padding_stride_and_kernel() {
    for kernel in [1, 2, 3, 5] {
        for padding in [Padding::Valid, Padding::Same] {
            for stride in [1, 2, 3] {
                check([6, 5, 2], DepthwiseConv2D::new(kernel).padding(padding).strides(stride));
            }
        }
    }
}

#[test]
fn conv2d_with_groups_and_dilation() {
    for groups in [1, 3] {
        for (padding, dilation) in
            [(Padding::Valid, [2, 1]), (Padding::Same, [1, 2]), (Padding::Same, [2, 3])]
        {
            for stride in [1, 2] {
                let conv = Conv2D::new(6, 3).groups(groups).dilation_rate(dilation).padding(padding);
                check([6, 7, 2], conv.strides(stride));
            }
        }
        check([5, 4, 2], Conv2D::new(3, 3).groups(groups).same().activation(Activation::Relu));
    }
}

#[test]
fn depthwise_conv2d_with_every_other_option() {
    let conv = || DepthwiseConv2D::new(3).same();
    check([5, 4, 2], conv().use_bias(false));
    check([5, 4, 2], conv().depth_multiplier(3).activation(Activation::Relu));
    check([7, 9, 2], conv().dilation_rate([2, 3]).use_bias(false));
    check([7, 9, 2], conv().kernel_size([2, 3]).strides_by([2, 1]).depth_multiplier(2));
}

#[test]
fn separable_conv2d() {
    check([5, 4, 2], SeparableConv2D::new(4, 3).same());
    let conv = SeparableConv2D::new(2, 3).depth_multiplier(2).strides(2).use_bias(false);
    check([6, 5, 2], conv.activation(Activation::Relu));
}

#[test]
fn channels_that_are_shuffled_and_sliced() {
    check([3, 2, 2], ChannelShuffle::new(3));
    check([3, 2, 2], ChannelSlice::new(1, 2));
    // A unit of ShuffleNetV2: one half passes by.
    let mut graph = Graph::new("unit", [4, 3, 2]);
    let x = graph.add(Conv2D::new(8, 1), graph.input()).unwrap();
    let halves = [0, 4].map(|start| graph.add(ChannelSlice::new(start, 4), x).unwrap());
    let y = graph.add(Conv2D::new(4, 3).same().activation(Activation::Relu), halves[1]).unwrap();
    let x = graph.add(Concatenate, [halves[0], y]).unwrap();
    let x = graph.add(ChannelShuffle::new(2), x).unwrap();
    let half = graph.add(ChannelSlice::new(2, 4), x).unwrap();
    let x = graph.add(Conv2D::new(3, 2), half).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(4), x).unwrap();
    GradientCheck::new().assert(&graph, logits);
}

#[test]
fn conv2d_with_frozen_weights() {
    check([5, 4, 2], Conv2D::new(5, 3).kernel_trainable(false));
    check([5, 4, 2], Conv2D::new(5, 3).kernel_trainable(false).use_bias(false));
}

/// A frozen normalization is a fixed map, through which the gradient reaches the layers below.
#[test]
fn batch_normalization_that_is_frozen() {
    for act in [Activation::None, Activation::Relu, Activation::Silu] {
        let (mut graph, logits) = network([4, 3, 2], BatchNormalization::new().activation(act));
        graph.freeze(|name| name.starts_with("layer/"));
        assert_eq!(graph.trained(), ["before/kernel", "before/bias", "after/kernel", "after/bias"]);
        GradientCheck::new().assert(&graph, logits);
    }
}

/// Layers of a user's own, with any activation fused into any op that takes one.
#[test]
fn custom_layers_that_fuse_an_activation() {
    #[derive(Clone, Copy, Debug)]
    enum Fused {
        Conv,
        Dense,
        Sum,
    }

    #[derive(Debug)]
    struct Custom(Fused, Activation);

    impl Layer for Custom {
        fn params(&self, inputs: &[Shape]) -> Vec<ParamSpec> {
            let shape = match self.0 {
                Fused::Conv => vec![1, 1, inputs[0].c, 2],
                Fused::Dense => vec![inputs[0].c, 2],
                Fused::Sum => return Vec::new(),
            };
            let [kernel, bias] = [("kernel", shape), ("bias", vec![2])].map(|(name, shape)| ParamSpec {
                name,
                shape,
                init: Initializer::GlorotUniform,
                role: Role::Trainable,
            });
            vec![kernel, ParamSpec { init: Initializer::Zeros, ..bias }]
        }

        fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> towers_program::Result<TensorId> {
            let Custom(op, act) = *self;
            let operands = [inputs, to.params()].concat();
            let channels = to.shape(inputs[0]).c;
            let conv = Conv2d::new(channels, 2, [1; 2]);
            match op {
                Fused::Conv => to.push(ops::Conv2dForward { conv, act }, &operands),
                Fused::Dense => {
                    let linear = Linear { inputs: channels, outputs: 2 };
                    to.push(ops::LinearForward { linear, act }, &operands)
                }
                Fused::Sum => {
                    let half = to.push(ops::Scale { factor: 0.5 }, inputs)?;
                    to.push(ops::Add { act }, &[inputs[0], half])
                }
            }
        }
    }

    for act in Activation::ALL {
        check([3, 2, 2], Custom(Fused::Conv, act));
        check([3, 2, 2], Custom(Fused::Sum, act));
        let mut graph = Graph::new("dense", [2, 1, 2]);
        let x = graph.add(Flatten, graph.input()).unwrap();
        let x = graph.add(Dense::new(3), x).unwrap();
        let x = graph.add(Custom(Fused::Dense, act), x).unwrap();
        let logits = graph.add(Dense::new(3), x).unwrap();
        GradientCheck::new().batch(3).assert(&graph, logits);
    }
}

/// Averages are all that such a normalization learns.
#[test]
fn a_normalization_without_gamma_and_beta_that_is_frozen() {
    let layer = BatchNormalization::new().scale(false).center(false);
    let (mut graph, logits) = network([4, 3, 2], layer);
    let has = |graph: &Graph, op: &str| {
        graph.program(logits, Mode::Training, true).unwrap().to_string().contains(op)
    };
    graph.freeze(|name| name.starts_with("after/"));
    assert!(has(&graph, "= batch_norm epsilon"));
    graph.freeze(|name| name.starts_with("layer/"));
    assert!(has(&graph, "= batch_norm_infer epsilon") && !has(&graph, "= batch_norm epsilon"));
    GradientCheck::new().assert(&graph, logits);
}

#[test]
fn conv2d_on_one_pixel_and_on_images_as_large_as_its_kernel() {
    check([1, 1, 2], Conv2D::new(3, 1));
    check([1, 1, 2], Conv2D::new(3, 3).same());
    check([3, 3, 2], Conv2D::new(3, 3));
    check([7, 1, 2], Conv2D::new(3, 1).strides(4));
}

#[test]
fn conv2d_reading_the_images() {
    check_alone([4, 4, 3], Conv2D::new(2, 3).same());
    check_alone([4, 4, 3], Conv2D::new(2, 3).strides(2).padding(Padding::Same));
}

#[test]
fn dense() {
    for dense in [
        Dense::new(6),
        Dense::new(6).use_bias(false),
        Dense::new(6).activation(Activation::Relu),
        Dense::new(1),
    ] {
        let mut graph = Graph::new("dense", [2, 3, 2]);
        let x = graph.add(Flatten, graph.input()).unwrap();
        let x = graph.add(dense, x).unwrap();
        let logits = graph.add(Dense::new(3), x).unwrap();
        GradientCheck::new().batch(3).elements(80).assert(&graph, logits);
    }
}

#[test]
fn batch_normalization_with_every_activation() {
    for activation in Activation::ALL {
        let layer = BatchNormalization::new().activation(activation);
        check([3, 4, 2], layer.clone());
        check([3, 4, 2], layer.clone().scale(false));
        let (graph, logits) = network([2, 2, 3], layer.clone().epsilon(0.1));
        GradientCheck::new().batch(5).assert(&graph, logits);
        check_alone([2, 2, 3], layer);
    }
}

#[test]
fn layer_scale() {
    check([3, 2, 4], LayerScale::new(0.7));
}

#[test]
fn group_normalization_with_every_activation() {
    for activation in Activation::ALL {
        let layer = |groups| GroupNormalization::new().groups(groups).epsilon(0.1).activation(activation);
        check([3, 2, 4], layer(1));
        for groups in [1, 2, 4] {
            check_alone([3, 2, 4], layer(groups));
        }
    }
}

/// The bias before a normalization has no influence: its gradient is 0 but for rounding.
#[test]
fn a_bias_before_a_normalization() {
    let mut graph = Graph::new("conv module", [4, 4, 2]);
    let x = graph.add(Conv2D::new(3, 3).same(), graph.input()).unwrap();
    let x = graph.add(BatchNormalization::new().activation(Activation::Relu), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    GradientCheck::new().batch(3).assert(&graph, logits);
}

#[test]
fn activations() {
    for activation in Activation::ALL {
        check([3, 4, 2], activation);
        check_alone([3, 4, 2], activation);
    }
    check([3, 4, 2], Rescaling::new(0.3));
}

#[test]
fn pooling_side_by_side_overlapping_and_padded() {
    for padding in [Padding::Valid, Padding::Same] {
        for (pool, strides) in [(1, 1), (2, 2), (3, 2), (3, 1), (2, 3)] {
            check([6, 5, 2], MaxPooling2D::new(pool).strides(strides).padding(padding));
            check([6, 5, 2], AveragePooling2D::new(pool).strides(strides).padding(padding));
        }
    }
    check([4, 4, 2], AveragePooling2D::new(4));
    for (pool, strides, padding) in [
        (2, 2, Padding::Valid),
        (3, 2, Padding::Pixels(1)),
        (3, 2, Padding::Same),
        (2, 3, Padding::Pixels(1)),
    ] {
        check([6, 5, 2], MaxPooling2D::new(pool).strides(strides).padding(padding).ceil_mode(true));
        for (counts, ceil) in [(true, false), (true, true), (false, true)] {
            let average = AveragePooling2D::new(pool).strides(strides).padding(padding);
            check([6, 5, 2], average.ceil_mode(ceil).count_include_pad(counts));
        }
    }
    check_alone([4, 4, 3], MaxPooling2D::new(2));
    check_alone([4, 4, 3], AveragePooling2D::new(2));
}

#[test]
fn sides_and_larger_images() {
    let (around, cut) =
        (Pad { top: 1, bottom: 0, left: 2, right: 3 }, Pad { top: 0, bottom: 2, left: 1, right: 0 });
    for size in [[6, 5, 2], [4, 3, 2]] {
        check(size, ZeroPadding2D::of(around));
        check(size, Cropping2D::of(cut));
        for bilinear in [false, true] {
            check(size, UpSampling2D::of([2, 3]).bilinear(bilinear));
        }
    }
    check_alone([4, 4, 3], ZeroPadding2D::new(1));
    check_alone([4, 4, 3], Cropping2D::new(1));
    check_alone([4, 4, 3], UpSampling2D::new(2));
}

/// Max pooling sees the zeros around signed numbers.
#[test]
fn zeros_before_a_max_pooling() {
    let mut graph = Graph::new("zeros", [6, 6, 2]);
    let x = graph.add(Conv2D::new(3, 3), graph.input()).unwrap();
    let x = graph.add(ZeroPadding2D::new(1), x).unwrap();
    let x = graph.add(MaxPooling2D::new(3).strides(2), x).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    GradientCheck::new().assert(&graph, logits);
}

#[test]
fn normalizations_of_pixels() {
    check([3, 4, 2], LayerNormalization::new().epsilon(0.1));
    check([3, 4, 2], LayerNormalization::new().epsilon(0.1).scale(false).center(false));
    for size in [1, 2, 5] {
        check([3, 2, 2], LocalResponseNormalization::new(size).alpha(0.8).beta(0.6).bias(1.5));
    }
    check_alone([2, 2, 3], LocalResponseNormalization::new(3).alpha(1.0));
}

/// The mask is a function of the seed, the step and the sample, so the loss with dropout has a derivative.
#[test]
fn dropout() {
    for rate in [0.0, 0.3, 0.9] {
        check([3, 3, 2], Dropout::new(rate));
        check_alone([3, 3, 2], Dropout::new(rate));
        check([3, 3, 4], Dropout::new(rate).noise(Noise::Channel));
        check([3, 3, 2], Dropout::new(rate).noise(Noise::Sample));
    }
}

#[test]
fn smoothed_labels() {
    let (graph, logits) = network([3, 3, 2], Activation::Relu);
    for smoothing in [0.1, 0.9] {
        GradientCheck::new().batch(3).label_smoothing(smoothing).assert(&graph, logits);
    }
}

#[test]
fn a_batch_of_one_and_one_smaller_than_the_network_was_built_for() {
    for layer in [BatchNormalization::new(), BatchNormalization::new().activation(Activation::Relu)] {
        let (graph, logits) = network([3, 3, 2], layer);
        GradientCheck::new().batch(1).assert(&graph, logits);
        GradientCheck::new().batch(3).max_batch(7).assert(&graph, logits);
    }
    let (graph, logits) = network([4, 4, 2], MaxPooling2D::new(3).strides(2).padding(Padding::Same));
    GradientCheck::new().batch(1).max_batch(5).assert(&graph, logits);
}

/// Two branches of one input, the second of any of the shapes that can be spread, on either side.
#[test]
fn products_and_sums_of_spread_tensors() {
    for swapped in [false, true] {
        for spread in 0..3 {
            for product in [true, false] {
                let mut graph = Graph::new("merge", [3, 4, 2]);
                let x = graph.add_named("x", Conv2D::new(3, 1), graph.input()).unwrap();
                let z = match spread {
                    0 => graph.add_named("z", Conv2D::new(3, 1), graph.input()).unwrap(),
                    1 => graph.add_named("z", Conv2D::new(1, 1), graph.input()).unwrap(),
                    _ => {
                        let z = graph.add(AveragePooling2D::of([3, 4]), graph.input()).unwrap();
                        let z = graph.add(Flatten, z).unwrap();
                        let z = graph.add_named("z", Dense::new(3), z).unwrap();
                        graph.add(Reshape::to([1, 1, 3]), z).unwrap()
                    }
                };
                let both = if swapped { [z, x] } else { [x, z] };
                let y = match product {
                    true => graph.add(Multiply, both),
                    false => graph.add(Add::new().activation(Activation::Relu), both),
                };
                let x = graph.add(Flatten, y.unwrap()).unwrap();
                let logits = graph.add_named("after", Dense::new(4), x).unwrap();
                GradientCheck::new().assert(&graph, logits);
            }
        }
    }
}

/// A tensor times itself, and a factor that is read twice.
#[test]
fn a_square() {
    let mut graph = Graph::new("square", [3, 2, 2]);
    let x = graph.add(Conv2D::new(3, 1), graph.input()).unwrap();
    let square = graph.add(Multiply, [x, x]).unwrap();
    let cube = graph.add(Multiply, [square, x]).unwrap();
    let x = graph.add(Flatten, cube).unwrap();
    let logits = graph.add_named("after", Dense::new(4), x).unwrap();
    GradientCheck::new().assert(&graph, logits);
}

/// Slopes on either side of 0, in front of and behind other layers.
#[test]
fn prelu_with_trained_slopes() {
    for alpha in [0.3, 0.0, -0.7] {
        let layer = PReLU::new().alpha_initializer(Initializer::Constant(alpha));
        check([3, 4, 2], layer);
        check_alone([3, 4, 2], layer);
    }
}

/// A sigmoid for each of more classes than a word of labels has bits.
#[test]
fn several_labels_a_sample() {
    let mut graph = Graph::new("multi-label", [3, 4, 2]);
    let x = graph.add(Conv2D::new(3, 2), graph.input()).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let logits = graph.add(Dense::new(40), x).unwrap();
    graph.set_multi_label(logits);
    for smoothing in [0.0, 0.125] {
        GradientCheck::new().batch(3).label_smoothing(smoothing).assert(&graph, logits);
    }
}
