//! The public interface of the emulated GPU: opening, capturing, and graphs that refuse like a GPU's.
#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use program::{Backend, CapturedGraph as _, Precision, ReplayArgs, Span, Storage};
use tensor_cuda::Cuda;

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
