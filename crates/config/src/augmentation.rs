//! The options of [`ImageDataGenerator`](towers_augment::ImageDataGenerator), whose fields are their keys.

use crate::forms::of_augment;
use serde_json::{Value, json};
use towers_augment::{Compose, Error, FillMode, RandAugment, RandomResizedCrop, ShiftRange, ZoomRange};
use towers_options::{Kind, Refused, Table, options};

pub(crate) const TABLE: Table = Table { key: "augmentation", options: OPTIONS, begins: None };

const SHIFT: Kind = Kind::form(of_augment::<ShiftRange>, "a number or a list of two");
const FILL: Kind = Kind::form(fill_mode, "one of constant, nearest, reflect, wrap, mirror");
const CROP: Kind = Kind::Form {
    parse: of_augment::<RandomResizedCrop>,
    accepted: "a table of scale and ratio",
    bare: Some("0.08,1"),
};
const RAND_AUGMENT: Kind = Kind::Form {
    parse: of_augment::<RandAugment>,
    accepted: "a table of num_ops and magnitude",
    bare: Some("2,9"),
};
const STEP: Kind = Kind::form(step, "an augmentation, as in color-jitter:brightness=0.4,p=0.8");

options! {
    const OPTIONS {
        ["Augmentation"]
        /// Rotate by up to DEGREES degrees
        rotation_range: Kind::Number, "--rotation-range DEGREES";
        /// Shift horizontally: 0.1 for up to a tenth of the width, 4 for less than 4 whole pixels, 4.0 for up to 4 pixels, 0,2 for 0 or 2 pixels
        width_shift_range: SHIFT, "--width-shift-range R";
        /// Shift vertically, with the values of --width-shift-range
        height_shift_range: SHIFT, "--height-shift-range R";
        /// Shear by up to DEGREES degrees
        shear_range: Kind::Number, "--shear-range DEGREES";
        /// Zoom by factors of 1-Z to 1+Z, or of LOW to HIGH
        zoom_range: Kind::form(of_augment::<ZoomRange>, "a number or a list of two"), "--zoom-range Z|LOW,HIGH";
        /// Shift all values, which are from 0 to 255, by up to X
        channel_shift_range: Kind::Number, "--channel-shift-range X";
        /// Multiply the brightness by a factor from LOW to HIGH; the values are stretched to 0..255 first
        brightness_range: Kind::form(bounds, "a list of 2 numbers"), "--brightness-range LOW,HIGH";
        /// Pixels beyond the edge: constant, nearest, reflect, wrap or mirror (PyTorch's reflect, which does not repeat the edge)
        fill_mode: FILL, "--fill-mode MODE";
        /// The value beyond the edge with --fill-mode constant
        cval: Kind::Number, "--cval X";
        /// 0 for the nearest pixel, 1 for bilinear interpolation
        interpolation_order: Kind::Between(0, 1), "--interpolation-order N";
        /// Mirror half of the images left to right
        horizontal_flip: Kind::Switch, "--horizontal-flip BOOL";
        /// Mirror half of the images top to bottom
        vertical_flip: Kind::Switch, "--vertical-flip BOOL";
        /// Mirror every image left to right in every second epoch
        alternating_flip: Kind::Switch, "--alternating-flip BOOL";
        /// Pad by N pixels and crop to the original size at a random place
        random_crop: Kind::Whole(0), "--random-crop N";
        /// Crop a part with LOW to HIGH of the area and resize it to the original size; by default 0.08 to 1
        random_resized_crop: CROP, "--random-resized-crop LOW,HIGH[,NARROW,WIDE]";
        /// Erase a square of N pixels per side
        cutout: Kind::Whole(0), "--cutout N";
        /// RandAugment: OPS operations of strength MAGNITUDE, below 31; by default 2,9
        rand_augment: RAND_AUGMENT, "--rand-augment OPS,MAGNITUDE";
        /// Augmentations before all others, in this order, each with a probability p: trivial-augment-wide+random-erasing:p=0.25. The names and keys are torchvision's
        compose: Kind::List(&STEP, Some('+')), "--compose STEP+...";
        /// Mixup: mix pairs of images and labels, with weights from Beta(ALPHA, ALPHA)
        mixup: Kind::Number, "--mixup ALPHA";
        /// CutMix: paste a rectangle of another image, with a share of the area from Beta(ALPHA, ALPHA)
        cutmix: Kind::Number, "--cutmix ALPHA";
        /// Multiply every value, instead of the recipe's division by 255
        rescale: Kind::Number, "--rescale X";
        /// Subtract each channel's mean over the training images
        featurewise_center: Kind::Switch, "--featurewise-center BOOL";
        /// Divide by each channel's standard deviation over the training images
        featurewise_std_normalization: Kind::Switch, "--featurewise-std-normalization BOOL";
        /// Subtract each image's own mean
        samplewise_center: Kind::Switch, "--samplewise-center BOOL";
        /// Divide by each image's own standard deviation
        samplewise_std_normalization: Kind::Switch, "--samplewise-std-normalization BOOL";
        /// ZCA whitening, which decorrelates the values of an image; takes minutes to start
        zca_whitening: Kind::Switch, "--zca-whitening BOOL";
        /// The number that is added to the eigenvalues of the covariance in --zca-whitening
        zca_epsilon: Kind::Number, "--zca-epsilon X";
        [""]
        /// Hold back this share of the training images for validation, instead of the test images
        validation_split: Kind::Number, "--validation-split SHARE";
        /// The preprocessing before the augmentation, for library users
        preprocess: Kind::Any;
        /// Reverse the channels to blue, green, red, for library users; --preprocessing caffe does so too
        reverse_channels: Kind::Switch;
        /// A given mean instead of a measured one, for library users
        mean: Kind::Any;
        /// A given standard deviation instead of a measured one, for library users
        std: Kind::Any;
        /// A given whitening instead of a measured one, for library users
        whitening: Kind::Any;
    }
}

