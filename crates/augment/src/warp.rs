//! The general affine resampler: any map.
//!
//! A row of the output is made in loops that each do one thing: where its pixels lie along the input's rows and along its columns,
//! several at a time, then their mixtures, all channels of a pixel at once.

use crate::FillMode;
use crate::affine::Affine;
use crate::fill::Tap;
use crate::many::{Float as _, floor, greater, lesser};

/// How values between pixels and beyond the edge are found; the options of the same names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    /// Where points beyond the edge get their value.
    pub(crate) fill_mode: FillMode,
    /// The value beyond the edge for [`FillMode::Constant`].
    pub(crate) cval: f32,
    /// 0 for the nearest pixel, 1 for a bilinear mixture of four.
    pub(crate) interpolation_order: u8,
}

impl Sampling {
    /// The pixels that position `at` of an axis with `len` pixels reads; `None` means `cval`.
    #[inline]
    pub(crate) fn tap(&self, at: f64, len: usize) -> Option<Tap> {
        if self.interpolation_order == 1 {
            return self.fill_mode.tap(at, len);
        }
        let low = self.fill_mode.nearest(at, len)?;
        Some(Tap { low, high: low, weight: 0.0 })
    }
}

/// Channels of a pixel that are mixed at once; there may be fewer, and the values after them are ignored.
type Group = [f32; 4];

/// Reusable memory for warps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warper {
    image: Vec<Group>,
    rows: Track,
    columns: Track,
}

impl Warper {
    /// Memory that need not grow for images of `h` by `w` pixels.
    pub(crate) fn for_size(h: usize, w: usize) -> Self {
        let mut warper = Warper::default();
        warper.resize(h, w);
        warper
    }

    fn resize(&mut self, h: usize, w: usize) {
        // After the last pixel, too, neighbours are read: a row and one more, with weight 0.
        self.image.resize(h * w + w + 1, Group::default());
        self.image[h * w..].fill(Group::default());
        self.rows.resize(w);
        self.columns.resize(w);
    }

    /// Resamples `image` (HWC of `shape`) through `affine` into `out`, like SciPy's `affine_transform` of order 0 or 1
    /// on each channel.
    pub(crate) fn apply<P: Copy + Into<f32>>(
        &mut self,
        image: &[P],
        shape: [usize; 3],
        affine: &Affine,
        sampling: &Sampling,
        out: &mut [f32],
    ) {
        let [h, w, c] = shape;
        self.resize(h, w);
        match c {
            1 => self.warp_channels::<1, P>(image, shape, 0, affine, sampling, out),
            3 => self.warp_channels::<3, P>(image, shape, 0, affine, sampling, out),
            _ => {
                let whole = c / 4 * 4;
                for first in (0..whole).step_by(4) {
                    self.warp_channels::<4, P>(image, shape, first, affine, sampling, out);
                }
                for first in whole..c {
                    self.warp_channels::<1, P>(image, shape, first, affine, sampling, out);
                }
            }
        }
    }

    /// The `N` channels from the `first` one on.
    fn warp_channels<const N: usize, P: Copy + Into<f32>>(
        &mut self,
        image: &[P],
        [h, w, c]: [usize; 3],
        first: usize,
        affine: &Affine,
        sampling: &Sampling,
        out: &mut [f32],
    ) {
        for (group, pixel) in self.image.iter_mut().zip(image.chunks_exact(c)) {
            for (to, &from) in group[..N].iter_mut().zip(&pixel[first..]) {
                *to = from.into();
            }
        }
        for (y, out) in out.chunks_exact_mut(w * c).enumerate() {
            let [at_y, at_x] = affine.at(y as f64, 0.0);
            self.rows.find(at_y, affine.matrix[0][1], h, sampling);
            self.columns.find(at_x, affine.matrix[1][1], w, sampling);
            let pixels = out.chunks_exact_mut(c).filter_map(|pixel| pixel[first..].first_chunk_mut());
            self.mix_row::<N>(w, pixels);
            if sampling.fill_mode == FillMode::Constant {
                let beyond = self.rows.beyond(h).zip(self.columns.beyond(w)).map(|(y, x)| y || x);
                let pixels = out.chunks_exact_mut(c).zip(beyond).filter(|(_, beyond)| *beyond);
                pixels.for_each(|(pixel, _)| pixel[first..][..N].fill(sampling.cval));
            }
        }
    }

