//! Mistakes are found.

use super::{complaint, download, driver, driver_in, run, try_download, upload};
use crate::Options;
use crate::driver::emulated::EmulatedDriver;
use crate::driver::emulated::order::{Order, Sense};
use crate::driver::{Driver, Geometry, Ptr, args};
use crate::source::Source;
use program::Precision;

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
fn a_missing_wait_for_copies_shows_in_some_order() {
    let mut right = Vec::new();
    for (sense, waits) in
        [Sense::Forward, Sense::Reverse].into_iter().flat_map(|s| [0_u32, 1, 2].map(|w| (s, w)))
    {
        let Some(driver) = driver_in(Order::fixed(sense, 0), Precision::Bf16) else { return };
        let values: Vec<f32> = (0..128).map(|k| k as f32).collect();
        let x = upload(&driver, &values, |x| x.to_le_bytes().to_vec());
        let y = driver.alloc(256 * 4).unwrap();
        run(&driver, "copies", Geometry::line(1, 32), args![x, y, waits]);
        let got: Vec<f32> = download(&driver, y, 256).into_iter().map(f32::from_bits).collect();
        let first = (0..128).map(|k| if k / 4 % 2 == 0 { k as f32 } else { 0.0 });
        right.push([first.eq(got[..128].iter().copied()), values == got[128..]]);
    }
    assert_eq!(right[..3], [[true; 2]; 3]);
    assert_eq!(right[3..], [[false; 2], [true, false], [true; 2]]);
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
