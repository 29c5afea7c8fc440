//! Random operations in an order of the caller's choice.

use ndarray::Array4;
use towers_augment::parts::ResizedCrop;
use towers_augment::{
    Compose, Draws, Error, Flip, ImageDataGenerator, Layout, Loader, LoaderOptions, Operation, Pipeline,
    RandAugment, RandomResizedCrop, Samples, Scratch, Transform,
};

const SHAPE: [usize; 3] = [8, 8, 3];

fn image() -> Vec<u8> {
    (0..8 * 8 * 3).map(|k| (k * 83 % 256) as u8).collect()
}

fn apply(pipeline: &Pipeline, draws: &Draws) -> Vec<f32> {
    let mut out = vec![f32::NAN; pipeline.image_len()];
    pipeline.apply(draws, &image(), &mut out, &mut Scratch::default()).unwrap();
    out
}

#[test]
fn one_step_has_the_bits_of_its_operation() {
    let generator = ImageDataGenerator::new().rotation_range(20.0).horizontal_flip(true).cutout(3);
    let steps: [(Pipeline, Compose); 3] = [
        (generator.build(SHAPE).unwrap(), Compose::new().then(generator)),
        (RandAugment::default().build(SHAPE).unwrap(), Compose::new().then(RandAugment::default())),
        (
            RandomResizedCrop::default().build(SHAPE).unwrap(),
            Compose::new().then(RandomResizedCrop::default()),
        ),
    ];
    for (alone, compose) in steps {
        let composed = compose.build(SHAPE).unwrap();
        for sample in 0..20 {
            let draws = composed.draw(3, 1, sample);
            assert_eq!(apply(&composed, &draws), apply(&alone, &draws.composed[0]), "{draws}");
        }
    }
}

#[test]
fn steps_come_in_their_order() {
    // A flip moves the square of a shift that leaves black behind; the other way round it stays.
    let shift = Operation::TranslateX(3);
    let first = Compose::new().then(Flip::Horizontal).then(shift).build(SHAPE).unwrap();
    let last = Compose::new().then(shift).then(Flip::Horizontal).build(SHAPE).unwrap();
    let image = image();
    let [first, last] = [first, last].map(|pipeline| apply(&pipeline, &pipeline.draw(0, 0, 0)));
    for (place, (&first, &last)) in first.iter().zip(&last).enumerate() {
        let (row, x, c) = (place / 24 * 24, place / 3 % 8, place % 3);
        let at = |x: usize| f32::from(image[row + x * 3 + c]);
        assert_eq!(first, if x < 3 { 0.0 } else { at(7 - (x - 3)) });
        assert_eq!(last, if x > 4 { 0.0 } else { at(7 - x - 3) });
    }
}

#[test]
fn probabilities_hold_and_leave_the_draws_alone() {
    let rotation = ImageDataGenerator::new().rotation_range(20.0);
    let build = |probability| {
        let inner = Compose::new().with_probability(0.5, Flip::Vertical);
        let compose = Compose::new().with_probability(probability, rotation.clone());
        compose.with_probability(0.3, Flip::Horizontal).with_probability(0.5, inner).build(SHAPE).unwrap()
    };
    let (always, seldom) = (build(1.0), build(0.2));
    let mut counts = [0; 4];
    for sample in 0..4000 {
        let (all, some) = (always.draw(5, 2, sample), seldom.draw(5, 2, sample));
        assert_eq!(some, seldom.draw(5, 2, sample));
        assert_eq!(all.composed[1..], some.composed[1..]);
        let rotated = some.composed[0] != Draws::default();
        assert!(!rotated || some.composed[0] == all.composed[0]);
        let (flipped, inner) = (some.composed[1].horizontal_flip, &some.composed[2].composed);
        let flipped_inside = inner.first().is_some_and(|inner| inner.vertical_flip);
        let seen = [rotated, flipped, rotated && flipped, flipped_inside];
        counts.iter_mut().zip(seen).for_each(|(count, seen)| *count += usize::from(seen));
    }
    for (count, share) in counts.into_iter().zip([0.2, 0.3, 0.06, 0.25]) {
        assert!((count as f64 / 4000.0 - share).abs() < 0.03, "{count} of 4000 is not {share}");
    }
    // Two steps of one kind draw apart, and so do seeds, epochs and samples.
    let twice = Compose::new().then(rotation.clone()).then(rotation).build(SHAPE).unwrap();
    let draws = twice.draw(1, 2, 3);
    assert_ne!(draws.composed[0], draws.composed[1]);
    for other in [twice.draw(0, 2, 3), twice.draw(1, 0, 3), twice.draw(1, 2, 0)] {
        assert_ne!(draws, other);
    }
}

