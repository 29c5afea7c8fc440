use crate::{IMAGE, Model};
use towers_layers::{Conv2D, Dense, Dropout, Flatten, Graph, MaxPooling2D, Result};
use towers_program::Activation::Relu;

/// The network of Keras' `cifar10_cnn` example and of the Keras-MXNet multi-GPU tutorial: four convolutions, two dense layers.
///
/// With 10 classes it has 1,250,858 parameters and takes 20,741,120 multiply-adds an image.
///
/// # Errors
/// None for at least one class.
pub fn keras_cnn(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    let mut graph = Graph::new("keras_cnn", image);
    let mut x = graph.input();
    for filters in [32, 64] {
        x = graph.add(Conv2D::new(filters, 3).same().activation(Relu), x)?;
        x = graph.add(Conv2D::new(filters, 3).activation(Relu), x)?;
        x = graph.add(MaxPooling2D::new(2), x)?;
        x = graph.add(Dropout::new(0.25), x)?;
    }
    x = graph.add(Flatten, x)?;
    x = graph.add(Dense::new(512).activation(Relu), x)?;
    x = graph.add(Dropout::new(0.5), x)?;
    x = graph.add(Dense::new(classes), x)?;
    Ok(Model::new(graph, x))
}
