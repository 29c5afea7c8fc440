//! What lies beyond the edge of an image: the fill modes, along one axis.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// How points outside the image get their value; Keras' `fill_mode`, and one more.
///
/// The pictures show a row `abcd` and the pixels that a *whole-pixel* shift brings in. For fractional
/// positions the modes are those of SciPy's `affine_transform`, which Keras calls, edge behaviour included:
///
/// - `Constant` does not interpolate towards `cval`: every point beyond the outermost pixel centres is `cval`.
/// - `Wrap` there has the period n - 1, not n: the first and the last pixel lie on the same point, so a
///   shift by one pixel to the right gives `cabc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum FillMode {
    /// `kkkk|abcd|kkkk` with k the option `cval`.
    Constant,
    /// `aaaa|abcd|dddd`; Keras' default.
    #[default]
    Nearest,
    /// `dcba|abcd|dcba`.
    Reflect,
    /// `abcd|abcd|abcd`; with the period n - 1 in shifts, see above.
    Wrap,
    /// `dcb|abcd|cba`: the edge is not repeated. SciPy's `mirror`, and PyTorch's padding of the name `reflect`; not in Keras.
    Mirror,
}

/// Where a position between pixels reads: `(1 - weight) * pixel[low] + weight * pixel[high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// The pixel at or before the position.
    pub low: usize,
    /// The pixel after it: the next one, or `low` itself where the weight is 0.
    pub high: usize,
    /// The share of `high`, from 0 to 1.
    pub weight: f32,
}

impl FillMode {
    /// All modes, in the order of Keras' documentation.
    pub const ALL: [FillMode; 5] =
        [FillMode::Constant, FillMode::Nearest, FillMode::Reflect, FillMode::Wrap, FillMode::Mirror];

    /// The pixels that position `at` of an axis with `len` pixels reads; `None` means `cval`.
    #[inline]
    pub(crate) fn tap(self, at: f64, len: usize) -> Option<Tap> {
        let last = (len - 1) as f64;
        let at = if (0.0..=last).contains(&at) { at } else { self.fold(at, len)? };
        let low = at as usize;
        let weight = (at - low as f64) as f32;
        // The last pixel has no right neighbour and needs none. `weight` can round up to 1 in f32.
        let high = if weight == 0.0 { low } else { low + 1 };
        Some(Tap { low, high, weight })
    }

    /// The pixel that is nearest to position `at` of an axis with `len` pixels, the later one of two; `None` means `cval`.
    pub(crate) fn nearest(self, at: f64, len: usize) -> Option<usize> {
        let last = (len - 1) as f64;
        let at = if (0.0..=last).contains(&at) { at } else { self.fold(at, len)? };
        Some(((at + 0.5) as usize).min(len - 1))
    }

    /// Brings a position outside `0..=len - 1` back into it, as SciPy does.
    pub(crate) fn fold(self, at: f64, len: usize) -> Option<f64> {
        let last = (len - 1) as f64;
        let folded = match self {
            FillMode::Constant => return None,
            FillMode::Nearest => at,
            FillMode::Reflect => {
                // The axis from half a pixel before the first centre, and its mirror image after it. The
                // half pixels at the ends mirror onto themselves: there the outermost pixel alone counts.
                let period = 2.0 * len as f64;
                let place = (at + 0.5).rem_euclid(period) - 0.5;
                if place > last + 0.5 { period - 1.0 - place } else { place }
            }
            FillMode::Wrap | FillMode::Mirror if len == 1 => 0.0,
            FillMode::Mirror => last - (at.rem_euclid(2.0 * last) - last).abs(),
            FillMode::Wrap => {
                let place = at.rem_euclid(last);
                // Both ends stand for the same point. From the left SciPy arrives at the last pixel.
                if at < 0.0 && place == 0.0 { last } else { place }
            }
        };
        Some(folded.clamp(0.0, last))
    }

    /// The pixel that whole-pixel position `at` stands for, as the pictures of the modes show; `None` means
    /// `cval`.
    #[inline]
    pub(crate) fn pixel(self, at: i64, len: usize) -> Option<usize> {
        let n = len as i64;
        let pixel = match self {
            _ if (0..n).contains(&at) => at,
            FillMode::Constant => return None,
            FillMode::Nearest => at.clamp(0, n - 1),
            FillMode::Reflect => {
                let place = at.rem_euclid(2 * n);
                place.min(2 * n - 1 - place)
            }
            FillMode::Wrap => at.rem_euclid(n),
            FillMode::Mirror if n == 1 => 0,
            FillMode::Mirror => n - 1 - (at.rem_euclid(2 * (n - 1)) - (n - 1)).abs(),
        };
        Some(pixel as usize)
    }

    /// The name that Keras uses, or SciPy.
    pub const fn name(self) -> &'static str {
        match self {
            FillMode::Constant => "constant",
            FillMode::Nearest => "nearest",
            FillMode::Reflect => "reflect",
            FillMode::Wrap => "wrap",
            FillMode::Mirror => "mirror",
        }
    }
}

impl fmt::Display for FillMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FillMode {
    type Err = Error;

    /// The mode of one of the names `constant`, `nearest`, `reflect`, `wrap` and `mirror`.
    fn from_str(name: &str) -> Result<Self, Error> {
        let found = FillMode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| {
            Error::option(
                "fill_mode",
                format!("`{name}`"),
                "`constant`, `nearest`, `reflect`, `wrap` or `mirror`",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pixels_follow_the_pictures() {
        let row = |mode: FillMode| -> String {
            let letter = |at| mode.pixel(at, 4).map_or('k', |k| ['a', 'b', 'c', 'd'][k]);
            (-4..8).map(letter).collect()
        };
        assert_eq!(row(FillMode::Constant), "kkkkabcdkkkk");
        assert_eq!(row(FillMode::Nearest), "aaaaabcddddd");
        assert_eq!(row(FillMode::Reflect), "dcbaabcddcba");
        assert_eq!(row(FillMode::Wrap), "abcdabcdabcd");
        assert_eq!(row(FillMode::Mirror), "cdcbabcdcbab");
    }

    /// Whole positions are the pixels of the picture, and those between two of them lie between these.
    #[test]
    fn a_mirror_repeats_no_edge() {
        for len in [1, 2, 3, 7] {
            for at in -20_i64..20 {
                let pixel = |at| FillMode::Mirror.pixel(at, len).unwrap();
                let tap = |at: f64| {
                    FillMode::Mirror
                        .tap(at, len)
                        .map(|tap| tap.low as f64 + f64::from(tap.weight) * (tap.high - tap.low) as f64)
                };
                assert_eq!(tap(at as f64), Some(pixel(at) as f64));
                let between = (pixel(at) + 3 * pixel(at + 1)) as f64 / 4.0;
                assert_eq!(tap(at as f64 + 0.75), Some(between), "{at} of {len}");
            }
        }
    }

    #[test]
    fn positions_stay_inside_however_far_away() {
        for mode in FillMode::ALL {
            for len in [1, 2, 3, 32] {
                for at in [-1e300, -1e9, -64.0, -1.0, -1e-17, -0.0, 0.5, 31.0, 32.0, 1e9 + 0.25, 1e300] {
                    let Some(tap) = mode.tap(at, len) else { continue };
                    assert!(tap.low < len && tap.high < len, "{mode} {at} {len}: {tap:?}");
                    assert!((0.0..=1.0).contains(&tap.weight));
                }
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for mode in FillMode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "mirrored".parse::<FillMode>().unwrap_err().to_string();
        assert!(error.contains("`mirrored`") && error.contains("`reflect`"), "{error}");
    }
}
