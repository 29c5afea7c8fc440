//! A softmax on one, two and three threads has the same bits, and is close to that of the f64 reference.

use towers_program::{Device, Layout, Result, Shape, View, ViewMut};
use towers_tensor_cpu::{device, reference, simd_level};

const ROWS: usize = 1000;
const CLASSES: usize = 10;

/// The softmax of each row.
fn softmax(device: &Device, logits: &[f32]) -> Result<Vec<f32>> {
    let (mut x, mut y) = (device.alloc(logits.len())?, device.alloc(logits.len())?);
    device.upload(logits, &mut x, 0)?;
    let at = Layout::contiguous(Shape::vectors(ROWS, CLASSES));
    device.softmax(View::new(&x, at), ViewMut::new(&mut y, at))?;
    y.to_vec(device, 0, logits.len())
}

#[cfg_attr(test, test)]
fn main() -> Result<()> {
    let logits: Vec<f32> = (0..ROWS * CLASSES).map(|k| (k * 37 % 101) as f32 / 10.0).collect();
    let exact = softmax(&reference(), &logits)?;
    let one = softmax(&device(1), &logits)?;
    for threads in [2, 3] {
        assert_eq!(softmax(&device(threads), &logits)?, one);
    }
    let error = one.iter().zip(&exact).map(|(p, exact)| (p - exact).abs()).fold(0.0, f32::max);
    println!("with {} a probability is off by {error:e} at most", simd_level());
    assert!(error < 1e-6);
    Ok(())
}
