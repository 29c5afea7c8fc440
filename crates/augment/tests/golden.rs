//! Against keras_preprocessing 1.1.2 and SciPy: `tests/golden/augment.py` made the values.

use ndarray::Array4;
use serde_json::Value;
use towers_augment::{Draws, FillMode, ImageDataGenerator, Mean, Scratch, engine::Patches};

pub fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

pub fn shape(golden: &Value) -> [usize; 3] {
    [0, 1, 2].map(|axis| golden["shape"][axis].as_u64().unwrap() as usize)
}

pub fn images(golden: &Value) -> Array4<u8> {
    let [h, w, c] = shape(golden);
    let bytes: Vec<u8> = floats(&golden["images"]).iter().map(|&x| x as u8).collect();
    Array4::from_shape_vec((bytes.len() / (h * w * c), h, w, c), bytes).unwrap()
}

struct Golden(Value);

impl Golden {
    fn load() -> Self {
        Golden(serde_json::from_str(include_str!("../../../tests/golden/augment.json")).unwrap())
    }

    fn shape(&self) -> [usize; 3] {
        shape(&self.0)
    }

    fn images(&self) -> Array4<u8> {
        images(&self.0)
    }

    fn image(&self, case: &Value) -> Vec<u8> {
        let sample = case["sample"].as_u64().unwrap_or(0) as usize;
        self.images().outer_iter().nth(sample).unwrap().iter().copied().collect()
    }

    fn cases(&self, group: &str, name: Option<&str>) -> Vec<Value> {
        let all = self.0[group].as_array().unwrap().iter();
        let found: Vec<Value> =
            all.filter(|case| name.is_none_or(|name| case["name"] == name)).cloned().collect();
        assert!(!found.is_empty());
        found
    }
}

fn draws(case: &Value) -> Draws {
    Draws {
        height_shift: case["height_shift"].as_f64().unwrap(),
        width_shift: case["width_shift"].as_f64().unwrap(),
        horizontal_flip: case["horizontal_flip"].as_bool().unwrap(),
        vertical_flip: case["vertical_flip"].as_bool().unwrap(),
        ..Draws::default()
    }
}

fn fill(case: &Value) -> (FillMode, f32) {
    (case["fill_mode"].as_str().unwrap().parse().unwrap(), case["cval"].as_f64().unwrap() as f32)
}

fn run(options: &ImageDataGenerator, golden: &Golden, case: &Value) -> Vec<f32> {
    let (mode, cval) = fill(case);
    let pipeline = options.clone().fill_mode(mode).cval(cval).build(golden.shape()).unwrap();
    let mut out = vec![f32::NAN; pipeline.image_len()];
    pipeline.apply(&draws(case), &golden.image(case), &mut out, &mut Scratch::default()).unwrap();
    out
}

/// `range` is the span of the values: the tolerance is 1e-4 of it at most, here far less.
fn assert_close(got: &[f32], case: &Value, range: f32) {
    let expected = floats(&case["out"]);
    assert_eq!(got.len(), expected.len());
    for (place, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let error = (got - expected).abs();
        assert!(error <= 1e-6 * range + 6e-6, "value {place}: {got}, not {expected}, in {case}");
    }
}

#[test]
fn shifts_and_flips_in_every_fill_mode() {
    let golden = Golden::load();
    for case in golden.cases("geometry", None) {
        assert_close(&run(&ImageDataGenerator::new(), &golden, &case), &case, 255.0);
    }
}

#[test]
fn mean_subtracted_before_the_augmentation() {
    let golden = Golden::load();
    let mean = Mean::per_pixel(golden.images().view()).unwrap();
    let [h, w, c] = golden.shape();
    let Mean::PerPixel { shape, values } = &mean else { panic!("{mean:?}") };
    assert_eq!(*shape, [h, w, c]);
    assert_eq!(*values, floats(&golden.0["mean"]));
    let options = ImageDataGenerator::new().subtract_mean_first(mean);
    for case in golden.cases("flows", Some("mean first")) {
        assert_close(&run(&options, &golden, &case), &case, 255.0);
    }
}

#[test]
fn divided_by_255_is_rescale() {
    let golden = Golden::load();
    for case in golden.cases("flows", Some("divided by 255")) {
        assert_close(&run(&ImageDataGenerator::new().rescale(1.0 / 255.0), &golden, &case), &case, 1.0);
    }
}

#[test]
fn featurewise_center_after_fit() {
    let golden = Golden::load();
    let options = ImageDataGenerator::new().featurewise_center(true).rescale(1.0 / 127.5);
    let options = options.fit(golden.images().view()).unwrap();
    let Some(Mean::PerChannel(mean)) = &options.mean else { panic!("{options:?}") };
    for (got, expected) in mean.iter().zip(floats(&golden.0["channel_mean"])) {
        assert!((got - expected).abs() < 1e-5, "{got} {expected}");
    }
    for case in golden.cases("flows", Some("featurewise_center")) {
        assert_close(&run(&options, &golden, &case), &case, 2.0);
    }
}

/// `tests/golden/whitening.py` made the values, with PyTorch.
#[test]
fn filters_that_whiten_patches() {
    let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/whitening.json")).unwrap();
    let (images, expected) = (floats(&golden["images"]), floats(&golden["kernel"]));
    let mut patches = Patches::new([6, 5, 3], [2, 2]);
    images.chunks(6 * 5 * 3).for_each(|image| patches.add(image).unwrap());
    let kernel = patches.whitening(golden["epsilon"].as_f64().unwrap()).unwrap();
    assert_eq!(kernel.len(), expected.len());
    for (k, (got, expected)) in kernel.iter().zip(&expected).enumerate() {
        assert!((got - expected).abs() < 1e-5 * expected.abs().max(1.0), "{k}: {got}, not {expected}");
    }
    assert!(Patches::new([6, 5, 3], [2, 2]).whitening(0.1).is_err());
}
