//! The validation data of a run: its own, or training samples that are held back.

use crate::{Config, Error, Result};
use ndarray::{Array, Axis, RemoveAxis, Slice};
use towers_dataset::{Dataset, Split};

/// The data for a run with so many samples in a batch. It validates on the validation or test samples of the data. With
/// `validation_split` it validates on training samples that are held back, with `overfit_batches` on those that it trains on.
pub(crate) fn split(config: &Config, mut data: Dataset, batch: usize) -> Result<Dataset> {
    let validation = data.validation.take();
    if let Some(batches) = config.training.overfit_batches {
        let count = batches.saturating_mul(batch).min(data.train.len());
        let mut kept = order(config.training.seed, &data.train)[..count].to_vec();
        kept.sort_unstable();
        data.train = data.train.select(&kept);
        data.test = data.train.clone();
        return Ok(data);
    }
    match config.training.augmentation.validation_split {
        0.0 => {
            data.test = validation.unwrap_or(data.test);
            Ok(data)
        }
        share => hold_back(data, share, config.training.seed),
    }
}

/// An order of the training samples that no epoch has: no epoch has this number.
fn order(seed: u64, train: &Split) -> Vec<usize> {
    let order = towers_philox::permutation(seed, u64::MAX, train.len() as u32);
    order.into_iter().map(|sample| sample as usize).collect()
}

/// Validates on a `share` of the training samples, which is held back from training. The seed chooses them,
/// since a set may be sorted by class.
fn hold_back(mut data: Dataset, share: f64, seed: u64) -> Result<Dataset> {
    let cut = (data.train.len() as f64 * share) as usize;
    if !(1..data.train.len()).contains(&cut) {
        let accepted = format!("a share that leaves some of the {} samples for each part", data.train.len());
        return Err(Error::option("augmentation.validation_split", share, accepted));
    }
    let mut order = order(seed, &data.train);
    // In the order of the set, as without a split.
    order[..cut].sort_unstable();
    order[cut..].sort_unstable();
    if data.train.files.is_some() {
        [data.test, data.train] = [&order[..cut], &order[cut..]].map(|samples| data.train.select(samples));
        return Ok(data);
    }
    let Split { images, labels, coarse, multi_hot, paths, .. } = data.train;
    let [images, held_images] = partition(images, &order, cut);
    let [labels, held_labels] = partition(labels, &order, cut);
    let (coarse, held_coarse) = coarse.map(|coarse| partition(coarse, &order, cut).into()).unzip();
    let (rows, held_rows) = multi_hot.map(|rows| partition(rows, &order, cut).into()).unzip();
    let of =
        |places: &[usize]| paths.as_ref().map(|paths| places.iter().map(|&k| paths[k].clone()).collect());
    let (held_paths, paths) = (of(&order[..cut]), of(&order[cut..]));
    (data.train, data.test) = (Split::new(images, labels)?, Split::new(held_images, held_labels)?);
    (data.train.coarse, data.train.multi_hot, data.train.paths) = (coarse, rows, paths);
    (data.test.coarse, data.test.multi_hot, data.test.paths) = (held_coarse, held_rows, held_paths);
    Ok(data)
}

/// The rows of `order` from position `cut` on, and those before. The former stay in the array: there may be
/// no memory for a copy.
fn partition<T: Copy, D: RemoveAxis>(rows: Array<T, D>, order: &[usize], cut: usize) -> [Array<T, D>; 2] {
    let taken = rows.select(Axis(0), &order[..cut]);
    let mut rows = if rows.is_standard_layout() { rows } else { rows.as_standard_layout().into_owned() };
    let len = rows.len() / order.len();
    // The order is ascending, so each row moves to the front.
    if let Some(values) = rows.as_slice_mut() {
        for (to, from) in order[cut..].iter().enumerate() {
            values.copy_within(from * len..(from + 1) * len, to * len);
        }
    }
    rows.slice_axis_inplace(Axis(0), Slice::from(..order.len() - cut));
    [rows, taken]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_held_back_once_each() {
        let data = towers_cifar::synthetic(1, 50, 5);
        let own = data.clone();
        let place = own.train.images.as_ptr();
        let split = hold_back(own, 0.3, 7).unwrap();
        assert_eq!((split.train.len(), split.test.len()), (35, 15));
        assert_eq!(split.train.images.as_ptr(), place, "there is no second copy of all images");
        // Images and labels stay together, in their order.
        let at = |part: &Split| -> Vec<usize> {
            let place = |image| data.train.images.outer_iter().position(|own| own == image).unwrap();
            part.images.outer_iter().map(place).collect()
        };
        for part in [&split.train, &split.test] {
            let places = at(part);
            assert!(places.is_sorted(), "{places:?}");
            assert_eq!(
                part.labels.to_vec(),
                places.iter().map(|&k| data.train.labels[k]).collect::<Vec<_>>()
            );
        }
        let mut turned = data.clone();
        turned.train.images.swap_axes(1, 2);
        let turned = hold_back(turned, 0.3, 7).unwrap().train.images;
        assert_eq!(turned, split.train.images.clone().permuted_axes([0, 2, 1, 3]), "another layout");
        let images = |split: &Split| {
            split.images.outer_iter().map(|i| i.iter().copied().collect::<Vec<u8>>()).collect::<Vec<_>>()
        };
        let mut parts = [images(&split.train), images(&split.test)].concat();
        let mut all = images(&data.train);
        parts.sort();
        all.sort();
        assert_eq!(parts, all);
        assert_ne!(images(&split.test), images(&hold_back(data.clone(), 0.3, 8).unwrap().test));
        assert!(hold_back(data, 0.001, 7).is_err());
    }
}
