//! Correct kernels give correct results.

use super::{download, driver, driver_in, run, upload};
use crate::Options;
use crate::driver::emulated::EmulatedDriver;
use crate::driver::emulated::order::{Order, Sense};
use crate::driver::{Driver, Geometry, args};
use crate::kernels::SOURCES;
use std::sync::Arc;
use towers_program::Precision;

/// Conversions need only keep a NaN a NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn every_half_becomes_the_float_that_it_is() {
    let Some(driver) = driver() else { return };
    let out = driver.alloc(65536 * 4).unwrap();
    run(&driver, "all_halves", Geometry::line(256, 256), args![out]);
    for (half, bits) in (0..=u16::MAX).zip(download(&driver, out, 65536)) {
        let expected = half::f16::from_bits(half).to_f32();
        assert!(same(f32::from_bits(bits), expected), "{half:#x}: {} {expected}", f32::from_bits(bits));
    }
}

/// All floats near a rounding boundary: each half, the midpoint to the next, their neighbours, and distant
/// ones.
#[test]
fn floats_round_to_the_nearest_half_and_ties_to_even() {
    let Some(driver) = driver() else { return };
    let mut floats: Vec<u32> = Vec::new();
    for half in 0..0x7c00 {
        let low = half::f16::from_bits(half).to_f32().to_bits();
        let next = if half == 0x7bff { 65536.0 } else { half::f16::from_bits(half + 1).to_f32() };
        let middle = ((f64::from(f32::from_bits(low)) + f64::from(next)) / 2.0) as f32;
        floats.extend([low, low + 1, middle.to_bits() - 1, middle.to_bits(), middle.to_bits() + 1]);
    }
    floats.extend([0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7f7f_ffff, 1, 0x0080_0000]);
    let signed = floats.iter().map(|bits| bits | 1 << 31);
    let floats: Vec<u32> = floats.iter().copied().chain(signed).collect();
    let input = upload(&driver, &floats, |x| x.to_le_bytes().to_vec());
    let out = driver.alloc(floats.len() * 4).unwrap();
    let n = floats.len() as u32;
    run(&driver, "to_halves", Geometry::line(n.div_ceil(256), 256), args![input, out, n]);
    for (bits, half) in floats.iter().zip(download(&driver, out, floats.len())) {
        let expected = half::f16::from_f32(f32::from_bits(*bits));
        let got = half::f16::from_bits(half as u16);
        assert!(same(got.to_f32(), expected.to_f32()), "{bits:#x}: {got} {expected}");
    }
}

#[test]
fn a_block_adds_up_in_every_order_with_the_same_bits() {
    let input: Vec<f32> = (0..7 * 96).map(|k| (k as f32 * 0.37).sin()).collect();
    let mut all = Vec::new();
    for (sense, seed) in [(Sense::Forward, 0), (Sense::Reverse, 0), (Sense::Random, 1), (Sense::Random, 2)] {
        let Some(driver) = driver_in(Order::fixed(sense, seed), Precision::Fp32) else { return };
        let x = upload(&driver, &input, |x| x.to_le_bytes().to_vec());
        let y = driver.alloc(7 * 4).unwrap();
        run(&driver, "sums", Geometry::line(7, 96), args![x, y]);
        all.push(download(&driver, y, 7));
    }
    for (sum, row) in all[0].iter().zip(input.chunks(96)) {
        let expected: f64 = row.iter().map(|x| f64::from(*x)).sum();
        assert!((f64::from(f32::from_bits(*sum)) - expected).abs() < 1e-5, "{expected}");
    }
    assert!(all.iter().all(|sums| *sums == all[0]));
}

#[test]
fn words_are_those_of_crate_philox() {
    let Some(driver) = driver() else { return };
    let out = driver.alloc(64 * 4 * 4).unwrap();
    run(&driver, "random_words", Geometry::line(2, 32), args![out, 7u32, 11u32]);
    let words = download(&driver, out, 64 * 4);
    for (k, words) in (0u32..).zip(words.chunks(4)) {
        assert_eq!(words, towers_philox::philox4x32([k, k * k, 3, 4], [7, 11]));
    }
}

