use crate::{IMAGE, Model};
use towers_layers::{BatchNormalization, Conv2D, Dense, Dropout, Flatten, Graph, MaxPooling2D, Result};
use towers_program::Activation::Relu;

/// A small network for trials: three convolutions with batch normalization, one dense layer.
///
/// # Errors
/// None for at least one class.
pub fn small_cnn(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    let mut graph = Graph::new("small_cnn", image);
    let mut x = graph.input();
    for filters in [16, 32, 64] {
        x = graph.add(Conv2D::new(filters, 3).same(), x)?;
        x = graph.add(BatchNormalization::new().momentum(0.9).activation(Relu), x)?;
        x = graph.add(MaxPooling2D::new(2), x)?;
    }
    x = graph.add(Flatten, x)?;
    x = graph.add(Dropout::new(0.25), x)?;
    x = graph.add(Dense::new(classes), x)?;
    Ok(Model::new(graph, x))
}
