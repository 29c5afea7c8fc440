//! What the first and the last layers of an architecture say about pixels and classes.

use super::{Architecture, IMAGES};
use serde_json::{Map, Value};

/// How the first layers normalize pixels: `(x - mean) / deviation`. Of three colors, the largest numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// What is subtracted, without its sign.
    pub mean: f64,
    /// What is divided by, without its sign.
    pub deviation: f64,
}

impl Architecture {
    /// Leaves the number of classes open: takes it out of the last dense layer, if nothing behind that layer
    /// changes the number. Returns it. One sigmoid output tells two classes apart, and stays.
    ///
    /// ```
    /// # use towers_models::Architecture;
    /// let layers = serde_json::json!([{"class": "Flatten"}, {"class": "Dense", "units": 7}]);
    /// let mut architecture: Architecture = serde_json::from_value(layers)?;
    /// assert_eq!(architecture.take_classes(), Some(7));
    /// let model = architecture.build("mine", [8, 8, 3], 3)?;
    /// assert_eq!(model.graph().shape(model.logits()).c, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_classes(&mut self) -> Option<usize> {
        if self.has_one_output() {
            return Some(2);
        }
        let last = self.last_dense()?;
        let units = self.layers[last].options.remove("units")?;
        units.as_u64().and_then(|units| usize::try_from(units).ok())
    }

    /// The place of the last dense layer, if nothing behind it changes the number of values.
    fn last_dense(&self) -> Option<usize> {
        let keeps = ["Activation", "Dropout", "Flatten", "ReLU", "Rescaling", "Softmax"];
        let last = self.layers.iter().rposition(|layer| !keeps.contains(&layer.class.as_str()))?;
        (self.layers[last].class == "Dense").then_some(last)
    }

    /// Whether a sigmoid is its last activation. It is the loss that computes it. One output is the logit of the second of two
    /// classes; of several, each is that of a class which an image may have.
    pub fn ends_in_sigmoid(&self) -> bool {
        self.layers.last().is_some_and(|last| last.options.get("activation") == Some(&"sigmoid".into()))
    }

    /// Whether it ends in a dense layer of one unit and a sigmoid: the number of its classes is no more open.
    fn has_one_output(&self) -> bool {
        let units = |dense: usize| self.layers[dense].options.get("units").and_then(Value::as_u64);
        self.ends_in_sigmoid() && self.last_dense().and_then(units) == Some(1)
    }

    /// Leaves a sigmoid of several outputs at its end out: the labels decide what takes its place. Returns whether there was one.
    ///
    /// ```
    /// # use towers_models::Architecture;
    /// let ends = |units: usize| -> serde_json::Result<Architecture> {
    ///     let dense = serde_json::json!({"class": "Dense", "units": units, "activation": "sigmoid"});
    ///     serde_json::from_value(serde_json::json!([{"class": "Flatten"}, dense]))
    /// };
    /// let mut architecture = ends(2)?;
    /// assert!(architecture.build("mine", [8, 8, 3], 2)?.is_multi_label());
    /// assert!(architecture.take_sigmoid() && !architecture.take_sigmoid());
    /// assert!(!architecture.build("mine", [8, 8, 3], 2)?.is_multi_label());
    /// assert!(!ends(1)?.take_sigmoid() && ends(1)?.take_classes() == Some(2));
    /// assert_eq!(ends(1)?.build("mine", [8, 8, 3], 2)?.classes(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_sigmoid(&mut self) -> bool {
        if !self.ends_in_sigmoid() || self.has_one_output() {
            return false;
        }
        let Some(last) = self.layers.last_mut() else { return false };
        match last.class == "Activation" {
            true => _ = self.layers.pop(),
            false => _ = last.options.remove("activation"),
        }
        true
    }

    /// How its first layers normalize pixels, if they are `Rescaling`s, and what they do is no identity.
    ///
    /// ```
    /// # use towers_models::Architecture;
    /// let layers = serde_json::json!([
    ///     {"class": "Rescaling", "scale": 1.0 / 255.0},
    ///     {"class": "Rescaling", "scale": [4.0, 5.0, 5.0], "offset": [-2.0, -2.0, -2.5]},
    /// ]);
    /// let architecture: Architecture = serde_json::from_value(layers)?;
    /// let normalization = architecture.normalization().unwrap();
    /// assert_eq!((normalization.mean.round(), normalization.deviation.round()), (128.0, 64.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn normalization(&self) -> Option<Normalization> {
        let (mut scale, mut offset) = ([1.0; 3], [0.0; 3]);
        let mut before = IMAGES;
        for layer in &self.layers {
            let reads = layer.inputs.is_empty() || layer.inputs == [before];
            if layer.class != "Rescaling" || !reads {
                break;
            }
            for k in 0..3 {
                let factor = number(&layer.options, "scale", 1.0, k)?;
                scale[k] *= factor;
                offset[k] = offset[k] * factor + number(&layer.options, "offset", 0.0, k)?;
            }
            before = &layer.name;
        }
        let largest = |of: &dyn Fn(usize) -> f64| (0..3).map(|k| of(k).abs()).fold(0.0, f64::max);
        let mean = largest(&|k| offset[k] / scale[k]);
        let deviation = largest(&|k| 1.0 / scale[k]);
        let sound = mean.is_finite() && deviation.is_finite() && (mean, deviation) != (0.0, 1.0);
        sound.then_some(Normalization { mean, deviation })
    }
}

/// The number of an option for the color `k`.
fn number(options: &Map<String, Value>, key: &str, default: f64, k: usize) -> Option<f64> {
    match options.get(key) {
        None | Some(Value::Null) => Some(default),
        Some(value) => value.as_f64().or_else(|| value.get(k)?.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_first_layers_normalize_pixels() {
        let of = |layers: Value| {
            let architecture: Architecture = serde_json::from_value(layers).unwrap();
            architecture.normalization().map(|own| (own.mean, own.deviation))
        };
        let rescaling =
            |scale: f64, offset: f64| json!({"class": "Rescaling", "scale": scale, "offset": offset});
        assert_eq!(of(json!([rescaling(0.5, -1.0)])), Some((2.0, 2.0)));
        assert_eq!(of(json!([rescaling(1.0, 0.0), rescaling(-4.0, 2.0)])), Some((0.5, 0.25)));
        assert_eq!(of(json!([{"class": "Flatten"}, rescaling(0.5, -1.0)])), None);
        for unclear in [json!([]), json!([rescaling(1.0, 0.0)]), json!([rescaling(0.0, 1.0)])] {
            assert_eq!(of(unclear), None);
        }
        // Beside the first one, and not behind it.
        let named = |name: &str, from: &str| json!({"class": "Rescaling", "name": name, "inputs": [from], "scale": 0.5});
        assert_eq!(of(json!([named("a", "input"), named("b", "input")])), Some((0.0, 2.0)));
        assert_eq!(of(json!([named("a", "input"), named("b", "a")])), Some((0.0, 4.0)));
    }
}
