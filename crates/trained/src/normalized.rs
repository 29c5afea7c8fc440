//! The preprocessing for a network that normalizes pixels by itself.

use crate::Preprocessing;
use towers_models::{Architecture, Normalization};

/// A mean or a deviation above this is none of values from 0 to 1.
const MOST_OF_UNIT: f64 = 1.5;

impl Preprocessing {
    /// The preprocessing for a network that normalizes pixels by itself, and why, as a sentence: the numbers
    /// of its first layers tell whether they are for values from 0 to 255 or from 0 to 1. `None` for other
    /// networks.
    ///
    /// ```
    /// use towers_trained::Preprocessing;
    ///
    /// let network = |scale: f64, offset: f64| -> towers_models::Architecture {
    ///     let first = serde_json::json!([{"class": "Rescaling", "scale": scale, "offset": offset}]);
    ///     serde_json::from_value(first).expect("these are layers")
    /// };
    /// let of_bytes = Preprocessing::of(&network(1.0 / 58.4, -123.7 / 58.4)).unwrap();
    /// assert_eq!(of_bytes.0, Preprocessing::None);
    /// let of_unit = Preprocessing::of(&network(1.0 / 0.247, -0.49 / 0.247)).unwrap();
    /// assert_eq!(of_unit.0, Preprocessing::DivideBy255);
    /// assert_eq!(
    ///     of_unit.1,
    ///     "the network normalizes pixels by itself, with a mean of 0.49 and a deviation of 0.247, as for values from 0 to 1"
    /// );
    /// assert!(Preprocessing::of(&network(1.0, 0.0)).is_none());
    /// ```
    pub fn of(network: &Architecture) -> Option<(Preprocessing, String)> {
        let Normalization { mean, deviation } = network.normalization()?;
        let (preprocessing, most) = match mean > MOST_OF_UNIT || deviation > MOST_OF_UNIT {
            true => (Preprocessing::None, 255),
            false => (Preprocessing::DivideBy255, 1),
        };
        let [mean, deviation] = [mean, deviation].map(shown);
        let why = format!(
            "the network normalizes pixels by itself, with a mean of {mean} and a deviation of {deviation}, as for values from \
             0 to {most}"
        );
        Some((preprocessing, why))
    }

    /// Its name, as in files.
    pub fn name(self) -> &'static str {
        match self {
            Preprocessing::None => "none",
            Preprocessing::DivideBy255 => "divide-by-255",
            Preprocessing::SubtractPixelMean => "subtract-pixel-mean",
            Preprocessing::Standardize => "standardize",
            Preprocessing::Caffe => "caffe",
            Preprocessing::Tf => "tf",
            Preprocessing::Torch => "torch",
        }
    }
}

/// A number with three digits.
fn shown(number: f64) -> String {
    let digits = (2 - number.abs().max(1e-9).log10().floor() as i32).clamp(0, 12);
    let rounded = format!("{number:.*}", usize::try_from(digits).unwrap_or_default());
    match rounded.contains('.') {
        true => rounded.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The constants of networks that people have.
    #[test]
    fn constants_tell_the_range_of_pixels() {
        use Preprocessing::{DivideBy255, None as Bytes};
        for (scale, offset, expected, says) in [
            // torchvision's for ImageNet and CIFAR-10, of values from 0 to 1, and times 255.
            (
                json!([4.367, 4.464, 4.444]),
                json!([-2.118, -2.036, -1.804]),
                DivideBy255,
                "0.485 and a deviation of 0.229",
            ),
            (json!(1.0 / 0.247), json!(-0.49 / 0.247), DivideBy255, "0.49 and a deviation of 0.247"),
            (json!(1.0 / 62.9), json!(-125.3 / 62.9), Bytes, "125 and a deviation of 62.9"),
            // Keras' adapted or given variance of 0.06.
            (json!(1.0 / 0.06_f64.sqrt()), json!(-0.49 / 0.06_f64.sqrt()), DivideBy255, "deviation of 0.245"),
            // To 0 to 1, to -1 to 1, and centred alone.
            (json!(1.0 / 255.0), json!(0.0), Bytes, "a mean of 0 and a deviation of 255"),
            (json!(1.0 / 127.5), json!(-1.0), Bytes, "128"),
            (json!(2.0), json!(-1.0), DivideBy255, "0.5"),
            (json!(1.0), json!(-0.5), DivideBy255, "0.5 and a deviation of 1,"),
            (json!(1.0), json!(-117.0), Bytes, "117"),
            // Back to 0 to 255, and then the mean of ImageNet.
            (json!(255.0), json!(-123.7), DivideBy255, "0.485 and a deviation of 0.00392"),
            // Dark pictures of 0 to 255: no values from 0 to 1 deviate so much.
            (json!(0.5), json!(-0.6), Bytes, "1.2 and a deviation of 2"),
        ] {
            let layers =
                json!([{"class": "Rescaling", "scale": scale, "offset": offset}, {"class": "Flatten"}]);
            let (found, why) = Preprocessing::of(&serde_json::from_value(layers).unwrap()).unwrap();
            assert!(found == expected && why.contains(says), "{scale} {offset}: {found:?}, {why}");
        }
    }
}
