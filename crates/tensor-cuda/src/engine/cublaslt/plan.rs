//! cuBLASLt's handle, and a product with its descriptors and algorithm.

use super::Product;
use crate::buffer::Format;
use crate::driver::{Driver, Ptr};
use crate::engine::owned::Owned;
use core::ffi::{CStr, c_void};
use core::fmt;
use core::mem::{MaybeUninit, size_of};
use cudarc::cublaslt::sys::{self, cublasStatus_t as Status};
use std::sync::Arc;
use tensor_backend::Precision;

/// A call that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    call: &'static str,
    status: Status,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: any status has a text, static and terminated by a zero.
        let text = unsafe { CStr::from_ptr(sys::cublasLtGetStatusString(self.status)) };
        write!(f, "{}: {} ({})", self.call, text.to_string_lossy(), self.status as u32)
    }
}

fn check(call: &'static str, status: Status) -> Result<(), Failure> {
    if status == Status::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(Failure { call, status }) }
}

/// cuBLASLt at work on one stream.
pub(super) struct Handle {
    raw: Owned<sys::cublasLtContext, Status>,
    driver: Arc<dyn Driver>,
}

impl Handle {
    /// A handle for the driver's device, which is the thread's current one.
    pub(super) fn new(driver: Arc<dyn Driver>) -> Result<Handle, Failure> {
        // SAFETY: the library was found; success leaves a handle, which its destructor takes.
        let raw = unsafe {
            Owned::new(sys::cublasLtDestroy, |place| check("cublasLtCreate", sys::cublasLtCreate(place)))
        }?;
        Ok(Handle { raw, driver })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The handle is destroyed after this, on the device that it was made for. If that is gone there is nothing to save.
        let _ = self.driver.make_current();
    }
}

/// A product that is ready to run.
pub(super) struct Plan {
    product: Owned<sys::cublasLtMatmulDescOpaque_t, Status>,
    /// Of `a`, `b`, `d`.
    layouts: [Owned<sys::cublasLtMatrixLayoutOpaque_t, Status>; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace: usize,
}

impl Plan {
    /// Descriptors and the algorithm that cuBLASLt expects to be the fastest with so much scratch memory; `None` if it has
    /// none.
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
        let mut best = MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit();
        let mut count = 0;
        // SAFETY: handle and descriptors are alive, and there is room for the one result that is asked for.
        let status = unsafe {
            let (handle, product, preference) = (handle.raw.raw(), product.raw(), preference.raw());
            let (best, count) = (best.as_mut_ptr(), &raw mut count);
            sys::cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, d, d, preference, 1, best, count)
        };
        if status == Status::CUBLAS_STATUS_NOT_SUPPORTED {
            return Ok(None);
        }
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        if count < 1 {
            return Ok(None);
        }
        // SAFETY: one result was written, as the count says.
        let best = unsafe { best.assume_init() };
        if best.state != Status::CUBLAS_STATUS_SUCCESS || best.workspaceSize > scratch {
            return Ok(None);
        }
        Ok(Some(Plan { product, layouts, algorithm: best.algo, workspace: best.workspaceSize }))
    }

    /// Runs the product on `[a, b, d]`; `d` becomes it plus `beta` (0 or 1) times what it was.
    ///
    /// # Safety
    /// The operands are what the plan was made for, and there are [`workspace`](Plan::workspace) bytes of scratch memory.
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
        let (work, bytes) = (scratch.0 as *mut c_void, self.workspace);
        let (product, algorithm) = (self.product.raw(), &raw const self.algorithm);
        // SAFETY: handle, descriptors and factors are alive, and the caller vouches for the rest. That `c` is `d` is allowed.
        let status = unsafe {
            sys::cublasLtMatmul(
                handle, product, alpha, a, at, b, bt, beta, d, dt, d, dt, algorithm, work, bytes, stream,
            )
        };
        check("cublasLtMatmul", status)
    }

    pub(super) fn workspace(&self) -> usize {
        self.workspace
    }
}

