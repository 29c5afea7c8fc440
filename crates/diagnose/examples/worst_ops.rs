//! The ops of a network's training step whose results differ most from the f64 reference's:
//! `cargo run --release -p towers-diagnose --example worst_ops`

use towers_diagnose::{SampleStep, comparison_device};
use towers_layers::{BatchNormalization, Conv2D, Dense, Flatten, Graph};
use towers_models::Model;
use towers_program::Activation::Relu;

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut graph = Graph::new("mine", [12, 12, 3]);
    let x = graph.add(Conv2D::new(8, 3).same(), graph.input())?;
    let x = graph.add(BatchNormalization::new().activation(Relu), x)?;
    let x = graph.add(Flatten, x)?;
    let logits = graph.add(Dense::new(4), x)?;
    let model = Model::new(graph, logits);

    let device = towers_tensor_cpu::device(1);
    let step = SampleStep::random(model, towers_optim::Sgd::keras().momentum(0.9), 2);
    let mut results = step.compare(&device, &comparison_device(&device))?;
    results.sort_by(|a, b| (b.difference / b.tolerance).total_cmp(&(a.difference / a.tolerance)));
    for result in &results[..5] {
        let (layer, op) = (&result.layer, &result.op);
        println!(
            "{layer:<20} {op:<24} is off by {:.1e}, of {:.1e} allowed",
            result.difference, result.tolerance
        );
    }
    assert!(results.iter().all(|result| result.agrees()));
    assert!(results.iter().any(|result| result.op.contains("weight_gradient")));
    Ok(())
}
