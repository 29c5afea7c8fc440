//! The emulation itself: its results, and the mistakes that it detects.

mod capture;
mod mistakes;
mod results;

use super::order::Order;
use super::{EmulatedDriver, compiler};
use crate::Options;
use crate::driver::{Arg, Driver, Geometry, Ptr};
use crate::source::Source;
use towers_program::{Precision, Result};

/// The kernels of these tests, some of which are wrong on purpose.
const KERNELS: Source = Source {
    name: "emulation.cu",
    text: include_str!("../../../../emulation/tests.cu"),
    kernels: &[
        "all_halves",
        "to_halves",
        "sums",
        "random_words",
        "neighbours",
        "divergent",
        "two_barriers",
        "missing_lane",
        "shift_in_block",
        "shift_in_warp",
        "sum_of_blocks",
        "all_write",
        "writes_past",
        "reads_past",
        "writes_past_shared",
        "unwritten_shared",
        "tickets",
        "copies",
        "product",
        "set",
    ],
};

/// A device with these kernels, or none without a compiler.
fn driver_in(order: Order, precision: Precision) -> Option<EmulatedDriver> {
    if let Err(e) = compiler::version() {
        println!("SKIPPED: {e}");
        return None;
    }
    let options = Options { precision, ..Options::default() };
    Some(EmulatedDriver::in_order(&options, &[KERNELS], order).unwrap())
}

fn driver() -> Option<EmulatedDriver> {
    driver_in(Order::alternating(), Precision::Fp32)
}

/// A new allocation with these contents.
fn upload<T: Copy>(driver: &dyn Driver, values: &[T], bytes: impl Fn(T) -> Vec<u8>) -> Ptr {
    let bytes: Vec<u8> = values.iter().flat_map(|x| bytes(*x)).collect();
    let ptr = driver.alloc(bytes.len()).unwrap();
    // SAFETY: the allocation is as large.
    unsafe { driver.write(&bytes, ptr) }.unwrap();
    ptr
}

fn try_download(driver: &dyn Driver, ptr: Ptr, len: usize) -> Result<Vec<u32>> {
    let mut bytes = vec![0; 4 * len];
    // SAFETY: the tests ask for no more than they allocated.
    unsafe { driver.read(ptr, &mut bytes) }?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

fn download(driver: &dyn Driver, ptr: Ptr, len: usize) -> Vec<u32> {
    try_download(driver, ptr, len).unwrap()
}

fn try_run(driver: &dyn Driver, kernel: &str, geometry: Geometry, args: &[Arg]) -> Result<()> {
    let kernel = driver.kernel(kernel)?;
    // SAFETY: the emulation checks arguments and accesses.
    unsafe { driver.launch(kernel, geometry, args) }
}

fn run(driver: &dyn Driver, kernel: &str, geometry: Geometry, args: &[Arg]) {
    try_run(driver, kernel, geometry, args).unwrap();
}

/// The error of a launch that must fail.
fn complaint(driver: &dyn Driver, kernel: &str, geometry: Geometry, args: &[Arg]) -> String {
    try_run(driver, kernel, geometry, args).unwrap_err().to_string()
}
