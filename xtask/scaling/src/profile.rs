//! The measured input: the JSON object that `towers bench profile --json` prints.

use crate::step::{Layer, Work};
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The fields of a profile that the model uses; `towers_train::Profile` documents each.
#[derive(Clone, Debug, Deserialize)]
pub struct Profile {
    pub model: String,
    pub batch: usize,
    pub device: String,
    mode: String,
    layers: Vec<ProfileLayer>,
    loss_ms: f64,
    gradients_ms: f64,
    update_ms: f64,
    tail_bytes: usize,
}

/// A layer, in the order of the forward pass.
#[derive(Clone, Debug, Deserialize)]
struct ProfileLayer {
    params: usize,
    forward_ms: f64,
    backward_ms: f64,
}

impl Profile {
    /// Reads a profile of training. Other texts are refused, and times that are negative or not finite.
    pub fn parse(text: &str) -> Result<Profile> {
        let profile: Profile = serde_json::from_str(text.trim())
            .context("this is no profile; `towers bench profile --json` prints one")?;
        ensure!(profile.mode == "train", "this profile is of inference; measure it with `--mode train`");
        ensure!(profile.batch > 0 && !profile.layers.is_empty(), "the profile is empty");
        let layers = profile.layers.iter().flat_map(|layer| [layer.forward_ms, layer.backward_ms]);
        let mut times = layers.chain([profile.loss_ms, profile.gradients_ms, profile.update_ms]);
        ensure!(
            times.all(|ms| ms.is_finite() && ms >= 0.0),
            "a time in the profile is negative or not finite"
        );
        Ok(profile)
    }

    /// The work of one device in one step.
    pub fn work(&self) -> Work {
        let forward_ms: f64 = self.layers.iter().map(|layer| layer.forward_ms).sum();
        let backward = |layer: &ProfileLayer| Layer {
            seconds: layer.backward_ms / 1e3,
            bytes: size_of::<f32>() * layer.params,
        };
        Work {
            forward: (forward_ms + self.loss_ms) / 1e3,
            backward: self.layers.iter().rev().map(backward).collect(),
            before_exchange: self.gradients_ms / 1e3,
            update: self.update_ms / 1e3,
            tail_bytes: self.tail_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"peer":"towers","model":"m","mode":"train","batch":2,"device":"cpu","layers":[
        {"name":"conv2d","params":8,"forward_ms":0.5,"backward_ms":1.5},
        {"name":"dense","params":3,"forward_ms":1.0,"backward_ms":2.0}],
        "loss_ms":0.25,"gradients_ms":0.0,"update_ms":0.5,"tail_bytes":12}"#;

    #[test]
    fn the_backward_pass_begins_with_the_last_layer() {
        let work = Profile::parse(TEXT).unwrap().work();
        let dense = Layer { seconds: 0.002, bytes: 12 };
        assert_eq!(work.backward, [dense, Layer { seconds: 0.0015, bytes: 32 }]);
        assert!((work.compute() - 5.75e-3).abs() < 1e-12 && work.bytes() == 12 + 32 + 12);
    }

    #[test]
    fn other_texts_are_refused() {
        for (from, to) in [("train", "infer"), ("1.5", "-1.5"), ("\"batch\":2", "\"batch\":0")] {
            assert!(Profile::parse(&TEXT.replace(from, to)).is_err(), "{to}");
        }
        assert!(Profile::parse("{}").is_err());
    }
}
