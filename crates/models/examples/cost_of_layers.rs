//! A network as a list of layers in Keras' terms: its parameters and arithmetic, and its scores for an image.

use serde_json::json;
use towers_layers::Mode;
use towers_models::Architecture;

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A residual block. Without `inputs` a layer reads the one before it.
    let architecture: Architecture = serde_json::from_value(json!([
        {"class": "Conv2D", "name": "stem", "filters": 8, "kernel_size": 3, "padding": "same", "activation": "relu"},
        {"class": "DepthwiseConv2D", "kernel_size": 3, "padding": "same", "use_bias": false},
        {"class": "BatchNormalization"},
        {"class": "Conv2D", "name": "back", "filters": 8, "kernel_size": 1},
        {"class": "Add", "inputs": ["stem", "back"]},
        {"class": "GlobalAveragePooling2D"},
        {"class": "Dense"},
    ]))?;
    let model = architecture.build("residual", [16, 16, 3], 5)?;
    println!("{}", model.summary());
    for layer in model.graph().work() {
        println!("{:<28} {:>7} multiply-adds", layer.name, layer.multiply_adds);
    }
    assert_eq!(model.summary().trainable, 3 * 3 * 3 * 8 + 8 + 3 * 3 * 8 + 16 + 8 * 8 + 8 + 8 * 5 + 5);

    let device = towers_tensor_cpu::device(1);
    let mut network = model.build(&device, 1, Mode::Inference)?;
    network.init(1)?;
    network.set_input(&[0.5; 16 * 16 * 3], &[0])?;
    let probabilities = network.predict()?;
    println!("{probabilities:.3?}");
    assert!(probabilities.len() == 5 && (probabilities.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    Ok(())
}
