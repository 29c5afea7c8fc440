//! The classes of a data set, with the number of images of each.

use towers_config::Config;
use towers_dataset::{Dataset, Split};
use towers_trained::{split_name, thousands};

/// With more classes than this, some are listed for all.
const LISTED: usize = 10;

/// A line for each split: `3 classes: cat 120, dog 118, fox 12`.
pub fn lines(config: &Config, data: &Dataset) -> Vec<String> {
    let count = data.classes.len();
    let s = if count == 1 { "" } else { "es" };
    let mut lines = vec![format!("{} class{s}: {}", thousands(count), counted(&data.train, &data.classes))];
    let held_back = config.training.augmentation.validation_split > 0.0;
    let test = Some(&data.test).filter(|_| !held_back || split_name(data) == "test");
    let splits = [("validation", data.validation.as_ref().filter(|_| !held_back)), (split_name(data), test)];
    for (name, split) in splits {
        lines.extend(split.map(|split| format!("{name}: {}", counted(split, &data.classes))));
    }
    lines
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
    use towers_train::cifar;

    #[test]
    fn counts_are_listed_and_shortened() {
        let mut data = cifar::synthetic(1, 100, 9);
        let config = Config::default();
        assert_eq!(
            lines(&config, &data),
            [
                "10 classes: 10 images each of disc, ring, square, frame, triangle, plus, cross, \
                 horizontal_stripes, vertical_stripes, checkerboard",
                "test: disc 1, ring 1, square 1, frame 1, triangle 1, plus 1, cross 1, horizontal_stripes 1, \
                 vertical_stripes 1, checkerboard 0",
            ]
        );
        data.classes.extend(["cat".into(), "dog".into()]);
        let line = &lines(&config, &data)[0];
        assert!(line.starts_with("12 classes: disc 10, ring 10, "), "{line}");
        assert!(line.ends_with(" and 4 more, of 0 to 10 images each"), "{line}");
    }
}
