use crate::{IMAGE, Model};
use layers::{
    Add, BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Graph, Initializer, Padding, Result,
    Value,
};
use tensor::Activation::{self, Relu};

/// ResNet-18 in the form for 32x32 images: a 3x3 stem without stride or pooling, then four stages of two basic blocks.
///
/// With 10 classes it has 11,173,962 trainable parameters and 9,600 running averages, and takes 555,422,720 multiply-adds an image.
/// The architecture is the one of He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (CVPR 2016), with the stem of
/// its networks for CIFAR and with projections (option B) where shapes differ. Normalizations and first weights are those of
/// PyTorch's defaults.
///
/// # Errors
/// None for at least one class.
pub fn resnet18(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    let mut graph = Graph::new("resnet18", image);
    let g = &mut graph;
    let mut x = conv_norm(g, g.input(), 64, 3, 1, Relu)?;
    for (filters, stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        x = basic_block(g, x, filters, stride)?;
        x = basic_block(g, x, filters, 1)?;
    }
    x = g.add(GlobalAveragePooling2D, x)?;
    x = g.add(Dense::new(classes).kernel_initializer(Initializer::PyTorch), x)?;
    Ok(Model::new(graph, x))
}

/// Convolution without bias, batch normalization.
fn conv_norm(
    g: &mut Graph,
    x: Value,
    filters: usize,
    kernel: usize,
    stride: usize,
    activation: Activation,
) -> Result<Value> {
    let conv = Conv2D::new(filters, kernel).strides(stride).padding(Padding::Pixels(kernel / 2));
    let x = g.add(conv.use_bias(false).kernel_initializer(Initializer::PyTorch), x)?;
    g.add(BatchNormalization::new().momentum(0.9).epsilon(1e-5).activation(activation), x)
}

/// Two 3x3 convolutions, to whose result their input is added.
fn basic_block(g: &mut Graph, x: Value, filters: usize, stride: usize) -> Result<Value> {
    let same = stride == 1 && g.shape(x).c == filters;
    // Before the other branch, so that both have one gradient in one place.
    let shortcut = if same { x } else { conv_norm(g, x, filters, 1, stride, Activation::None)? };
    let y = conv_norm(g, x, filters, 3, stride, Relu)?;
    let y = conv_norm(g, y, filters, 3, 1, Activation::None)?;
    g.merge(Add::new().activation(Relu), [y, shortcut])
}
