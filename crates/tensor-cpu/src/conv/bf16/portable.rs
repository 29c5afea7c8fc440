//! Plain loops with the bits that AMX computes.

use super::tile::{DEPTH, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS};
use super::tiles::{FinishRun, Narrow, Pairs, Product, Tiles, Walk};
use crate::element::{Bf16, Element};

pub(super) static TILES: Tiles = Tiles {
    begin: nothing,
    end: nothing,
    product: [[product::<1, 1>, product::<1, 2>], [product::<2, 1>, product::<2, 2>]],
    spread,
    pair,
    columns,
    narrow,
    weave,
    turn,
    finish,
};

fn nothing() {}

/// Tiles know no subnormal numbers: they count as 0.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

pub(super) fn round(x: f32) -> u16 {
    Bf16::of(flushed(x)).0
}

pub(super) fn widen(x: u16) -> f32 {
    flushed(Bf16(x).get())
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
                        step(a, t.a_row, b, out);
                        a = a.wrapping_byte_add(t.a_step);
                        b = b.wrapping_byte_add(t.b_step);
                    }
                }
            }
        }
    }
}

/// One step as AMX does it: the even and the odd products apart, then their sum plus the old value. A product
/// of two numbers of 16 bits is exact in 32.
unsafe fn step(a: *const u16, a_row: usize, b: *const u16, out: *mut f32) {
    let mut right = [[0.0f32; SIDE]; DEPTH];
    for (k, column) in (0..DEPTH).flat_map(|k| (0..SIDE).map(move |column| (k, column))) {
        // SAFETY: inside of the right tile.
        right[k][column] = widen(unsafe { *b.add(k / 2 * DEPTH + 2 * column + k % 2) });
    }
    for row in 0..SIDE {
        let mut sums = [[0.0f32; SIDE]; 2];
        for (k, right) in right.iter().enumerate() {
            // SAFETY: inside of the left tile.
            let left = widen(unsafe { *a.byte_add(row * a_row).add(k) });
            sums[k % 2].iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
        }
        let [even, odd] = sums;
        for (column, (even, odd)) in even.into_iter().zip(odd).enumerate() {
            // SAFETY: inside of the tile of sums.
            unsafe { *out.add(row * SIDE + column) += even + odd };
        }
    }
}

unsafe fn spread(walk: &Walk, to: *mut u16) {
    // SAFETY: this function's contract; the line has the pixel's place.
    unsafe { each_number(walk, |place, channel, x| *to.add(place * DEPTH + channel) = x) }
}

unsafe fn pair(walk: &Walk, to: &Pairs) {
    // SAFETY: this function's contract; each pairing has the pixel's place.
    unsafe {
        each_number(walk, |place, channel, x| {
            if channel >= walk.channels.next_multiple_of(SIDE) {
                return;
            }
            let tile = to.dst.add(channel / SIDE * to.tile_len);
            for pairing in 0..to.pairings.min(place + 1) {
                let (pair, second) = ((place - pairing) / 2, (place - pairing) % 2);
                let at = pairing * to.pairing_len + pair * DEPTH + channel % SIDE * 2;
                *tile.add(at + second) = x;
                if pairing == 1 && place + 1 == walk.len {
                    *tile.add(at + 1) = 0;
                }
            }
        });
    }
}

unsafe fn columns(walk: &Walk, to: *mut u16, tile_len: usize) {
    // SAFETY: this function's contract; the tiles have the pixel's place.
    unsafe {
        each_number(walk, |place, channel, x| {
            if channel < walk.channels.next_multiple_of(SIDE) {
                let tile = to.add(channel / SIDE * tile_len + place / DEPTH * TILE_HALVES);
                *tile.add(channel % SIDE * DEPTH + place % DEPTH) = x;
            }
        });
    }
}

/// Calls `emit` with each pixel's place, and the number of each of 32 channels there.
unsafe fn each_number(walk: &Walk, mut emit: impl FnMut(usize, usize, u16)) {
    let load = |at: *const Bf16, mask: u32| {
        let number = |channel| {
            // SAFETY: the elements of the mask exist.
            if mask >> channel & 1 == 1 { unsafe { (*at.wrapping_add(channel)).0 } } else { 0 }
        };
        core::array::from_fn(number)
    };
    let join = |a: [u16; DEPTH], b: [u16; DEPTH]| core::array::from_fn(|channel| a[channel] | b[channel]);
    let mut place = 0;
    // SAFETY: this function's contract.
    unsafe {
        walk.each_pixel([0; DEPTH], load, join, |pixel| {
            pixel.into_iter().enumerate().for_each(|(channel, x)| emit(place, channel, x));
            place += 1;
        });
    }
}

unsafe fn narrow(run: &Narrow) {
    for (row, at) in (0..run.count).flat_map(|row| (0..run.row).map(move |at| (row, at))) {
        // SAFETY: inside of the row, before and after.
        unsafe {
            let x = if at < run.len { *run.src.add(row * run.src_step + at) } else { 0.0 };
            *run.dst.add(row * run.row + at) = round(x);
        }
    }
}

unsafe fn weave(from: *const u16, to: *mut u16) {
    for at in 0..TILE_HALVES {
        let within = at % DEPTH;
        // SAFETY: inside of both tiles.
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

unsafe fn finish(run: &FinishRun) {
    for row in 0..run.count {
        for column in 0..run.columns {
            // SAFETY: by the run's description.
            unsafe {
                let of = |at: *const f32| if at.is_null() { 0.0 } else { *at.add(column) };
                let y = run.y.add(row * run.y_step + column);
                let sums = run.sums.add(column / SIDE * TILE_SUMS + row * SIDE);
                let mut v = *sums.add(column % SIDE) + of(run.bias);
                if run.add {
                    v += (*y).get();
                }
                if !run.affine[0].is_null() {
                    v = v.mul_add(of(run.affine[0]), of(run.affine[1]));
                }
                if let Some(most) = run.relu {
                    v = if v < 0.0 { 0.0 } else { v };
                    v = if v > most { most } else { v };
                }
                (*y).0 = round(v);
            }
        }
    }
}
