//! What a user of the crate sees, one topic a file. One program, since each is linked by itself; its tests share the processor's cores.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
mod roundtrip;
mod store;

use towers_checkpoint::Tensors;

/// A tensor of this shape, all of one value.
fn filled(shape: impl Into<Vec<usize>>, value: f32) -> Tensors {
    let (shape, mut tensors) = (shape.into(), Tensors::new());
    let len = shape.iter().product();
    tensors.insert("kernel", shape, vec![value; len]).unwrap();
    tensors
}
