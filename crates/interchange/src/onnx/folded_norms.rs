//! Batch normalizations that an exporter has folded into convolutions.

use super::constants::Constant;
use std::collections::HashMap;

/// A sentence about the convolutions of PyTorch with a batch normalization in them. Its first exporter gives their weights names
/// such as `onnx::Conv_193`, the other one calls a new bias `conv1.weight_bias`.
pub(super) fn note(weights: &HashMap<String, Constant>) -> Option<String> {
    let bias_of = |layer: &str| weights.get(&format!("{layer}/bias")).map(|bias| bias.name.as_str());
    let is_folded = |(name, kernel): &(&String, &Constant)| {
        let Some(layer) = name.strip_suffix("/kernel").filter(|_| kernel.shape.len() == 4) else {
            return false;
        };
        let has_new_bias =
            || bias_of(layer).is_some_and(|bias| bias.strip_suffix("_bias") == Some(kernel.name.as_str()));
        kernel.name.starts_with("onnx::Conv_") || has_new_bias()
    };
    let count = weights.iter().filter(is_folded).count();
    (count > 0).then(|| {
        format!(
            "PyTorch's exporter has folded batch normalization into {count} of its convolutions, and a training goes on without it; to \
             keep it, export by torch.onnx.export(network.train(), (torch.zeros(2, 3, HEIGHT, WIDTH),), \"net.onnx\", dynamo=False, \
             training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)"
        )
    })
}
