//! The emulation itself: what it computes, and the mistakes that it finds.

use super::order::{Order, Sense};
use super::{EmulatedDriver, compiler};
use crate::driver::{Arg, Driver, Geometry, Ptr, args};
use crate::kernels::Source;
use crate::{Cuda, Options, Turn};
use std::sync::Arc;
use tensor_backend::{Precision, Result};

/// The kernels of these tests, some of which are wrong on purpose.
const KERNELS: Source = Source {
    name: "emulation.cu",
    text: include_str!("../../../emulation/tests.cu"),
    kernels: &[
        "all_halves",
        "to_halves",
        "sums",
        "random_words",
        "neighbours",
        "divergent",
        "two_barriers",
        "missing_lane",
        "missing_barrier",
        "writes_past",
        "writes_past_shared",
        "unwritten_shared",
        "tickets",
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
    Some(EmulatedDriver::with_sources(&options, &[KERNELS], order).unwrap())
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
    // SAFETY: the emulation checks arguments; wrong kernels stay within the guards.
    unsafe { driver.launch(kernel, geometry, args) }
}

fn run(driver: &dyn Driver, kernel: &str, geometry: Geometry, args: &[Arg]) {
    try_run(driver, kernel, geometry, args).unwrap();
}

/// What a launch that must fail says.
fn complaint(driver: &dyn Driver, kernel: &str, geometry: Geometry, args: &[Arg]) -> String {
    try_run(driver, kernel, geometry, args).unwrap_err().to_string()
}

/// The sense of a NaN is all that conversions need to keep.
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

/// All floats that a rounding could get wrong: each half, the middle to the next, their neighbours, and far ones.
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
        assert_eq!(words, philox::philox4x32([k, k * k, 3, 4], [7, 11]));
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
fn a_barrier_that_some_threads_miss_is_an_error() {
    let Some(driver) = driver() else { return };
    let said = complaint(&driver, "divergent", Geometry::line(2, 64), args![40u32]);
    assert!(
        said.contains("kernel divergent") && said.contains("waits at the barrier in emulation.cu:"),
        "{said}"
    );
    assert!(said.contains("has ended"), "{said}");
    let said = complaint(&driver, "two_barriers", Geometry::line(1, 64), args![]);
    assert!(said.contains("different barriers"), "{said}");
    let said = complaint(&driver, "missing_lane", Geometry::line(1, 32), args![]);
    assert!(said.contains("waits for its warp"), "{said}");
    // After all that the object is as good as new.
    run(&driver, "divergent", Geometry::line(2, 64), args![64u32]);
}

#[test]
fn a_missing_barrier_shows_in_some_order() {
    let mut right = Vec::new();
    for (sense, seed) in [(Sense::Forward, 0), (Sense::Reverse, 0), (Sense::Random, 3)] {
        let Some(driver) = driver_in(Order::fixed(sense, seed), Precision::Fp32) else { return };
        let y = driver.alloc(64 * 4).unwrap();
        run(&driver, "missing_barrier", Geometry::line(1, 64), args![y]);
        right.push((0u32..64).map(|k| (k as f32 - 1.0).max(0.0).to_bits()).eq(download(&driver, y, 64)));
    }
    assert_eq!(right, [true, false, false]);
}

#[test]
fn arguments_are_compared_with_parameters() {
    let Some(driver) = driver() else { return };
    let line = Geometry::line(1, 1);
    let ptr = driver.alloc(64).unwrap();
    let said = complaint(&driver, "set", line, args![ptr, 1u32]);
    assert!(said.contains("kernel set has 5 parameters and was given 2 arguments"), "{said}");
    let said = complaint(&driver, "set", line, args![ptr, 1u32, 2i32, 3u32, 4.0f32]);
    assert!(said.contains("kernel set: argument 3 is u32 and the parameter u64"), "{said}");
    let said = complaint(&driver, "set", line, args![Ptr(64), 1u32, 2i32, 3u64, 4.0f32]);
    assert!(said.contains("argument 0 points to no live allocation"), "{said}");
    run(&driver, "set", line, args![ptr, u32::MAX, -2i32, 1u64 << 40, 0.5f32]);
    assert_eq!(download(&driver, ptr, 6), [u32::MAX, -2i32 as u32, 0, 1 << 8, 0.5f32.to_bits(), 0]);
    let said = driver.kernel("nothing").unwrap_err().to_string();
    assert!(said.contains("there is no kernel nothing"), "{said}");
}

#[test]
fn a_geometry_that_no_gpu_runs_is_refused() {
    let Some(driver) = driver() else { return };
    for (grid, block, shared) in [
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 1, 1], [0, 1, 1], 0),
        ([1, 65536, 1], [1, 1, 1], 0),
        ([1, 1, 65536], [1, 1, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 33, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [1, 1, 1], (227 << 10) + 1),
    ] {
        let said = complaint(&driver, "divergent", Geometry { grid, block, shared }, args![1u32]);
        assert!(said.contains("no GPU runs"), "{said}");
    }
    run(
        &driver,
        "divergent",
        Geometry { grid: [1, 1, 1], block: [4, 4, 64], shared: 227 << 10 },
        args![1024u32],
    );
}

