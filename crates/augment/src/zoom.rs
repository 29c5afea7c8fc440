//! The ranges of random zooms, spelled as in Keras.

use crate::Error;
use std::str::FromStr;

/// How far images are zoomed; the value of Keras' `zoom_range`. A factor below 1 shows less of the image, larger; one above 1
/// shows more than the image, smaller. Rows and columns draw a factor each.
///
/// ```
/// use towers_augment::ZoomRange;
///
/// assert_eq!(ZoomRange::from(0.2).bounds(), [0.8, 1.2]);
/// assert_eq!(ZoomRange::from([0.5, 1.0]).bounds(), [0.5, 1.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(untagged))]
pub enum ZoomRange {
    /// `z`: uniform in [1 - z, 1 + z).
    Amount(f64),
    /// `[low, high]`: uniform in [low, high).
    Bounds([f64; 2]),
}

const ACCEPTED: &str = "a number from 0 to below 1, or two positive ones of which the first is not larger";

impl Default for ZoomRange {
    fn default() -> Self {
        ZoomRange::Amount(0.0)
    }
}

impl ZoomRange {
    /// The smallest and the largest factor.
    pub fn bounds(&self) -> [f64; 2] {
        match *self {
            ZoomRange::Amount(z) => [1.0 - z, 1.0 + z],
            ZoomRange::Bounds(bounds) => bounds,
        }
    }

    /// Whether nothing is ever zoomed.
    pub(crate) fn is_off(&self) -> bool {
        self.bounds() == [1.0, 1.0]
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let [low, high] = self.bounds();
        if low > 0.0 && low <= high && high.is_finite() {
            return Ok(());
        }
        let accepted = ACCEPTED;
        match self {
            ZoomRange::Amount(z) => Err(Error::option("zoom_range", z, accepted)),
            ZoomRange::Bounds(bounds) => Err(Error::option("zoom_range", format!("{bounds:?}"), accepted)),
        }
    }
}

impl From<f64> for ZoomRange {
    fn from(z: f64) -> Self {
        ZoomRange::Amount(z)
    }
}

impl From<[f64; 2]> for ZoomRange {
    fn from(bounds: [f64; 2]) -> Self {
        ZoomRange::Bounds(bounds)
    }
}

impl FromStr for ZoomRange {
    type Err = Error;

    /// A number, or two with a comma: `0.2`, `0.8,1.1`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match *Error::numbers("zoom_range", text, ACCEPTED)? {
            [z] => Ok(ZoomRange::Amount(z)),
            [low, high] => Ok(ZoomRange::Bounds([low, high])),
            _ => Err(Error::option("zoom_range", format!("`{text}`"), ACCEPTED)),
        }
    }
}