fn fill_mode(text: &str) -> Result<Value, Refused> {
    of_augment::<FillMode>(text).map_err(|refused| match refused {
        Refused::MustBe(accepted) => {
            let near = towers_options::hint(text, ["constant", "nearest", "reflect", "wrap", "mirror"]);
            Refused::MustBe(accepted.and(near))
        }
        because => because,
    })
}

/// The text of a step of a `Compose`, with its values that are not the default. A wrong name or key gets a similar one.
fn step(text: &str) -> Result<Value, Refused> {
    text.parse::<Compose>().map(|compose| json!(compose.to_string())).map_err(|error| match error {
        Error::Option { value, accepted, .. } => {
            let words = accepted.split([' ', ',', ':']).filter(|word| word.len() > 2 && !value.contains('='));
            let near = towers_options::hint(value.trim_matches('`'), words);
            Refused::MustBe(format!("{accepted}{near}").into())
        }
        other => Refused::Because(other.to_string().into()),
    })
}

/// Two numbers separated by a comma.
fn bounds(text: &str) -> Result<Value, Refused> {
    let two = text
        .split_once(',')
        .and_then(|(low, high)| Some([low.trim().parse::<f64>().ok()?, high.trim().parse().ok()?]));
    two.map(|two| json!(two)).ok_or_else(|| Refused::MustBe("two numbers with a comma, as in 0.5,1.5".into()))
}

#[cfg(test)]
mod tests {
    use crate::{Config, recipe};

    #[test]
    fn lists_of_augmentations_are_read_saved_and_refused() {
        let mut config = recipe("quick").unwrap();
        let flags = ["color-jitter:brightness=0.4+random_erasing:value=random", "trivial-augment-wide:p=0.5"];
        config.set_text("augmentation.compose", &flags).unwrap();
        config.check().unwrap();
        let saved = serde_json::to_value(&config).unwrap();
        let list =
            ["color-jitter:brightness=0.4", "random-erasing:value=random", "trivial-augment-wide:p=0.5"];
        assert_eq!(saved["augmentation"]["compose"], serde_json::json!(list));
        assert_eq!(serde_json::from_value::<Config>(saved).unwrap().training, config.training);
        for (text, says) in [
            ("color-jiter", "did you mean `color-jitter`?"),
            ("trivial-augment", "did you mean `trivial-augment-wide`?"),
            (
                "color-jitter:hu=0.1",
                "a key of color-jitter: brightness, contrast, saturation, hue, p; did you mean `hue`?",
            ),
            ("color-jitter:hue=red", "must be a number or two, as in 0.4 or 0.6/1.2"),
        ] {
            let error = config.set_text("augmentation.compose", &[text]).unwrap_err().to_string();
            assert!(error.starts_with("`augmentation.compose` is `") && error.ends_with(says), "{error}");
        }
        config.set_text("augmentation.compose", &["color-jitter:hue=0.7"]).unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains("`augmentation.compose` is `color-jitter:hue=0.7`"), "{error}");
    }
}
