//! Every parameter against keras_preprocessing 1.1.2, and RandAugment against torchvision: `tests/golden/augment_generator.py` and
//! `augment_pillow.py` made the values.

use crate::golden::{floats, images, shape};
use ndarray::Axis;
use serde_json::Value;
use towers_augment::parts::ResizedCrop;
use towers_augment::{Draws, ImageDataGenerator, Mean, Operation, Scratch};

fn golden() -> Value {
    serde_json::from_str(include_str!("../../../tests/golden/augment_generator.json")).unwrap()
}

/// Keras' names to ours.
fn draws(case: &Value) -> Draws {
    let number = |name: &str, default: f64| case[name].as_f64().unwrap_or(default);
    Draws {
        rotation: number("theta", 0.0),
        height_shift: number("tx", 0.0),
        width_shift: number("ty", 0.0),
        shear: number("shear", 0.0),
        zoom: [number("zx", 1.0), number("zy", 1.0)],
        horizontal_flip: case["flip_horizontal"].as_bool().unwrap_or(false),
        vertical_flip: case["flip_vertical"].as_bool().unwrap_or(false),
        channel_shift: number("channel_shift_intensity", 0.0),
        brightness: case["brightness"].as_f64(),
        ..Draws::default()
    }
}

/// The largest difference between what `options` make of a case and what Keras makes of it.
fn difference(golden: &Value, options: &ImageDataGenerator, case: &Value) -> f32 {
    let pipeline = options.build(shape(golden)).unwrap();
    let sample = case["sample"].as_u64().unwrap() as usize;
    let image: Vec<u8> = images(golden).index_axis(Axis(0), sample).iter().copied().collect();
    let mut out = vec![f32::NAN; image.len()];
    pipeline.apply(&draws(case), &image, &mut out, &mut Scratch::default()).unwrap();
    let expected = floats(&case["out"]);
    assert_eq!(out.len(), expected.len());
    // A NaN must not pass.
    let worst = |most: f32, (a, b): (&f32, &f32)| if (a - b).abs() <= most { most } else { (a - b).abs() };
    let difference = out.iter().zip(&expected).fold(0.0, worst);
    assert!(!difference.is_nan(), "{case}");
    difference
}

fn cases<'a>(golden: &'a Value, group: &str) -> &'a [Value] {
    golden[group].as_array().unwrap()
}

#[test]
fn rotation_shear_and_zoom_in_every_fill_mode_and_order() {
    let golden = golden();
    for case in cases(&golden, "geometry") {
        let options = ImageDataGenerator::new()
            .fill_mode(case["fill_mode"].as_str().unwrap().parse().unwrap())
            .cval(golden["cval"].as_f64().unwrap() as f32)
            .interpolation_order(case["interpolation_order"].as_u64().unwrap() as u8);
        let difference = difference(&golden, &options, case);
        assert!(difference < 1e-4 * 255.0, "{difference} in {case}");
    }
}

#[test]
fn channel_shift_and_brightness() {
    let golden = golden();
    for case in cases(&golden, "photometric") {
        let difference = difference(&golden, &ImageDataGenerator::new(), case);
        assert!(difference < 1e-4 * 255.0, "{difference} in {case}");
    }
}

#[test]
fn standardization_after_fit() {
    let golden = golden();
    for case in cases(&golden, "fitted") {
        let mut options = ImageDataGenerator::new();
        for (name, value) in case["options"].as_object().unwrap() {
            options = match name.as_str() {
                "samplewise_center" => options.samplewise_center(true),
                "samplewise_std_normalization" => options.samplewise_std_normalization(true),
                "featurewise_center" => options.featurewise_center(true),
                "featurewise_std_normalization" => options.featurewise_std_normalization(true),
                "zca_whitening" => options.zca_whitening(true),
                "zca_epsilon" => options.zca_epsilon(value.as_f64().unwrap()),
                "rescale" => options.rescale(value.as_f64().unwrap() as f32),
                other => panic!("{other}"),
            };
        }
        let needs_fit = options.needs_fit();
        assert_eq!(options.build(shape(&golden)).is_err(), needs_fit);
        let options = options.fit(images(&golden).view()).unwrap();
        assert!(!options.needs_fit());
        for (name, got) in [
            (
                "mean",
                options.mean.as_ref().map(|mean| match mean {
                    Mean::PerChannel(mean) => mean.clone(),
                    other => panic!("{other:?}"),
                }),
            ),
            ("std", options.std.clone()),
        ] {
            assert_eq!(got.is_some(), !case[name].is_null(), "{name} in {case}");
            let expected = if got.is_some() { floats(&case[name]) } else { vec![] };
            for (got, expected) in got.unwrap_or_default().iter().zip(expected) {
                assert!((got - expected).abs() < 1e-6 * expected.abs().max(1.0), "{name}: {got} {expected}");
            }
        }
        let range = floats(&case["out"]).iter().fold(1.0_f32, |most, x| most.max(x.abs()));
        let difference = difference(&golden, &options, case);
        assert!(difference < 1e-4 * range, "{difference} of {range} in {case}");
    }
}

