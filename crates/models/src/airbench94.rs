use crate::{IMAGE, Model};
use towers_layers::{
    BatchNormalization, Conv2D, Dense, Flatten, Graph, Initializer, MaxPooling2D, Rescaling, Result, Value,
};
use towers_program::Activation;

/// The network of airbench94, made to learn CIFAR-10 within seconds: a whitening convolution that is not
/// trained, three groups of two 3x3 convolutions, GELU throughout.
///
/// With 10 classes it has 1,971,352 trainable parameters and takes 118,147,360 multiply-adds an image.
/// Kernels begin as the identity, as far as there are filters for it, so a group begins by copying its input.
/// Normalizations have no scale, and the scores are divided by 9. K. Jordan, "94% on CIFAR-10 in 3.29 seconds
/// on a single GPU" (2024), whose code is at <https://github.com/KellerJordan/cifar10-airbench>.
///
/// # Errors
/// None for at least one class.
pub fn airbench94(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

/// [`airbench94`] as its variant for [`Muon`](towers_program::OptimizerState::matrices) has it: the weights of the last layer begin
/// with a standard deviation of 1, and the scores are divided by the number of its inputs, 256 for 32x32 images. The parameters
/// are as many.
///
/// # Errors
/// None for at least one class.
pub fn airbench94_muon(classes: usize) -> Result<Model> {
    muon_for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    network("airbench94", image, classes, |_| (Initializer::PyTorch, 1.0 / 9.0))
}

pub(crate) fn muon_for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    // Uniform numbers whose variance is 1.
    let limit = 3.0_f32.sqrt();
    let uniform = Initializer::Uniform(-limit, limit);
    network("airbench94_muon", image, classes, |inputs| (uniform, 1.0 / inputs as f32))
}

/// `head` is the initializer of the last layer and the factor of the scores, for a number of inputs.
fn network(
    name: &str,
    image: [usize; 3],
    classes: usize,
    head: impl Fn(usize) -> (Initializer, f32),
) -> Result<Model> {
    let mut graph = Graph::new(name, image);
    let g = &mut graph;
    // Both signs of each of the 2 x 2 x 3 directions of a patch, or of the 2 x 2 directions of a grey one.
    let whitening = Conv2D::new(8 * image[2], 2)
        .kernel_initializer(Initializer::Whitening { epsilon: 5e-4 })
        .kernel_trainable(false);
    let mut x = g.add_named("whitening", whitening, g.input())?;
    x = g.add(Activation::Gelu, x)?;
    for filters in [64, 256, 256] {
        x = conv(g, x, filters)?;
        x = g.add(MaxPooling2D::new(2), x)?;
        x = norm(g, x)?;
        x = conv(g, x, filters)?;
        x = norm(g, x)?;
    }
    x = g.add(MaxPooling2D::new(3), x)?;
    x = g.add(Flatten, x)?;
    let (initializer, factor) = head(g.shape(x).per_sample());
    x = g.add(Dense::new(classes).use_bias(false).kernel_initializer(initializer), x)?;
    x = g.add(Rescaling::new(factor), x)?;
    Ok(Model::new(graph, x))
}

fn conv(g: &mut Graph, x: Value, filters: usize) -> Result<Value> {
    g.add(Conv2D::new(filters, 3).same().use_bias(false).kernel_initializer(Initializer::Dirac), x)
}

/// Batch normalization without a trained scale, then GELU.
fn norm(g: &mut Graph, x: Value) -> Result<Value> {
    g.add(BatchNormalization::new().momentum(0.6).epsilon(1e-12).scale(false).activation(Activation::Gelu), x)
}
