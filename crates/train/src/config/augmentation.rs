//! The options of [`ImageDataGenerator`](augment::ImageDataGenerator), whose fields are their keys.

use super::forms::of_augment;
use augment::{FillMode, RandAugment, RandomResizedCrop, ShiftRange, ZoomRange};
use options::{Kind, Opt, Refused, Table};
use serde_json::{Value, json};

pub(super) const TABLE: Table = Table { key: "augmentation", options: OPTIONS, begins: None };

const fn option(name: &'static str, flag: &'static str, kind: Kind, help: &'static str) -> Opt {
    Opt::new(name, kind, help).with_flag(flag).under("Augmentation")
}

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

const OPTIONS: &[Opt] = &[
    option("rotation_range", "--rotation-range DEGREES", Kind::Number, "Rotate by up to DEGREES degrees"),
    option(
        "width_shift_range",
        "--width-shift-range R",
        SHIFT,
        "Shift horizontally: 0.1 for up to a tenth of the width, 4 for less than 4 whole pixels, 4.0 for up to 4 pixels, 0,2 for 0 or 2 pixels",
    ),
    option(
        "height_shift_range",
        "--height-shift-range R",
        SHIFT,
        "Shift vertically, with the values of --width-shift-range",
    ),
    option("shear_range", "--shear-range DEGREES", Kind::Number, "Shear by up to DEGREES degrees"),
    option(
        "zoom_range",
        "--zoom-range Z|LOW,HIGH",
        Kind::form(of_augment::<ZoomRange>, "a number or a list of two"),
        "Zoom by factors of 1-Z to 1+Z, or of LOW to HIGH",
    ),
    option(
        "channel_shift_range",
        "--channel-shift-range X",
        Kind::Number,
        "Shift all values, which are from 0 to 255, by up to X",
    ),
    option(
        "brightness_range",
        "--brightness-range LOW,HIGH",
        Kind::form(bounds, "a list of 2 numbers"),
        "Multiply the brightness by a factor from LOW to HIGH; the values are stretched to 0..255 first",
    ),
    option(
        "fill_mode",
        "--fill-mode MODE",
        FILL,
        "Pixels beyond the edge: constant, nearest, reflect, wrap or mirror (PyTorch's reflect, which does not repeat the edge)",
    ),
    option("cval", "--cval X", Kind::Number, "The value beyond the edge with --fill-mode constant"),
    option(
        "interpolation_order",
        "--interpolation-order N",
        Kind::Between(0, 1),
        "0 for the nearest pixel, 1 for bilinear interpolation",
    ),
    option(
        "horizontal_flip",
        "--horizontal-flip BOOL",
        Kind::Switch,
        "Mirror half of the images left to right",
    ),
    option("vertical_flip", "--vertical-flip BOOL", Kind::Switch, "Mirror half of the images top to bottom"),
    option(
        "alternating_flip",
        "--alternating-flip BOOL",
        Kind::Switch,
        "Mirror every image left to right in every second epoch",
    ),
    option(
        "random_crop",
        "--random-crop N",
        Kind::Whole(0),
        "Pad by N pixels and crop to the original size at a random place",
    ),
    option(
        "random_resized_crop",
        "--random-resized-crop LOW,HIGH[,NARROW,WIDE]",
        CROP,
        "Crop a part with LOW to HIGH of the area and resize it to the original size; by default 0.08 to 1",
    ),
    option("cutout", "--cutout N", Kind::Whole(0), "Erase a square of N pixels per side"),
    option(
        "rand_augment",
        "--rand-augment OPS,MAGNITUDE",
        RAND_AUGMENT,
        "RandAugment: OPS operations of strength MAGNITUDE, below 31; by default 2,9",
    ),
    option(
        "mixup",
        "--mixup ALPHA",
        Kind::Number,
        "Mixup: mix pairs of images and labels, with weights from Beta(ALPHA, ALPHA)",
    ),
    option(
        "cutmix",
        "--cutmix ALPHA",
        Kind::Number,
        "CutMix: paste a rectangle of another image, with a share of the area from Beta(ALPHA, ALPHA)",
    ),
    option(
        "rescale",
        "--rescale X",
        Kind::Number,
        "Multiply every value, instead of the recipe's division by 255",
    ),
    option(
        "featurewise_center",
        "--featurewise-center BOOL",
        Kind::Switch,
        "Subtract each channel's mean over the training images",
    ),
    option(
        "featurewise_std_normalization",
        "--featurewise-std-normalization BOOL",
        Kind::Switch,
        "Divide by each channel's standard deviation over the training images",
    ),
    option("samplewise_center", "--samplewise-center BOOL", Kind::Switch, "Subtract each image's own mean"),
    option(
        "samplewise_std_normalization",
        "--samplewise-std-normalization BOOL",
        Kind::Switch,
        "Divide by each image's own standard deviation",
    ),
    option(
        "zca_whitening",
        "--zca-whitening BOOL",
        Kind::Switch,
        "ZCA whitening, which decorrelates the values of an image; takes minutes to start",
    ),
    option(
        "zca_epsilon",
        "--zca-epsilon X",
        Kind::Number,
        "The number that is added to the eigenvalues of the covariance in --zca-whitening",
    ),
    Opt::new(
        "validation_split",
        Kind::Number,
        "Hold back this share of the training images for validation, instead of the test images",
    )
    .with_flag("--validation-split SHARE"),
    Opt::new("preprocess", Kind::Any, "The preprocessing before the augmentation, for library users"),
    Opt::new("mean", Kind::Any, "A given mean instead of a measured one, for library users"),
    Opt::new("std", Kind::Any, "A given standard deviation instead of a measured one, for library users"),
    Opt::new("whitening", Kind::Any, "A given whitening instead of a measured one, for library users"),
];

fn fill_mode(text: &str) -> Result<Value, Refused> {
    of_augment::<FillMode>(text).map_err(|refused| match refused {
        Refused::MustBe(accepted) => {
            let near = options::hint(text, ["constant", "nearest", "reflect", "wrap", "mirror"]);
            Refused::MustBe(format!("{accepted}{near}"))
        }
        because => because,
    })
}

/// Two numbers separated by a comma.
fn bounds(text: &str) -> Result<Value, Refused> {
    let two = text
        .split_once(',')
        .and_then(|(low, high)| Some([low.trim().parse::<f64>().ok()?, high.trim().parse().ok()?]));
    two.map(|two| json!(two))
        .ok_or_else(|| Refused::MustBe("two numbers with a comma, as in 0.5,1.5".to_owned()))
}
