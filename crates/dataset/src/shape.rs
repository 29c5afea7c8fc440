//! Height, width and channels of images.

use crate::error::{Error, Result};

/// Colour channels of most images: red, green, blue.
pub const CHANNELS: usize = 3;

/// The greatest height and width of an image that is decoded, or resized to.
pub const MOST_ASIDE: u32 = 16_384;

/// Refuses a height and width that no image can be resized to, and channels other than 1 and 3.
///
/// ```
/// assert!(towers_dataset::check_shape([224, 224, 3]).is_ok());
/// assert!(towers_dataset::check_shape([224, 0, 3]).is_err());
/// ```
///
/// # Errors
/// [`Error::Size`] and [`Error::Channels`].
pub fn check_shape([height, width, channels]: [usize; 3]) -> Result<()> {
    if ![1, CHANNELS].contains(&channels) {
        return Err(Error::Channels { channels });
    }
    let sides = 1..=MOST_ASIDE as usize;
    match sides.contains(&height) && sides.contains(&width) {
        true => Ok(()),
        false => Err(Error::Size { height, width, most: MOST_ASIDE }),
    }
}
