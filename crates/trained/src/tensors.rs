//! The tensors of a file: their values, and the names of those that only training needs.

use crate::{Error, Result};
use std::collections::HashSet;
use std::path::Path;
use towers_checkpoint::Tensors;
use towers_layers::ParamSpec;
use towers_optim::UpdateRule;

/// The tensor of a checkpoint with the loss scale of half precision. A run in another format lacks it.
pub const LOSS_SCALE: &str = "loss_scale";

/// The tensor of a checkpoint with the steps that an optimizer counts.
pub const OPTIMIZER_STEPS: &str = "optimizer_steps";

/// The prefix of a checkpoint's tensors with averages of weights and of running statistics.
pub const AVERAGE: &str = "ema";

/// Whether `name` is a tensor that only training needs, for a network with these `parameters`: the state of an optimizer, an average of
/// the weights, a loss scale.
pub(crate) fn is_training_state(name: &str, parameters: &HashSet<String>) -> bool {
    let of_parameter = |(arena, parameter): (&str, &str)| {
        (arena == AVERAGE || UpdateRule::STATES.contains(&arena)) && parameters.contains(parameter)
    };
    [LOSS_SCALE, OPTIMIZER_STEPS].contains(&name) || name.split_once('/').is_some_and(of_parameter)
}

/// The values of the tensor `name` of the file `path`, if it has this shape.
///
/// ```
/// use towers_checkpoint::Tensors;
/// use std::path::Path;
///
/// let mut tensors = Tensors::new();
/// tensors.insert("dense/bias", [2], vec![1.0, 2.0])?;
/// let file = Path::new("model.safetensors");
/// assert_eq!(towers_trained::values(&tensors, file, "dense/bias", &[2])?, [1.0, 2.0]);
/// assert!(towers_trained::values(&tensors, file, "dense/bias", &[3]).is_err());
/// # Ok::<(), towers_trained::Error>(())
/// ```
///
/// # Errors
/// [`Error::Run`] if there is no such tensor, or it has another shape.
pub fn values<'t>(tensors: &'t Tensors, path: &Path, name: &str, shape: &[usize]) -> Result<&'t [f32]> {
    let refuse = |reason: String| Error::run(path, reason);
    let tensor = tensors.get(name).ok_or_else(|| refuse(format!("there is no tensor `{name}`")))?;
    if tensor.shape() != shape {
        let found = tensor.shape();
        return Err(refuse(format!("the tensor `{name}` has the shape {found:?}, but must have {shape:?}")));
    }
    Ok(tensor.data())
}

/// The values of the parameter `LAYER/NAME`, if they are sound: finite, and no negative variance.
pub(crate) fn parameter<'t>(
    tensors: &'t Tensors,
    path: &Path,
    layer: &str,
    spec: &ParamSpec,
) -> Result<&'t [f32]> {
    let name = format!("{layer}/{}", spec.name);
    let values = finite_values(tensors, path, &name, &spec.shape)?;
    match values.iter().find(|value| **value < 0.0).filter(|_| spec.name == "moving_variance") {
        None => Ok(values),
        Some(value) => {
            let reason = format!("the tensor `{name}` has the value {value}, which is no variance");
            Err(Error::run(path, reason))
        }
    }
}

/// The same, if all values are finite.
pub(crate) fn finite_values<'t>(
    tensors: &'t Tensors,
    path: &Path,
    name: &str,
    shape: &[usize],
) -> Result<&'t [f32]> {
    let values = values(tensors, path, name, shape)?;
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => {
            let reason = format!(
                "the tensor `{name}` has the value {value}, but must be finite; a training that failed leaves such values"
            );
            Err(Error::run(path, reason))
        }
    }
}