#[test]
fn the_generators_own_steps_come_after_it() {
    let compose = Compose::new().with_probability(0.5, Flip::Horizontal).then(RandAugment::default());
    let generator = ImageDataGenerator::new().compose(compose).vertical_flip(true).rescale(0.5);
    let pipeline = generator.build(SHAPE).unwrap();
    assert_eq!(pipeline.unplaceable(), Some("compose"));
    // In evaluation the steps do nothing.
    let halved: Vec<f32> = image().into_iter().map(|byte| f32::from(byte) * 0.5).collect();
    assert_eq!(apply(&pipeline, &Draws::default()), halved);
    assert_eq!(generator.evaluation().compose, None);
    // A loader makes the same images, with any number of workers.
    let images = Array4::from_shape_vec((1, 8, 8, 3), image()).unwrap();
    for workers in [0, 2] {
        let samples = Samples::new(images.clone(), vec![0]).unwrap();
        let options = LoaderOptions::new().seed(4).workers(workers);
        let mut loader = Loader::new(samples, pipeline.clone(), options).unwrap();
        for epoch in 0..5 {
            let batch = loader.epoch(epoch, 0).unwrap().next().unwrap().unwrap();
            assert_eq!(batch.x, apply(&pipeline, &pipeline.draw(4, epoch, 0)));
        }
    }
}

#[test]
fn draws_are_printed_step_by_step() {
    let compose = Compose::new().then(Operation::Equalize).with_probability(0.0, Flip::Vertical);
    let pipeline = compose.then(Flip::Horizontal).build(SHAPE).unwrap();
    assert_eq!(pipeline.draw(0, 0, 0).to_string(), "equalize, horizontal_flip");
}

#[test]
fn steps_that_make_no_sense_are_named() {
    let new = ImageDataGenerator::new;
    for (compose, name) in [
        (Compose::new().with_probability(1.5, Flip::Vertical), "probability"),
        (Compose::new().with_probability(f64::NAN, Flip::Vertical), "probability"),
        (Compose::new().then(new().rotation_range(-1.0)), "rotation_range"),
        (Compose::new().then(new().rescale(0.5)), "compose"),
        (Compose::new().then(new().mixup(0.5)), "compose"),
        (Compose::new().then(new().validation_split(0.5)), "compose"),
        (Compose::new().then(RandAugment { num_ops: 9, ..RandAugment::default() }), "rand_augment"),
        (Compose::new().then(Operation::Rotate(f64::NAN)), "draws"),
        (Compose::new().then(Compose::new().then(new().cutout(99))), "cutout"),
    ] {
        let error = compose.build(SHAPE).unwrap_err();
        assert!(matches!(error, Error::Option { option, .. } if option == name), "{error}");
    }
    let pipeline = Compose::new().then(Flip::Vertical).build(SHAPE).unwrap();
    let draws = Draws { composed: vec![Draws::default(); 2], ..Draws::default() };
    let error = pipeline.apply(&draws, &image(), &mut [0.0; 192], &mut Scratch::default()).unwrap_err();
    assert!(error.to_string().contains("`compose`"), "{error}");
}

/// A caller's operation that draws a part outside of the image.
#[derive(Debug)]
struct Outside;

impl Transform for Outside {
    fn draw(&self, _: [usize; 3], _: u64, _: u64, _: u32) -> Draws {
        let part = ResizedCrop { row: 7, column: 0, rows: 2, columns: 8 };
        Draws { resized_crop: Some(part), ..Draws::default() }
    }
}

#[test]
fn draws_of_a_callers_operation_are_checked() {
    let pipeline = Compose::new().then(Outside).build(SHAPE).unwrap();
    let mut out = [0.0; 192];
    assert!(pipeline.apply_batch(0, 0, &[0], &image(), Layout::Nhwc, &mut out).is_err());
    let samples = Samples::new(Array4::zeros((1, 8, 8, 3)), vec![0]).unwrap();
    assert!(pipeline.preview(&samples, &[0], 2, 0).is_err());
}
