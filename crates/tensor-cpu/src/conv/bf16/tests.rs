//! What the tiles do to numbers. Whole passes are compared with the reference in `conv::tests`.

use super::portable::{round, widen};
use super::tiles::{Aligned, DEPTH, Level, Narrow, Product, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS, Tiles};
use crate::conv::tests::{all_passes, random, square};
use crate::{Cpu, simd};
use tensor_backend::Shape;

/// The tiles of this processor beside those of plain loops, where it has some.
fn own() -> Option<&'static Tiles> {
    let level = simd::Level::available().iter().filter_map(|&simd| Level::detect(simd)).next_back()?;
    if level == Level::Portable {
        println!("SKIPPED: the processor has no AMX");
        return None;
    }
    Some(level.tiles())
}

#[test]
fn rounds_to_the_nearest_and_to_even_ones_between() {
    for (x, expected) in [
        (1.0, 1.0),
        (-3.140_625, -3.140_625),
        (1.0 + 1.0 / 256.0, 1.0),
        (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
        (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
        (f32::MAX, f32::INFINITY),
        (f32::NEG_INFINITY, f32::NEG_INFINITY),
        (-0.0, -0.0),
        (1e-40, 0.0),
    ] {
        assert_eq!(widen(round(x)).to_bits(), f32::to_bits(expected), "{x}");
    }
    assert!(widen(round(f32::NAN)).is_nan() && widen(round(f32::from_bits(0x7f80_0001))).is_nan());
}

/// Numbers of every size, with some that are none.
fn numbers(len: usize) -> Vec<f32> {
    let scale = |i: usize| 10f32.powi((i % 61) as i32 - 30);
    let mut numbers: Vec<f32> = random(len, 1).iter().enumerate().map(|(i, x)| x * scale(i)).collect();
    numbers[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, 1e-40, -0.0]);
    numbers
}

#[test]
fn laying_out_gives_the_same_bits_everywhere() {
    let (Some(own), plain) = (own(), Level::Portable.tiles()) else { return };
    let source = numbers(7 * 90);
    for (channels, block) in [(90, 16), (90, 32), (80, 16), (64, 32), (7, 16), (17, 32), (33, 16)] {
        let narrow = |tiles: &Tiles| {
            let mut to = vec![0x5a5a; 6 * 7 * block + 6];
            let run = Narrow {
                src: source.as_ptr(),
                src_step: 90,
                dst: to.as_mut_ptr(),
                dst_step: block,
                block_len: 7 * block + 1,
                count: 7,
                channels,
                block,
            };
            // SAFETY: seven pixels of 90 numbers; room for six blocks.
            unsafe { (tiles.narrow)(&run) };
            to
        };
        assert_eq!(narrow(own), narrow(plain), "{channels} channels in blocks of {block}");
    }
    let halves: Vec<u16> = (0..3 * TILE_HALVES as u16).map(|i| i.wrapping_mul(40_503)).collect();
    let both = |tiles: &Tiles| {
        let mut to = vec![0; 2 * TILE_HALVES];
        // SAFETY: tiles all; `weave` reads from an odd pixel on.
        unsafe {
            (tiles.weave)(halves[SIDE..].as_ptr(), to.as_mut_ptr(), SIDE);
            (tiles.turn)(halves.as_ptr(), to[TILE_HALVES..].as_mut_ptr());
        }
        to
    };
    assert_eq!(both(own), both(plain));
    let turned = &both(plain)[TILE_HALVES..];
    assert_eq!(turned[2 * DEPTH + 2 * 5..][..2], halves[5 * DEPTH + 2 * 2..][..2]);
}

#[test]
fn products_have_the_same_bits_everywhere() {
    let (Some(own), plain) = (own(), Level::Portable.tiles()) else { return };
    const STEPS: usize = 3;
    let operand = |seed: u64| {
        let mut tiles = Box::new(Aligned([0u16; 4 * STEPS * TILE_HALVES]));
        let numbers = random(tiles.0.len(), seed);
        tiles.0.iter_mut().zip(numbers).for_each(|(half, x)| *half = round(x * 8.0));
        tiles
    };
    let (a, b, taps) = (operand(2), operand(3), [0, TILE_BYTES]);
    for (m, n, add) in [(1, 1, 0), (1, 2, 1), (2, 1, 1), (2, 2, 0), (2, 2, 1)] {
        let product = |tiles: &Tiles| {
            let mut out = Box::new(Aligned([1.5f32; 6 * TILE_SUMS]));
            let product = Product {
                a: a.0.as_ptr(),
                a_half: (STEPS + 1) * TILE_BYTES,
                a_step: TILE_BYTES,
                b: b.0.as_ptr(),
                b_half: 2 * STEPS * TILE_BYTES,
                b_step: TILE_BYTES,
                taps: taps.as_ptr(),
                tap_count: 2,
                steps: STEPS,
                out: out.0.as_mut_ptr(),
                out_half: 3 * TILE_BYTES,
                add,
            };
            // SAFETY: two taps of three tiles, for both tiles of either operand; sums of two tiles, and two more.
            unsafe {
                (tiles.begin)();
                (tiles.product[m - 1][n - 1])(&product);
                (tiles.end)();
            }
            out.0.map(f32::to_bits)
        };
        assert!(product(own) == product(plain), "{m} by {n} tiles, add: {add}");
    }
}

/// A kernel of one element, 1, gives back what the operands were rounded to.
#[test]
fn operands_are_rounded_and_sums_are_not() {
    let conv = square(33, 33, 1, 1, 0);
    let (cpus, x) =
        ([Cpu::with_simd(1, simd::Level::Portable).with_bf16().unwrap()], Shape::new(2, 3, 3, 33));
    for cpu in cpus.iter().chain(Cpu::new(1).with_bf16().iter()) {
        let passes = all_passes(cpu, conv, x);
        let exact = all_passes(&Cpu::new(1), conv, x);
        let apart = passes.iter().zip(&exact).filter(|(got, exact)| got != exact).count();
        assert!(apart > passes.len() / 4, "{apart} of {} differ", passes.len());
        for (&got, &exact) in passes.iter().zip(&exact) {
            let (got, exact) = (f32::from_bits(got), f32::from_bits(exact));
            assert!((got - exact).abs() < 0.05, "{got} instead of {exact}");
        }
    }
}
