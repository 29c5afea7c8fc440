use tensor::{Activation, BatchNorm, Conv2d, Linear, Pool2d};

/// What a layer computes in inference, in the backends' own terms: for whoever translates networks for other programs.
///
/// Where parameters belong to it, they are the layer's [`params`](crate::Layer::params), in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// A convolution: kernel and, maybe, a bias.
    Conv2d(Conv2d, Activation),
    /// A dense layer: kernel and, maybe, a bias.
    Linear(Linear, Activation),
    /// A batch normalization with its running averages: gamma, beta, mean, variance.
    BatchNorm(BatchNorm),
    /// The largest element of each window.
    MaxPool(Pool2d),
    /// The mean of each window, padding not counted.
    AveragePool(Pool2d),
    /// The mean of each channel over the whole image: a vector a sample.
    GlobalAveragePool,
    /// A vector a sample, in the order (row, column, channel).
    Flatten,
    /// Each element by itself.
    Activation(Activation),
    /// Each element times a constant.
    Scale(f32),
    /// Nothing; in training it drops elements at this rate.
    Dropout {
        /// The share that is dropped.
        rate: f32,
    },
    /// Several tensors, joined along their channels.
    Concatenate,
    /// The sum of two tensors.
    Add(Activation),
}
