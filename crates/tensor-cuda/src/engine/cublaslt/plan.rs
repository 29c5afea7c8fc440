//! cuBLASLt's handle, and a product with its descriptors and algorithm.

use super::product::Product;
use crate::driver::{Driver, Ptr};
use crate::engine::faults::{Failure, Fault};
use crate::engine::owned::{self, Owned, owned};
use crate::format::Format;
use crate::number::{self, number};
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ops::RangeInclusive;
use cudarc::cublaslt::sys::{self, cublasStatus_t as Status};
use std::sync::Arc;
use towers_program::Precision;

/// The kind of a failure. "Not initialized", "invalid value", "architecture mismatch", "not supported" and
/// "license" errors come from no kernel. Mapping, execution and internal errors may come after one of
/// several kernels was launched.
fn fault(status: u32) -> Fault {
    const REFUSED: [RangeInclusive<u32>; 5] = [
        only(Status::CUBLAS_STATUS_NOT_INITIALIZED),
        only(Status::CUBLAS_STATUS_INVALID_VALUE),
        only(Status::CUBLAS_STATUS_ARCH_MISMATCH),
        only(Status::CUBLAS_STATUS_NOT_SUPPORTED),
        only(Status::CUBLAS_STATUS_LICENSE_ERROR),
    ];
    Fault::of(status, &REFUSED, &[Status::CUBLAS_STATUS_ALLOC_FAILED as u32])
}

const fn only(status: Status) -> RangeInclusive<u32> {
    status as u32..=status as u32
}

fn check(call: &'static str, status: u32) -> Result<(), Failure> {
    if status == Status::CUBLAS_STATUS_SUCCESS as u32 {
        return Ok(());
    }
    // SAFETY: the function is one that gives a status' text.
    let text = unsafe { number::words("cublasLtGetStatusString", status) };
    let what = format!("{call}: {} ({status})", text.unwrap_or_default());
    Err(Failure { fault: fault(status), what })
}

/// cuBLASLt at work on one stream.
pub(super) type Handle = owned::Handle<sys::cublasLtContext>;

/// A handle for the driver's device, which is the thread's current one.
pub(super) fn handle(driver: Arc<dyn Driver>) -> Result<Handle, Failure> {
    // SAFETY: the library was found; success leaves a handle, which its destructor takes.
    let raw = unsafe { owned!(check, sys::cublasLtCreate(), sys::cublasLtDestroy()) }?;
    Ok(Handle { raw, driver })
}

/// The number of algorithms to request: one to use, and others in case it fails.
const MOST: usize = 4;

/// A product that is ready to run.
pub(super) struct Plan {
    product: Owned<sys::cublasLtMatmulDescOpaque_t>,
    /// Of `a`, `b`, `d`.
    layouts: [Owned<sys::cublasLtMatrixLayoutOpaque_t>; 3],
    algorithm: Algorithm,
    /// Slower ones by cuBLASLt's heuristic, the slowest first.
    others: Vec<Algorithm>,
}

struct Algorithm {
    chosen: sys::cublasLtMatmulAlgo_t,
    /// Bytes of scratch memory.
    workspace: usize,
}

