use crate::{IMAGE, Model};
use towers_layers::{
    Add, BatchNormalization, Conv2D, Dense, GlobalAveragePooling2D, Graph, GroupNormalization, Initializer,
    Padding, Result, Value,
};
use towers_program::Activation::{self, Relu};

/// ResNet-18 in the form for 32x32 images: a 3x3 stem without stride or pooling, then four stages of two basic blocks.
///
/// With 10 classes it has 11,173,962 trainable parameters and 9,600 running averages, and takes 555,422,720
/// multiply-adds an image. The architecture is that of He, Zhang, Ren, Sun, "Deep residual learning for image
/// recognition" (CVPR 2016). The stem is that of its networks for CIFAR. Projections (option B) connect
/// different shapes. Normalizations and initial weights are PyTorch's defaults.
///
/// # Errors
/// None for at least one class.
pub fn resnet18(classes: usize) -> Result<Model> {
    for_images(IMAGE, classes)
}

pub(crate) fn for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    network("resnet18", Norm::Batch, image, classes)
}

/// [`resnet18`] with group normalization, of 32 groups, in place of batch normalization: the same trainable
/// parameters, no running averages, and no influence of one image of a batch on another.
///
/// # Errors
/// None for at least one class.
pub fn resnet18_group_norm(classes: usize) -> Result<Model> {
    group_norm_for_images(IMAGE, classes)
}

pub(crate) fn group_norm_for_images(image: [usize; 3], classes: usize) -> Result<Model> {
    network("resnet18_group_norm", Norm::Group, image, classes)
}

/// The normalization after each convolution.
#[derive(Clone, Copy)]
enum Norm {
    Batch,
    Group,
}

fn network(name: &str, norm: Norm, image: [usize; 3], classes: usize) -> Result<Model> {
    let mut graph = Graph::new(name, image);
    let g = &mut graph;
    let mut x = norm.after_conv(g, g.input(), 64, 3, 1, Relu)?;
    for (filters, stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        x = basic_block(g, norm, x, filters, stride)?;
        x = basic_block(g, norm, x, filters, 1)?;
    }
    x = g.add(GlobalAveragePooling2D, x)?;
    x = g.add(Dense::new(classes).kernel_initializer(Initializer::PyTorch), x)?;
    Ok(Model::new(graph, x))
}

impl Norm {
    /// Convolution without bias, normalization.
    fn after_conv(
        self,
        g: &mut Graph,
        x: Value,
        filters: usize,
        kernel: usize,
        stride: usize,
        activation: Activation,
    ) -> Result<Value> {
        let conv = Conv2D::new(filters, kernel).strides(stride).padding(Padding::Pixels(kernel / 2));
        let x = g.add(conv.use_bias(false).kernel_initializer(Initializer::PyTorch), x)?;
        match self {
            Norm::Batch => {
                g.add(BatchNormalization::new().momentum(0.9).epsilon(1e-5).activation(activation), x)
            }
            Norm::Group => g.add(GroupNormalization::new().epsilon(1e-5).activation(activation), x),
        }
    }
}

/// Two 3x3 convolutions. Their input is added to the result.
fn basic_block(g: &mut Graph, norm: Norm, x: Value, filters: usize, stride: usize) -> Result<Value> {
    let same = stride == 1 && g.shape(x).c == filters;
    // Before the other branch, so that both have one gradient in one place.
    let shortcut = if same { x } else { norm.after_conv(g, x, filters, 1, stride, Activation::None)? };
    let y = norm.after_conv(g, x, filters, 3, stride, Relu)?;
    let y = norm.after_conv(g, y, filters, 3, 1, Activation::None)?;
    g.add(Add::new().activation(Relu), [y, shortcut])
}
