//! First layers that whiten the patches of training images.

use crate::Result;
use crate::run::run_data::RunData;
use towers_augment::engine::Patches;
use towers_layers::{Initializer, Network};
use towers_parallel::Collective;
use towers_program::Span;

/// The images for whitening filters, which have millions of patches.
const IMAGES: usize = 5000;

/// Computes the filters of layers that begin with [`Initializer::Whitening`], from the first training images,
/// preprocessed as in evaluation. The first replica computes them for all.
pub(crate) fn whiten(network: &mut Network, data: &RunData, collective: &mut dyn Collective) -> Result<()> {
    let device = network.device().clone();
    for slot in network.arena().slots().to_vec() {
        let (Initializer::Whitening { epsilon }, &[rows, columns, ..]) = (slot.init, &slot.shape[..]) else {
            continue;
        };
        let all = Span::new(0, slot.span.len);
        let mut handed = device.alloc(all.len)?;
        if collective.rank() == 0 {
            device.upload(&filters(data, [rows, columns], epsilon)?, &mut handed, 0)?;
        }
        collective.broadcast(&device, &mut handed, all, 0)?;
        network.arena_mut().load(&device, &slot, &handed.to_vec(&device, 0, all.len)?)?;
    }
    Ok(())
}

/// The filters for patches of this many rows and columns.
fn filters(data: &RunData, patch: [usize; 2], epsilon: f32) -> Result<Vec<f32>> {
    let mut patches = Patches::new(data.train.shape(), patch);
    data.preprocessed(IMAGES, |image| Ok(patches.add(image)?))?;
    Ok(patches.whitening(f64::from(epsilon))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::data::Labelling;
    use towers_augment::ImageDataGenerator;
    use towers_config::samples;
    use towers_layers::Mode;
    use towers_parallel::run_replicas;
    use towers_trained::{Input, Preprocessing};

    fn prepared(seed: u64) -> RunData {
        let data = towers_cifar::synthetic(seed, 20, 5);
        let input = Input::fit(Preprocessing::Standardize, &data.train).unwrap();
        let augmentation = input.options(ImageDataGenerator::new().horizontal_flip(true));
        let [train, val] = [&data.train, &data.test].map(|split| samples(split.clone()).unwrap());
        let (fingerprint, val_sha256) = (crate::fingerprint(&data).unwrap(), String::new());
        let (classes, dataset) = (data.classes, data.name);
        let [labelling, val_labelling] = [Labelling::default(), Labelling::default()];
        RunData {
            train,
            val,
            input,
            augmentation,
            classes,
            labelling,
            val_labelling,
            dataset,
            fingerprint,
            val_sha256,
        }
    }

    fn read(network: &Network) -> Vec<Vec<f32>> {
        let arena = network.arena();
        let values = |slot: &towers_layers::Slot| {
            arena.storage(slot).to_vec(network.device(), slot.span.offset, slot.span.len)
        };
        arena.slots().iter().map(|slot| values(slot).unwrap()).collect()
    }

    /// Each replica has other images here, so the filters show which ones were used.
    #[test]
    fn the_first_layer_gets_the_filters_of_the_first_replica_and_no_other() {
        let results =
            run_replicas(&[towers_tensor_cpu::device(1), towers_tensor_cpu::device(1)], |mut replica| {
                let mut network =
                    towers_models::airbench94(10)?.build(&replica.device, 1, Mode::Inference)?;
                network.init(1)?;
                let before = read(&network);
                let prepared = prepared(1 + replica.rank() as u64);
                whiten(&mut network, &prepared, replica.collective.as_mut())?;
                let own = filters(&prepared, [2, 2], 5e-4)?;
                Ok::<_, Error>((before, read(&network), own))
            });
        let results = results.unwrap();
        let first = &results[0].2;
        assert!(*first != results[1].2, "the images are the same");
        for (before, after, _) in &results {
            assert!(after[0] == *first && after[0] != before[0] && after[1..] == before[1..]);
        }
        let opposite = |row: &[f32]| (0..12).all(|k| row[k] == -row[12 + k]);
        assert!(first.chunks(24).all(opposite));
    }
}
