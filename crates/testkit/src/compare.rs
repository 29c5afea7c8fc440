use crate::{Error, Result};
use towers_program::{Device, Span, Storage};

/// How far a number may be from the one that was expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// This much in any case.
    pub absolute: f64,
    /// And this much of the largest magnitude among the expected numbers: an element that is small because large terms
    /// cancel has their rounding errors.
    pub relative: f64,
}

impl Tolerance {
    /// `absolute` plus `relative` times the largest magnitude.
    pub const fn new(absolute: f64, relative: f64) -> Self {
        Tolerance { absolute, relative }
    }
}

/// Compares numbers one by one. NaN equals nothing.
///
/// ```
/// use towers_testkit::{Tolerance, compare};
///
/// compare("y", &[1.0, 100.0], &[1.001, 100.0], Tolerance::new(0.0, 1e-4))?;
/// let error = compare("y", &[1.0, 100.0], &[1.1, 100.0], Tolerance::new(0.0, 1e-4)).unwrap_err();
/// assert!(error.to_string().starts_with("y[0] is 1e0, not 1.1e0"));
/// # Ok::<(), towers_testkit::Error>(())
/// ```
///
/// # Errors
/// [`Error::Different`] with the element that is furthest off, [`Error::Length`].
pub fn compare(name: &str, got: &[f64], expected: &[f64], tolerance: Tolerance) -> Result<()> {
    if got.len() != expected.len() {
        return Err(Error::Length { name: name.to_owned(), got: got.len(), expected: expected.len() });
    }
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let allowed = tolerance.absolute + tolerance.relative * largest;
    // A NaN is further off than anything.
    let distance = |k: usize| {
        let difference = (got[k] - expected[k]).abs();
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    let worst = (0..got.len()).max_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    match worst {
        Some(index) if distance(index) > allowed => Err(Error::Different {
            name: name.to_owned(),
            index,
            got: got[index],
            expected: expected[index],
            difference: distance(index),
            allowed,
        }),
        _ => Ok(()),
    }
}

/// Numbers of a device as f64: exactly those of the reference, and those of the others as they are in f32.
///
/// # Errors
/// What the device says.
pub fn read(device: &Device, storage: &Storage, at: Span) -> Result<Vec<f64>> {
    match storage.as_f64() {
        Some(all) => Ok(all[at.range()].to_vec()),
        None => Ok(storage.to_vec(device, at.offset, at.len)?.into_iter().map(f64::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_is_named() {
        let error = compare("w", &[1.0, 5.0, 3.0], &[1.5, 3.0, 3.0], Tolerance::new(0.1, 0.0)).unwrap_err();
        assert!(matches!(error, Error::Different { index: 1, got: 5.0, expected: 3.0, .. }), "{error}");
    }

    #[test]
    fn nan_is_never_close() {
        for (got, expected) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN)] {
            assert!(compare("w", &[0.0, got], &[0.0, expected], Tolerance::new(1e9, 1.0)).is_err());
        }
    }

    #[test]
    fn lengths_must_agree() {
        let error = compare("w", &[1.0], &[1.0, 2.0], Tolerance::new(1.0, 1.0)).unwrap_err();
        assert!(matches!(error, Error::Length { got: 1, expected: 2, .. }));
    }
}
