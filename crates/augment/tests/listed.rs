//! Lists of torchvision's transforms: their texts, and what they do in a pipeline.

use ndarray::Array4;
use serde_json::Value;
use towers_augment::parts::{Erased, ErasedWith};
use towers_augment::{
    Compose, Draws, ImageDataGenerator, Loader, LoaderOptions, Mean, Operation, RandomErasing, Samples,
    Scratch, TrivialAugmentWide,
};

const SHAPE: [usize; 3] = [12, 14, 3];
/// Every transform of the list.
const ALL: &str = "aug-mix:severity=5,p=0.3+auto-augment:policy=cifar10,p=0.3+color-jitter:brightness=0.4,hue=-0.1/0.2,p=0.3\
    +gaussian-blur:p=0.3+rand-augment:num-ops=1,p=0.3+random-adjust-sharpness:sharpness-factor=2\
    +random-autocontrast+random-equalize+random-erasing:value=random+random-grayscale+random-horizontal-flip\
    +random-invert+random-perspective:distortion-scale=0.3+random-posterize:bits=4\
    +random-resized-crop:scale=0.5/1,p=0.2+random-solarize:threshold=128+random-vertical-flip+trivial-augment-wide";

fn samples(count: usize) -> Samples {
    let [h, w, c] = SHAPE;
    let images =
        Array4::from_shape_fn((count, h, w, c), |(n, y, x, c)| (n * 37 + y * 11 + x * 7 + c * 50) as u8);
    Samples::new(images, vec![0; count]).unwrap()
}

#[test]
fn texts_are_read_and_written() {
    let all: Compose = ALL.parse().unwrap();
    assert_eq!(all.to_string(), ALL);
    assert_eq!(all.texts().unwrap().len(), ALL.split('+').count());
    assert_eq!(ALL.parse::<Compose>().unwrap(), all);
    // Spaces, underscores, defaults and a switch.
    for (text, written) in [
        (" random_erasing : p=0.5, value=0 + auto-augment:policy=imagenet", "random-erasing+auto-augment"),
        ("random-erasing:value=0.5/-1/0.25,p=1", "random-erasing:value=0.5/-1/0.25,p=1"),
        ("random-solarize", "random-solarize:threshold=192"),
        ("aug-mix:all-ops,all_ops=false", ""),
        ("aug-mix:all-ops=false", "aug-mix:all-ops=false"),
        ("random-grayscale:p=0.1", "random-grayscale"),
        ("trivial-augment-wide:p=0.5", "trivial-augment-wide:p=0.5"),
    ] {
        match text.parse::<Compose>() {
            Ok(compose) => assert_eq!(compose.to_string(), written),
            Err(error) => assert!(written.is_empty(), "{text}: {error}"),
        }
    }
    let built =
        Compose::new().then(TrivialAugmentWide::default()).with_probability(0.25, Operation::Color(0.0));
    assert_eq!(built.to_string(), "trivial-augment-wide+random-grayscale:p=0.25");
    assert_eq!(built.to_string().parse::<Compose>().unwrap(), built);
    assert_eq!(Compose::new().then(ImageDataGenerator::new().rotation_range(3.0)).texts(), None);
}

