//! The general affine resampler: any matrix, one pixel after the other.

use crate::{Error, FillMode};

/// A map from output to input coordinates, in (row, column): `input = matrix * output + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    /// Row-major.
    pub matrix: [[f64; 2]; 2],
    /// In pixels.
    pub offset: [f64; 2],
}

impl Affine {
    /// Output pixel (y, x) shows input point (y + `rows`, x + `columns`).
    pub fn shift(rows: f64, columns: f64) -> Self {
        Affine { matrix: [[1.0, 0.0], [0.0, 1.0]], offset: [rows, columns] }
    }

    /// The input point that output pixel (`y`, `x`) shows.
    fn at(&self, y: usize, x: usize) -> [f64; 2] {
        let (y, x) = (y as f64, x as f64);
        [0, 1].map(|axis| self.matrix[axis][0] * y + self.matrix[axis][1] * x + self.offset[axis])
    }
}

/// Resamples `image` (HWC of `shape`) through `affine` into `out`, bilinearly, like SciPy's
/// `affine_transform` of order 1 on each channel.
///
/// A [`Pipeline`](crate::Pipeline) uses a much faster way with the same results for shifts.
///
/// # Errors
/// [`Error::Shape`] if `image` or `out` has another length; [`Error::EmptyImage`] for a shape without
/// pixels; [`Error::Option`] if `affine` is not finite.
pub fn warp(
    image: &[f32],
    shape: [usize; 3],
    affine: &Affine,
    fill_mode: FillMode,
    cval: f32,
    out: &mut [f32],
) -> Result<(), Error> {
    let [h, w, c] = shape;
    if h * w * c == 0 {
        return Err(Error::EmptyImage { shape });
    }
    Error::check_len("the image", image.len(), h * w * c)?;
    Error::check_len("the output", out.len(), h * w * c)?;
    if !affine.matrix.iter().flatten().chain(&affine.offset).all(|value| value.is_finite()) {
        return Err(Error::option("affine", format!("{affine:?}"), "finite in every place"));
    }
    let pixel = |y: usize, x: usize| &image[(y * w + x) * c..][..c];
    for (place, out) in out.chunks_exact_mut(c).enumerate() {
        let [y, x] = affine.at(place / w, place % w);
        let (Some(ty), Some(tx)) = (fill_mode.tap(y, h), fill_mode.tap(x, w)) else {
            out.fill(cval);
            continue;
        };
        let (top, bottom) = (1.0 - ty.weight, ty.weight);
        let (left, right) = (1.0 - tx.weight, tx.weight);
        let corners = [
            (top * left, pixel(ty.low, tx.low)),
            (top * right, pixel(ty.low, tx.high)),
            (bottom * left, pixel(ty.high, tx.low)),
            (bottom * right, pixel(ty.high, tx.high)),
        ];
        for (channel, out) in out.iter_mut().enumerate() {
            *out = corners.iter().map(|(weight, pixel)| weight * pixel[channel]).sum();
        }
    }
    Ok(())
}