#[test]
fn a_function_comes_before_rescale() {
    let golden = golden();
    let options = ImageDataGenerator::new().rescale(0.25).preprocessing_function(|mut image| {
        image.mapv_inplace(|value| value * 0.5 + 3.0);
        for mut pixel in image.rows_mut() {
            pixel.swap(0, 2);
        }
    });
    for case in cases(&golden, "functions") {
        let difference = difference(&golden, &options, case);
        assert!(difference < 1e-4 * 33.0, "{difference} in {case}");
    }
}

fn bytes(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn pillow() -> Value {
    serde_json::from_str(include_str!("../../../tests/golden/augment_pillow.json")).unwrap()
}

#[test]
fn the_operations_of_rand_augment_are_pillows_to_the_bit() {
    let golden = pillow();
    let [h, w, _] = shape(&golden);
    for case in cases(&golden, "operations") {
        let x = case["magnitude"].as_f64().unwrap();
        let operation = match case["name"].as_str().unwrap() {
            "ShearX" => Operation::ShearX(x),
            "ShearY" => Operation::ShearY(x),
            "TranslateX" => Operation::TranslateX(x as i32),
            "TranslateY" => Operation::TranslateY(x as i32),
            "Rotate" => Operation::Rotate(x),
            "Brightness" => Operation::Brightness(1.0 + x),
            "Color" => Operation::Color(1.0 + x),
            "Contrast" => Operation::Contrast(1.0 + x),
            "Sharpness" => Operation::Sharpness(1.0 + x),
            "Posterize" => Operation::Posterize(x as u32),
            "Solarize" => Operation::Solarize(x),
            "AutoContrast" => Operation::AutoContrast,
            "Equalize" => Operation::Equalize,
            other => panic!("{other}"),
        };
        let c = case["channels"].as_u64().unwrap() as usize;
        let all = bytes(&golden["image"]);
        let image = if c == 3 { all } else { all.into_iter().skip(1).step_by(3).collect() };
        let mut draws = Draws::default();
        draws.operations[1] = operation;
        let pipeline = ImageDataGenerator::new().build([h, w, c]).unwrap();
        let mut out = vec![f32::NAN; image.len()];
        pipeline.apply(&draws, &image, &mut out, &mut Scratch::default()).unwrap();
        let expected = bytes(&case["out"]);
        let wrong =
            out.iter().zip(&expected).filter(|(got, expected)| **got != f32::from(**expected)).count();
        assert_eq!(wrong, 0, "{operation} of {c} channels");
    }
}

#[test]
fn resized_crops_are_pillows_but_for_its_rounding() {
    let golden = pillow();
    let pipeline = ImageDataGenerator::new().build(shape(&golden)).unwrap();
    let image = bytes(&golden["image"]);
    for case in cases(&golden, "crops") {
        let [row, column, rows, columns] = [0, 1, 2, 3].map(|k| case["crop"][k].as_u64().unwrap() as usize);
        let crop = ResizedCrop { row, column, rows, columns };
        let draws = Draws { resized_crop: Some(crop), ..Draws::default() };
        let mut out = vec![f32::NAN; image.len()];
        pipeline.apply(&draws, &image, &mut out, &mut Scratch::default()).unwrap();
        // Pillow rounds to bytes twice, once an axis.
        let near = |(got, &expected): (&f32, &u8)| (got - f32::from(expected)).abs() <= 1.01;
        assert!(out.iter().zip(&bytes(&case["out"])).all(near), "{crop:?}");
    }
}
