//! Captures, and their graphs.

use super::{download, driver, run, try_download};
use crate::Cuda;
use crate::driver::{Driver, Geometry, args};
use crate::lock::lock;
use towers_program::{CapturedGraph as _, Precision, ReplayArgs, Result};

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

/// The second stream is a fork and a join of the graph. The end of the capture joins it if needed.
#[test]
fn a_second_stream_is_part_of_a_capture() {
    let Some(driver) = driver() else { return };
    let ptr = driver.alloc(24).unwrap();
    // SAFETY: the range is the allocation.
    let clear = || unsafe { driver.clear(ptr, 24) }.unwrap();
    driver.fork().unwrap();
    for joined in [true, false] {
        driver.begin_capture().unwrap();
        driver.join().unwrap();
        clear();
        driver.fork().unwrap();
        clear();
        driver.fork().unwrap();
        if joined {
            driver.join().unwrap();
            clear();
        }
        let graph = driver.end_capture(true).unwrap();
        let works = format!("{:?}", lock(&driver.state).graphs[graph.0]);
        let order =
            works.split(|c: char| !c.is_alphabetic()).filter(|word| ["Clear", "Fork", "Join"].contains(word));
        let expected = ["Clear", "Fork", "Clear", "Fork", "Join", "Clear"];
        assert!(order.eq(expected[..5 + usize::from(joined)].iter().copied()), "{works}");
        driver.launch_graph(&graph).unwrap();
    }
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
    // SAFETY: the test is that the capture reports this.
    unsafe { driver.free(ptr, 24) };
    assert!(driver.end_capture(true).unwrap_err().to_string().contains("24 bytes were freed"));
    driver.begin_capture().unwrap();
    assert!(driver.alloc(1).is_err());
    driver.end_capture(false).unwrap();
}

/// This driver's stream has no part in that, as on a GPU. The reader's stream does.
#[test]
fn another_driver_may_read_during_a_capture() {
    let (Some(one), Some(other)) = (driver(), driver()) else { return };
    let [from, to] = [&one, &other].map(|driver| driver.alloc(4).unwrap());
    // SAFETY: the ranges are the allocations.
    let copy = || unsafe {
        one.write(&7u32.to_ne_bytes(), from)?;
        one.begin_capture()?;
        other.copy(&one, from, to, 4)?;
        one.end_capture(true)?;
        other.begin_capture()?;
        other.copy(&one, from, to, 4)
    };
    assert!(copy().unwrap_err().to_string().contains("the host wrote during a capture"));
    other.end_capture(false).unwrap();
    assert_eq!(download(&other, to, 1), [7]);
}

/// `struct StepState` as the device holds it.
fn turn_of(cuda: &Cuda) -> Vec<u32> {
    download(&**cuda.driver(), cuda.step_state(), crate::step_state::BYTES / 4)
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
        cuda.begin_capture().unwrap();
        cuda.set_step(6).unwrap();
        let graph = cuda.end_capture().unwrap();
        assert_eq!(turn_of(&cuda)[0], 5);
        graph.replay(&ReplayArgs { step: 1 << 33 | 7, lr: 0.25, first: 9 }).unwrap();
        assert_eq!(turn_of(&cuda)[..5], [7, 2, 0.25f32.to_bits(), 9, scale.to_bits()]);
    }
}
