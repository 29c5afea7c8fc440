use crate::{IMAGE, Model};
use towers_layers::{
    AveragePooling2D, BatchNormalization, Concatenate, Conv2D, Dense, Dropout, Flatten,
    GlobalAveragePooling2D, Graph, MaxPooling2D, Padding, Result, Value,
};
use towers_program::Activation::Relu;

/// MiniGoogLeNet: inception modules of two branches for 32x32 images.
///
/// With 10 classes it has 1,652,826 trainable parameters and 3,424 running averages, and takes 234,597,920
/// multiply-adds an image. The architecture is that of Zhang, Bengio, Hardt, Recht, Vinyals, "Understanding
/// deep learning requires rethinking generalization" (ICLR 2017, figure 3), in the form of Keras' multi-GPU
/// tutorial by A. Rosebrock.
///
/// # Errors
/// None for at least one class.
pub fn minigooglenet(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    let mut graph = Graph::new("minigooglenet", image);
    let g = &mut graph;
    let mut x = conv_module(g, g.input(), 96, 3, 1, Padding::Same)?;
    x = inception(g, x, 32, 32)?;
    x = inception(g, x, 32, 48)?;
    x = downsample(g, x, 80)?;
    for (ones, threes) in [(112, 48), (96, 64), (80, 80), (48, 96)] {
        x = inception(g, x, ones, threes)?;
    }
    x = downsample(g, x, 96)?;
    x = inception(g, x, 176, 160)?;
    x = inception(g, x, 176, 160)?;
    // Of 32x32 images the map is 7x7, and the paper's pooling takes all of it.
    let map = g.shape(x);
    x = match [map.h, map.w] {
        [7, 7] => g.add(AveragePooling2D::new(7), x)?,
        _ => g.add(GlobalAveragePooling2D, x)?,
    };
    x = g.add(Dropout::new(0.5), x)?;
    x = g.add(Flatten, x)?;
    x = g.add(Dense::new(classes), x)?;
    Ok(Model::new(graph, x))
}

/// Convolution, batch normalization, ReLU.
fn conv_module(
    g: &mut Graph,
    x: Value,
    filters: usize,
    kernel: usize,
    stride: usize,
    padding: Padding,
) -> Result<Value> {
    let x = g.add(Conv2D::new(filters, kernel).strides(stride).padding(padding), x)?;
    g.add(BatchNormalization::new().activation(Relu), x)
}

/// A 1x1 branch and a 3x3 branch, side by side.
fn inception(g: &mut Graph, x: Value, ones: usize, threes: usize) -> Result<Value> {
    let a = conv_module(g, x, ones, 1, 1, Padding::Same)?;
    let b = conv_module(g, x, threes, 3, 1, Padding::Same)?;
    g.add(Concatenate, [a, b])
}

/// A 3x3 convolution and a maximum, both with stride 2, side by side.
fn downsample(g: &mut Graph, x: Value, filters: usize) -> Result<Value> {
    let a = conv_module(g, x, filters, 3, 2, Padding::Valid)?;
    let b = g.add(MaxPooling2D::new(3).strides(2), x)?;
    g.add(Concatenate, [a, b])
}