#[test]
fn texts_that_make_no_sense_are_refused() {
    for (text, says) in [
        (
            "colour-jitter",
            "`compose` is `colour-jitter`, but it must be one of aug-mix, auto-augment, color-jitter, ",
        ),
        ("", "must be one of"),
        (
            "color-jitter:hu=0.1",
            "`hu`, but it must be a key of color-jitter: brightness, contrast, saturation, hue, p",
        ),
        ("color-jitter:hue=red", "`color-jitter:hue=red`, but it must be a number or two"),
        ("color-jitter:hue=1e999", "must be a number or two"),
        ("random-posterize:bit=1", "`bit`, but it must be a key of random-posterize: bits, p"),
        ("random-invert:x=1", "a key of random-invert: p"),
        ("random-invert:p=1.5", "`random-invert:p=1.5`, but it must be with a probability"),
        ("random-posterize:bits=2.5", "must be a whole number"),
        ("random-erasing:value=black", "must be random, a number, or one for each channel"),
        ("random-erasing:scale=0.1", "must be two numbers"),
        ("auto-augment:policy=mnist", "must be imagenet, cifar10 or svhn"),
        ("random-invert:p=0.5,p=0.5", "must be given `p` once"),
    ] {
        let error = text.parse::<Compose>().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for text in [
        "color-jitter:hue=0.6",
        "color-jitter:brightness=-0.1",
        "color-jitter:contrast=0.9/0.8",
        "random-erasing:value=1/2",
        "random-erasing:scale=0.5/1.5",
        "random-erasing:ratio=0/1",
        "aug-mix:severity=11",
        "aug-mix:mixture-width=0",
        "aug-mix:alpha=0",
        "random-perspective:distortion-scale=1.5",
        "trivial-augment-wide:num-magnitude-bins=1",
        "random-solarize:threshold=1e300",
    ] {
        let compose = text.parse::<Compose>().unwrap();
        let generator = ImageDataGenerator::new().compose(compose);
        assert!(generator.build(SHAPE).is_err(), "{text}");
        assert!(generator.validate(SHAPE).is_err(), "{text}");
    }
    let error = "color-jitter:hue=0.6".parse::<Compose>().unwrap().build(SHAPE).unwrap_err().to_string();
    assert!(error.starts_with("`compose` is `color-jitter:hue=0.6`, but it must be with factors"), "{error}");
}

#[test]
fn a_loader_has_the_same_bits_for_any_number_of_workers() {
    let generator =
        ImageDataGenerator::new().compose(ALL.parse().unwrap()).rescale(1.0 / 255.0).random_crop(2);
    let pipeline = generator.build(SHAPE).unwrap();
    let batches = |workers, start| {
        let options = LoaderOptions::new().batch_size(7).seed(4).workers(workers);
        let mut loader = Loader::new(samples(40), pipeline.clone(), options).unwrap();
        let batches = loader.epoch(3, start).unwrap();
        batches.map(|batch| batch.unwrap().x.to_vec()).collect::<Vec<_>>()
    };
    let alone = batches(0, 0);
    assert!(alone.concat().iter().all(|value| value.is_finite()));
    for workers in [1, 3] {
        assert_eq!(batches(workers, 0), alone);
    }
    assert_eq!(batches(2, 4), alone[4..]);
    // Every transform of the list did something to some sample.
    let changed = |step: usize| (0..200).any(|k| pipeline.draw(4, 3, k).composed[step] != Draws::default());
    assert!((0..ALL.split('+').count()).all(changed));
}

#[test]
fn rectangles_are_erased_after_the_standardization() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../tests/golden/augment_compose.json")).unwrap();
    let numbers = |value: &Value| -> Vec<f32> { serde_json::from_value(value.clone()).unwrap() };
    let digits = golden["image"].as_str().unwrap().as_bytes();
    let two = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let image: Vec<u8> = digits.chunks(2).map(two).collect();
    let pipeline = ImageDataGenerator::new()
        // What comes after it in the list works on the picture.
        .compose(Compose::new().then(RandomErasing::default()).then(Operation::Identity))
        .rescale(1.0 / 255.0)
        .mean(Mean::PerChannel(numbers(&golden["mean"])))
        .std(numbers(&golden["std"]))
        .build([18, 18, 3])
        .unwrap();
    for case in golden["erasures"].as_array().unwrap() {
        let [row, column, rows, columns] =
            [0, 1, 2, 3].map(|k| case["rectangle"][k].as_u64().unwrap() as usize);
        let with = ErasedWith::Values(numbers(&case["values"]));
        let erased = Erased { row, column, rows, columns, with };
        let step = Draws { erased: Some(erased.clone()), ..Draws::default() };
        let draws = Draws { composed: vec![step, Draws::default()], ..Draws::default() };
        let mut out = vec![f32::NAN; image.len()];
        pipeline.apply(&draws, &image, &mut out, &mut Scratch::default()).unwrap();
        for (got, expected) in out.iter().step_by(7).zip(numbers(&case["out"])) {
            assert!((got - expected).abs() < 3e-5, "{got}, not {expected}, in {erased}");
        }
    }
    // A rectangle beyond the edge, which only a caller can draw.
    let with = ErasedWith::Values(vec![0.0]);
    let erased = Some(Erased { row: 10, column: 0, rows: 9, columns: 1, with });
    let draws = Draws { erased, ..Draws::default() };
    assert!(pipeline.apply(&draws, &image, &mut vec![0.0; image.len()], &mut Scratch::default()).is_err());
}

