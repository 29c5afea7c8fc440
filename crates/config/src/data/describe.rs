//! Data in words.

use crate::{Config, ImageSize};
use towers_dataset::{Dataset, Split};
use towers_trained::{split_name, thousands};

/// With more classes than this, some are listed for all.
const LISTED: usize = 10;

/// The data of a run, in lines: first the data set with its numbers of images, as in `CIFAR-10 (50000 training, 10000 test images)`;
/// then the classes of each split with theirs, as in `3 classes: cat 120, dog 118, fox 12`.
///
/// ```
/// use towers_config::{Config, describe_data};
///
/// let lines = describe_data(&Config::default(), &towers_cifar::synthetic(1, 100, 10));
/// assert_eq!(lines[0], "synthetic (100 training, 10 test images)");
/// assert!(lines[1].starts_with("10 classes: 10 images each of disc, ring, "));
/// ```
pub fn describe_data(config: &Config, data: &Dataset) -> Vec<String> {
    let validation_split = config.training.augmentation.validation_split;
    let (size, [_, _, channels]) = (ImageSize::of(data.train.shape()), data.train.shape());
    let at = if size == ImageSize::default() { String::new() } else { format!(" at {size}") };
    let grey = if channels == 1 { " in grey" } else { "" };
    let count = data.classes.len();
    let s = if count == 1 { "" } else { "es" };
    let mut lines = vec![
        format!("{}{at}{grey} ({})", data.name, images(data, validation_split)),
        format!("{} class{s}: {}", thousands(count), counted(&data.train, &data.classes)),
    ];
    let held_back = validation_split > 0.0;
    let test = Some(&data.test).filter(|_| !held_back || split_name(data) == "test");
    let splits = [("validation", data.validation.as_ref().filter(|_| !held_back)), (split_name(data), test)];
    for (name, split) in splits {
        lines.extend(split.map(|split| format!("{name}: {}", counted(split, &data.classes))));
    }
    lines
}

/// The number of images and, for a folder, the source of the validation images.
fn images(data: &Dataset, validation_split: f64) -> String {
    let (train, test) = (data.train.len(), data.test.len());
    match (&data.validation_from, validation_split) {
        (None, _) => {
            let validation = data.validation.as_ref().map(|split| format!(" {} validation,", split.len()));
            format!("{train} training,{} {test} test images", validation.unwrap_or_default())
        }
        (Some(from), 0.0) => {
            let validation = data.validation.as_ref().map_or(test, |split| split.len());
            format!("{train} training images, {validation} validation images {from}")
        }
        (Some(_), share) => format!("{train} training images, a share of {share} of them for validation"),
    }
}

/// The classes of a split with their numbers of images; of many classes, the first ones.
fn counted(split: &Split, classes: &[String]) -> String {
    let counts = split.class_counts(classes.len());
    let (least, most) =
        (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let alike = least == most;
    let shown = if classes.len() > LISTED { LISTED - 2 } else { classes.len() };
    let class = |(name, count): (&String, &usize)| match alike {
        true => name.clone(),
        false => format!("{name} {}", thousands(*count)),
    };
    let mut listed = classes.iter().zip(&counts).take(shown).map(class).collect::<Vec<_>>().join(", ");
    if shown < classes.len() {
        listed += &format!(" and {} more", thousands(classes.len() - shown));
        if !alike {
            listed += &format!(", of {} to {} images each", thousands(least), thousands(most));
        }
    }
    if alike { format!("{} images each of {listed}", thousands(least)) } else { listed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_listed_and_shortened() {
        let mut data = towers_cifar::synthetic(1, 100, 9);
        let config = Config::default();
        assert_eq!(
            describe_data(&config, &data)[1..],
            [
                "10 classes: 10 images each of disc, ring, square, frame, triangle, plus, cross, \
                 horizontal_stripes, vertical_stripes, checkerboard",
                "test: disc 1, ring 1, square 1, frame 1, triangle 1, plus 1, cross 1, horizontal_stripes 1, \
                 vertical_stripes 1, checkerboard 0",
            ]
        );
        data.classes.extend(["cat".into(), "dog".into()]);
        let line = &describe_data(&config, &data)[1];
        assert!(line.starts_with("12 classes: disc 10, ring 10, "), "{line}");
        assert!(line.ends_with(" and 4 more, of 0 to 10 images each"), "{line}");
    }
}
