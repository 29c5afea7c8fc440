use crate::shown::Few;
use core::fmt;

/// How numbers came about, which decides how exact they are in a format other than f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In f32 throughout, from exact operands: statistics, metrics, optimizers.
    Kept,
    /// Stored in the format of activations.
    Stored,
    /// Sums of products of factors in that format, wherever they are stored.
    Products,
    /// Such sums, stored before a number of their magnitude is taken away: the rounding stays, the result may be smaller.
    Shifted,
}

/// What an op wrote.
#[derive(Clone)]
pub struct Output {
    /// What it is.
    pub name: &'static str,
    /// The numbers.
    pub values: Vec<f32>,
    /// The tolerance in f32, relative to the largest magnitude.
    pub tolerance: f32,
    /// How they came about.
    pub source: Source,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Output { name, values, tolerance, source } = self;
        let mut shown = f.debug_struct("Output");
        shown.field("name", name).field("values", &Few(values));
        shown.field("tolerance", tolerance).field("source", source).finish()
    }
}

impl Output {
    /// Numbers in f32.
    pub fn new(name: &'static str, values: Vec<f32>, tolerance: f32) -> Self {
        Output { name, values, tolerance, source: Source::Kept }
    }

    /// The same numbers, as the result of a matrix product.
    pub fn of_products(self) -> Self {
        Output { source: Source::Products, ..self }
    }

    /// The same numbers, as the result of a matrix product that was stored and then normalized.
    pub fn of_shifted_products(self) -> Self {
        Output { source: Source::Shifted, ..self }
    }

    /// The same numbers, each times `factor`.
    pub fn times(mut self, factor: f32) -> Self {
        self.values.iter_mut().for_each(|x| *x *= factor);
        self
    }

    /// Whether both hold the same bits.
    pub fn same_bits(&self, other: &Output) -> bool {
        self.values.len() == other.values.len()
            && self.values.iter().zip(&other.values).all(|(a, b)| a.to_bits() == b.to_bits())
    }
}
