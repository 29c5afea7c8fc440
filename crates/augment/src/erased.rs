//! A rectangle of the network's input that is erased.

use crate::Error;
use std::fmt;
use towers_philox::{Philox, domain};

/// A rectangle of the network's input with other values.
#[derive(Clone, Debug, PartialEq)]
pub struct Erased {
    /// The first row.
    pub row: usize,
    /// The first column.
    pub column: usize,
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// Its values.
    pub with: ErasedWith,
}

/// The values of an erased rectangle.
#[derive(Clone, Debug, PartialEq)]
pub enum ErasedWith {
    /// One for all channels, or one for each.
    Values(Vec<f32>),
    /// Numbers from the standard normal distribution: a pure function of these three.
    Noise {
        /// The seed of the step.
        seed: u64,
        /// The epoch.
        epoch: u64,
        /// The sample.
        sample: u32,
    },
}

/// For whom a rectangle is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// The network.
    Input,
    /// People, who see values of 0 to 255 before the standardization: values are black, and noise is around grey.
    Picture,
}

impl fmt::Display for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Erased { row, column, rows, columns, with } = self;
        write!(f, "erased {rows}x{columns} from row {row}, column {column}")?;
        match with {
            ErasedWith::Values(values) if values.iter().all(|&value| value == 0.0) => Ok(()),
            ErasedWith::Values(values) => write!(f, " with {values:?}"),
            ErasedWith::Noise { .. } => f.write_str(" with noise"),
        }
    }
}

impl Erased {
    pub(crate) fn check(&self, [h, w]: [usize; 2]) -> Result<(), Error> {
        let inside = |first: usize, part: usize, len| first.checked_add(part).is_some_and(|end| end <= len);
        let finite = match &self.with {
            ErasedWith::Values(values) => !values.is_empty() && values.iter().all(|value| value.is_finite()),
            ErasedWith::Noise { .. } => true,
        };
        if inside(self.row, self.rows, h) && inside(self.column, self.columns, w) && finite {
            return Ok(());
        }
        Err(Error::option("draws", self, format!("finite values in a rectangle inside {h} x {w}")))
    }

    /// Erases it from `input` (HWC of `shape`).
    pub(crate) fn apply(&self, [_, w, c]: [usize; 3], input: &mut [f32], show: Show) {
        let rows = (self.row..self.row + self.rows).map(|y| (y * w + self.column) * c);
        let mut noise = match self.with {
            ErasedWith::Noise { seed, epoch, sample } => {
                Philox::new(seed, const { domain("random_erasing_noise") }, [epoch, u64::from(sample)])
            }
            ErasedWith::Values(_) => Philox::new(0, 0, [0, 0]),
        };
        for start in rows {
            let part = &mut input[start..start + self.columns * c];
            match (&self.with, show) {
                (ErasedWith::Values(values), Show::Input) => {
                    part.iter_mut().zip(values.iter().cycle()).for_each(|(to, &value)| *to = value);
                }
                (ErasedWith::Values(_), Show::Picture) => part.fill(0.0),
                (ErasedWith::Noise { .. }, _) => {
                    let (middle, scale) = if show == Show::Input { (0.0, 1.0) } else { (127.5, 64.0) };
                    part.iter_mut().for_each(|to| *to = middle + scale * noise.normal() as f32);
                }
            }
        }
    }
}
