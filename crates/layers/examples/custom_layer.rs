//! A layer of one's own, outside of the crate `layers`: `cargo run --release -p layers --example custom_layer`.
//!
//! `Residual` adds its input to ReLU of it, `y = x + max(x, 0)`, from two ops that every device has. A layer with a formula that no
//! op computes needs an op first: docs/adding-an-op.md.

use layers::{Backward, Dense, Draws, Forward, Graph, Layer, Mode, Op, Place};
use tensor::{Activation, Backend, Device, Result, Shape, Storage, View, ViewMut, Write};

#[derive(Clone, Copy, Debug)]
struct Residual;

impl Layer for Residual {
    fn kind(&self) -> &'static str {
        "Residual"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x)
    }

    fn build(&self, _place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(*self))
    }
}

impl Op for Residual {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, mut y: ViewMut<Storage>) -> Result<()> {
        cx.device.act_fwd(Activation::Relu, x, y.reborrow())?;
        cx.device.copy(x, y, Write::Add)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let Some((mut dx, write)) = dx else { return Ok(()) };
        // ReLU's gradient asks where its output was above 0, which is where its input was.
        cx.device.act_bwd(Activation::Relu, x, dy.as_view(), dx.reborrow(), write)?;
        cx.device.copy(dy.as_view(), dx, Write::Add)
    }
}

fn main() -> layers::Result<()> {
    let mut graph = Graph::new("with_residual", [1, 1, 2]);
    let x = graph.add(Dense::new(8), graph.input())?;
    let x = graph.add(Residual, x)?;
    let logits = graph.add(Dense::new(2), x)?;
    println!("{}", graph.summary(logits));

    let device = Device::cpu(1);
    let mut network = graph.build(logits, &device, 4, Mode::Training)?;
    network.init(1)?;
    // Whether the two numbers are alike: no network without a kink can tell.
    network.set_input(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[0, 1, 1, 0])?;
    for step in 0..400 {
        network.train_pass(Draws { seed: 1, step, first_sample: 0 }, 0.0, 4)?;
        network.finish_step(4)?;
        let arena = network.arena_mut();
        let trainable = arena.trainable;
        let gradient = arena.grads.to_vec(&device, 0, trainable.len)?;
        let mut params = arena.params.to_vec(&device, 0, trainable.len)?;
        params.iter_mut().zip(gradient).for_each(|(p, g)| *p -= 0.5 * g);
        device.upload(&params, &mut arena.params, 0)?;
    }
    let metrics = network.metrics()?;
    println!("loss {:.4}, {} of 4 right", metrics.loss_sum / 4.0, metrics.correct);
    assert_eq!(metrics.correct, 4.0);
    Ok(())
}
