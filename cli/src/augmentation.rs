//! The flags of the augmentation, spelled as Keras spells them.

use crate::args::one_of;
use train::augment::{FillMode, ImageDataGenerator, RandAugment, RandomResizedCrop, ShiftRange, ZoomRange};

/// What happens to training images. Each flag overrides one option of the recipe's augmentation.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Augmentation")]
pub struct AugmentationArgs {
    /// Begin without the random steps of the recipe's augmentation
    #[arg(long)]
    pub no_augmentation: bool,
    /// Rotate by up to so many degrees
    #[arg(long, value_name = "DEGREES", allow_hyphen_values = true)]
    pub rotation_range: Option<f64>,
    /// Shift sideways: 0.1 for a tenth of the width, 4 for whole pixels below 4, 4.0 for up to 4 pixels, 0,2 for one of these
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub width_shift_range: Option<ShiftRange>,
    /// Shift up and down, as --width-shift-range
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    pub height_shift_range: Option<ShiftRange>,
    /// Shear by up to so many degrees
    #[arg(long, value_name = "DEGREES", allow_hyphen_values = true)]
    pub shear_range: Option<f64>,
    /// Zoom by factors of 1-Z to 1+Z, or of LOW to HIGH
    #[arg(long, value_name = "Z|LOW,HIGH", allow_hyphen_values = true)]
    pub zoom_range: Option<ZoomRange>,
    /// Add up to so much, of 255, to all values
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub channel_shift_range: Option<f64>,
    /// Multiply the brightness by a factor between these; the image is stretched to 0..255 first
    #[arg(long, value_name = "LOW,HIGH", allow_hyphen_values = true, value_parser = bounds)]
    pub brightness_range: Option<[f64; 2]>,
    /// Beyond the edge: constant, nearest, reflect, wrap or mirror (reflect without the edge twice, as PyTorch pads)
    #[arg(long, value_name = "MODE", value_parser = fill_mode)]
    pub fill_mode: Option<FillMode>,
    /// The value beyond the edge with --fill-mode constant
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub cval: Option<f32>,
    /// 0 for the nearest pixel, 1 for a bilinear mixture
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub interpolation_order: Option<u8>,
    /// Mirror half of the images left to right
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub horizontal_flip: Option<bool>,
    /// Mirror half of the images top to bottom
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub vertical_flip: Option<bool>,
    /// Mirror every image left to right in exactly every second epoch
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub alternating_flip: Option<bool>,
    /// Pad by N pixels and cut out an image of the old size
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub random_crop: Option<usize>,
    /// Cut out a part of LOW to HIGH of the area and enlarge it; by default of 0.08 to 1
    #[arg(long, value_name = "LOW,HIGH[,NARROW,WIDE]", num_args = 0..=1, default_missing_value = "0.08,1")]
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// Blank a square of N pixels
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub cutout: Option<usize>,
    /// RandAugment: OPS operations of strength MAGNITUDE, of 31; by default 2,9
    #[arg(long, value_name = "OPS,MAGNITUDE", num_args = 0..=1, default_missing_value = "2,9")]
    pub rand_augment: Option<RandAugment>,
    /// Mix images and labels in pairs, in shares from Beta(ALPHA, ALPHA)
    #[arg(long, value_name = "ALPHA", allow_hyphen_values = true)]
    pub mixup: Option<f64>,
    /// Put a rectangle of another image into each, its share from Beta(ALPHA, ALPHA)
    #[arg(long, value_name = "ALPHA", allow_hyphen_values = true)]
    pub cutmix: Option<f64>,
    /// Multiply every value, in the place of the recipe's division by 255
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub rescale: Option<f32>,
    /// Subtract each channel's mean over the training images
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub featurewise_center: Option<bool>,
    /// Divide by each channel's deviation over the training images
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub featurewise_std_normalization: Option<bool>,
    /// Subtract each image's own mean
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub samplewise_center: Option<bool>,
    /// Divide by each image's own deviation
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub samplewise_std_normalization: Option<bool>,
    /// Decorrelate the values of an image; takes minutes to begin
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub zca_whitening: Option<bool>,
    /// What is added to the eigenvalues of the covariance
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub zca_epsilon: Option<f64>,
}

