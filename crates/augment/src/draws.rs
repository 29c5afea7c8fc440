//! The random decisions about a sample.

use crate::erased::{Erased, Show};
use crate::resized_crop::ResizedCrop;
use crate::{Drawn, Error, Operation};
use std::fmt;
use std::ops::Range;

/// The random decisions about one sample in one epoch. They can be printed, kept and applied again.
///
/// The default changes nothing, as in evaluation.
///
/// ```
/// use towers_augment::Draws;
///
/// let draws = Draws { width_shift: 1.5, horizontal_flip: true, ..Draws::default() };
/// assert_eq!(draws.to_string(), "width_shift 1.50 px, horizontal_flip");
/// assert_eq!(Draws::default().to_string(), "no change");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Draws {
    /// The draws of each step of a [`Compose`](crate::Compose). None of them is none for each.
    pub composed: Vec<Draws>,
    /// Operations on bytes, one after the other.
    pub operations: [Operation; Draws::OPERATIONS],
    /// What happens to the bytes then.
    pub effect: Option<Drawn>,
    /// In degrees, counterclockwise on the screen for the content. Keras' `theta`.
    pub rotation: f64,
    /// Rows: output row y shows input row y + `height_shift`. Keras' `tx`.
    pub height_shift: f64,
    /// Columns: output column x shows input column x + `width_shift`. Keras' `ty`.
    pub width_shift: f64,
    /// In degrees.
    pub shear: f64,
    /// The factors of rows and columns; below 1 the content grows. Keras' `zx` and `zy`.
    pub zoom: [f64; 2],
    /// What is added to every value, within the image's range.
    pub channel_shift: f64,
    /// Mirrored left to right.
    pub horizontal_flip: bool,
    /// Mirrored top to bottom.
    pub vertical_flip: bool,
    /// The factor on the image stretched to 0..=255.
    pub brightness: Option<f64>,
    /// Rows and columns, each in -padding..=padding: output row y shows row y + `crop[0]` of the image before
    /// the crop.
    pub crop: [i32; 2],
    /// The part that fills the image.
    pub resized_crop: Option<ResizedCrop>,
    /// The blanked square.
    pub cutout: Option<Cutout>,
    /// The rectangle that is erased from the network's input, after the standardization.
    pub erased: Option<Erased>,
}

impl Default for Draws {
    fn default() -> Self {
        Draws {
            composed: Vec::new(),
            operations: [Operation::Identity; Draws::OPERATIONS],
            effect: None,
            rotation: 0.0,
            height_shift: 0.0,
            width_shift: 0.0,
            shear: 0.0,
            zoom: [1.0, 1.0],
            channel_shift: 0.0,
            horizontal_flip: false,
            vertical_flip: false,
            brightness: None,
            crop: [0, 0],
            resized_crop: None,
            cutout: None,
            erased: None,
        }
    }
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
    /// The most operations.
    pub const OPERATIONS: usize = 4;

    /// Refuses numbers that are not finite, those of operations beyond what fixed point holds, and places
    /// outside of an image of `h` by `w` pixels. Only draws that a caller made can have them.
    pub(crate) fn check(&self, [h, w]: [usize; 2]) -> Result<(), Error> {
        let numbers = [self.rotation, self.height_shift, self.width_shift, self.shear, self.channel_shift];
        let more = [self.zoom[0], self.zoom[1], self.brightness.unwrap_or(0.0)];
        if !numbers.iter().chain(&more).all(|number| number.is_finite()) {
            return Err(Error::option("draws", self, "finite"));
        }
        const MOST: f64 = (1 << 24) as f64;
        if !self.operations.iter().all(|operation| operation.number().abs() <= MOST) {
            return Err(Error::option("draws", self, format!("with operations by {MOST} at most")));
        }
        if let Some(erased) = &self.erased {
            erased.check([h, w])?;
        }
        match self.resized_crop {
            Some(crop) if !crop.fits([h, w]) => {
                Err(Error::option("draws", self, format!("a crop of some pixels inside {h} x {w}")))
            }
            _ => Ok(()),
        }
    }

    /// Draws of these operations, [`Draws::OPERATIONS`] at most.
    pub(crate) fn of(operations: &[Operation]) -> Self {
        let mut draws = Draws::default();
        draws.operations.iter_mut().zip(operations).for_each(|(to, &operation)| *to = operation);
        draws
    }

    /// Whether anything was drawn for the time before the standardization.
    pub(crate) fn change(&self) -> bool {
        *self != Draws { erased: self.erased.clone(), ..Draws::default() }
    }

    /// Erases all rectangles from `input` (HWC of `shape`), those of a [`Compose`](crate::Compose) first.
    pub(crate) fn erase(&self, shape: [usize; 3], input: &mut [f32], show: Show) {
        self.composed.iter().for_each(|step| step.erase(shape, input, show));
        if let Some(erased) = &self.erased {
            erased.apply(shape, input, show);
        }
    }

    /// Whether values change, but for where they stand, before the standardization.
    pub(crate) fn recolors(&self) -> bool {
        self.channel_shift != 0.0 || self.brightness.is_some()
    }

    /// Whether every pixel stays where it is, `crop` and `resized_crop` aside.
    pub(crate) fn keeps_places(&self) -> bool {
        !self.warps()
            && [self.height_shift, self.width_shift] == [0.0, 0.0]
            && !self.horizontal_flip
            && !self.vertical_flip
    }
}

impl fmt::Display for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut part = |on: bool, text: fmt::Arguments<'_>| {
            if !on {
                return Ok(());
            }
            let written = write!(f, "{separator}{text}");
            separator = ", ";
            written
        };
        for step in self.composed.iter().filter(|step| **step != Draws::default()) {
            part(true, format_args!("{step}"))?;
        }
        for operation in self.operations {
            part(operation != Operation::Identity, format_args!("{operation}"))?;
        }
        if let Some(effect) = &self.effect {
            part(true, format_args!("{effect}"))?;
        }
        part(self.rotation != 0.0, format_args!("rotation {:.2} degrees", self.rotation))?;
        part(self.height_shift != 0.0, format_args!("height_shift {:.2} px", self.height_shift))?;
        part(self.width_shift != 0.0, format_args!("width_shift {:.2} px", self.width_shift))?;
        part(self.shear != 0.0, format_args!("shear {:.2} degrees", self.shear))?;
        part(self.zoom != [1.0, 1.0], format_args!("zoom {:.2} {:.2}", self.zoom[0], self.zoom[1]))?;
        part(self.channel_shift != 0.0, format_args!("channel_shift {:+.2}", self.channel_shift))?;
        part(self.horizontal_flip, format_args!("horizontal_flip"))?;
        part(self.vertical_flip, format_args!("vertical_flip"))?;
        if let Some(factor) = self.brightness {
            part(true, format_args!("brightness {factor:.2}"))?;
        }
        part(self.crop != [0, 0], format_args!("crop {:+} {:+} px", self.crop[0], self.crop[1]))?;
        if let Some(ResizedCrop { row, column, rows, columns }) = self.resized_crop {
            part(true, format_args!("crop {rows}x{columns} from row {row}, column {column}"))?;
        }
        if let Some(Cutout { row, column, side }) = self.cutout {
            part(true, format_args!("cutout {side}x{side} at row {row}, column {column}"))?;
        }
        if let Some(erased) = &self.erased {
            part(true, format_args!("{erased}"))?;
        }
        if separator.is_empty() { f.write_str("no change") } else { Ok(()) }
    }
}
