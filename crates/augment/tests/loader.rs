//! What a loader yields doesn't depend on workers, slices, or where an epoch is entered.

use ndarray::Array4;
use proptest::prelude::*;
use towers_augment::parts::{Rows, Subset};
use towers_augment::{Batch, Error, ImageDataGenerator, Loader, LoaderOptions, Samples};

/// `n` images of 6x5 RGB pixels that all differ, with labels that tell the sample.
fn samples(n: usize) -> Samples {
    let images = Array4::from_shape_fn((n, 6, 5, 3), |(k, y, x, c)| (k * 89 + y * 31 + x * 7 + c * 3) as u8);
    Samples::new(images, (0..n as u16).map(|k| k + 100).collect::<Vec<_>>()).unwrap()
}

fn loader(n: usize, options: LoaderOptions) -> Loader {
    let augmentation = ImageDataGenerator::new()
        .width_shift_range(0.3)
        .height_shift_range(2)
        .horizontal_flip(true)
        .random_crop(1)
        .cutout(2);
    Loader::new(samples(n), augmentation.build([6, 5, 3]).unwrap(), options).unwrap()
}

/// Everything about a batch that can be compared.
type Content = (Vec<f32>, Vec<u32>, Vec<u32>, u64, usize, usize);

fn content(batch: Result<Batch, Error>) -> Content {
    let b = batch.unwrap();
    assert_eq!(b.x.len(), b.len() * 6 * 5 * 3);
    (b.x.clone(), b.labels.clone(), b.indices.clone(), b.epoch, b.step, b.global_len)
}

fn epoch(loader: &mut Loader, epoch: u64, step: usize) -> Vec<Content> {
    loader.epoch(epoch, step).unwrap().map(content).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn workers_do_not_matter(
        n in 1..40_usize, batch_size in 1..9_usize, seed: u64, number in 0..3_u64, prefetch in 1..4_usize,
        drop_last: bool,
    ) {
        let options = LoaderOptions::new().batch_size(batch_size).seed(seed).prefetch(prefetch);
        let options = options.drop_last(drop_last);
        let expected = epoch(&mut loader(n, options.clone().workers(0)), number, 0);
        let steps = if drop_last { n / batch_size } else { n.div_ceil(batch_size) };
        prop_assert_eq!(expected.len(), steps);
        for workers in [1, 2, 5] {
            prop_assert_eq!(&epoch(&mut loader(n, options.clone().workers(workers)), number, 0), &expected);
        }
    }

    #[test]
    fn an_epoch_entered_half_way_is_the_tail_of_the_whole(
        n in 1..40_usize, batch_size in 1..9_usize, seed: u64, part in 0.0..1.0_f64, workers in 0..3_usize,
    ) {
        let mut loader = loader(n, LoaderOptions::new().batch_size(batch_size).seed(seed).workers(workers));
        let whole = epoch(&mut loader, 4, 0);
        let step = (part * whole.len() as f64) as usize;
        // Another epoch is left half-way in between: nothing of it may show.
        let _ = loader.epoch(3, 0).unwrap().next();
        prop_assert_eq!(&epoch(&mut loader, 4, step)[..], &whole[step..]);
    }

    #[test]
    fn slices_put_together_are_the_whole_batch(
        n in 1..40_usize, batch_size in 1..12_usize, seed: u64, of in 1..5_usize, cut in 0..12_usize,
    ) {
        let options = LoaderOptions::new().batch_size(batch_size).seed(seed).workers(1);
        let whole = epoch(&mut loader(n, options.clone()), 0, 0);
        // By a rule whose slices grow with the batch, and by fixed ranges.
        let shares: Vec<Rows> =
            (0..of).map(|index| Rows::by(move |len| index * len / of..(index + 1) * len / of)).collect();
        for slices in [shares, vec![Rows::Range(0..cut), Rows::Range(cut..100)]] {
            let mut joined: Vec<Content> = whole.iter().map(|b| (vec![], vec![], vec![], b.3, b.4, b.5)).collect();
            for rows in slices {
                for (all, slice) in joined.iter_mut().zip(epoch(&mut loader(n, options.clone().rows(rows)), 0, 0)) {
                    all.0.extend(slice.0);
                    all.1.extend(slice.1);
                    all.2.extend(slice.2);
                    assert_eq!((all.3, all.4, all.5), (slice.3, slice.4, slice.5));
                }
            }
            prop_assert_eq!(&joined, &whole);
        }
    }
}