#[test]
fn writes_outside_are_found() {
    let Some(driver) = driver() else { return };
    for (at, place) in [(25i32, "0 bytes behind the end"), (27, "8 bytes behind"), (-2, "8 bytes before")] {
        let ptr = driver.alloc(100).unwrap();
        let said = complaint(&driver, "writes_past", Geometry::line(1, 1), args![ptr, at]);
        assert!(said.contains("kernel writes_past") && said.contains(place), "{said}");
        assert!(said.contains("an allocation of 100 bytes"), "{said}");
        assert!(driver.synchronize().is_err());
        // SAFETY: it is used no more.
        unsafe { driver.free(ptr, 100) };
        assert!(driver.synchronize().is_err());
        driver.synchronize().unwrap();
    }
    let said = complaint(&driver, "writes_past_shared", Geometry::line(1, 1).shared(64), args![]);
    assert!(said.contains("past its 64 bytes of dynamic shared memory"), "{said}");
}

#[test]
fn copies_stay_within_an_allocation() {
    let Some(driver) = driver() else { return };
    let ptr = driver.alloc(8).unwrap();
    assert!(ptr.0.is_multiple_of(256));
    assert_eq!(download(&driver, ptr, 2), [0, 0]);
    assert!(try_download(&driver, ptr.offset(4), 2).unwrap_err().to_string().contains("has 4 left"));
    assert!(try_download(&driver, Ptr(4096), 1).unwrap_err().to_string().contains("outside of all"));
    // SAFETY: that it is not within the allocation is what is tested.
    assert!(unsafe { driver.write(&[0; 9], ptr) }.is_err());
    // SAFETY: as above.
    assert!(unsafe { driver.clear(ptr, 9) }.is_err());
}

#[test]
fn shared_memory_that_nobody_wrote_is_nan() {
    let Some(driver) = driver() else { return };
    let y = driver.alloc(8).unwrap();
    run(&driver, "unwritten_shared", Geometry::line(2, 1).shared(16), args![y]);
    assert!(download(&driver, y, 2).iter().all(|bits| f32::from_bits(*bits).is_nan()));
}

#[test]
fn a_capture_is_written_down_and_done_again() {
    let Some(driver) = driver() else { return };
    let line = Geometry::line(1, 1);
    let ptr = driver.alloc(24).unwrap();
    let set = |x: u32| run(&driver, "set", line, args![ptr, x, 0i32, 0u64, 0.0f32]);
    set(1);
    driver.begin_capture().unwrap();
    // SAFETY: the range is the allocation.
    unsafe { driver.clear(ptr, 24) }.unwrap();
    set(2);
    let graph = driver.end_capture(true).unwrap();
    assert_eq!(download(&driver, ptr, 1), [1]);
    driver.launch_graph(&graph).unwrap();
    assert_eq!(download(&driver, ptr, 1), [2]);
    set(3);
    driver.launch_graph(&graph).unwrap();
    assert_eq!(download(&driver, ptr, 1), [2]);
    // SAFETY: it is used no more but by the graph, which must notice.
    unsafe { driver.free(ptr, 24) };
    assert!(driver.launch_graph(&graph).is_err());
    driver.free_graph(graph);
}

