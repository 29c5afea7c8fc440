//! From a forward pass to a training step on a device: `cargo run -p towers-program --example training_step`

use towers_program::ops::{CrossEntropy, LinearForward};
use towers_program::passes::{Training, training};
use towers_program::{
    Activation, Arena, Builder, Executable, Linear, Memory, OptimizerState, Parameter, Phase, Program, Shape,
    Span, StepArgs, Target,
};

#[cfg_attr(test, test)]
fn main() -> towers_program::Result<()> {
    // A dense layer from two numbers a sample to the scores of two classes. Its parameters come first in their arena.
    let mut builder = Builder::new(Shape::vectors(1, 2));
    builder.layer("dense");
    let parameter = |name: &str, span| Parameter { name: name.to_owned(), span, trained: true };
    let kernel = builder.parameter(parameter("kernel", Span::new(0, 4)));
    let bias = builder.parameter(parameter("bias", Span::new(4, 2)));
    let dense = LinearForward { linear: Linear { inputs: 2, outputs: 2 }, act: Activation::None };
    let logits = builder.push(dense, &[builder.input(), kernel, bias], &[])?[0];
    // The gradients end with two numbers: the sum of the losses, and the number of correct samples.
    let labels = builder.fixed("labels", Arena::Labels, Span::new(0, Target::WORDS));
    let metrics = builder.fixed("metrics", Arena::Gradients, Span::new(6, 2));
    let loss = CrossEntropy { gradient: true, multi_label: false };
    let gradient = builder.in_phase(Phase::Loss).push(loss, &[logits, labels], &[metrics])?[0];
    let forward = Program { output_gradient: Some(gradient), ..builder.finish(logits) };

    let none = Training { input_gradient: false, recompute: false, sync_batch_norm: None, bucket: None };
    let step = Executable::place(training(forward, none)?, 4, 0)?;
    print!("{}", step.program());

    let device = towers_tensor_cpu::device(1);
    device.prepare(&step)?;
    let mut activations = device.alloc_activations(step.len(Arena::Activations))?;
    let input = step.layout(step.program().input, 4).offset;
    device.upload(&[0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &mut activations, input)?;
    let mut labels = device.alloc_ints(step.len(Arena::Labels))?;
    device.upload_ints(&[0, 1, 1, 1], &mut labels)?; // whether one of the numbers is 1
    let (mut params, mut grads) =
        (device.alloc(step.len(Arena::Parameters))?, device.alloc(step.len(Arena::Gradients))?);
    let (mut statistics, averages) =
        (device.alloc(step.len(Arena::Statistics))?, device.alloc(step.len(Arena::Averages))?);
    let mut optimizer = OptimizerState::new(&device, towers_optim::Sgd::keras(), 6)?;
    for number in 0..100 {
        let memory = Memory {
            activations: &mut activations,
            statistics: &mut statistics,
            params: &params,
            grads: &mut grads,
            averages: &averages,
            labels: &labels,
        };
        let args = StepArgs { step: number, ..StepArgs::inference(4) };
        device.run(&step, 0..step.program().steps.len(), &args, memory)?;
        optimizer.step(&device, 1.0, &mut params, &mut grads, Span::new(0, 6))?;
    }
    let metrics = grads.to_vec(&device, 6, 2)?;
    println!("loss {:.3}, {} of 4 are right", metrics[0] / 4.0, metrics[1]);
    assert!(metrics[0] < 0.8 && metrics[1] == 4.0);
    Ok(())
}
