//! A matrix product as cuBLASLt sees it.

use crate::driver::Ptr;
use crate::layer::Pass;
use core::fmt;
use towers_program::Linear;

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

    /// A pass over `n` samples. `x` and `y` are the elements from a sample to the next.
    pub(super) fn new(linear: &Linear, pass: Pass, n: usize, [x, y]: [usize; 2]) -> Product {
        let Linear { inputs, outputs } = *linear;
        let ([m, n, k], transposed, strides) = match pass {
            Pass::Forward => ([outputs, n, inputs], [true, false], [inputs, x, y]),
            Pass::Data => ([inputs, n, outputs], [false, false], [inputs, y, x]),
            Pass::Filter => ([inputs, outputs, n], [false, true], [x, y, inputs]),
        };
        Product { m, n, k, transposed, strides, aligned: [1; 3] }
    }
}