impl AugmentationArgs {
    /// Overrides whatever the flags name.
    pub fn apply(&self, options: &mut ImageDataGenerator) {
        if self.no_augmentation {
            // What is done to every image, in evaluation too, is no augmentation; nor is what is held back.
            *options = options.evaluation().validation_split(options.validation_split);
        }
        set(&mut options.rotation_range, &self.rotation_range);
        set(&mut options.width_shift_range, &self.width_shift_range);
        set(&mut options.height_shift_range, &self.height_shift_range);
        set(&mut options.shear_range, &self.shear_range);
        set(&mut options.zoom_range, &self.zoom_range);
        set(&mut options.channel_shift_range, &self.channel_shift_range);
        options.brightness_range = self.brightness_range.or(options.brightness_range);
        set(&mut options.fill_mode, &self.fill_mode);
        set(&mut options.cval, &self.cval);
        set(&mut options.interpolation_order, &self.interpolation_order);
        set(&mut options.horizontal_flip, &self.horizontal_flip);
        set(&mut options.vertical_flip, &self.vertical_flip);
        set(&mut options.alternating_flip, &self.alternating_flip);
        set(&mut options.random_crop, &self.random_crop);
        options.random_resized_crop = self.random_resized_crop.or(options.random_resized_crop);
        set(&mut options.cutout, &self.cutout);
        options.rand_augment = self.rand_augment.or(options.rand_augment);
        set(&mut options.mixup, &self.mixup);
        set(&mut options.cutmix, &self.cutmix);
        options.rescale = self.rescale.or(options.rescale);
        set(&mut options.featurewise_center, &self.featurewise_center);
        set(&mut options.featurewise_std_normalization, &self.featurewise_std_normalization);
        set(&mut options.samplewise_center, &self.samplewise_center);
        set(&mut options.samplewise_std_normalization, &self.samplewise_std_normalization);
        set(&mut options.zca_whitening, &self.zca_whitening);
        set(&mut options.zca_epsilon, &self.zca_epsilon);
    }
}

fn fill_mode(text: &str) -> Result<FillMode, String> {
    one_of(text, &["constant", "nearest", "reflect", "wrap", "mirror"])
}

/// Two numbers with a comma.
fn bounds(text: &str) -> Result<[f64; 2], String> {
    let two = text
        .split_once(',')
        .and_then(|(low, high)| Some([low.trim().parse().ok()?, high.trim().parse().ok()?]));
    two.ok_or_else(|| "two numbers with a comma are needed, as in 0.5,1.5".to_owned())
}

fn set<T: Clone>(field: &mut T, flag: &Option<T>) {
    if let Some(value) = flag {
        field.clone_from(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn options(flags: &str) -> Result<ImageDataGenerator, clap::Error> {
        let line = ["towers", "preview"].into_iter().chain(flags.split_whitespace());
        let Command::Preview(args) = Args::try_parse_from(line)?.command else { panic!("preview") };
        let mut options = ImageDataGenerator::new().width_shift_range(0.1).horizontal_flip(true);
        args.augmentation.apply(&mut options);
        Ok(options)
    }

    #[test]
    fn flags_override_what_they_name_and_no_more() {
        let new = ImageDataGenerator::new;
        let recipe = || new().width_shift_range(0.1).horizontal_flip(true);
        for (flags, expected) in [
            ("", recipe()),
            ("--rotation-range 15 --zoom-range 0.2", recipe().rotation_range(15.0).zoom_range(0.2)),
            ("--horizontal-flip false --vertical-flip", recipe().horizontal_flip(false).vertical_flip(true)),
            ("--no-augmentation --width-shift-range 0,4", new().width_shift_range([0, 4])),
            ("--width-shift-range 3 --cval -1 --fill-mode constant", {
                recipe().width_shift_range(3).cval(-1.0).fill_mode(FillMode::Constant)
            }),
            ("--brightness-range 0.5,1.5", recipe().brightness_range([0.5, 1.5])),
            ("--rand-augment --random-resized-crop", {
                recipe().rand_augment(RandAugment::default()).random_resized_crop(RandomResizedCrop {
                    scale: [0.08, 1.0],
                    ..RandomResizedCrop::default()
                })
            }),
            ("--rand-augment 1,5 --cutout 8 --rescale 0.5", {
                let policy = RandAugment { num_ops: 1, magnitude: 5, ..RandAugment::default() };
                recipe().rand_augment(policy).cutout(8).rescale(0.5)
            }),
            ("--mixup 0.2 --zca-whitening --zca-epsilon 0.1", {
                recipe().mixup(0.2).zca_whitening(true).zca_epsilon(0.1)
            }),
        ] {
            assert_eq!(options(flags).unwrap(), expected, "{flags}");
        }
    }

    #[test]
    fn what_is_not_random_stays_without_augmentation() {
        let line = ["towers", "preview", "--no-augmentation", "--cutout", "8"];
        let Command::Preview(args) = Args::try_parse_from(line).unwrap().command else { panic!("preview") };
        let steps = || ImageDataGenerator::new().featurewise_center(true).featurewise_std_normalization(true);
        let mut options =
            steps().rescale(0.5).random_crop(2).horizontal_flip(true).mixup(0.2).validation_split(0.25);
        args.augmentation.apply(&mut options);
        assert_eq!(options, steps().rescale(0.5).cutout(8).validation_split(0.25));
    }

    #[test]
    fn bad_values_name_the_flag_and_what_is_accepted() {
        for (flags, says) in [
            ("--zoom-range much", ["--zoom-range", "`much`"]),
            ("--fill-mode mirrored", ["--fill-mode", "`mirror`"]),
            ("--width-shift-range 1,b", ["--width-shift-range", "`1,b`"]),
            ("--rand-augment 2", ["--rand-augment", "2,9"]),
            ("--random-resized-crop 1", ["--random-resized-crop", "two shares"]),
        ] {
            let error = options(flags).unwrap_err().to_string();
            assert!(says.iter().all(|part| error.contains(part)), "{flags}: {error}");
        }
    }
}