    fn mix_row<'a, const N: usize>(&self, w: usize, pixels: impl Iterator<Item = &'a mut [f32; N]>) {
        for (((low_y, weight_y), (low_x, weight_x)), out) in
            self.rows.taps().zip(self.columns.taps()).zip(pixels)
        {
            let near = &self.image[low_y * w + low_x..][..w + 2];
            let mixed = mix([near[0], near[1], near[w], near[w + 1]], [weight_y, weight_x]);
            out.copy_from_slice(&mixed[..N]);
        }
    }
}

/// Where the pixels of an output row lie along one axis of the input.
#[derive(Clone, Debug, Default)]
struct Track {
    at: Vec<f64>,
    /// The pixels before.
    low: Vec<u32>,
    /// Of the pixels after those.
    weight: Vec<f32>,
}

impl Track {
    fn resize(&mut self, len: usize) {
        self.at.resize(len, 0.0);
        self.low.resize(len, 0);
        self.weight.resize(len, 0.0);
    }

    /// Pixels from position `first` on, `step` apart, of an axis with `len` pixels. Those that mean `cval` get the edge's value.
    fn find(&mut self, first: f64, step: f64, len: usize, sampling: &Sampling) {
        let last = (len - 1) as f64;
        (0_u32..).zip(&mut self.at).for_each(|(x, at)| *at = first + step * f64::from(x));
        // To these two modes the limits below are enough.
        if !matches!(sampling.fill_mode, FillMode::Nearest | FillMode::Constant) {
            for at in self.at.iter_mut().filter(|at| !(0.0..=last).contains(*at)) {
                *at = sampling.fill_mode.fold(*at, len).unwrap_or(*at);
            }
        }
        let before_last = len.saturating_sub(2) as f64;
        let taps = self.low.iter_mut().zip(&mut self.weight);
        for (&at, (low, weight)) in self.at.iter().zip(taps) {
            let at = lesser(greater(at, 0.0), last);
            let at = if sampling.interpolation_order == 1 { at } else { lesser(floor(at + 0.5), last) };
            // The last pixel is the second of the last two.
            let below = lesser(floor(at), before_last);
            *low = (below + f64::WHOLE).to_bits() as u32;
            *weight = (at - below) as f32;
        }
    }

    /// The pixel before each point and the weight of the one after it.
    fn taps(&self) -> impl Iterator<Item = (usize, f32)> {
        self.low.iter().zip(&self.weight).map(|(&low, &weight)| (low as usize, weight))
    }

    /// Which points lie beyond the outermost of `len` pixels.
    fn beyond(&self, len: usize) -> impl Iterator<Item = bool> {
        let last = (len - 1) as f64;
        self.at.iter().map(move |at| !(0.0..=last).contains(at))
    }
}

