//! Plain loops with the bits that AMX computes.

use super::tiles::{DEPTH, FinishRun, Narrow, Product, SIDE, TILE_BYTES, Tiles, finish};
use crate::simd::Portable;

pub(super) static TILES: Tiles = Tiles {
    begin: nothing,
    end: nothing,
    product: [[product::<1, 1>, product::<1, 2>], [product::<2, 1>, product::<2, 2>]],
    narrow,
    weave,
    turn,
    finish: finish_all,
};

fn nothing() {}

/// The number of 16 bits next to `x`, the even one of two.
pub(super) fn round(x: f32) -> u16 {
    if x.is_nan() {
        return (x.to_bits() >> 16) as u16 | 0x40;
    }
    if x.is_subnormal() {
        return (x.to_bits() >> 16) as u16 & 0x8000;
    }
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

pub(super) fn widen(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

unsafe fn product<const M: usize, const N: usize>(t: &Product) {
    for i in 0..M {
        for j in 0..N {
            // SAFETY: the tiles that the product describes.
            unsafe {
                let out = t.out.byte_add(i * t.out_half + j * TILE_BYTES);
                if t.add == 0 {
                    out.write_bytes(0, SIDE * SIDE);
                }
                let mut b = t.b.byte_add(j * t.b_half);
                for tap in 0..t.tap_count {
                    let mut a = t.a.wrapping_byte_add(i * t.a_half).wrapping_byte_add(*t.taps.add(tap));
                    for _ in 0..t.steps {
                        step(a, b, out);
                        a = a.wrapping_byte_add(t.a_step);
                        b = b.wrapping_byte_add(t.b_step);
                    }
                }
            }
        }
    }
}

/// One step as AMX takes it: the even products and the odd ones apart, then their sum to what was there. A product of two
/// numbers of 16 bits is exact in 32.
unsafe fn step(a: *const u16, b: *const u16, out: *mut f32) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let mut sums = [0.0f32; 2];
            for k in 0..DEPTH {
                // SAFETY: both tiles.
                let (a, b) = unsafe { (*a.add(row * DEPTH + k), *b.add(k / 2 * DEPTH + 2 * column + k % 2)) };
                sums[k % 2] += widen(a) * widen(b);
            }
            // SAFETY: the tile of sums.
            unsafe { *out.add(row * SIDE + column) += sums[0] + sums[1] };
        }
    }
}

unsafe fn narrow(run: &Narrow) {
    for pixel in 0..run.count {
        for block in 0..run.channels.div_ceil(run.block) {
            for channel in 0..run.block {
                let at = block * run.block + channel;
                // SAFETY: inside of the pixel, and of the block that it goes to.
                unsafe {
                    let x = if at < run.channels { *run.src.add(pixel * run.src_step + at) } else { 0.0 };
                    *run.dst.add(pixel * run.dst_step + block * run.block_len + channel) = round(x);
                }
            }
        }
    }
}

unsafe fn weave(from: *const u16, to: *mut u16, times: usize) {
    for at in 0..times * DEPTH {
        let within = at % DEPTH;
        // SAFETY: inside of both runs.
        unsafe { *to.add(at) = *from.add(at - within + within / 2 + within % 2 * SIDE) };
    }
}

unsafe fn turn(from: *const u16, to: *mut u16) {
    for row in 0..SIDE {
        for column in 0..SIDE {
            for k in 0..2 {
                // SAFETY: inside of both tiles.
                unsafe { *to.add(column * DEPTH + 2 * row + k) = *from.add(row * DEPTH + 2 * column + k) };
            }
        }
    }
}

unsafe fn finish_all(run: &FinishRun) {
    // SAFETY: portable vectors need no instructions.
    unsafe { finish::<Portable>(run) }
}
