use super::level::Level;
use super::portable::round;
use super::tile::{Aligned, DEPTH, ROW_BYTES, TILE_BYTES, TILE_HALVES, TILE_SUMS};
use super::tiles::Product;

/// Steps of a product, and products of a trial: about a millisecond of AMX.
const STEPS: usize = 8;
#[cfg(target_arch = "x86_64")]
const PRODUCTS: usize = 2000;

/// A trial of products for a level, which the processor must have, and its floating-point operations.
pub(crate) fn trial(level: Level) -> (unsafe fn(), usize) {
    let operations = 2 * DEPTH * 4 * TILE_SUMS * STEPS;
    match level {
        Level::Portable => (|| multiply(Level::Portable, 1), operations),
        #[cfg(target_arch = "x86_64")]
        Level::Amx => (|| multiply(Level::Amx, PRODUCTS), PRODUCTS * operations),
    }
}

/// Multiplies tiles that stay in the core's first cache.
fn multiply(level: Level, products: usize) {
    let mut operands = Aligned([0u16; 4 * STEPS * TILE_HALVES]);
    // Numbers as they come: a processor is faster with zeros.
    let mut seed = 1u32;
    for half in &mut operands.0 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *half = round((seed >> 8) as f32 / (1 << 23) as f32 - 1.0);
    }
    let mut sums = Aligned([0.0f32; 4 * TILE_SUMS]);
    let start = 0;
    let tiles = level.tiles();
    let product = Product {
        a: operands.0.as_ptr(),
        a_row: ROW_BYTES,
        a_half: STEPS * TILE_BYTES,
        a_step: TILE_BYTES,
        b: operands.0[2 * STEPS * TILE_HALVES..].as_ptr(),
        b_half: STEPS * TILE_BYTES,
        b_step: TILE_BYTES,
        taps: &raw const start,
        tap_count: 1,
        steps: STEPS,
        out: sums.0.as_mut_ptr(),
        out_half: 2 * TILE_BYTES,
        add: 0,
    };
    // SAFETY: the functions fit the processor; both operands have two tiles for each step, and there is room for four of sums.
    unsafe {
        (tiles.begin)();
        (0..products).for_each(|_| (tiles.product[1][1])(&product));
        (tiles.end)();
    }
}
