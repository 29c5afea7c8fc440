//! What the tiles do to numbers. Whole passes are compared with the reference in `conv::tests`.

use super::level::Level;
use super::portable::{round, widen};
use super::tile::{Aligned, DEPTH, ROW_BYTES, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS};
use super::tiles::{FinishRun, Narrow, Pairs, Product, Tiles, Walk};
use crate::conv::tests::{all_passes, random, square};
use crate::element::{Bf16, Element};
use crate::{Cpu, simd};
use towers_program::Shape;

/// The tiles of this processor beside those of plain loops, where it has some.
fn own() -> Option<&'static Tiles> {
    let levels = simd::Level::available().iter().filter_map(|&simd| Level::detect(simd));
    let own = levels.filter(|&level| level != Level::Portable).map(Level::tiles).next_back();
    if own.is_none() {
        println!("SKIPPED: tiles of AMX: the processor has none");
    }
    own
}

/// As AMX rounds, beside what every rounding to the format does.
#[test]
fn subnormal_numbers_are_zeros() {
    for (x, expected) in [(1e-40, 0.0), (-1e-40, -0.0), (f32::MIN_POSITIVE, f32::MIN_POSITIVE)] {
        assert_eq!(widen(round(x)).to_bits(), f32::to_bits(expected), "{x}");
    }
    assert_eq!((widen(0x0001), widen(0x8001).to_bits()), (0.0, (-0.0f32).to_bits()));
}

/// Numbers of every size, with some that are none.
fn numbers(len: usize) -> Vec<f32> {
    let scale = |i: usize| 10f32.powi((i % 61) as i32 - 30);
    let mut numbers: Vec<f32> = random(len, 1).iter().enumerate().map(|(i, x)| x * scale(i)).collect();
    numbers[..4].copy_from_slice(&[f32::NAN, f32::INFINITY, 1e-40, -0.0]);
    numbers
}

/// How a line is laid out.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Spread,
    /// With so many pairings.
    Pairs(usize),
    Columns,
}

/// Pixels of a line, and elements from its tiles to those of other channels.
const LINE: usize = 96;
const TILE_LEN: usize = LINE * SIDE;

/// What `tiles` make of three images of 5x7 pixels, of which two rows and pixels are shown, two rows and three pixels apart.
fn laid_out(tiles: &Tiles, layout: Layout, channels: usize) -> Vec<u16> {
    const IMAGE: usize = 5 * 7 * 40;
    let source: Vec<Bf16> = random(3 * IMAGE, 2).into_iter().map(Bf16::of).collect();
    let mut to = vec![0x5a5a; 4 * TILE_LEN];
    let walk = Walk {
        src: source[40 + 3..].as_ptr(),
        steps: [IMAGE, 2 * 7 * 40, 3 * 40],
        images: 3,
        slots: [5, 4],
        inside: [1..3, 1..3],
        channels,
        len: LINE,
        patch: None,
    };
    let dst = to.as_mut_ptr();
    // SAFETY: the processor has the level; two rows of two pixels exist in each image; there is room for two tiles of the line, twice.
    unsafe {
        match layout {
            Layout::Spread => (tiles.spread)(&walk, dst),
            Layout::Pairs(pairings) => {
                let pairs = Pairs { dst, tile_len: TILE_LEN, pairings, pairing_len: 2 * TILE_LEN };
                (tiles.pair)(&walk, &pairs);
            }
            Layout::Columns => (tiles.columns)(&walk, dst, TILE_LEN),
        }
    }
    to
}

/// Where the numbers of a pixel go, by the places that the descriptions name.
#[test]
fn pixels_go_where_they_belong() {
    let plain = |layout| laid_out(Level::Portable.tiles(), layout, 2 * SIDE);
    // The second image's third row and third pixel: the last one that exists there.
    let place = 20 + 2 * 4 + 2;
    let spread = plain(Layout::Spread);
    let pixel = &spread[place * DEPTH..][..DEPTH];
    assert!(pixel.iter().all(|&x| x != 0) && spread[(place + 1) * DEPTH..][..DEPTH] == [0; DEPTH]);
    let (pairs, columns) = (plain(Layout::Pairs(2)), plain(Layout::Columns));
    for (channel, &x) in pixel.iter().enumerate() {
        let (tile, channel) = (channel / SIDE * TILE_LEN, channel % SIDE);
        let even = tile + place / 2 * DEPTH + channel * 2;
        let odd = 2 * TILE_LEN + tile + (place - 1) / 2 * DEPTH + channel * 2 + 1;
        let column = tile + place / DEPTH * TILE_HALVES + channel * DEPTH + place % DEPTH;
        assert_eq!([pairs[even], pairs[odd], columns[column]], [x; 3], "channel {channel}");
    }
}

