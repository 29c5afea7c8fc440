//! Copies to and from the device, fills, copies and activations on the emulated GPU.

use crate::harness::*;
use towers_conformance::elementwise::Elementwise;
use towers_conformance::{ALONE, Placement, SLICE};
use towers_program::{
    Activation, Backend, Error, Layout, Precision, Result, Shape, Span, Storage, View, ViewMut, Write,
};
use towers_tensor_cuda::Cuda;

const PLACES: [Placement; 3] = [ALONE, SLICE, Placement { before: 16, beside: 24 }];

/// More elements than threads, so that every thread goes round several times.
#[test]
fn more_packs_than_threads() {
    let (shape, act, mode) = (Shape::new(3, 60, 60, 24), Activation::Relu, Write::Add);
    for place in PLACES {
        agree(&Elementwise { shape, from: place, to: place, act, mode });
    }
}

/// What comes back is the nearest number of the buffer's format, ties to even.
#[test]
fn numbers_come_back_rounded() {
    let mut values = numbers("values", 100);
    let ties = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0];
    values.extend(ties);
    values.extend([0.0, -0.0, 65519.0, 65520.0, 3.4e38, 1e-8, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    for cuda in PRECISIONS.map(emulated) {
        let precision = cuda.options().precision;
        for (format, mut buffer) in [
            (Precision::Fp32, cuda.alloc(values.len() + 5).unwrap()),
            (precision, cuda.alloc_activations(values.len() + 5).unwrap()),
        ] {
            cuda.upload(&values, &mut buffer, 3).unwrap();
            let got = download(&cuda, &buffer, Span::new(0, values.len() + 5)).unwrap();
            assert_eq!((&got[..3], &got[values.len() + 3..]), (&[0.0; 3][..], &[0.0; 2][..]));
            for (got, &value) in got[3..].iter().zip(&values) {
                let expected = rounded(format, value);
                let same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
                assert!(same, "{value} became {got}, not {expected} in {format}");
            }
        }
    }
}

#[test]
fn fills_a_run_and_nothing_beside_it() {
    for cuda in PRECISIONS.map(emulated) {
        let precision = cuda.options().precision;
        let fresh = numbers("around", 5000);
        let around: Vec<f32> = fresh.iter().map(|&x| rounded(precision, x)).collect();
        for value in [0.0, -0.0, 1.5, f32::NEG_INFINITY, f32::NAN] {
            for at in [(0, 5000), (16, 4096), (1, 4000), (8, 13), (4999, 1), (7, 0), (5000, 0)] {
                let (at, wanted) = (Span::new(at.0, at.1), f32::to_bits(value));
                for mut buffer in [upload(&cuda, &around).unwrap(), activations(&cuda, &around).unwrap()] {
                    cuda.fill(value, &mut buffer, at).unwrap();
                    let got = download(&cuda, &buffer, Span::new(0, 5000)).unwrap();
                    for (k, (got, old)) in got.iter().zip(&around).enumerate() {
                        let filled = got.to_bits() == wanted || got.is_nan() && value.is_nan();
                        let right = if at.range().contains(&k) { filled } else { got == old };
                        assert!(right, "{k} is {got} where {at:?} was filled with {value}");
                    }
                }
            }
        }
    }
}

/// Parameters are f32 in every precision, and are copied as that.
#[test]
fn copies_f32_in_half_precision() {
    for cuda in PRECISIONS.map(emulated) {
        for Placement { before, beside } in PLACES {
            let at = Layout { offset: before, shape: Shape::new(2, 3, 3, 16), stride: 16 + beside };
            let (x, y) = (numbers("x", at.end()), numbers("y", at.end()));
            let (from, mut to) = (upload(&cuda, &x).unwrap(), upload(&cuda, &y).unwrap());
            cuda.copy(View::new(&from, at), ViewMut::new(&mut to, at), Write::Add).unwrap();
            let got = download(&cuda, &to, Span::new(0, at.end())).unwrap();
            for (k, got) in got.iter().enumerate() {
                let inside = k >= before && (k - before) % at.stride < 16;
                assert_eq!(*got, if inside { y[k] + x[k] } else { y[k] });
            }
        }
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let cuda = emulated(Precision::Bf16);
    let (x, mut y) = (activations(&cuda, &[0.0; 12]).unwrap(), activations(&cuda, &[0.0; 12]).unwrap());
    let at = |n, c| Layout::contiguous(Shape::vectors(n, c));
    let set = Write::Set;
    let copied = cuda.copy(View::new(&x, at(3, 4)), ViewMut::new(&mut y, at(4, 3)), set);
    assert!(matches!(copied, Err(Error::Shape { op: "copy", .. })), "{copied:?}");
    let copied = cuda.copy(View::new(&x, at(4, 4)), ViewMut::new(&mut y, at(4, 4)), set);
    assert!(matches!(copied, Err(Error::OutOfBounds { end: 16, len: 12, .. })), "{copied:?}");
    let overlap = Layout { stride: 3, ..at(3, 4) };
    let copied = cuda.copy(View::new(&x, overlap), ViewMut::new(&mut y, at(3, 4)), set);
    assert!(matches!(copied, Err(Error::NotContiguous { .. })), "{copied:?}");
    let filled = cuda.fill(0.0, &mut y, Span::new(10, 3));
    assert!(matches!(filled, Err(Error::OutOfBounds { end: 13, .. })), "{filled:?}");
    let uploaded = cuda.upload(&[0.0; 4], &mut y, 9);
    assert!(matches!(uploaded, Err(Error::OutOfBounds { end: 13, .. })), "{uploaded:?}");
    let downloaded = cuda.download(&x, 9, &mut [0.0; 4]);
    assert!(matches!(downloaded, Err(Error::OutOfBounds { end: 13, .. })), "{downloaded:?}");
    let mixed = cuda.copy(
        View::new(&upload(&cuda, &[0.0; 12]).unwrap(), at(3, 4)),
        ViewMut::new(&mut y, at(3, 4)),
        set,
    );
    assert!(matches!(mixed, Err(Error::Device { .. })), "{mixed:?}");
}

fn activations(cuda: &Cuda, values: &[f32]) -> Result<Storage> {
    let mut buffer = cuda.alloc_activations(values.len())?;
    cuda.upload(values, &mut buffer, 0)?;
    Ok(buffer)
}
