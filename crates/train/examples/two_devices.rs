//! Model parallelism as the tutorial describes it: "5 layers to GPU 1, 5 layers to GPU 2". Ten layers, the
//! first five on one device and the others on a second one, learn to classify synthetic images. Both devices
//! are the CPU; with two GPUs, use `towers_tensor_cuda::device`.
//!
//! `cargo run --release -p towers-train --example two_devices`; `towers train --pipeline-stages 2` does the same with any recipe.

use std::time::Duration;
use towers_layers::{Conv2D, Dense, Draws, Dropout, Flatten, Graph, MaxPooling2D, Mode, Value};
use towers_optim::Sgd;
use towers_parallel::{Exchanges, Pass, Stage, in_flight, one_forward_one_backward, run_stages};
use towers_program::{Activation::Relu, Device, OptimizerState};
use towers_train::{Error, Result, cifar};

const BATCH: usize = 32;
const MICRO_BATCHES: usize = 4;
const STEPS: usize = 200;

fn ten_layers() -> towers_layers::Result<(Graph, Value)> {
    let mut graph = Graph::new("ten_layers", [32, 32, 3]);
    let x = graph.input();
    let x = graph.add(Conv2D::new(16, 3).same().activation(Relu), x)?;
    let x = graph.add(MaxPooling2D::new(2), x)?;
    let x = graph.add(Conv2D::new(16, 3).same().activation(Relu), x)?;
    let x = graph.add(MaxPooling2D::new(2), x)?;
    let x = graph.add_named("last_on_device_1", Conv2D::new(32, 3).same().activation(Relu), x)?;
    let x = graph.add(MaxPooling2D::new(2), x)?;
    let x = graph.add(Flatten, x)?;
    let x = graph.add(Dense::new(64).activation(Relu), x)?;
    let x = graph.add(Dropout::new(0.25), x)?;
    let logits = graph.add(Dense::new(10), x)?;
    Ok((graph, logits))
}

fn main() -> Result<()> {
    let (graph, logits) = ten_layers()?;
    let cut = graph.cut_behind("last_on_device_1", logits)?;
    let stages = graph.split(logits, &[cut])?;
    let data = cifar::synthetic(1, BATCH * STEPS, 1).train;
    let images: Vec<f32> = data.images.iter().map(|&byte| f32::from(byte) / 127.5 - 1.0).collect();
    let labels: Vec<u32> = data.labels.iter().map(|&label| u32::from(label)).collect();
    let devices = [towers_tensor_cpu::device(1), towers_tensor_cpu::device(1)];
    run_stages(&devices, stages.len(), Duration::from_secs(300), |replica, stage| {
        train(&replica.device, &stage, &stages[stage.number()], &images, &labels)
    })?;
    Ok(())
}

/// One device: its five layers, their forward and backward passes, and the updates of their parameters.
fn train(
    device: &Device,
    stage: &Stage,
    (graph, output): &(Graph, Value),
    images: &[f32],
    labels: &[u32],
) -> Result<()> {
    let lanes = in_flight(stage.stages(), stage.number(), MICRO_BATCHES);
    let micro = BATCH / MICRO_BATCHES;
    let mut network = graph.build_stage(*output, device, micro, Mode::Training, lanes)?;
    network.init(1)?;
    let mut optimizer =
        OptimizerState::new(device, Sgd::keras().momentum(0.9), network.arena().trainable.len)?;
    // Sums the gradients of the micro-batches.
    let mut sums = vec![0.0; network.arena().trainable.len];
    for step in 0..STEPS {
        sums.fill(0.0);
        let mut loss = 0.0;
        for pass in one_forward_one_backward(stage.stages(), stage.number(), MICRO_BATCHES) {
            let (Pass::Forward(m) | Pass::Backward(m)) = pass;
            network.choose_micro_batch(m % lanes)?;
            let first = step * BATCH + m * micro;
            let draws = Draws { seed: 1, step: step as u64, first_sample: (m * micro) as u32 };
            // The programs of the stages contain the exchange of tensors between them.
            let mut exchanges = Exchanges::of_stage(stage);
            match pass {
                Pass::Forward(_) => {
                    let labels = &labels[first..first + micro];
                    if stage.is_first() {
                        network.set_input(&images[first * 3072..(first + micro) * 3072], labels)?;
                    } else {
                        network.set_labels(labels)?;
                    }
                    let passed = network.forward_pass(draws, Some(&mut exchanges));
                    exchanges.end::<Error>(passed)?;
                }
                Pass::Backward(_) => {
                    let passed = network.backward_pass(draws, 0.0, BATCH, Some(&mut exchanges));
                    exchanges.end::<Error>(passed)?;
                    loss += network.metrics()?.loss_sum / BATCH as f64;
                    let grads = network.arena().grads.to_vec(device, 0, sums.len())?;
                    sums.iter_mut().zip(grads).for_each(|(sum, g)| *sum += g);
                }
            }
        }
        let arena = network.arena_mut();
        device.upload(&sums, &mut arena.grads, 0)?;
        optimizer.step(device, 0.01, &mut arena.params, &mut arena.grads, arena.trainable)?;
        if stage.is_last() && step % 40 == 39 {
            println!("step {:3}: loss {loss:.3}", step + 1);
        }
    }
    Ok(())
}
