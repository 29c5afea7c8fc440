use crate::pytorch::{BY_ONNX, Named, TorchWeights};
use crate::{Imported, Pixels, Result};
use std::fmt::Debug;
use towers_checkpoint::Tensors;
use towers_layers::Step;

/// The weights of a network in a file of another program, with the file's description of the network.
pub trait WeightsFile: Debug + Send {
    /// The number of classes, where the file tells it.
    fn classes(&self) -> Option<usize>;

    /// The tensors of a network with these layers, under the names of its slots.
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) with the first thing that differs.
    fn assign(&self, steps: &[Step]) -> Result<Tensors>;

    /// The network that the file describes. `None` if it has weights alone.
    fn network(&self) -> Option<&Imported> {
        None
    }

    /// Height and width of the images, where the file has them.
    fn image_size(&self) -> Option<[usize; 2]> {
        self.network()?.image
    }

    /// The channels of the images, where the file has them.
    fn channels(&self) -> Option<usize> {
        self.network()?.channels
    }

    /// The scaling of pixels before the first layer, where the file has it.
    fn pixels(&self) -> Option<Pixels> {
        None
    }

    /// The names of so many classes, where the file has them.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if they can't be read, or are more or fewer.
    fn named(&self, _classes: usize) -> Result<Option<Named>> {
        Ok(None)
    }

    /// Whether the file of a network without layers says that an image has any number of classes.
    fn is_multi_label(&self) -> bool {
        false
    }

    /// Notes on the file, a sentence each.
    fn told(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether weights of these kinds and shapes are those of a network with these layers, as far as the file tells it without
    /// names.
    fn fits(&self, _steps: &[Step]) -> bool {
        false
    }

    /// Whether PyTorch wrote the network.
    fn is_of_pytorch(&self) -> bool {
        false
    }

    /// Another way in for weights that fit no known network, as a part of a sentence.
    fn way_in(&self) -> Option<&'static str> {
        None
    }
}

#[cfg(feature = "keras")]
impl WeightsFile for crate::keras::KerasWeights {
    fn classes(&self) -> Option<usize> {
        self.classes()
    }

    fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        self.assign(steps)
    }

    fn network(&self) -> Option<&Imported> {
        self.network()
    }

    fn told(&self) -> Vec<String> {
        self.told()
    }

    fn fits(&self, steps: &[Step]) -> bool {
        self.fits(steps)
    }
}

impl WeightsFile for TorchWeights {
    fn classes(&self) -> Option<usize> {
        self.classes()
    }

    fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        self.assign(steps)
    }

    fn image_size(&self) -> Option<[usize; 2]> {
        self.image_size()
    }

    fn channels(&self) -> Option<usize> {
        Some(self.pixels()?.scale.len())
    }

    fn pixels(&self) -> Option<Pixels> {
        self.pixels()
    }

    fn named(&self, _classes: usize) -> Result<Option<Named>> {
        self.named()
    }

    fn is_multi_label(&self) -> bool {
        self.is_multi_label()
    }

    fn told(&self) -> Vec<String> {
        self.told()
    }

    fn is_of_pytorch(&self) -> bool {
        true
    }

    fn way_in(&self) -> Option<&'static str> {
        Some(BY_ONNX)
    }
}

#[cfg(feature = "onnx")]
impl WeightsFile for crate::onnx::OnnxNetwork {
    fn classes(&self) -> Option<usize> {
        self.network().classes
    }

    fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        self.assign(steps)
    }

    fn network(&self) -> Option<&Imported> {
        Some(self.network())
    }

    fn pixels(&self) -> Option<Pixels> {
        self.pixels()
    }

    fn named(&self, classes: usize) -> Result<Option<Named>> {
        self.named(classes)
    }

    fn is_of_pytorch(&self) -> bool {
        self.is_of_pytorch()
    }
}
