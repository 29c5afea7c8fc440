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
//! The heuristic has an answer for the layers of our models in every format, which `tests/libraries.rs` prints. The critical case is bf16
//! with 10 outputs: rows of 20 bytes, aligned to 4.

mod plan;
mod product;

use super::faults::Failure;
use crate::driver::{Driver, Ptr};
use crate::layer::Pass;
use crate::libraries::CUBLASLT;
use crate::lock::lock;
use crate::place::Place;
use crate::version::Version;
use crate::{Cuda, Options};
use plan::{Handle, Plan};
use product::Product;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use towers_program::{Linear, Precision, Result, Write};

/// Scratch memory for the parts of long sums: NVIDIA's recommendation for Hopper.
const SCRATCH: usize = 32 << 20;

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
        let failed =
            |failure: Failure| format!("cuBLASLt is installed, but does not start: {}", failure.what);
        let state = State { handle: plan::handle(driver).map_err(failed)?, plans: HashMap::new() };
        Ok(CublasLt { precision: options.precision, version, state: Mutex::new(state) })
    }

    /// Reserves the scratch memory, of which every product may have all.
    pub(crate) fn prepare(cuda: &Cuda) -> Result<()> {
        cuda.engine_scratch(SCRATCH).map(drop)
    }

    /// Computes a pass. `false` if cuBLASLt can't compute it. `x` and `y` also stand for their gradients.
    pub(crate) fn run(
        &self,
        cuda: &Cuda,
        pass: Pass,
        linear: &Linear,
        x: &Place,
        w: Ptr,
        y: &Place,
        write: Write,
    ) -> Result<bool> {
        let places = match pass {
            Pass::Forward => [w, x.ptr, y.ptr],
            Pass::Data => [w, y.ptr, x.ptr],
            Pass::Filter => [x.ptr, y.ptr, w],
        };
        let product = Product::new(linear, pass, x.shape.n, [x.stride, y.stride]);
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
            // SAFETY: the operands are those of the layer that `product` was made for, in the device's
            // format. The scratch memory has all the bytes that the plan may use.
            let run = || unsafe { plan.run(handle, places, scratch, beta) };
            let Err(failure) = cuda.ask_library(run)? else { return Ok(true) };
            if !plan.drop_algorithm() {
                *place = None;
            }
            cuda.drop_algorithm(failure, write, format_args!("{product} by cuBLASLt"))?;
        }
        Ok(false)
    }

    /// The plan of a product, if cuBLASLt has one.
    fn plan(&self, cuda: &Cuda, handle: &Handle, product: &Product) -> Result<Option<Plan>> {
        let plan = Plan::new(handle, self.precision, product, SCRATCH);
        plan.or_else(|failure| cuda.drop_algorithm(failure, Write::Set, product).map(|()| None))
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
