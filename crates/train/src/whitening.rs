//! First layers that whiten the patches of the training images.

use crate::Result;
use crate::worker::Prepared;
use augment::{Draws, Patches, Scratch};
use layers::{Initializer, Network};

/// Whitening filters follow from the first so many images: millions of patches.
const IMAGES: usize = 5000;

/// Gives the layers that begin with [`Initializer::Whitening`] their filters, from the first training images as evaluation would
/// show them. Every replica computes the same.
pub(crate) fn whiten(network: &mut Network, prepared: &Prepared) -> Result<()> {
    let Prepared { train, augmentation, .. } = prepared;
    let device = network.device().clone();
    for slot in network.arena().slots().to_vec() {
        let (Initializer::Whitening { epsilon }, &[rows, columns, ..]) = (slot.init, &slot.shape[..]) else {
            continue;
        };
        let pipeline = augmentation.evaluation().build(train.shape())?;
        let mut patches = Patches::new(train.shape(), [rows, columns]);
        let (mut image, mut scratch) = (vec![0.0; pipeline.image_len()], Scratch::default());
        for sample in 0..train.len().min(IMAGES) {
            pipeline.apply(&Draws::default(), train.image(sample), &mut image, &mut scratch)?;
            patches.add(&image)?;
        }
        network.arena_mut().load(&device, &slot, &patches.whitening(f64::from(epsilon))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, Preprocessing};
    use augment::{ImageDataGenerator, Samples};
    use layers::Mode;
    use tensor::Device;

    #[test]
    fn the_first_layer_gets_its_filters_and_no_other() {
        let data = cifar::synthetic(1, 20, 5);
        let input = Input::fit(Preprocessing::Standardize, &data.train).unwrap();
        let samples =
            |split: &cifar::Split| Samples::new(split.images.clone(), split.labels.to_vec()).unwrap();
        let augmentation = input.options(ImageDataGenerator::new().horizontal_flip(true));
        let (train, val) = (samples(&data.train), samples(&data.test));
        let (classes, dataset) = (data.classes, data.name);
        let prepared = Prepared { train, val, input, augmentation, classes, dataset };
        let device = Device::cpu(1);
        let mut network = models::airbench94(10).unwrap().build(&device, 1, Mode::Inference).unwrap();
        network.init(1).unwrap();
        let read = |network: &Network| {
            let arena = network.arena();
            let values =
                |slot: &layers::Slot| arena.storage(slot).to_vec(&device, slot.span.offset, slot.span.len);
            arena.slots().iter().map(|slot| values(slot).unwrap()).collect::<Vec<_>>()
        };
        let before = read(&network);
        whiten(&mut network, &prepared).unwrap();
        let after = read(&network);
        assert!(after[0] != before[0] && after[1..] == before[1..]);
        let opposite = |row: &[f32]| (0..12).all(|k| row[k] == -row[12 + k]);
        assert!(after[0].chunks(24).all(opposite));
    }
}
