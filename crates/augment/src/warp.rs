//! The general affine resampler: any map, one pixel after the other.

use crate::fill::Tap;
use crate::{Affine, Error, FillMode};

/// How values between pixels and beyond the edge are found; the options of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Where points beyond the edge get their value.
    pub fill_mode: FillMode,
    /// The value beyond the edge for [`FillMode::Constant`].
    pub cval: f32,
    /// 0 for the nearest pixel, 1 for a bilinear mixture of four.
    pub interpolation_order: u8,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { fill_mode: FillMode::Nearest, cval: 0.0, interpolation_order: 1 }
    }
}

impl Sampling {
    /// The pixels that position `at` of an axis with `len` pixels reads; `None` means `cval`.
    pub(crate) fn tap(&self, at: f64, len: usize) -> Option<Tap> {
        if self.interpolation_order == 1 {
            return self.fill_mode.tap(at, len);
        }
        let low = self.fill_mode.nearest(at, len)?;
        Some(Tap { low, high: low, weight: 0.0 })
    }
}

/// Resamples `image` (HWC of `shape`) through `affine` into `out`, like SciPy's `affine_transform` of order 0 or 1 on each
/// channel.
///
/// A [`Pipeline`](crate::Pipeline) uses a faster way with the same results for shifts.
///
/// # Errors
/// [`Error::Shape`] if `image` or `out` has another length; [`Error::EmptyImage`] for a shape without
/// pixels; [`Error::Option`] if `affine` is not finite.
pub fn warp(
    image: &[f32],
    shape: [usize; 3],
    affine: &Affine,
    sampling: &Sampling,
    out: &mut [f32],
) -> Result<(), Error> {
    let [h, w, c] = shape;
    if h * w * c == 0 {
        return Err(Error::EmptyImage { shape });
    }
    Error::check_len("the image", image.len(), h * w * c)?;
    Error::check_len("the output", out.len(), h * w * c)?;
    if !affine.is_finite() {
        return Err(Error::option("affine", format!("{affine:?}"), "finite in every place"));
    }
    warp_pixels(image, shape, affine, sampling, out);
    Ok(())
}

/// As [`warp`], of bytes or floats.
pub(crate) fn warp_pixels<P: Copy + Into<f32>>(
    image: &[P],
    [h, w, c]: [usize; 3],
    affine: &Affine,
    sampling: &Sampling,
    out: &mut [f32],
) {
    // With the number of channels written down the compiler makes straight code of the loops over them.
    match c {
        1 => rows(image, [h, w, 1], affine, sampling, out),
        3 => rows(image, [h, w, 3], affine, sampling, out),
        _ => rows(image, [h, w, c], affine, sampling, out),
    }
}

#[inline(always)]
fn rows<P: Copy + Into<f32>>(
    image: &[P],
    [h, w, c]: [usize; 3],
    affine: &Affine,
    sampling: &Sampling,
    out: &mut [f32],
) {
    // Positions below these have a neighbour after them on both axes: no edge is near.
    let inner = [h, w].map(|len| (len - 1) as f64);
    let bilinear = sampling.interpolation_order == 1;
    for (y, row) in out.chunks_exact_mut(w * c).enumerate() {
        for (x, out) in row.chunks_exact_mut(c).enumerate() {
            let [at_y, at_x] = affine.at(y as f64, x as f64);
            let inside = at_y >= 0.0 && at_x >= 0.0 && at_y < inner[0] && at_x < inner[1];
            if bilinear && inside {
                let (low_y, low_x) = (at_y as i32, at_x as i32);
                let [weight_y, weight_x] =
                    [at_y - f64::from(low_y), at_x - f64::from(low_x)].map(|x| x as f32);
                let first = (low_y as usize * w + low_x as usize) * c;
                let (top, bottom) = (&image[first..][..2 * c], &image[first + w * c..][..2 * c]);
                mix([&top[..c], &top[c..], &bottom[..c], &bottom[c..]], [weight_y, weight_x], out);
                continue;
            }
            let (Some(ty), Some(tx)) = (sampling.tap(at_y, h), sampling.tap(at_x, w)) else {
                out.fill(sampling.cval);
                continue;
            };
            let pixel = |y: usize, x: usize| &image[(y * w + x) * c..][..c];
            let corners = [(ty.low, tx.low), (ty.low, tx.high), (ty.high, tx.low), (ty.high, tx.high)];
            mix(corners.map(|(y, x)| pixel(y, x)), [ty.weight, tx.weight], out);
        }
    }
}

/// The mixture of four neighbours, the upper two first.
#[inline(always)]
fn mix<P: Copy + Into<f32>>(corners: [&[P]; 4], [weight_y, weight_x]: [f32; 2], out: &mut [f32]) {
    let (top, left) = (1.0 - weight_y, 1.0 - weight_x);
    let weights = [top * left, top * weight_x, weight_y * left, weight_y * weight_x];
    for (channel, out) in out.iter_mut().enumerate() {
        let [a, b, c, d] = corners.map(|pixel| pixel[channel].into());
        *out = (weights[0] * a + weights[1] * b) + (weights[2] * c + weights[3] * d);
    }
}