fn layouts(
    precision: Precision,
    product: &Product,
) -> Result<[Owned<sys::cublasLtMatrixLayoutOpaque_t, Status>; 3], Failure> {
    let data = match Format::of_activations(precision) {
        Format::F32 => sys::cudaDataType_t::CUDA_R_32F,
        Format::Bf16 => sys::cudaDataType_t::CUDA_R_16BF,
        Format::F16 => sys::cudaDataType_t::CUDA_R_16F,
    };
    let layout = |[rows, columns]: [usize; 2], stride: usize| {
        // SAFETY: success leaves a layout, which its destructor takes.
        unsafe {
            Owned::new(sys::cublasLtMatrixLayoutDestroy, |place| {
                let (rows, columns, stride) = (rows as u64, columns as u64, stride as i64);
                let status = sys::cublasLtMatrixLayoutCreate(place, data, rows, columns, stride);
                check("cublasLtMatrixLayoutCreate", status)
            })
        }
    };
    let [a, b, d] = product.stored();
    Ok([layout(a, product.strides[0])?, layout(b, product.strides[1])?, layout(d, product.strides[2])?])
}

/// Which operands are transposed, and how the product is computed.
fn descriptor(
    precision: Precision,
    product: &Product,
) -> Result<Owned<sys::cublasLtMatmulDescOpaque_t, Status>, Failure> {
    use sys::cublasLtMatmulDescAttributes_t as Attribute;
    let compute = match precision {
        Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    // SAFETY: success leaves a descriptor, which its destructor takes.
    let descriptor = unsafe {
        Owned::new(sys::cublasLtMatmulDescDestroy, |place| {
            let f32 = sys::cudaDataType_t::CUDA_R_32F;
            check("cublasLtMatmulDescCreate", sys::cublasLtMatmulDescCreate(place, compute, f32))
        })
    }?;
    let attributes = [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB];
    for (attribute, transposed) in attributes.into_iter().zip(product.transposed) {
        // A cublasOperation_t: N or T.
        let operation = i32::from(transposed);
        let (value, bytes) = ((&raw const operation).cast(), size_of::<i32>());
        // SAFETY: the descriptor is alive, and the value has that many bytes.
        let status =
            unsafe { sys::cublasLtMatmulDescSetAttribute(descriptor.raw(), attribute, value, bytes) };
        check("cublasLtMatmulDescSetAttribute", status)?;
    }
    Ok(descriptor)
}

/// Which algorithms are allowed.
fn preference(
    product: &Product,
    scratch: usize,
) -> Result<Owned<sys::cublasLtMatmulPreferenceOpaque_t, Status>, Failure> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
    // SAFETY: success leaves a preference, which its destructor takes.
    let preference = unsafe {
        Owned::new(sys::cublasLtMatmulPreferenceDestroy, |place| {
            check("cublasLtMatmulPreferenceCreate", sys::cublasLtMatmulPreferenceCreate(place))
        })
    }?;
    let set = |attribute: Attribute, value: *const c_void, bytes: usize| {
        // SAFETY: the preference is alive, and the value has that many bytes.
        let status =
            unsafe { sys::cublasLtMatmulPreferenceSetAttribute(preference.raw(), attribute, value, bytes) };
        check("cublasLtMatmulPreferenceSetAttribute", status)
    };
    let scratch = scratch as u64;
    let room = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    set(room, (&raw const scratch).cast(), size_of::<u64>())?;
    // Parts of sums in f32, added in a step of its own, or no parts.
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
    use crate::libraries::CUBLASLT;
    use tensor_backend::Linear;

    /// Descriptors need no GPU, so where the library is installed it can tell whether it understands them.
    #[test]
    fn cublaslt_understands_the_descriptors() -> Result<(), Failure> {
        if let Err(why) = CUBLASLT.find() {
            println!("SKIPPED: cublaslt: {why}");
            return Ok(());
        }
        let linear = Linear { inputs: 336, outputs: 10 };
        let products = [
            Product::forward(&linear, 64, 340, 10),
            Product::data(&linear, 64, 10, 336),
            Product::filter(&linear, 64, 336, 10),
        ];
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
                        sys::cublasLtMatrixLayoutGetAttribute(
                            layout.raw(),
                            attribute,
                            room,
                            8,
                            &raw mut written,
                        )
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