#[test]
fn every_sample_comes_once_an_epoch_in_a_new_order() {
    let mut loader = loader(23, LoaderOptions::new().batch_size(5).seed(3));
    let mut orders = vec![];
    for number in 0..3 {
        let batches = epoch(&mut loader, number, 0);
        let order: Vec<u32> = batches.iter().flat_map(|batch| batch.2.clone()).collect();
        assert_eq!(order, towers_philox::permutation(3, number, 23));
        let labels: Vec<u32> = batches.iter().flat_map(|batch| batch.1.clone()).collect();
        assert_eq!(labels, order.iter().map(|sample| sample + 100).collect::<Vec<_>>());
        orders.push(order);
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
}

#[test]
fn evaluation_keeps_the_order_and_the_pixels() {
    let set = samples(7);
    let mut loader = loader(7, LoaderOptions::new().batch_size(3).evaluation());
    let batches = epoch(&mut loader, 0, 0);
    let x: Vec<f32> = batches.iter().flat_map(|batch| batch.0.clone()).collect();
    assert_eq!(x, set.images().unwrap().iter().map(|&byte| f32::from(byte)).collect::<Vec<_>>());
    assert_eq!(batches[2].2, [6]);
}

#[test]
fn a_loader_can_be_dropped_at_any_time() {
    for taken in 0..6 {
        let mut loader = loader(40, LoaderOptions::new().batch_size(2).workers(3).prefetch(2));
        let kept: Vec<_> = loader.epoch(0, 0).unwrap().take(taken).collect();
        drop(loader);
        // Batches outlive it.
        assert!(kept.into_iter().all(|batch| batch.unwrap().len() == 2));
    }
}

#[test]
fn batches_may_be_hoarded_and_their_memory_taken() {
    let mut loader = loader(40, LoaderOptions::new().batch_size(2).workers(2).prefetch(1));
    let expected = epoch(&mut loader, 1, 0);
    let hoard: Vec<_> = loader.epoch(1, 0).unwrap().map(Result::unwrap).collect();
    for (mut batch, expected) in hoard.into_iter().zip(&expected) {
        assert_eq!(std::mem::take(&mut batch.x), expected.0);
    }
    assert_eq!(epoch(&mut loader, 1, 0), expected);
}

#[test]
fn the_epoch_knows_its_length() {
    let mut loader = loader(10, LoaderOptions::new().batch_size(3));
    assert_eq!(loader.steps_per_epoch(), 4);
    let mut batches = loader.epoch(0, 1).unwrap();
    assert_eq!(batches.len(), 3);
    batches.next();
    assert_eq!(batches.len(), 2);
    drop(batches);
    assert_eq!(loader.epoch(0, 4).unwrap().count(), 0);
    assert_eq!(loader.epoch(0, 5).unwrap_err(), Error::Step { step: 5, steps: 4 });
}

#[test]
fn bad_options_are_named() {
    let bad = [
        (LoaderOptions::new().batch_size(0), "batch_size"),
        (LoaderOptions::new().prefetch(0), "prefetch"),
        (LoaderOptions::new().workers(usize::MAX), "workers"),
        #[allow(clippy::reversed_empty_ranges)]
        (LoaderOptions::new().rows(Rows::Range(3..2)), "rows"),
    ];
    for (options, name) in bad {
        let pipeline = ImageDataGenerator::new().build([6, 5, 3]).unwrap();
        let error = Loader::new(samples(4), pipeline, options).unwrap_err();
        assert!(matches!(error, Error::Option { option, .. } if option == name), "{error}");
    }
}

#[test]
fn sets_must_fit_together() {
    let pipeline = ImageDataGenerator::new().build([6, 6, 3]).unwrap();
    let error = Loader::new(samples(4), pipeline, LoaderOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Shape { .. }), "{error}");
    let error = Samples::new(Array4::zeros((3, 2, 2, 1)), vec![0; 4]).unwrap_err();
    assert!(error.to_string().contains("labels"), "{error}");
    assert!(matches!(Samples::new(Array4::zeros((0, 2, 2, 1)), vec![]), Err(Error::EmptySet { .. })));
    // Another memory layout is brought into ours.
    let planar = Array4::from_shape_fn((2, 3, 4, 5), |(n, c, y, x)| (n * 60 + c * 20 + y * 5 + x) as u8);
    let set = Samples::new(planar.permuted_axes([0, 2, 3, 1]), vec![0; 2]).unwrap();
    assert_eq!(set.image(1, &mut Vec::new()).unwrap()[..4], [60, 80, 100, 61]);
}

