//! Dense layers by cuBLASLt.
//!
//! Sources, by NVIDIA's names: "cuBLAS Library", "Using the cuBLASLt API" (cublasLtMatmul, cublasLtMatmulAlgoGetHeuristic,
//! cublasLtMatmulPreferenceAttributes_t, cublasLtReductionScheme_t) and "Results Reproducibility".
//!
//! cuBLASLt takes its operands column by column. A matrix that lies row by row is then its own transpose, so each product
//! is asked for transposed, and nothing is moved:
//!
//! | pass | row by row | column by column |
//! | --- | --- | --- |
//! | forward | `y = x w^T` | `y^T = (w^T)^T x^T` |
//! | data | `dx = dy w` | `dx^T = w^T dy^T` |
//! | filter | `dw = dy^T x` | `dw^T = x^T (dy^T)^T` |
//!
//! Long sums may be cut into parts that are computed side by side. Only one way to add the parts is allowed:
//! they stay in f32 and are added in a separate step. So no sum is rounded to half precision on the way, and
//! the same algorithm gives the same bits every time. The heuristic depends on the shapes and the device
//! alone, and is called once.
//!
//! Small products use it too. Their launch costs as much as one of our own kernels, and a graph hides that.
//!
//! Not yet tested on a GPU: that the heuristic has an answer for the layers of our models in every format
//! (`tests/libraries.rs` prints it), bf16 with 10 outputs above all, whose rows of 20 bytes are aligned to 4;
//! and that the calls can be captured.

mod plan;

use crate::driver::{Driver, Ptr};
use crate::libraries::CUBLASLT;
use crate::lock::lock;
use crate::place::Place;
use crate::version::Version;
use crate::{Cuda, Options};
use core::fmt;
use plan::{Failure, Handle, Plan};
use program::{Linear, Precision, Result, Write};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

/// Scratch memory for the parts of long sums: NVIDIA's recommendation for Hopper.
const SCRATCH: usize = 32 << 20;

/// A product `d = a b` of matrices that lie column by column, `d` of `m x n`, with `k` terms a sum. Before the product `a`
/// and `b` may be transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    m: usize,
    n: usize,
    k: usize,
    transposed: [bool; 2],
    /// Elements from a column to the next, of `a`, `b`, `d`.
    strides: [usize; 3],
    /// Bytes to which they are aligned, at most 256.
    aligned: [u32; 3],
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
    fn at(self, places: [Ptr; 3]) -> Product {
        let aligned = places.map(|ptr| 1 << ptr.0.trailing_zeros().min(8));
        Product { aligned, ..self }
    }

    /// Rows and columns of `a`, `b`, `d` as they lie in memory.
    fn stored(&self) -> [[usize; 2]; 3] {
        let stored = |rows, columns, transposed| if transposed { [columns, rows] } else { [rows, columns] };
        let [a, b] = self.transposed;
        [stored(self.m, self.k, a), stored(self.k, self.n, b), [self.m, self.n]]
    }

    /// `y = x w^T`, of `n` samples.
    fn forward(linear: &Linear, n: usize, x: usize, y: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [inputs, x, y];
        Product { m: outputs, n, k: inputs, transposed: [true, false], strides, aligned: [1; 3] }
    }

    /// `dx = dy w`.
    fn data(linear: &Linear, n: usize, dy: usize, dx: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [inputs, dy, dx];
        Product { m: inputs, n, k: outputs, transposed: [false, false], strides, aligned: [1; 3] }
    }

    /// `dw = dy^T x`.
    fn filter(linear: &Linear, n: usize, x: usize, dy: usize) -> Product {
        let Linear { inputs, outputs } = *linear;
        let strides = [x, dy, inputs];
        Product { m: inputs, n: outputs, k: n, transposed: [false, true], strides, aligned: [1; 3] }
    }
}

/// cuBLASLt on one device and stream.
pub(crate) struct CublasLt {
    precision: Precision,
    version: Version,
    state: Mutex<State>,
}

struct State {
    handle: Handle,
    /// `None` if cuBLASLt has no algorithm.
    plans: HashMap<Product, Option<Plan>>,
}

