use crate::{Error, Result};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The channels of a run's images, by Keras' names.
///
/// ```
/// use towers_trained::ColorMode;
///
/// assert_eq!((ColorMode::Grayscale.channels(), ColorMode::of(3)), (1, Some(ColorMode::Rgb)));
/// assert_eq!(ColorMode::Grayscale.to_string(), "grayscale");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorMode {
    /// Red, green and blue. Grey pictures have three equal channels.
    Rgb,
    /// Grey alone, as Pillow's `convert("L")` makes it of colours.
    Grayscale,
}

impl ColorMode {
    /// All names, as in files.
    pub const NAMES: [&'static str; 2] = ["rgb", "grayscale"];

    /// The channels of an image: 3 or 1.
    pub fn channels(self) -> usize {
        match self {
            ColorMode::Rgb => towers_dataset::CHANNELS,
            ColorMode::Grayscale => 1,
        }
    }

    /// The one of this number of channels.
    pub fn of(channels: usize) -> Option<Self> {
        [ColorMode::Rgb, ColorMode::Grayscale].into_iter().find(|mode| mode.channels() == channels)
    }

    /// Refuses images of other channels than the network takes. `name` is the network's, as in a sentence.
    ///
    /// # Errors
    /// [`Error::Option`] with the one that fits.
    pub fn check(given: usize, name: &str, taken: usize) -> Result<()> {
        if given == taken {
            return Ok(());
        }
        let word = |channels| {
            ColorMode::of(channels).map_or_else(|| format!("{channels} channels"), |mode| mode.to_string())
        };
        let accepted = format!("{}, since {name} takes images of {}", word(taken), counted(taken));
        Err(Error::option("data.color_mode", word(given), accepted))
    }
}

/// `1 channel`, or `3 channels`.
pub(crate) fn counted(channels: usize) -> String {
    format!("{channels} channel{}", if channels == 1 { "" } else { "s" })
}

impl fmt::Display for ColorMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ColorMode::NAMES[*self as usize])
    }
}