/// A loader whose images are all of one value, so that a mixture tells its shares.
fn flat(options: &ImageDataGenerator, rows: Rows) -> Loader {
    let images = Array4::from_shape_fn((30, 6, 5, 3), |(k, ..)| 8 * k as u8);
    let samples = Samples::new(images, (0..30).collect::<Vec<u16>>()).unwrap();
    let batches = LoaderOptions::new().batch_size(8).seed(2).rows(rows);
    Loader::new(samples, options.build([6, 5, 3]).unwrap(), batches).unwrap()
}

#[test]
fn mixtures_have_the_shares_of_their_labels_in_any_slice() {
    for options in [ImageDataGenerator::new().mixup(1.0), ImageDataGenerator::new().cutmix(1.0)] {
        let whole: Vec<Batch> = flat(&options, Rows::All).epoch(1, 0).unwrap().map(Result::unwrap).collect();
        for batch in &whole {
            assert_eq!((batch.other_labels.len(), batch.weights.len()), (batch.len(), batch.len()));
            for (row, image) in batch.images().outer_iter().enumerate() {
                let weight = batch.weights[row];
                let [own, other] =
                    [batch.labels[row], batch.other_labels[row]].map(|label| 8.0 * label as f32);
                let mean = image.mean().unwrap();
                assert!((mean - (weight * own + (1.0 - weight) * other)).abs() < 1e-3);
            }
        }
        let mut half = flat(&options, Rows::by(|len| len / 2..len));
        for (slice, whole) in half.epoch(1, 0).unwrap().map(Result::unwrap).zip(&whole) {
            let from = whole.len() / 2;
            assert_eq!(slice.other_labels, whole.other_labels[from..]);
            assert_eq!(slice.weights, whole.weights[from..]);
            assert_eq!(slice.x, whole.x[from * 90..]);
        }
    }
    let plain = flat(&ImageDataGenerator::new(), Rows::All).epoch(0, 0).unwrap().next().unwrap().unwrap();
    assert!(plain.other_labels.is_empty() && plain.weights.is_empty());
}

#[test]
fn a_flow_goes_from_epoch_to_epoch_without_end() {
    let generator = ImageDataGenerator::new().rotation_range(20.0).zoom_range(0.2);
    let options = LoaderOptions::new().batch_size(4).seed(5).workers(2);
    let flow: Vec<Content> =
        generator.flow(samples(10), options.clone()).unwrap().take(7).map(content).collect();
    let mut loader = Loader::new(samples(10), generator.build([6, 5, 3]).unwrap(), options.clone()).unwrap();
    let epochs: Vec<Content> = (0..3).flat_map(|number| epoch(&mut loader, number, 0)).take(7).collect();
    assert_eq!(flow, epochs);
    assert!(generator.flow(samples(3), options.drop_last(true)).is_err());
}

#[test]
fn subsets_are_the_first_samples_and_the_rest() {
    let images = Array4::from_shape_fn((10, 2, 2, 1), |(n, ..)| n as u8);
    let set = Samples::new(images, (0..10).map(|n| n % 2).collect::<Vec<u16>>()).unwrap();
    let generator = ImageDataGenerator::new().validation_split(0.35);
    for (subset, expected) in [(Subset::Validation, 0..3_u8), (Subset::Training, 3..10)] {
        let options = LoaderOptions::new().batch_size(10).evaluation().subset(subset);
        let batch = generator.flow(set.clone(), options).unwrap().next().unwrap().unwrap();
        assert_eq!(
            batch.into_images().outer_iter().map(|image| image[[0, 0, 0]]).collect::<Vec<_>>(),
            expected.map(f32::from).collect::<Vec<_>>()
        );
    }
    assert!(set.subset(Subset::Training, 0.05).is_err());
    let sorted = Samples::new(Array4::zeros((4, 2, 2, 1)), vec![0, 0, 1, 1]).unwrap();
    assert!(sorted.subset(Subset::Training, 0.5).unwrap_err().to_string().contains("shuffle"));
}

#[cfg(feature = "png")]
#[test]
fn pictures_of_everything_are_saved() {
    let folder = std::env::temp_dir().join(format!("augment-save-{}", std::process::id()));
    let options = LoaderOptions::new().batch_size(2).save_to_dir(&folder).save_prefix("aug");
    let mut loader = loader(5, options);
    assert_eq!(loader.epoch(3, 0).unwrap().count(), 3);
    for sample in 0..5 {
        let picture = image::open(folder.join(format!("aug_{sample}_3.png"))).unwrap();
        assert_eq!((picture.height(), picture.width()), (6, 5));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