impl Plan {
    /// Descriptors and the algorithm that cuBLASLt expects to be the fastest with this much scratch memory.
    /// `None` if it has none.
    pub(super) fn new(
        handle: &Handle,
        precision: Precision,
        product: &Product,
        scratch: usize,
    ) -> Result<Option<Plan>, Failure> {
        let layouts = layouts(precision, product)?;
        let preference = preference(product, scratch)?;
        let product = descriptor(precision, product)?;
        let [a, b, d] = layouts.each_ref().map(Owned::raw);
        let mut results = [const { MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit() }; MOST];
        let mut count = 0;
        // SAFETY: handle and descriptors are alive, and there is room for as many results as are asked for.
        let status = unsafe {
            let (handle, product, preference) = (handle.raw.raw(), product.raw(), preference.raw());
            let (room, results, count) = (MOST as c_int, results.as_mut_ptr().cast(), &raw mut count);
            number!(sys::cublasLtMatmulAlgoGetHeuristic(
                handle, product, a, b, d, d, preference, room, results, count
            ))
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: as many results were written as the count says.
        let offered = results.iter().take(count).filter_map(|result| unsafe { algorithm(result) });
        let mut others: Vec<_> = offered.filter(|algorithm| algorithm.workspace <= scratch).collect();
        others.reverse();
        Ok(others.pop().map(|algorithm| Plan { product, layouts, algorithm, others }))
    }

    /// Takes the next algorithm. False if there is none.
    pub(super) fn drop_algorithm(&mut self) -> bool {
        self.others.pop().map(|next| self.algorithm = next).is_some()
    }

    /// Runs the product on `[a, b, d]`. `d` becomes the product plus `beta` (0 or 1) times its old value.
    ///
    /// # Safety
    /// The operands match the plan, and there are [`workspace`](Plan::workspace) bytes of scratch memory.
    pub(super) unsafe fn run(
        &self,
        handle: &Handle,
        places: [Ptr; 3],
        scratch: Ptr,
        beta: f32,
    ) -> Result<(), Failure> {
        let [a, b, d] = places.map(|ptr| ptr.0 as *mut c_void);
        let [at, bt, dt] = self.layouts.each_ref().map(Owned::raw);
        // On the host, and f32 whatever the operands' format is, as sums are.
        let alpha = 1.0_f32;
        let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
        let (handle, stream) = (handle.raw.raw(), handle.driver.stream().cast());
        let (work, bytes) = (scratch.0 as *mut c_void, self.algorithm.workspace);
        let (product, algorithm) = (self.product.raw(), &raw const self.algorithm.chosen);
        // SAFETY: handle, descriptors and factors are alive, and the caller vouches for the rest. That `c` is `d` is allowed.
        let status = unsafe {
            number!(sys::cublasLtMatmul(
                handle, product, alpha, a, at, b, bt, beta, d, dt, d, dt, algorithm, work, bytes, stream,
            ))
        };
        check("cublasLtMatmul", status)
    }

    pub(super) fn workspace(&self) -> usize {
        self.algorithm.workspace
    }
}

/// An algorithm of the heuristic, if its status is good.
///
/// # Safety
/// The heuristic wrote the result.
unsafe fn algorithm(result: &MaybeUninit<sys::cublasLtMatmulHeuristicResult_t>) -> Option<Algorithm> {
    // Its status is read as the number that it is.
    // SAFETY: as the caller says.
    let status = unsafe { (&raw const (*result.as_ptr()).state).cast::<u32>().read() };
    if status != Status::CUBLAS_STATUS_SUCCESS as u32 {
        return None;
    }
    // SAFETY: as the caller says, and the status is one that the enum has.
    let result = unsafe { result.assume_init_ref() };
    Some(Algorithm { chosen: result.algo, workspace: result.workspaceSize })
}

fn layouts(
    precision: Precision,
    product: &Product,
) -> Result<[Owned<sys::cublasLtMatrixLayoutOpaque_t>; 3], Failure> {
    let data = match Format::of_activations(precision) {
        Format::F32 => sys::cudaDataType_t::CUDA_R_32F,
        Format::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        Format::F16 => sys::cudaDataType_t::CUDA_R_16F,
    };
    let layout = |[rows, columns]: [usize; 2], stride: usize| {
        // SAFETY: success leaves a layout, which its destructor takes.
        unsafe {
            let (rows, columns, stride) = (rows as u64, columns as u64, stride as i64);
            owned!(
                check,
                sys::cublasLtMatrixLayoutCreate(data, rows, columns, stride),
                sys::cublasLtMatrixLayoutDestroy()
            )
        }
    };
    let [a, b, d] = product.stored();
    Ok([layout(a, product.strides[0])?, layout(b, product.strides[1])?, layout(d, product.strides[2])?])
}

/// The transposed operands, and the arithmetic of the product.
fn descriptor(
    precision: Precision,
    product: &Product,
) -> Result<Owned<sys::cublasLtMatmulDescOpaque_t>, Failure> {
    use sys::cublasLtMatmulDescAttributes_t as Attribute;
    let compute = match precision {
        Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: success leaves a descriptor, which its destructor takes.
    let descriptor = unsafe {
        let f32 = sys::cudaDataType_t::CUDA_R_32F;
        owned!(check, sys::cublasLtMatmulDescCreate(compute, f32), sys::cublasLtMatmulDescDestroy())
    }?;
    let attributes = [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB];
    for (attribute, transposed) in attributes.into_iter().zip(product.transposed) {
        // A cublasOperation_t: N or T.
        let operation = i32::from(transposed);
        let (value, bytes) = ((&raw const operation).cast(), size_of::<i32>());
        // SAFETY: the descriptor is alive, and the value has that many bytes.
        let status = unsafe {
            number!(sys::cublasLtMatmulDescSetAttribute(descriptor.raw(), attribute, value, bytes))
        };
        check("cublasLtMatmulDescSetAttribute", status)?;
    }
    Ok(descriptor)
}

/// The allowed algorithms.
fn preference(
    product: &Product,
    scratch: usize,
) -> Result<Owned<sys::cublasLtMatmulPreferenceOpaque_t>, Failure> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
    // SAFETY: success leaves a preference, which its destructor takes.
    let preference = unsafe {
        owned!(check, sys::cublasLtMatmulPreferenceCreate(), sys::cublasLtMatmulPreferenceDestroy())
    }?;
    let set = |attribute: Attribute, value: *const c_void, bytes: usize| {
        // SAFETY: the preference is alive, and the value has that many bytes.
        let status = unsafe {
            number!(sys::cublasLtMatmulPreferenceSetAttribute(preference.raw(), attribute, value, bytes))
        };
        check("cublasLtMatmulPreferenceSetAttribute", status)
    };
    let scratch = scratch as u64;
    let room = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    set(room, (&raw const scratch).cast(), size_of::<u64>())?;
    // Parts of sums in f32, added in a separate step, or no parts.
    let schemes = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
    let parts = Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
    set(parts, (&raw const schemes).cast(), size_of::<u32>())?;
    let [a, b, d] = product.aligned;
    for (attribute, bytes) in [
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d),
        (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d),
    ] {
        set(attribute, (&raw const bytes).cast(), size_of::<u32>())?;
    }
    Ok(preference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Pass;
    use crate::libraries::CUBLASLT;
    use towers_program::Linear;

    /// Descriptors need no GPU, so an installed library can check them.
    #[test]
    fn cublaslt_understands_the_descriptors() -> Result<(), Failure> {
        if let Err(why) = CUBLASLT.find() {
            println!("SKIPPED: cublaslt: {why}");
            return Ok(());
        }
        let linear = Linear { inputs: 336, outputs: 10 };
        let passes = [Pass::Forward, Pass::Data, Pass::Filter];
        let products = passes.map(|pass| Product::new(&linear, pass, 64, [340, 10]));
        for (precision, product) in
            Precision::ALL.into_iter().flat_map(|p| products.map(|product| (p, product)))
        {
            let layouts = layouts(precision, &product)?;
            for (layout, [rows, columns]) in layouts.iter().zip(product.stored()) {
                use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
                for (attribute, wanted) in [
                    (Attribute::CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
                    (Attribute::CUBLASLT_MATRIX_LAYOUT_COLS, columns),
                ] {
                    let (mut value, mut written) = (0_u64, 0);
                    let room = (&raw mut value).cast();
                    // SAFETY: the layout is alive, and there is room for the 8 bytes that are told.
                    let status = unsafe {
                        number!(sys::cublasLtMatrixLayoutGetAttribute(
                            layout.raw(),
                            attribute,
                            room,
                            8,
                            &raw mut written,
                        ))
                    };
                    check("cublasLtMatrixLayoutGetAttribute", status)?;
                    assert_eq!((value as usize, written), (wanted, 8));
                }
            }
            descriptor(precision, &product)?;
            preference(&product.at([Ptr(256), Ptr(16), Ptr(4)]), 1 << 25)?;
        }
        Ok(())
    }
}