impl CublasLt {
    /// cuBLASLt, if it is installed and works, or the reason.
    pub(crate) fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<CublasLt, String> {
        let version = CUBLASLT.find().map_err(|error| error.to_string())?.version;
        driver.make_current().map_err(|error| error.to_string())?;
        let failed = |failure: Failure| format!("cuBLASLt is installed, but does not start: {failure}");
        let state = State { handle: Handle::new(driver).map_err(failed)?, plans: HashMap::new() };
        Ok(CublasLt { precision: options.precision, version, state: Mutex::new(state) })
    }

    /// Reserves the scratch memory, of which every product may have all.
    pub(crate) fn prepare(cuda: &Cuda) -> Result<()> {
        cuda.engine_scratch(SCRATCH).map(drop)
    }

    /// `y = x w^T`, or `false` if cuBLASLt can't compute it. So do the others.
    pub(crate) fn forward(&self, cuda: &Cuda, linear: &Linear, x: &Place, w: Ptr, y: &Place) -> Result<bool> {
        let product = Product::forward(linear, x.shape.n, x.stride, y.stride);
        self.run(cuda, product, [w, x.ptr, y.ptr], Write::Set)
    }

    /// `dx = dy w`, set or added.
    pub(crate) fn data(
        &self,
        cuda: &Cuda,
        linear: &Linear,
        dy: &Place,
        w: Ptr,
        dx: &Place,
        write: Write,
    ) -> Result<bool> {
        let product = Product::data(linear, dx.shape.n, dy.stride, dx.stride);
        self.run(cuda, product, [w, dy.ptr, dx.ptr], write)
    }

    /// `dw = dy^T x`.
    pub(crate) fn filter(
        &self,
        cuda: &Cuda,
        linear: &Linear,
        x: &Place,
        dy: &Place,
        dw: Ptr,
    ) -> Result<bool> {
        let product = Product::filter(linear, x.shape.n, x.stride, dy.stride);
        self.run(cuda, product, [x.ptr, dy.ptr, dw], Write::Set)
    }

    fn run(&self, cuda: &Cuda, product: Product, places: [Ptr; 3], write: Write) -> Result<bool> {
        if product.m.min(product.n).min(product.k) == 0 {
            return Ok(false);
        }
        cuda.driver().make_current()?;
        let product = product.at(places);
        let scratch = cuda.engine_scratch(SCRATCH)?;
        let mut state = lock(&self.state);
        let State { handle, plans } = &mut *state;
        let place = match plans.entry(product) {
            Entry::Occupied(known) => known.into_mut(),
            // A call of the heuristic could disturb a capture.
            Entry::Vacant(_) if cuda.is_capturing() => {
                let message =
                    format!("a dense layer must run once before it is captured, but this did not: {product}");
                return Err(cuda.error(message));
            }
            Entry::Vacant(place) => place.insert(self.plan(cuda, handle, &product)?),
        };
        let beta = if write == Write::Add { 1.0 } else { 0.0 };
        while let Some(plan) = place {
            // SAFETY: the operands are those of the layer that `product` was made for, in the device's format, and the scratch
            // memory has as many bytes as the plan may use.
            let run = || unsafe { plan.run(handle, places, scratch, beta) };
            let failed = |failure: Failure| (failure.fault(), failure.to_string());
            let Err((fault, what)) = cuda.ask_library(|| run().map_err(failed))? else { return Ok(true) };
            if !plan.drop_algorithm() {
                *place = None;
            }
            cuda.drop_algorithm(fault, write, format!("{what}, for {product} by cuBLASLt"))?;
        }
        Ok(false)
    }

    /// The plan of a product, if cuBLASLt has one.
    fn plan(&self, cuda: &Cuda, handle: &Handle, product: &Product) -> Result<Option<Plan>> {
        let plan = Plan::new(handle, self.precision, product, SCRATCH);
        plan.or_else(|failure| {
            let what = format!("{failure}, for {product}");
            cuda.drop_algorithm(failure.fault(), Write::Set, what).map(|()| None)
        })
    }

    /// The version, then the products, a line each.
    pub(crate) fn describe(&self) -> Vec<String> {
        let state = lock(&self.state);
        let line = |(product, plan): (&Product, &Option<Plan>)| match plan {
            Some(plan) => format!("{product}: cuBLASLt, {} bytes", plan.workspace()),
            None => format!("{product}: own kernels"),
        };
        let mut lines: Vec<_> = state.plans.iter().map(line).collect();
        lines.sort();
        lines.insert(0, format!("cuBLASLt {}", self.version));
        lines
    }
}

#[cfg(test)]
mod tests;
