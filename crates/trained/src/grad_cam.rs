use crate::{Classifier, Result};
use towers_augment::Draws;

/// Where pictures look like a class to a network: [Grad-CAM](towers_layers::GradCam).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ClassMaps {
    /// Height and width of a map. It spans the whole picture, usually with fewer pixels.
    pub size: [usize; 2],
    /// A map for each picture, row by row: numbers from 0 on, the higher the more a place speaks for the class.
    pub values: Vec<f32>,
}

impl ClassMaps {
    /// The maps one by one.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks(self.size[0] * self.size[1])
    }
}

impl Classifier {
    /// The maps of pictures for a class each. Pictures are as for [`classify`](Classifier::classify); each is seen in one view. `None`
    /// for a network without a convolution.
    ///
    /// ```
    /// # use towers_layers::Mode;
    /// # use towers_trained::{Classifier, Description, Trained};
    /// # let device = towers_tensor_cpu::device(1);
    /// # let mut network = towers_models::small_cnn(10)?.build(&device, 1, Mode::Inference)?;
    /// # network.init(1)?;
    /// # let tensors = towers_interchange::tensors(&network)?;
    /// # let data = towers_cifar::synthetic(1, 10, 20);
    /// # let about = Description::new("small_cnn", data.test.shape(), &data.classes);
    /// # let mut classifier = Classifier::new(&Trained::new("memory", &about, tensors), &device, 2)?;
    /// let pictures = [128; 3 * 32 * 32 * 3];
    /// let maps = classifier.class_maps(&pictures, &[0, 7, 9])?.ok_or("no convolution")?;
    /// assert_eq!((maps.size, maps.iter().count()), ([8, 8], 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`classify`](Classifier::classify), and if a class is none of the network's.
    pub fn class_maps(&mut self, pictures: &[u8], classes: &[usize]) -> Result<Option<ClassMaps>> {
        let batch = classes.len().clamp(1, self.network_mut().max_batch());
        let Some(mut network) = self.network_mut().grad_cam(batch)? else { return Ok(None) };
        let len = self.image().iter().product::<usize>();
        let mut maps = ClassMaps { size: network.map_size(), values: Vec::new() };
        for (pictures, classes) in pictures.chunks(batch * len).zip(classes.chunks(batch)) {
            maps.values.extend(network.maps(self.images(&Draws::default(), pictures)?, classes)?);
        }
        Ok(Some(maps))
    }
}
