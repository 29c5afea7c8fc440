//! Reads the options of a layer.

use super::LayerSpec;
use serde_json::Value;
use towers_layers::{Error, Initializer, Padding, Result};
use towers_program::{Activation, Noise, Shape};

/// More filters, units, rows or columns than any network has: sizes are multiplied before memory is asked for.
const MOST: u64 = 65_536;

/// The options of one layer, which is called `name`.
pub(super) struct Options<'a> {
    pub(super) name: &'a str,
    pub(super) spec: &'a LayerSpec,
}

impl Options<'_> {
    /// The error of this layer.
    pub(super) fn refuse(&self, what: impl Into<String>) -> Error {
        Error::Graph { layer: self.name.to_owned(), what: what.into() }
    }

    /// The error for a value.
    fn refuse_value(&self, key: &str, accepted: &str) -> Error {
        let value = shortened(self.spec.options[key].to_string());
        self.refuse(format!("`{key}` is {value}, but must be {accepted}"))
    }

    /// An option that is given, and not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.spec.options.get(key).filter(|value| !value.is_null())
    }

    /// A number of things, if it is given.
    pub(super) fn size(&self, key: &str) -> Result<Option<usize>> {
        self.get(key).map(|value| size(value).ok_or_else(|| self.refuse_value(key, SIZE))).transpose()
    }

    /// A number of things that must be given.
    pub(super) fn needed(&self, key: &str) -> Result<usize> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    /// A place in a tensor: a number from 0 on; 0 if it is not given.
    pub(super) fn place(&self, key: &str) -> Result<usize> {
        let refuse = || self.refuse_value(key, "a whole number from 0 to 65536");
        let place = |value: &Value| value.as_u64().filter(|&n| n <= MOST).map(|n| n as usize);
        self.get(key).map_or(Ok(0), |value| place(value).ok_or_else(refuse))
    }

    fn missing(&self, key: &str) -> Error {
        self.refuse(format!("`{key}` is missing"))
    }

    /// Rows and columns, if they are given: one number, or two.
    pub(super) fn pair(&self, key: &str) -> Result<Option<[usize; 2]>> {
        let refuse = || self.refuse_value(key, "a number from 1 to 65536, or two for rows and columns");
        self.get(key).map(|value| pair(value).ok_or_else(refuse)).transpose()
    }

    /// Rows and columns that must be given.
    pub(super) fn needed_pair(&self, key: &str) -> Result<[usize; 2]> {
        self.pair(key)?.ok_or_else(|| self.missing(key))
    }

    /// Rows above and below and columns to the left and to the right, by default of this number.
    pub(super) fn sides(&self, key: &str, default: usize) -> Result<towers_program::Pad> {
        let refuse = || self.refuse_value(key, "N, [ROWS, COLUMNS] or [[TOP, BOTTOM], [LEFT, RIGHT]]");
        let Some(value) = self.get(key) else {
            return Ok(towers_program::Pad { top: default, bottom: default, left: default, right: default });
        };
        let number = |value: &Value| value.as_u64().filter(|&n| n <= MOST).map(|n| n as usize);
        let two = |value: &Value| match (number(value), value.as_array().map(Vec::as_slice)) {
            (Some(n), _) => Some([n; 2]),
            (None, Some([a, b])) => Some([number(a)?, number(b)?]),
            _ => None,
        };
        let all = match value.as_array().map(Vec::as_slice) {
            None => number(value).map(|n| [[n; 2]; 2]),
            Some([rows, columns]) => two(rows).zip(two(columns)).map(|(rows, columns)| [rows, columns]),
            Some(_) => None,
        };
        let [[top, bottom], [left, right]] = all.ok_or_else(refuse)?;
        Ok(towers_program::Pad { top, bottom, left, right })
    }

    /// The extents of a shape, of which one may be -1: that is `None`.
    pub(super) fn target_shape(&self) -> Result<Vec<Option<usize>>> {
        let refuse = || self.refuse_value("target_shape", "a list of numbers, of which one may be -1");
        let list =
            self.get("target_shape").and_then(Value::as_array).ok_or_else(|| self.missing("target_shape"))?;
        let open = list.iter().filter(|side| side.as_i64() == Some(-1)).count();
        let sides: Option<Vec<_>> = list
            .iter()
            .map(|side| if side.as_i64() == Some(-1) { Some(None) } else { size(side).map(Some) })
            .collect();
        sides.filter(|_| open <= 1).ok_or_else(refuse)
    }

    /// A finite number.
    pub(super) fn number(&self, key: &str, default: f64) -> Result<f32> {
        Ok(self.given_number(key)?.unwrap_or(default as f32))
    }

    /// A finite number that must be given.
    pub(super) fn needed_number(&self, key: &str) -> Result<f32> {
        self.given_number(key)?.ok_or_else(|| self.missing(key))
    }

    /// A finite number, if it is given.
    pub(super) fn given_number(&self, key: &str) -> Result<Option<f32>> {
        let refuse = || self.refuse_value(key, "a number");
        self.get(key).map(|value| number(value).ok_or_else(refuse)).transpose()
    }

    /// A finite number for all channels, or a list with one for each of the one or three of a picture.
    pub(super) fn numbers(&self, key: &str, channels: usize, default: f64) -> Result<[f32; 3]> {
        let Some(list) = self.get(key).and_then(Value::as_array) else {
            return Ok([self.number(key, default)?; 3]);
        };
        let numbers: Vec<f32> = list.iter().filter_map(number).collect();
        match numbers[..] {
            [r, g, b] if list.len() == 3 && channels == 3 => Ok([r, g, b]),
            [grey] if list.len() == 1 && channels == 1 => Ok([grey; 3]),
            _ => Err(self.refuse_value(key, "a number, or a list with one for each channel of a picture")),
        }
    }

    /// True or false.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.refuse_value(key, "true or false"))
    }

    /// The place of a word among those that are accepted, the first one by default.
    pub(super) fn one_of<const N: usize>(&self, key: &str, words: [&str; N]) -> Result<usize> {
        let Some(value) = self.get(key) else { return Ok(0) };
        let place = value.as_str().and_then(|own| words.iter().position(|word| *word == own));
        place.ok_or_else(|| self.refuse_value(key, &format!("one of {}", words.join(", "))))
    }

    /// The elements that are dropped together, of a tensor of this shape: Keras' `noise_shape`, whose first number is that of
    /// the samples. A 1 stands for all of an axis together, and no number for each.
    pub(super) fn noise(&self, x: Shape) -> Result<Noise> {
        let key = "noise_shape";
        let refuse =
            || self.refuse_value(key, "[null, 1, 1, 1] for samples, or [null, 1, 1, null] for channels");
        let Some(value) = self.get(key) else { return Ok(Noise::Element) };
        let own: Vec<Option<u64>> = value.as_array().into_iter().flatten().map(Value::as_u64).collect();
        let (samples, [h, w, c]) = match own[..] {
            [samples, h, w, c] => (samples, [h, w, c]),
            [samples, c] if x.h * x.w == 1 => (samples, [Some(1), Some(1), c]),
            _ => return Err(refuse()),
        };
        let is_each = |noise: Option<u64>, extent: usize| noise.is_none_or(|noise| noise == extent as u64);
        let is_one = |noise: Option<u64>, extent: usize| noise == Some(1) || extent == 1;
        match samples != Some(1) {
            true if is_each(h, x.h) && is_each(w, x.w) && is_each(c, x.c) => Ok(Noise::Element),
            true if is_one(h, x.h) && is_one(w, x.w) && is_one(c, x.c) => Ok(Noise::Sample),
            true if is_one(h, x.h) && is_one(w, x.w) && is_each(c, x.c) => Ok(Noise::Channel),
            _ => Err(refuse()),
        }
    }

    /// `valid`, `same`, or widths as of a `ZeroPadding2D`.
    pub(super) fn padding(&self) -> Result<Padding> {
        match self.get("padding") {
            None => Ok(Padding::Valid),
            Some(Value::String(name)) if name == "valid" => Ok(Padding::Valid),
            Some(Value::String(name)) if name == "same" => Ok(Padding::Same),
            Some(Value::String(_)) => {
                Err(self.refuse_value("padding", "\"valid\", \"same\", or numbers of pixels"))
            }
            Some(_) => self.sides("padding", 0).map(Padding::Sides),
        }
    }

    /// The activation; `None` for a softmax, which belongs to the loss.
    pub(super) fn activation(&self) -> Result<Option<Activation>> {
        let name = match self.get("activation") {
            None => "linear",
            Some(value) => value.as_str().unwrap_or_default(),
        };
        match (name.parse(), name) {
            (Ok(known), _) => Ok(Some(known)),
            (_, "swish") => Ok(Some(Activation::Silu)),
            (_, "softmax") => Ok(None),
            _ => {
                let names = Activation::ALL.map(Activation::name).join(", ");
                let accepted = format!("one of {names}, or softmax at the end");
                Err(self.refuse_value("activation", &accepted))
            }
        }
    }

    /// The initializer of a kernel.
    pub(super) fn initializer(&self, key: &str) -> Result<Initializer> {
        let Some(value) = self.get(key) else { return Ok(Initializer::GlorotUniform) };
        let accepted = "one of zeros, ones, constant, glorot_uniform, glorot_normal, he_uniform, he_normal, \
                        random_uniform, random_normal";
        initializer_of(value).ok_or_else(|| self.refuse_value(key, accepted))
    }
}