#[test]
fn rectangles_have_areas_shapes_and_noise_as_asked_for() {
    let compose: Compose = "random-erasing:value=random,scale=0.1/0.2,ratio=0.5/2,p=0.25".parse().unwrap();
    let pipeline = compose.build([32, 32, 3]).unwrap();
    let (mut count, mut noise) = (0, vec![]);
    let (mut out, mut scratch) = (vec![0.0; pipeline.image_len()], Scratch::default());
    for sample in 0..2000 {
        let draws = pipeline.draw(1, 0, sample);
        let Some(erased) = &draws.composed[0].erased else { continue };
        let (area, ratio) = (erased.rows * erased.columns, erased.rows as f64 / erased.columns as f64);
        assert!((85..=225).contains(&area) && (0.44..2.3).contains(&ratio), "{erased}");
        count += 1;
        pipeline.apply(&draws, &[200; 32 * 32 * 3], &mut out, &mut scratch).unwrap();
        noise.extend(out.iter().copied().filter(|&value| value != 200.0));
        let again = noise.len() - 3 * area;
        pipeline.apply(&draws, &[200; 32 * 32 * 3], &mut out, &mut scratch).unwrap();
        assert!(out.iter().filter(|value| **value != 200.0).eq(&noise[again..]));
    }
    assert!((430..570).contains(&count), "{count}");
    let mean = noise.iter().sum::<f32>() / noise.len() as f32;
    let variance = noise.iter().map(|x| x * x).sum::<f32>() / noise.len() as f32;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    // Images without room for a rectangle stay.
    assert_eq!(
        compose.build([1, 1, 3]).unwrap().draw(1, 0, 0),
        Draws { composed: vec![Draws::default()], ..Draws::default() }
    );
}

#[test]
fn a_preview_shows_what_is_erased() {
    let pipeline = "random-erasing:p=1".parse::<Compose>().unwrap().build(SHAPE).unwrap();
    let samples = Samples::new(Array4::from_elem((1, 12, 14, 3), 200), vec![0]).unwrap();
    let grid = pipeline.preview(&samples, &[0], 4, 0).unwrap();
    let erased = pipeline.draw(0, 0, 0).composed[0].erased.clone().unwrap();
    let left = 2 + 14 + 2;
    let black = ndarray::indices((12, 14)).into_iter().filter(|&(y, x)| grid[[2 + y, left + x, 0]] == 0);
    assert_eq!(black.count(), erased.rows * erased.columns);
    assert_eq!(grid[[2 + erased.row, left + erased.column, 1]], 0);
}

#[test]
fn an_empty_list_keeps_a_pipeline_on_the_device() {
    let generator = ImageDataGenerator::new().horizontal_flip(true);
    assert_eq!(generator.clone().compose(Compose::new()).build(SHAPE).unwrap().unplaceable(), None);
    let listed = generator.compose("random-invert".parse().unwrap());
    assert_eq!(listed.build(SHAPE).unwrap().unplaceable(), Some("compose"));
}
