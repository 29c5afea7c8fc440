//! A custom layer, outside of the crate `layers`:
//! `cargo run --release -p towers-layers --example custom_layer`.
//!
//! `Residual` is `y = x + max(x, 0)`, from two ops. The backward pass follows from them. See
//! docs/adding-an-op.md for new ops.

use towers_layers::{Dense, Draws, Graph, Layer, Lower, Mode};
use towers_program::{Activation, Result, TensorId, ops};

#[derive(Debug)]
struct Residual;
impl Layer for Residual {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let relu = to.push(ops::Activate { act: Activation::Relu }, inputs)?;
        to.push(ops::Add { act: Activation::None }, &[inputs[0], relu])
    }
}

#[cfg_attr(test, test)]
fn main() -> towers_layers::Result<()> {
    let mut graph = Graph::new("with_residual", [1, 1, 2]);
    let x = graph.add(Dense::new(8), graph.input())?;
    let x = graph.add(Residual, x)?;
    let logits = graph.add(Dense::new(2), x)?;
    println!("{}", graph.summary(logits));
    let device = towers_tensor_cpu::device(1);
    let mut network = graph.build(logits, &device, 4, Mode::Training)?;
    network.init(1)?;
    // Whether the two numbers are alike: a network without a kink can't tell.
    network.set_input(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[0, 1, 1, 0])?;
    for step in 0..400 {
        network.train_pass(Draws { seed: 1, step, first_sample: 0 }, 0.0, 4)?;
        network.finish_step(4)?;
        let arena = network.arena_mut();
        let gradient = arena.grads.to_vec(&device, 0, arena.trainable.len)?;
        let mut params = arena.params.to_vec(&device, 0, arena.trainable.len)?;
        params.iter_mut().zip(gradient).for_each(|(p, g)| *p -= 0.5 * g);
        device.upload(&params, &mut arena.params, 0)?;
    }
    assert_eq!(network.metrics()?.correct, 4.0);
    Ok(())
}
