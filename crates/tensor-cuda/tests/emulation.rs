//! The public interface of the emulated GPU: opening, capturing, and graphs that refuse like a GPU's.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use towers_program::{
    Backend, CapturedGraph as _, Layout, Precision, ReplayArgs, Shape, Span, Storage, View, ViewMut, Write,
};
use towers_tensor_cuda::Cuda;

/// The emulated GPU, or none without a C++ compiler.
fn emulated(precision: Precision) -> Option<Cuda> {
    let cuda = Cuda::emulated(precision);
    if let Err(e) = &cuda
        && e.to_string().contains("needs a C++17 compiler")
    {
        println!("SKIPPED: {e}");
        return None;
    }
    Some(cuda.unwrap())
}

#[test]
fn it_opens_in_every_precision() {
    for precision in [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16] {
        let Some(cuda) = emulated(precision) else { return };
        assert_eq!(cuda.options().precision, precision);
        assert_eq!(cuda.name(), "the emulated GPU");
        cuda.synchronize().unwrap();
    }
}

#[test]
fn a_recording_is_done_as_often_as_it_is_replayed() {
    let Some(cuda) = emulated(Precision::Fp32) else { return };
    let mut x = cuda.alloc(5).unwrap();
    let read = |x: &Storage| {
        let mut host = [0.0; 5];
        cuda.download(x, 0, &mut host).unwrap();
        host
    };
    cuda.fill(1.0, &mut x, Span::new(0, 5)).unwrap();
    cuda.begin_capture().unwrap();
    cuda.fill(2.0, &mut x, Span::new(1, 3)).unwrap();
    let graph = cuda.end_capture().unwrap();
    assert_eq!(read(&x), [1.0; 5]);
    for _ in 0..2 {
        graph.replay(&ReplayArgs::default()).unwrap();
        assert_eq!(read(&x), [1.0, 2.0, 2.0, 2.0, 1.0]);
        cuda.fill(1.0, &mut x, Span::new(0, 5)).unwrap();
    }
}

/// A graph knows addresses. Work on memory that is gone would read and write whatever lies there now.
#[test]
fn a_recording_is_not_replayed_without_its_memory() {
    let Some(cuda) = emulated(Precision::Fp32) else { return };
    let (mut x, mut y) = (cuda.alloc(5).unwrap(), cuda.alloc(5).unwrap());
    let at = Layout::contiguous(Shape::vectors(1, 5));
    let fill = |x: &mut Storage| cuda.fill(2.0, x, Span::new(0, 5)).unwrap();
    let copy = |x: &Storage, y: &mut Storage| {
        cuda.copy(View::new(x, at), ViewMut::new(y, at), Write::Set).unwrap();
    };
    // Every op runs once before it is captured.
    fill(&mut x);
    copy(&x, &mut y);
    cuda.begin_capture().unwrap();
    fill(&mut x);
    let of_x = cuda.end_capture().unwrap();
    cuda.begin_capture().unwrap();
    copy(&x, &mut y);
    let of_both = cuda.end_capture().unwrap();
    of_both.replay(&ReplayArgs::default()).unwrap();
    drop(y);
    let refused = of_both.replay(&ReplayArgs::default()).unwrap_err().to_string();
    assert!(refused.contains("memory that it works on was freed"), "{refused}");
    of_x.replay(&ReplayArgs::default()).unwrap();
    drop(x);
    assert!(of_x.replay(&ReplayArgs::default()).is_err());
}

/// Clones of a device have one learning rate for the step.
#[test]
fn clones_do_not_sum_as_peers() {
    let Some(cuda) = emulated(Precision::Fp32) else { return };
    let error = towers_tensor_cuda::Peers::of(&[cuda.clone(), cuda]).unwrap_err().to_string();
    assert!(error.contains("open the GPU once for each replica"), "{error}");
}

#[test]
fn a_recording_neither_allocates_nor_waits() {
    let Some(cuda) = emulated(Precision::Fp32) else { return };
    let mut ints = cuda.alloc_ints(4).unwrap();
    let refused: [&mut dyn FnMut() -> bool; 3] =
        [&mut || cuda.alloc(1).is_err(), &mut || cuda.upload_ints(&[1], &mut ints).is_err(), &mut || {
            cuda.synchronize().is_err()
        }];
    for act in refused {
        cuda.begin_capture().unwrap();
        assert!(act());
        let said = cuda.end_capture().unwrap_err().to_string();
        assert!(said.contains("the capture is of no use"), "{said}");
    }
    cuda.begin_capture().unwrap();
    assert!(cuda.begin_capture().is_err());
    cuda.abandon_capture();
    cuda.synchronize().unwrap();
}
