//! A network that takes blue, green, red, as one that takes red, green, blue.

use std::collections::HashSet;
use towers_checkpoint::Tensors;
use towers_layers::{Step, Value};
use towers_models::Model;
use towers_program::Op;

/// The tensors of a network that computes the same of images whose channels are in the reverse order. Weights of the layers that
/// read these channels change places.
///
/// # Errors
/// The name of a layer that mixes channels in another way.
pub(crate) fn reversed(model: &Model, tensors: &Tensors) -> Result<Tensors, String> {
    let channels = model.image()[2];
    let mut turned = HashSet::from([model.graph().input()]);
    let mut rows = Vec::new();
    for step in model.steps() {
        let of_input = step.inputs.iter().filter(|x| turned.contains(*x)).count();
        if of_input == 0 {
            continue;
        }
        if of_input < step.inputs.len() || !follows(&step, channels, &mut turned, &mut rows) {
            return Err(step.name);
        }
    }
    if turned.contains(&model.logits()) {
        return Err("logits".to_owned());
    }
    let mut all = Tensors::new();
    *all.metadata_mut() = tensors.metadata().clone();
    for tensor in tensors.iter() {
        let data = match rows.iter().find(|(name, _)| name == tensor.name) {
            None => tensor.data.to_vec(),
            // Each group has the numbers of one channel.
            Some((_, len)) => tensor
                .data
                .chunks(channels * len)
                .flat_map(|pixel| pixel.chunks(*len).rev().flatten().copied())
                .collect(),
        };
        all.insert(tensor.name, tensor.shape, data).map_err(|_| tensor.name.to_owned())?;
    }
    Ok(all)
}

/// Notes which parameters of a layer that reads reversed channels change places, and how many numbers each channel has at a
/// stretch. False if nothing is known about the layer.
fn follows(
    step: &Step,
    channels: usize,
    turned: &mut HashSet<Value>,
    rows: &mut Vec<(String, usize)>,
) -> bool {
    let name = |parameter: &str| format!("{}/{parameter}", step.name);
    match step.op {
        Some(Op::Conv2dForward(_)) => match step.params.first().map(|kernel| kernel.shape.as_slice()) {
            Some(&[_, _, c, filters]) if c == channels => rows.push((name("kernel"), filters)),
            _ => return false,
        },
        Some(Op::LinearForward(_)) => match step.params.first().map(|kernel| kernel.shape.as_slice()) {
            Some(&[inputs, units]) if inputs % channels == 0 => rows.push((name("kernel"), units)),
            _ => return false,
        },
        Some(Op::DepthwiseForward(depthwise)) if depthwise.conv.multiplier == 1 => {
            rows.extend(step.params.iter().map(|spec| (name(spec.name), 1)));
            turned.insert(step.output);
        }
        Some(
            Op::BatchNormTrain(_)
            | Op::MaxPool(_)
            | Op::AveragePool(_)
            | Op::Activate(_)
            | Op::Reshape(_)
            | Op::Dropout(_)
            | Op::Scale(_),
        ) => {
            if step.params.iter().any(|spec| spec.shape != [channels]) {
                return false;
            }
            rows.extend(step.params.iter().map(|spec| (name(spec.name), 1)));
            turned.insert(step.output);
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_layers::{Conv2D, DepthwiseConv2D, Flatten, Graph};
    use towers_program::Activation;

    /// A depthwise layer keeps the reverse order, up to the first convolution that mixes channels.
    #[test]
    fn channels_are_followed_up_to_the_layer_that_mixes_them() {
        let mut graph = Graph::new("mine", [2, 2, 3]);
        let x = graph
            .add_named("each", DepthwiseConv2D::new(1).activation(Activation::Relu), graph.input())
            .unwrap();
        let x = graph.add_named("mixed", Conv2D::new(2, 2), x).unwrap();
        let logits = graph.add(Flatten, x).unwrap();
        let model = Model::new(graph, logits);
        let mut tensors = Tensors::new();
        let numbers = |len: u8| (0..len).map(f32::from).collect::<Vec<_>>();
        tensors.insert("each/depthwise_kernel", [1, 1, 3, 1], numbers(3)).unwrap();
        tensors.insert("each/bias", [3], numbers(3)).unwrap();
        tensors.insert("mixed/kernel", [2, 2, 3, 2], numbers(24)).unwrap();
        tensors.insert("mixed/bias", [2], numbers(2)).unwrap();
        let turned = reversed(&model, &tensors).unwrap();
        let data = |name: &str| turned.get(name).unwrap().data().to_vec();
        assert_eq!(data("each/depthwise_kernel"), [2.0, 1.0, 0.0]);
        assert_eq!(data("each/bias"), [2.0, 1.0, 0.0]);
        assert_eq!(
            data("mixed/kernel")[..12],
            [4.0, 5.0, 2.0, 3.0, 0.0, 1.0, 10.0, 11.0, 8.0, 9.0, 6.0, 7.0]
        );
        assert_eq!(data("mixed/bias"), [0.0, 1.0]);
    }
}
