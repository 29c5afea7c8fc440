//! What was drawn for one sample.

use crate::{Affine, Error, ImageDataGenerator};
use philox::{Philox, domain};
use std::fmt;
use std::ops::Range;

/// The random decisions about one sample in one epoch. They can be printed, kept and applied again.
///
/// The default is no change at all: what evaluation uses.
///
/// ```
/// use augment::Draws;
///
/// let draws = Draws { width_shift: 1.5, horizontal_flip: true, ..Draws::default() };
/// assert_eq!(draws.to_string(), "width_shift 1.50 px, horizontal_flip");
/// assert_eq!(Draws::default().to_string(), "no change");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Draws {
    /// Rows: output row y shows input row y + `height_shift`. Keras' `tx`.
    pub height_shift: f64,
    /// Columns: output column x shows input column x + `width_shift`. Keras' `ty`.
    pub width_shift: f64,
    /// Mirrored left to right.
    pub horizontal_flip: bool,
    /// Mirrored top to bottom.
    pub vertical_flip: bool,
    /// Rows and columns, each in -padding..=padding: output row y shows row y + `crop[0]` of the image before
    /// the crop.
    pub crop: [i32; 2],
    /// The blanked square.
    pub cutout: Option<Cutout>,
}

/// A square of `side` pixels around the pixel in row `row` and column `column`, clipped at the edges.
///
/// An even square reaches one pixel further to the top and left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutout {
    /// The centre's row.
    pub row: usize,
    /// The centre's column.
    pub column: usize,
    /// The side in pixels.
    pub side: usize,
}

impl Cutout {
    /// Its rows and columns in an image of `h` by `w` pixels.
    pub(crate) fn reach(&self, [h, w]: [usize; 2]) -> [Range<usize>; 2] {
        [(self.row, h), (self.column, w)].map(|(centre, len)| {
            let start = centre.saturating_sub(self.side / 2).min(len);
            start..centre.saturating_add(self.side.div_ceil(2)).min(len)
        })
    }
}

impl Draws {
    /// The draws of `sample` in `epoch` for images of `h` by `w` pixels.
    ///
    /// Every option draws from a stream of its own, so that switching one on leaves the others' draws as
    /// they were. The numbers are not NumPy's.
    pub(crate) fn new(
        options: &ImageDataGenerator,
        [h, w]: [usize; 2],
        seed: u64,
        epoch: u64,
        sample: u32,
    ) -> Self {
        let stream = |purpose| Philox::new(seed, purpose, [epoch, u64::from(sample)]);
        let coin = |on: bool, purpose| on && stream(purpose).below(2) == 1;
        let padding = options.random_crop as u32;
        let side = options.cutout;
        Draws {
            height_shift: options.height_shift_range.draw(&mut stream(const { domain("height_shift") }), h),
            width_shift: options.width_shift_range.draw(&mut stream(const { domain("width_shift") }), w),
            horizontal_flip: coin(options.horizontal_flip, const { domain("horizontal_flip") }),
            vertical_flip: coin(options.vertical_flip, const { domain("vertical_flip") }),
            crop: if padding == 0 {
                [0, 0]
            } else {
                let mut rng = stream(const { domain("random_crop") });
                [(); 2].map(|()| rng.below(2 * padding + 1) as i32 - padding as i32)
            },
            cutout: (side > 0).then(|| {
                let mut rng = stream(const { domain("cutout") });
                let (row, column) = (rng.below(h as u32) as usize, rng.below(w as u32) as usize);
                Cutout { row, column, side }
            }),
        }
    }

    /// The affine part: which point of the input each point of the output shows.
    pub fn affine(&self) -> Affine {
        Affine::shift(self.height_shift, self.width_shift)
    }

    /// Refuses shifts that are not finite: only a caller's own draws can have them.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.height_shift.is_finite() && self.width_shift.is_finite() {
            return Ok(());
        }
        Err(Error::option("draws", self, "finite"))
    }

    /// Whether every pixel stays where it is.
    pub(crate) fn keeps_places(&self) -> bool {
        Draws { cutout: None, ..*self } == Draws::default()
    }
}

impl fmt::Display for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |text: fmt::Arguments<'_>| {
            let written = write!(f, "{separator}{text}");
            separator = ", ";
            written
        };
        if self.height_shift != 0.0 {
            part(format_args!("height_shift {:.2} px", self.height_shift))?;
        }
        if self.width_shift != 0.0 {
            part(format_args!("width_shift {:.2} px", self.width_shift))?;
        }
        if self.horizontal_flip {
            part(format_args!("horizontal_flip"))?;
        }
        if self.vertical_flip {
            part(format_args!("vertical_flip"))?;
        }
        if self.crop != [0, 0] {
            part(format_args!("crop {:+} {:+} px", self.crop[0], self.crop[1]))?;
        }
        if let Some(Cutout { row, column, side }) = self.cutout {
            part(format_args!("cutout {side}x{side} at row {row}, column {column}"))?;
        }
        if separator.is_empty() { f.write_str("no change") } else { Ok(()) }
    }
}