/// The mixture of four neighbours, the upper two first.
fn mix([a, b, c, d]: [Group; 4], [weight_y, weight_x]: [f32; 2]) -> Group {
    let (top, left) = (1.0 - weight_y, 1.0 - weight_x);
    let weights = [top * left, top * weight_x, weight_y * left, weight_y * weight_x];
    std::array::from_fn(|k| (weights[0] * a[k] + weights[1] * b[k]) + (weights[2] * c[k] + weights[3] * d[k]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draws, ImageDataGenerator, Scratch};
    use proptest::prelude::*;
    use serde_json::Value;

    fn warp(image: &[f32], shape: [usize; 3], affine: &Affine, sampling: &Sampling) -> Vec<f32> {
        let mut out = vec![f32::NAN; image.len()];
        Warper::default().apply(image, shape, affine, sampling, &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn the_fast_way_and_the_general_resampler_agree(
            h in 1..9_usize, w in 1..9_usize, c in 1..5_usize, rows in -20.0..20.0_f64,
            columns in -20.0..20.0_f64, mode in proptest::sample::select(FillMode::ALL.to_vec()), whole: bool,
            order in 0..2_u8,
        ) {
            let (rows, columns) = if whole { (rows.round(), columns.round()) } else { (rows, columns) };
            let image: Vec<u8> = (0..h * w * c).map(|k| (k * 83 % 256) as u8).collect();
            let options = ImageDataGenerator::new().fill_mode(mode).cval(-3.0).interpolation_order(order);
            let pipeline = options.build([h, w, c]).unwrap();
            let draws = Draws { height_shift: rows, width_shift: columns, ..Draws::default() };
            let mut out = vec![f32::NAN; image.len()];
            pipeline.apply(&draws, &image, &mut out, &mut Scratch::default()).unwrap();
            let floats: Vec<f32> = image.iter().copied().map(f32::from).collect();
            let sampling = Sampling { fill_mode: mode, cval: -3.0, interpolation_order: order };
            let expected = warp(&floats, [h, w, c], &Affine::shift(rows, columns), &sampling);
            for (got, expected) in out.iter().zip(&expected) {
                prop_assert!((got - expected).abs() < 1e-3, "{} {}", got, expected);
            }
        }
    }

    /// `tests/golden/augment.py` made the values, with keras_preprocessing 1.1.2 and SciPy.
    #[test]
    fn shifts_are_scipys() {
        let golden = include_str!("../../../tests/golden/augment.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        let floats = |value: &Value| -> Vec<f32> {
            value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
        };
        let shape @ [h, w, c] = [0, 1, 2].map(|axis| golden["shape"][axis].as_u64().unwrap() as usize);
        let images = floats(&golden["images"]);
        let shifts = golden["geometry"].as_array().unwrap().iter().filter(|case| case["name"] == "shift");
        let mut count = 0;
        for case in shifts {
            let number = |name: &str| case[name].as_f64().unwrap();
            let sample = case["sample"].as_u64().unwrap_or(0) as usize;
            let affine = Affine::shift(number("height_shift"), number("width_shift"));
            let fill_mode = case["fill_mode"].as_str().unwrap().parse().unwrap();
            let sampling = Sampling { fill_mode, cval: number("cval") as f32, interpolation_order: 1 };
            let out = warp(&images[sample * h * w * c..][..h * w * c], shape, &affine, &sampling);
            let expected = floats(&case["out"]);
            assert_eq!(out.len(), expected.len());
            for (place, (got, expected)) in out.iter().zip(&expected).enumerate() {
                let near = (got - expected).abs() <= 1e-6 * 255.0 + 6e-6;
                assert!(near, "value {place}: {got}, not {expected}, in {case}");
            }
            count += 1;
        }
        assert!(count > 0);
    }

    /// One pixel after the other, by the taps of its position.
    fn slowly(image: &[f32], [h, w, c]: [usize; 3], affine: &Affine, sampling: &Sampling) -> Vec<f32> {
        let pixel = |k: usize| {
            let [at_y, at_x] = affine.at((k / w) as f64, (k % w) as f64);
            let taps = sampling.tap(at_y, h).zip(sampling.tap(at_x, w));
            (0..c).map(move |channel| {
                let Some((y, x)) = taps else { return sampling.cval };
                let at = |y: usize, x: usize| image[(y * w + x) * c + channel];
                let row = |y: usize| at(y, x.low) * (1.0 - x.weight) + at(y, x.high) * x.weight;
                row(y.low) * (1.0 - y.weight) + row(y.high) * y.weight
            })
        };
        (0..h * w).flat_map(pixel).collect()
    }

    #[test]
    fn rows_at_once_equal_pixel_after_pixel() {
        let turned = Draws { rotation: 40.0, shear: 9.0, zoom: [1.7, 0.6], ..Draws::default() };
        for shape @ [h, w, c] in [[7, 9, 3], [5, 4, 1], [3, 6, 6], [1, 8, 4], [8, 1, 2], [1, 1, 5]] {
            let image: Vec<f32> = (0..h * w * c).map(|k| (k * 37 % 256) as f32).collect();
            let whole = Affine { matrix: [[1.0, 0.0], [0.0, -1.0]], offset: [1.0, w as f64] };
            let edge = Affine::shift(h as f64 - 1.0, 0.25);
            for affine in [turned.affine([h, w]), whole, edge] {
                for (fill_mode, interpolation_order) in
                    FillMode::ALL.map(|mode| [(mode, 0), (mode, 1)]).concat()
                {
                    let sampling = Sampling { fill_mode, cval: -3.0, interpolation_order };
                    let out = warp(&image, shape, &affine, &sampling);
                    let expected = slowly(&image, shape, &affine, &sampling);
                    let near = out.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-3);
                    assert!(near, "{shape:?} {affine:?} {sampling:?}: {out:?} is not {expected:?}");
                }
            }
        }
    }

    #[test]
    fn memory_of_a_larger_image_leaves_no_trace() {
        let sampling = Sampling { fill_mode: FillMode::Nearest, cval: 0.0, interpolation_order: 1 };
        let affine = Affine::shift(0.5, 0.5);
        let mut used = Warper::for_size(4, 4);
        used.apply(&[f32::INFINITY; 16], [4, 4, 1], &affine, &sampling, &mut [0.0; 16]);
        let mut out = [0.0; 2];
        used.apply(&[2.0_f32, 4.0], [1, 2, 1], &affine, &sampling, &mut out);
        assert_eq!(out, [3.0, 4.0]);
    }
}