/// An initializer: a name in either of Keras' spellings, or a table with `class_name` and `config`. `None` for one that
/// is not there.
///
/// ```
/// use towers_layers::Initializer;
/// use towers_models::initializer_of;
///
/// assert_eq!(initializer_of(&"HeNormal".into()), Some(Initializer::HeNormal));
/// assert_eq!(initializer_of(&"orthogonal".into()), None);
/// ```
pub fn initializer_of(value: &Value) -> Option<Initializer> {
    let name = value.as_str().or(value["class_name"].as_str()).unwrap_or_default();
    let plain: String = name.chars().filter(|ch| *ch != '_').flat_map(char::to_lowercase).collect();
    let option = |key: &str, default: f64| match &value["config"][key] {
        Value::Null => Some(default as f32),
        number => number.as_f64().map(|x| x as f32).filter(|x| x.is_finite()),
    };
    let word = |key: &str, default| value["config"][key].as_str().unwrap_or(default);
    match plain.as_str() {
        "zeros" => Some(Initializer::Zeros),
        "ones" => Some(Initializer::Ones),
        "constant" => option("value", 0.0).map(Initializer::Constant),
        "glorotuniform" => Some(Initializer::GlorotUniform),
        "glorotnormal" => Some(Initializer::GlorotNormal),
        "heuniform" => Some(Initializer::HeUniform),
        "henormal" => Some(Initializer::HeNormal),
        "randomuniform" => option("minval", -0.05)
            .zip(option("maxval", 0.05))
            .map(|(low, high)| Initializer::Uniform(low, high)),
        "randomnormal" => {
            option("mean", 0.0).zip(option("stddev", 0.05)).map(|(mean, std)| Initializer::Normal(mean, std))
        }
        // Keras 2 writes the others so.
        "variancescaling" => match (option("scale", 1.0), word("mode", "fan_in"), word("distribution", "")) {
            (Some(1.0), "fan_avg", "uniform") => Some(Initializer::GlorotUniform),
            (Some(1.0), "fan_avg", "normal" | "truncated_normal") => Some(Initializer::GlorotNormal),
            (Some(2.0), "fan_in", "uniform") => Some(Initializer::HeUniform),
            (Some(2.0), "fan_in", "normal" | "truncated_normal") => Some(Initializer::HeNormal),
            _ => None,
        },
        _ => None,
    }
}

/// A finite number.
fn number(value: &Value) -> Option<f32> {
    value.as_f64().map(|x| x as f32).filter(|x| x.is_finite())
}

const SIZE: &str = "a whole number from 1 to 65536";

fn size(value: &Value) -> Option<usize> {
    value.as_u64().filter(|size| (1..=MOST).contains(size)).map(|size| size as usize)
}

fn pair(value: &Value) -> Option<[usize; 2]> {
    match value.as_array().map(Vec::as_slice) {
        None => size(value).map(|size| [size; 2]),
        Some([rows, columns]) => Some([size(rows)?, size(columns)?]),
        Some(_) => None,
    }
}

/// A value of a file may be of any length.
pub(super) fn shortened(text: String) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