#[test]
fn lanes_see_what_other_lanes_hold() {
    let Some(driver) = driver() else { return };
    let out = driver.alloc(64 * 8 * 4).unwrap();
    run(&driver, "neighbours", Geometry::line(1, 64), args![out]);
    for (thread, got) in (0u32..).zip(download(&driver, out, 64 * 8).chunks(8)) {
        let (lane, base) = (thread % 32, thread / 32 * 32);
        let up = base + if lane < 3 { lane } else { lane - 3 };
        let down = if lane % 8 + 3 < 8 { lane + 3 } else { lane };
        let expected = [
            base + 5,
            base + (lane ^ 9),
            up,
            base + down,
            0x5555_5555,
            1,
            u32::from(thread < 32),
            base + lane / 16 * 16 + 7,
        ];
        assert_eq!(got, expected, "thread {thread}");
    }
}

#[test]
fn a_product_of_fragments_is_the_product_of_the_matrices() {
    for precision in [Precision::Bf16, Precision::Fp16] {
        let Some(driver) = driver_in(Order::alternating(), precision) else { return };
        // Small integers, exact in every format: a[m][k], b[k][n], d[m][n].
        let a = |m: u32, k: u32| ((m * 7 + k * 3) % 11) as f32 - 5.0;
        let b = |k: u32, n: u32| ((k * 5 + n * 2) % 13) as f32 - 6.0;
        let xs: Vec<f32> = (0..256).map(|at| a(at / 16, at % 16)).collect();
        let ys: Vec<f32> = (0..128).map(|at| b(at / 8, at % 8)).collect();
        let x = upload(&driver, &xs, |x| x.to_le_bytes().to_vec());
        let y = upload(&driver, &ys, |x| x.to_le_bytes().to_vec());
        let d = driver.alloc(128 * 4).unwrap();
        run(&driver, "product", Geometry::line(1, 32), args![x, y, d]);
        for (at, got) in (0u32..).zip(download(&driver, d, 128)) {
            let expected: f32 = (0..16).map(|k| a(at / 8, k) * b(k, at % 8)).sum();
            assert_eq!(f32::from_bits(got), expected + 1.0, "{precision:?} {at}");
        }
    }
}

#[test]
fn blocks_count_with_atomics() {
    let Some(driver) = driver() else { return };
    let (count, seen) = (driver.alloc(4).unwrap(), driver.alloc(40 * 4).unwrap());
    run(&driver, "tickets", Geometry { grid: [5, 2, 2], block: [2, 1, 1], shared: 0 }, args![count, seen]);
    assert_eq!(download(&driver, count, 1), [0]);
    let mut seen = download(&driver, seen, 40);
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<u32>>());
}

#[test]
fn every_kernel_file_is_taken_in_every_format() {
    if driver().is_none() {
        return;
    }
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
        let driver = EmulatedDriver::new(&Options { precision, ..Options::default() }, SOURCES).unwrap();
        for kernel in SOURCES.iter().flat_map(|source| source.kernels) {
            driver.kernel(kernel).unwrap();
        }
    }
}

#[test]
fn devices_in_several_threads_do_not_disturb_each_other() {
    let Some(first) = driver() else { return };
    let devices: Vec<Arc<EmulatedDriver>> =
        [first].into_iter().chain((0..3).filter_map(|_| driver())).map(Arc::new).collect();
    let threads: Vec<_> = devices
        .into_iter()
        .enumerate()
        .map(|(device, driver)| {
            std::thread::spawn(move || {
                let x = upload(&*driver, &[device as f32; 192], |x| x.to_le_bytes().to_vec());
                let y = driver.alloc(8).unwrap();
                for _ in 0..50 {
                    run(&*driver, "sums", Geometry::line(2, 96), args![x, y]);
                    assert_eq!(download(&*driver, y, 2), [(96.0 * device as f32).to_bits(); 2]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
