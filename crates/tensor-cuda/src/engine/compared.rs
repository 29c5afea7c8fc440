//! For tests: kernels of a pass of a convolution beside the general ones.

#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

use super::product::Product;
use crate::driver::Ptr;
use crate::layer::Pass;
use crate::{Buffer, Cuda};
use towers_program::{Backend as _, Conv2d, Precision, Result, Shape, Storage, Write};

/// Numbers on the device in the format of activations, and their place.
fn numbers(cuda: &Cuda, seed: usize, len: usize) -> (Storage, Ptr) {
    let mut buffer = cuda.alloc_activations(len).unwrap();
    let value = |k: usize| ((k * 7919 + seed * 104_729) % 1999) as f32 / 1000.0 - 1.0;
    cuda.upload(&(0..len).map(value).collect::<Vec<f32>>(), &mut buffer, 0).unwrap();
    let ptr = buffer.on::<Buffer>("test").unwrap().memory.ptr();
    (buffer, ptr)
}

/// Asserts that the result of `run`, which gets the places of a forward pass or of the one for weights, equals that of
/// [`Product`], except for rounding.
pub(super) fn agrees(
    cuda: &Cuda,
    conv: &Conv2d,
    pass: Pass,
    x: Shape,
    what: &str,
    run: impl FnOnce([Ptr; 3]) -> Result<()>,
) {
    let y = conv.output(x).unwrap();
    let lens = if pass == Pass::Forward { [conv.weights(), y.len()] } else { [y.len(), conv.weights()] };
    let ((_x, image), (_other, other)) = (numbers(cuda, 1, x.len()), numbers(cuda, 2, lens[0]));
    let outs = [(); 2].map(|()| numbers(cuda, 3, lens[1]));
    run([image, other, outs[0].1]).unwrap();
    let product = Product::new(cuda, conv, pass, x, y);
    product.run(cuda, "test", [image, other, outs[1].1], Write::Set).unwrap();
    let [got, expected] = outs.map(|(buffer, _)| {
        let mut values = vec![0.0; lens[1]];
        cuda.download(&buffer, 0, &mut values).unwrap();
        values
    });
    let largest = expected.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let ulp = if cuda.options().precision == Precision::Bf16 { 1.0 / 128.0 } else { 1.0 / 1024.0 };
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let near = (got - expected).abs() <= ulp * expected.abs() + 1e-5 * largest;
        assert!(near, "[{k}] is {got}, not {expected}: {pass:?} of {conv:?} from {x} by {what}");
    }
}
