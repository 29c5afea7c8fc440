//! How pictures of any size get the height and width of the images.

use crate::scale::{Part, scale_part};
use std::fmt;
use std::str::FromStr;

/// How a picture is brought to a height and width.
///
/// As text it is `stretch`, `shorter-side`, or `shorter-side:N`.
///
/// ```
/// use towers_dataset::Resize;
///
/// // torchvision's Resize(256) and CenterCrop(224).
/// assert_eq!("shorter-side".parse(), Ok(Resize::ShorterSide(None)));
/// assert_eq!(Resize::ShorterSide(None).scaled([500, 375], [224, 224]), [341, 256]);
/// assert_eq!("shorter-side:232".parse::<Resize>().map(|resize| resize.scaled([375, 500], [224, 224])), Ok([232, 309]));
/// assert_eq!(Resize::Stretch.scaled([375, 500], [224, 224]), [224, 224]);
/// assert!("longer-side".parse::<Resize>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resize {
    /// Rows and columns are scaled by themselves, as Keras' `image_dataset_from_directory` does.
    #[default]
    Stretch,
    /// The shorter side gets so many pixels, and the longer one as many more as it had. Then the middle is cut out, as torchvision's
    /// `Resize` and `CenterCrop` do. Without a number it is an eighth of what it becomes more than the image: 256 for images of 224.
    ShorterSide(Option<usize>),
}

impl Resize {
    /// The accepted texts, in words.
    pub const ACCEPTED: &'static str =
        "stretch, shorter-side, or shorter-side:N with N pixels, as in shorter-side:256";

    /// Height and width of a picture before the middle of it is cut out: at least those of the image.
    pub fn scaled(self, [height, width]: [usize; 2], image: [usize; 2]) -> [usize; 2] {
        let Resize::ShorterSide(side) = self else { return image };
        let least = image[0].max(image[1]);
        let side = side.unwrap_or(least * 8 / 7).max(least);
        let longer = |long: usize, short: usize| side * long / short.max(1);
        match width <= height {
            true => [longer(height, width), side],
            false => [side, longer(width, height)],
        }
    }

    /// Scales the pixels `from` of `old` height and width into `to`, of `new` height and width. A pixel has `CHANNELS` bytes.
    ///
    /// ```
    /// let mut wide = [0; 4];
    /// towers_dataset::Resize::Stretch.apply::<1>(&[0, 200], [1, 2], [1, 4], &mut wide);
    /// assert_eq!(wide, [0, 50, 150, 200]);
    /// ```
    ///
    /// # Panics
    /// If `from` or `to` has another length.
    pub fn apply<const CHANNELS: usize>(self, from: &[u8], old: [usize; 2], new: [usize; 2], to: &mut [u8]) {
        let scaled = self.scaled(old, new);
        // As Python rounds: halves to the even number.
        let at = [0, 1].map(|axis| {
            let beyond = scaled[axis] - new[axis];
            let half = beyond / 2;
            half + usize::from(beyond % 2 == 1 && half % 2 == 1)
        });
        scale_part::<CHANNELS>(from, old, Part { scaled, at, size: new }, to);
    }
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resize::Stretch => f.write_str("stretch"),
            Resize::ShorterSide(None) => f.write_str("shorter-side"),
            Resize::ShorterSide(Some(side)) => write!(f, "shorter-side:{side}"),
        }
    }
}

impl FromStr for Resize {
    type Err = &'static str;

    /// The error has the accepted texts.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match (text, text.strip_prefix("shorter-side:").map(str::parse)) {
            ("stretch", _) => Ok(Resize::Stretch),
            ("shorter-side", _) => Ok(Resize::ShorterSide(None)),
            (_, Some(Ok(side @ 1..=4096))) => Ok(Resize::ShorterSide(Some(side))),
            _ => Err(Resize::ACCEPTED),
        }
    }
}