#[test]
fn what_a_gpu_refuses_in_a_capture_is_refused_and_spoils_it() {
    let Some(driver) = driver() else { return };
    let ptr = driver.alloc(24).unwrap();
    let args = args![ptr, 1u32, 2i32, 3u64, 4.0f32];
    run(&driver, "set", Geometry::line(1, 1), args);
    let refused: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("allocated", &|| driver.alloc(4).map(|_| ())),
        ("host read", &|| try_download(&driver, ptr, 1).map(|_| ())),
        // SAFETY: the range is in the allocation.
        ("host wrote", &|| unsafe { driver.write(&[1], ptr) }),
        ("host waited", &|| driver.synchronize()),
        ("another capture", &|| driver.begin_capture()),
        ("kernel sums was loaded", &|| driver.kernel("sums").map(|_| ())),
    ];
    for (what, act) in refused {
        driver.begin_capture().unwrap();
        let said = act().unwrap_err().to_string();
        assert!(said.contains(what) && said.contains("during a capture"), "{said}");
        assert!(driver.end_capture(true).unwrap_err().to_string().contains(what));
    }
    driver.begin_capture().unwrap();
    run(&driver, "set", Geometry::line(1, 1), args);
    // SAFETY: that the capture names it is what is tested.
    unsafe { driver.free(ptr, 24) };
    assert!(driver.end_capture(true).unwrap_err().to_string().contains("24 bytes were freed"));
    driver.begin_capture().unwrap();
    assert!(driver.alloc(1).is_err());
    driver.end_capture(false).unwrap();
}

#[test]
fn a_kernel_that_does_not_compile_says_why() {
    let Some(_) = driver() else { return };
    for (text, kernel, why) in [
        ("#include \"towers.cuh\"\nKERNEL broken(u32 n) { n = missing; }\n", "broken", "missing"),
        ("#include \"towers.cuh\"\nKERNEL takes(bool b) {}\n", "takes", "a kernel's parameter is a pointer"),
        ("#include \"towers.cuh\"\nKERNEL a() {}\nKERNEL unlisted() {}\n", "a", "unlisted"),
    ] {
        let source = Source { name: "broken.cu", text, kernels: Vec::leak(vec![kernel]) };
        let driver =
            EmulatedDriver::with_sources(&Options::default(), &[source], Order::alternating()).unwrap();
        let said = driver.kernel(kernel).unwrap_err().to_string();
        assert!(
            said.contains("broken.cu") && said.contains("does not compile for f32") && said.contains(why),
            "{said}"
        );
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

#[test]
fn orders_are_read_from_the_environment_as_documented() {
    for (text, sense) in [("forward", 0), ("reverse", 1), ("random", 2), ("random:7", 2)] {
        let mut order = Order::parse(text).unwrap();
        assert!((0..4).all(|_| order.next().0 as u32 == sense), "{text}");
    }
    for wrong in ["", "backward", "random:x", "forward:1"] {
        assert!(Order::parse(wrong).is_err(), "{wrong}");
    }
    let mut order = Order::alternating();
    assert_eq!([0, 1, 2, 0], core::array::from_fn(|_| order.next().0 as u32));
}

/// `struct Turn` as the device holds it.
fn turn_of(cuda: &Cuda) -> Vec<u32> {
    download(&**cuda.driver(), cuda.turn(), crate::turn::BYTES / 4)
}

#[test]
fn a_replay_sets_the_turn() {
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16] {
        let cuda = match Cuda::emulated(precision) {
            Ok(cuda) => cuda,
            Err(e) => return println!("SKIPPED: {e}"),
        };
        let scale = if precision == Precision::Fp16 { 65536.0f32 } else { 1.0 };
        assert_eq!(turn_of(&cuda)[..8], [0, 0, 0, 0, scale.to_bits(), 0, 0, 0]);
        cuda.set_step(5).unwrap();
        assert_eq!(turn_of(&cuda)[0], 5);
        cuda.begin_recording().unwrap();
        cuda.set_step(6).unwrap();
        let recording = cuda.end_recording().unwrap();
        assert_eq!(turn_of(&cuda)[0], 5);
        recording.replay(&Turn { step: 1 << 33 | 7, lr: 0.25, first: 9 }).unwrap();
        assert_eq!(turn_of(&cuda)[..5], [7, 2, 0.25f32.to_bits(), 9, scale.to_bits()]);
    }
}