#[test]
fn laying_out_gives_the_same_bits_everywhere() {
    let (Some(own), plain) = (own(), Level::Portable.tiles()) else { return };
    for layout in [Layout::Spread, Layout::Pairs(1), Layout::Pairs(2), Layout::Columns] {
        for channels in [1, 7, 16, 17, 32] {
            let [own, plain] = [own, plain].map(|tiles| laid_out(tiles, layout, channels));
            assert!(own == plain, "{layout:?} of {channels} channels");
        }
    }
    let source = numbers(16 * 90);
    for (row, len) in [(16, 16), (16, 7), (32, 32), (32, 17), (32, 5)] {
        let narrow = |tiles: &Tiles| {
            let mut to = vec![0; 16 * row];
            let run =
                Narrow { src: source.as_ptr(), src_step: 90, dst: to.as_mut_ptr(), count: 16, len, row };
            // SAFETY: sixteen rows of 90 numbers, and room for as many.
            unsafe { (tiles.narrow)(&run) };
            to
        };
        assert_eq!(narrow(own), narrow(plain), "{len} numbers in rows of {row}");
    }
    let halves: Vec<u16> = (0..3 * TILE_HALVES as u16).map(|i| i.wrapping_mul(40_503)).collect();
    let both = |tiles: &Tiles| {
        let mut to = vec![0; 2 * TILE_HALVES];
        // SAFETY: tiles all.
        unsafe {
            (tiles.weave)(halves.as_ptr(), to.as_mut_ptr());
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
                a_row: ROW_BYTES,
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

#[test]
fn outputs_have_the_same_bits_everywhere() {
    let (Some(own), plain) = (own(), Level::Portable.tiles()) else { return };
    let (sums, of_columns) = (random(4 * TILE_SUMS, 4), random(3 * 2 * SIDE, 5));
    let before: Vec<Bf16> = random(7 * 40, 6).into_iter().map(Bf16::of).collect();
    for (columns, options) in
        (1..=2 * SIDE).flat_map(|columns| (0..16).map(move |options| (columns, options)))
    {
        let given = |bit: usize, run: usize| {
            if options & bit > 0 { of_columns[run * 2 * SIDE..].as_ptr() } else { core::ptr::null() }
        };
        let finish = |tiles: &Tiles| {
            let mut y = before.clone();
            let run = FinishRun {
                sums: sums.as_ptr(),
                count: 7,
                y: y[3..].as_mut_ptr(),
                y_step: 39,
                columns,
                bias: given(1, 0),
                affine: [given(2, 1), given(2, 2)],
                add: options & 4 > 0,
                relu: (options & 8 > 0).then_some(if options & 1 > 0 { 0.5 } else { f32::INFINITY }),
            };
            // SAFETY: two tiles of sums, and numbers for as many columns; seven outputs with room for them.
            unsafe { (tiles.finish)(&run) };
            y
        };
        assert_eq!(finish(own), finish(plain), "{columns} columns, options {options:b}");
        assert_eq!(finish(plain)[3 + columns], before[3 + columns]);
    }
}

#[test]
fn what_is_stored_is_rounded_and_gradients_of_weights_are_not() {
    let conv = square(33, 33, 1, 1, 0);
    let (cpus, x) =
        ([Cpu::with_simd(1, simd::Level::Portable).with_portable_bf16()], Shape::new(2, 3, 3, 33));
    for cpu in cpus.iter().chain(Cpu::new(1).with_bf16().iter()) {
        let passes = all_passes(cpu, conv, x);
        let exact = all_passes(&Cpu::new(1), conv, x);
        let (stored, kept) = passes.split_at(2 * x.len());
        let long = |bits: &&u32| **bits & 0xffff != 0;
        assert_eq!((stored.iter().filter(long).count(), kept.iter().filter(long).count() > 1000), (0, true));
        for (&got, &exact) in passes.iter().zip(&exact) {
            let (got, exact) = (f32::from_bits(got), f32::from_bits(exact));
            assert!((got - exact).abs() < 0.05, "{got} instead of {exact}");
        }
    }
}
