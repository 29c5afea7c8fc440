use crate::{Error, Result};
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The smallest and the largest height and width.
pub(crate) const SIDES: core::ops::RangeInclusive<usize> = 8..=1024;

/// Height and width of a run's images, in pixels: 32x32 unless told otherwise.
///
/// As text it is `N` for squares or `HxW`, the height first; in files a number or such a text.
///
/// ```
/// use towers_trained::ImageSize;
///
/// let size: ImageSize = "48x40".parse()?;
/// assert_eq!((size.height, size.width, size.shape(1)), (48, 40, [48, 40, 1]));
/// assert_eq!("64".parse::<ImageSize>()?.to_string(), "64x64");
/// assert!("4".parse::<ImageSize>().is_err());
/// # Ok::<(), towers_trained::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl ImageSize {
    /// What is accepted as text, in words.
    pub const ACCEPTED: &'static str = "N or HxW (height x width) of 8 to 1024 pixels, as in 64 or 48x40";

    /// The size of images of `[height, width, channels]`.
    pub fn of([height, width, _]: [usize; 3]) -> Self {
        ImageSize { height, width }
    }

    /// Height, width and channels of an image with so many of the last.
    pub fn shape(&self, channels: usize) -> [usize; 3] {
        [self.height, self.width, channels]
    }

    /// Refuses sides that are too short or too long.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check(&self) -> Result<()> {
        if SIDES.contains(&self.height) && SIDES.contains(&self.width) {
            return Ok(());
        }
        Err(refused(self))
    }
}

fn refused(value: impl fmt::Display) -> Error {
    let (least, most) = (SIDES.start(), SIDES.end());
    let accepted = format!("N or HxW (height x width) of {least} to {most} pixels, as in 64 or 48x40");
    Error::option("data.image_size", value, accepted)
}

impl Default for ImageSize {
    fn default() -> Self {
        ImageSize { height: towers_cifar::SIDE, width: towers_cifar::SIDE }
    }
}

impl fmt::Display for ImageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl FromStr for ImageSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (height, width) = text.split_once(['x', 'X']).unwrap_or((text, text));
        let side = |text: &str| text.trim().parse().map_err(|_| refused(format!("`{text}`")));
        let size = match (side(height), side(width)) {
            (Ok(height), Ok(width)) => ImageSize { height, width },
            _ => return Err(refused(format!("`{text}`"))),
        };
        size.check().map(|()| size)
    }
}

impl Serialize for ImageSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.height == self.width {
            true => serializer.serialize_u64(self.height as u64),
            false => serializer.serialize_str(&self.to_string()),
        }
    }
}

impl<'de> Deserialize<'de> for ImageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Visitor)
    }
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = ImageSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of pixels, or height and width as in \"48x40\"")
    }

    fn visit_u64<E: de::Error>(self, side: u64) -> std::result::Result<ImageSize, E> {
        self.visit_str(&side.to_string())
    }

    fn visit_i64<E: de::Error>(self, side: i64) -> std::result::Result<ImageSize, E> {
        self.visit_str(&side.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<ImageSize, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "x", "48x", "x40", "48x40x3", "7", "8x7", "1025", "-8", "8.5", "many"] {
            let error = text.parse::<ImageSize>().unwrap_err().to_string();
            assert!(error.starts_with("`data.image_size` is "), "{text}: {error}");
            assert!(
                error.ends_with(
                    "but must be N or HxW (height x width) of 8 to 1024 pixels, as in 64 or 48x40"
                ),
                "{error}"
            );
        }
        assert_eq!("8x1024".parse::<ImageSize>().unwrap(), ImageSize { height: 8, width: 1024 });
    }

    #[test]
    fn files_have_a_number_or_a_text() {
        for (json, size) in [("64", [64, 64]), ("\"64\"", [64, 64]), ("\"48x40\"", [48, 40])] {
            let read: ImageSize = serde_json::from_str(json).unwrap();
            assert_eq!([read.height, read.width], size);
        }
        let written = |height, width| serde_json::to_string(&ImageSize { height, width }).unwrap();
        assert_eq!((written(64, 64), written(48, 40)), ("64".to_owned(), "\"48x40\"".to_owned()));
        for json in ["7", "-64", "[48, 40]", "\"large\"", "null"] {
            assert!(serde_json::from_str::<ImageSize>(json).is_err(), "{json}");
        }
    }
}
