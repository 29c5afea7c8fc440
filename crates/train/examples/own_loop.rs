//! A custom training loop, step by step: `cargo run --release -p towers-train --example own_loop`.

use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
use towers_layers::{BatchNormalization, Conv2D, Dense, Draws, Flatten, Graph, MaxPooling2D, Mode};
use towers_optim::Sgd;
use towers_program::Activation::Relu;
use towers_program::OptimizerState;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = Graph::new("mine", [32, 32, 3]);
    let mut x = graph.input();
    for filters in [16, 32, 64] {
        x = graph.add(Conv2D::new(filters, 3).same().use_bias(false), x)?;
        x = graph.add(BatchNormalization::new().activation(Relu), x)?;
        x = graph.add(MaxPooling2D::new(2), x)?;
    }
    x = graph.add(Flatten, x)?;
    let logits = graph.add(Dense::new(10), x)?;
    println!("{}", graph.summary(logits));

    let device = towers_tensor_cpu::device(2);
    let mut network = graph.build(logits, &device, 50, Mode::Training)?;
    network.init(1)?;
    let len = network.arena().trainable.len;
    let mut optimizer = OptimizerState::new(&device, Sgd::keras().momentum(0.9), len)?;

    let data = towers_cifar::synthetic(1, 2_000, 0).train;
    let samples = Samples::new(data.images, data.labels.to_vec())?;
    let pipeline =
        ImageDataGenerator::new().rescale(1.0 / 255.0).horizontal_flip(true).build(samples.shape())?;
    let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(50))?;
    for epoch in 0..3 {
        let (mut correct, mut loss) = (0.0, 0.0);
        for batch in loader.epoch(epoch, 0)? {
            let batch = batch?;
            let step = epoch * 40 + batch.step as u64;
            network.set_input(&batch.x, &batch.labels)?;
            network.train_pass(Draws { seed: 1, step, first_sample: 0 }, 0.0, batch.len())?;
            network.finish_step(batch.len())?;
            let arena = network.arena_mut();
            optimizer.step(&device, 0.02, &mut arena.params, &mut arena.grads, arena.trainable)?;
            let metrics = network.metrics()?;
            (correct, loss) = (correct + metrics.correct, loss + metrics.loss_sum);
        }
        println!("epoch {}: loss {:.3}, accuracy {:.3}", epoch + 1, loss / 2e3, correct / 2e3);
    }
    Ok(())
}
