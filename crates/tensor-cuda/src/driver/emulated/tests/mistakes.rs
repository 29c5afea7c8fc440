//! Mistakes are found.

use super::{complaint, download, driver, driver_in, run, try_download, upload};
use crate::Options;
use crate::driver::emulated::EmulatedDriver;
use crate::driver::emulated::order::{Order, Sense};
use crate::driver::{Driver, Geometry, Ptr, args};
use crate::source::Source;
use towers_program::Precision;

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
    // Afterwards the object works as before.
    run(&driver, "divergent", Geometry::line(2, 64), args![64u32]);
}

/// Whatever the order: forward, the barrier's lack changes no result.
#[test]
fn a_race_is_found_in_every_order() {
    for (sense, seed) in [(Sense::Forward, 0), (Sense::Reverse, 0), (Sense::Random, 3)] {
        let Some(driver) = driver_in(Order::fixed(sense, seed), Precision::Fp32) else { return };
        let fresh = || driver.alloc(64 * 4).unwrap();
        let races = |kernel: &str, geometry: Geometry, lacks: u32, what: &str| {
            let said = complaint(&driver, kernel, geometry, args![fresh(), lacks]);
            assert!(said.contains(&format!("kernel {kernel}: a race in {what}")), "{said}");
            assert!(said.contains("emulation.cu:"), "{said}");
        };
        let passes =
            |kernel: &str, geometry: Geometry| run(&driver, kernel, geometry, args![fresh(), u32::MAX]);
        let (warp, block, grid) = (Geometry::line(1, 32), Geometry::line(1, 64), Geometry::line(3, 32));
        for lacks in [0, 1] {
            races("shift_in_block", block, lacks, "shared");
            races("shift_in_warp", warp, lacks, "shared");
        }
        passes("shift_in_block", block);
        passes("shift_in_warp", warp);
        races("shift_in_warp", block, u32::MAX, "shared");
        races("sum_of_blocks", grid, 0, "global");
        races("sum_of_blocks", grid, 1, "global");
        races("sum_of_blocks", grid, 2, ""); // in either memory: the order decides which is first
        passes("sum_of_blocks", grid);
        races("all_write", grid, 0, "global");
    }
}

#[test]
fn a_copy_is_under_way_until_it_is_waited_for() {
    let Some(driver) = driver_in(Order::alternating(), Precision::Bf16) else { return };
    let values: Vec<f32> = (0..128).map(|k| k as f32).collect();
    let x = upload(&driver, &values, |x| x.to_le_bytes().to_vec());
    let y = driver.alloc(256 * 4).unwrap();
    let line = Geometry::line(1, 32);
    for waits in [0u32, 1] {
        let said = complaint(&driver, "copies", line, args![x, y, waits]);
        assert!(
            said.contains("reads it in emulation.cu:") && said.contains("still copies it in mma.cuh:"),
            "{said}"
        );
    }
    run(&driver, "copies", line, args![x, y, 2u32]);
    let got: Vec<f32> = download(&driver, y, 256).into_iter().map(f32::from_bits).collect();
    let first = (0..128).map(|k| if k / 4 % 2 == 0 { k as f32 } else { 0.0 });
    assert!(first.eq(got[..128].iter().copied()) && values == got[128..]);
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
fn accesses_outside_are_found() {
    let Some(driver) = driver() else { return };
    let ptr = driver.alloc(100).unwrap();
    for (at, place) in
        [(25i32, "4 bytes behind the end of an allocation of 100"), (-1, "outside of all allocations")]
    {
        for kernel in ["writes_past", "reads_past"] {
            let said = complaint(&driver, kernel, Geometry::line(1, 1), args![ptr, at]);
            assert!(said.contains(place) && said.contains("in emulation.cu:"), "{said}");
        }
    }
    run(&driver, "reads_past", Geometry::line(1, 1), args![ptr, 24i32]);
    let said = complaint(&driver, "writes_past_shared", Geometry::line(1, 1).shared(64), args![]);
    assert!(said.contains("more than the 64 bytes of dynamic shared memory"), "{said}");
}

#[test]
fn copies_stay_within_an_allocation() {
    let Some(driver) = driver() else { return };
    let ptr = driver.alloc(8).unwrap();
    assert!(ptr.0.is_multiple_of(256));
    assert_eq!(download(&driver, ptr, 2), [0, 0]);
    assert!(try_download(&driver, ptr.offset(4), 2).unwrap_err().to_string().contains("has 4 left"));
    assert!(try_download(&driver, Ptr(4096), 1).unwrap_err().to_string().contains("outside of all"));
    // SAFETY: the test is that a write outside the allocation is an error.
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
fn a_kernel_that_does_not_compile_says_why() {
    let Some(_) = driver() else { return };
    for (text, kernel, why) in [
        ("#include \"towers.cuh\"\nKERNEL broken(u32 n) { n = missing; }\n", "broken", "missing"),
        ("#include \"towers.cuh\"\nKERNEL takes(bool b) {}\n", "takes", "a kernel's parameter is a pointer"),
        ("#include \"towers.cuh\"\nKERNEL a() {}\nKERNEL unlisted() {}\n", "a", "unlisted"),
    ] {
        let source = Source { name: "broken.cu", text, kernels: Vec::leak(vec![kernel]) };
        let driver = EmulatedDriver::in_order(&Options::default(), &[source], Order::alternating()).unwrap();
        let said = driver.kernel(kernel).unwrap_err().to_string();
        assert!(
            said.contains("broken.cu") && said.contains("does not compile for f32") && said.contains(why),
            "{said}"
        );
    }
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
