//! Test-time augmentation: several views of an image, of whose predictions the weighted mean counts.

use crate::{Draws, Error};
use std::fmt;
use std::str::FromStr;

/// Which views of an image a network is shown in evaluation. The weighted mean of its probabilities for them counts.
///
/// ```
/// use towers_augment::TestTime;
///
/// assert_eq!("flip".parse::<TestTime>()?.views().len(), 2);
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TestTime {
    /// The image alone.
    #[default]
    None,
    /// The image and its mirror image.
    Flip,
    /// Both, and both moved by a pixel to the upper left and to the lower right, over edges filled by `fill_mode`: six views, of
    /// which the two that are not moved count for half, as in K. Jordan's airbench. (There scores are averaged, before softmax.)
    FlipTranslate,
}

impl TestTime {
    /// All kinds.
    pub const ALL: [TestTime; 3] = [TestTime::None, TestTime::Flip, TestTime::FlipTranslate];

    /// What makes the views of an image, to be given to [`Pipeline::apply`](crate::Pipeline::apply), and how much each counts: 1
    /// in all.
    pub fn views(self) -> Vec<(Draws, f32)> {
        let moves: &[(i32, f32)] = match self {
            TestTime::FlipTranslate => &[(0, 0.5), (-1, 0.25), (1, 0.25)],
            _ => &[(0, 1.0)],
        };
        let flips: &[bool] = if self == TestTime::None { &[false] } else { &[false, true] };
        let view = |&(by, weight): &(i32, f32), horizontal_flip| {
            (Draws { crop: [by, by], horizontal_flip, ..Draws::default() }, weight / flips.len() as f32)
        };
        moves.iter().flat_map(|by| flips.iter().map(move |&flip| view(by, flip))).collect()
    }

    /// Its name: `none`, `flip` or `flip-translate`.
    pub const fn name(self) -> &'static str {
        match self {
            TestTime::None => "none",
            TestTime::Flip => "flip",
            TestTime::FlipTranslate => "flip-translate",
        }
    }
}

impl fmt::Display for TestTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TestTime {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = TestTime::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Error::option("tta", format!("`{name}`"), "`none`, `flip` or `flip-translate`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_differ_and_the_first_is_the_image() {
        for (kind, count) in [(TestTime::None, 1), (TestTime::Flip, 2), (TestTime::FlipTranslate, 6)] {
            let views = kind.views();
            assert_eq!(views.len(), count);
            assert_eq!(views[0].0, Draws::default());
            assert_eq!(views.iter().map(|(_, weight)| weight).sum::<f32>(), 1.0);
            assert!((1..count).all(|k| !views[..k].contains(&views[k])));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("flips".parse::<TestTime>().is_err());
    }
}
