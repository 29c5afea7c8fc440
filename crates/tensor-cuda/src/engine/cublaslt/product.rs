//! A matrix product as cuBLASLt sees it.

use crate::driver::Ptr;
use core::fmt;
use program::Linear;

/// A product `d = a b` of matrices that lie column by column, `d` of `m x n`, with `k` terms a sum. Before
/// the product `a` and `b` may be transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) transposed: [bool; 2],
    /// Elements from a column to the next, of `a`, `b`, `d`.
    pub(super) strides: [usize; 3],
    /// Bytes to which they are aligned, at most 256.
    pub(super) aligned: [u32; 3],
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { m, n, k, transposed: [a, b], strides, aligned } = self;
        let mark = |transposed: &bool| if *transposed { "^T" } else { "" };
        write!(f, "{m}x{n} = a{} b{} over {k}, strides {strides:?}, alignment {aligned:?}", mark(a), mark(b))
    }
}

impl Product {
    /// With `[a, b, d]` at these places.
    pub(super) fn at(self, places: [Ptr; 3]) -> Product {
        let aligned = places.map(|ptr| 1 << ptr.0.trailing_zeros().min(8));
        Product { aligned, ..self }
    }

    /// Rows and columns of `a`, `b`, `d` as they lie in memory.
    pub(super) fn stored(&self) -> [[usize; 2]; 3] {
        let stored = |rows, columns, transposed| if transposed { [columns, rows] } else { [rows, columns] };
        let [a, b] = self.transposed;
        [stored(self.m, self.k, a), stored(self.k, self.n, b), [self.m, self.n]]
    }

    /// `y = x w^T`, of `n` samples.
    pub(super) fn forward(linear: &Linear, n: usize, x: usize, y: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [inputs, x, y];
        Product { m: outputs, n, k: inputs, transposed: [true, false], strides, aligned: [1; 3] }
    }

    /// `dx = dy w`.
    pub(super) fn data(linear: &Linear, n: usize, dy: usize, dx: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [inputs, dy, dx];
        Product { m: inputs, n, k: outputs, transposed: [false, false], strides, aligned: [1; 3] }
    }

    /// `dw = dy^T x`.
    pub(super) fn filter(linear: &Linear, n: usize, x: usize, dy: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [x, dy, inputs];
        Product { m: inputs, n: outputs, k: n, transposed: [false, true], strides, aligned: [1; 3] }
    }
}
