//! From layers to lines of Python.

use super::about;
use crate::source::grouped;
use crate::{Error, Result, Source};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use towers_layers::{Step, Value};
use towers_program::{Activation, Conv2d, Noise, Op, Pad, Pool2d, Shape, ops};

pub(super) fn write(source: &Source<'_>, weights: &str) -> Result<String> {
    let (mut layers, mut forward, mut names) = (String::new(), String::new(), HashMap::new());
    names.insert(source.input, "x".to_owned());
    let mut vectors = HashSet::new();
    for (step, own) in source.steps.iter().zip(identifiers(&source.steps)) {
        let (layer, value) = lines(step, &own, &names, vectors.contains(&step.inputs[0]))?;
        if step.flat {
            vectors.insert(step.output);
        }
        // Writing to a string cannot fail.
        if let Some(layer) = layer {
            let _ = writeln!(layers, "        self.{own} = {layer}");
        }
        let _ = writeln!(forward, "        {own} = {value}");
        names.insert(step.output, own);
    }
    let [h, w, c] = source.image;
    let (name, shift) = (source.name, source.shift().shape);
    let (classes, metadata) = (serde_json::Value::from(source.classes.to_vec()), about::lines(source));
    let logits = names.get(&source.logits).map_or("x", String::as_str);
    let sigmoid = || format!("torch.sigmoid({logits})");
    let (value, what) = match source.multi_label {
        true => (sigmoid(), "the probability of each class"),
        false if source.has_one_output() => (sigmoid(), "the probability of the second class"),
        false => (logits.to_owned(), "logits"),
    };
    // Nothing may end the text that they stand in.
    let [name, weights] = [name, weights].map(|text| text.replace(['"', '\\'], "'"));
    Ok(format!(
        r#""""{name} as towers trained it: pictures of ({c}, {h}, {w}) in, of values from 0 to 255; {what} out.

The weights are in {weights}. METADATA is for save_file of safetensors.torch: with it the file knows its classes and
the size of its pictures.
"""

import json

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = {classes}
{metadata}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pixel_scale", torch.ones({c}, 1, 1))
        self.register_buffer("pixel_shift", torch.zeros({}, {}, {}))
{layers}
    def forward(self, x):
        x = x * self.pixel_scale + self.pixel_shift
{forward}        return {value}
"#,
        shift[0], shift[1], shift[2]
    ))
}

/// Python's keywords.
const KEYWORDS: &str = "False None True and as assert async await break class continue def del elif else except finally for from global \
                        if import in is lambda nonlocal not or pass raise return try while with yield";

/// What the text of the module uses, and the attributes of PyTorch's `nn.Module`.
const TAKEN: &str = "self x torch nn F json float pixel_scale pixel_shift T_destination add_module apply bfloat16 buffers \
                     call_super_init children compile cpu cuda double dump_patches eval extra_repr forward get_buffer get_extra_state \
                     get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers named_children named_modules \
                     named_parameters parameters register_backward_hook register_buffer register_forward_hook \
                     register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook \
                     register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter \
                     register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule \
                     share_memory state_dict to to_empty train training type xpu zero_grad";

/// Whether a layer's name may be an attribute's and a variable's.
fn is_free(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !is_word_of(KEYWORDS, name)
        && !is_word_of(TAKEN, name)
}

fn is_word_of(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|word| word == name)
}

/// Letters that Python takes in names as they are. Others it replaces by their compatible ones, as `fi` in one character, and then
/// finds no file of that name.
const LETTERS: [RangeInclusive<char>; 12] = [
    '\u{c0}'..='\u{131}',
    '\u{134}'..='\u{13e}',
    '\u{141}'..='\u{148}',
    '\u{14a}'..='\u{17e}',
    '\u{386}'..='\u{3ce}',
    '\u{400}'..='\u{481}',
    '\u{48a}'..='\u{52f}',
    '\u{5d0}'..='\u{5ea}',
    '\u{3041}'..='\u{3096}',
    '\u{30a1}'..='\u{30fa}',
    '\u{4e00}'..='\u{9fff}',
    '\u{ac00}'..='\u{d7a3}',
];

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c.is_alphabetic() && LETTERS.iter().any(|letters| letters.contains(&c))
}

/// The name under which Python can import a file that would be called `name`: that itself, unless it has other characters than letters,
/// digits and `_`, begins with a digit, or is a keyword.
///
/// ```
/// use towers_interchange::pytorch::importable;
///
/// let names = ["my_net", "my-net", "3d.net", "class", "f\u{fc}r", "x\u{b2}"].map(importable);
/// assert_eq!(names, ["my_net", "my_net", "_3d_net", "class_", "f\u{fc}r", "x_"]);
/// ```
pub fn importable(name: &str) -> String {
    let mut own: String =
        name.chars().map(|c| if is_letter(c) || c.is_ascii_digit() { c } else { '_' }).collect();
    if !own.starts_with(|c: char| is_letter(c) || c == '_') {
        own.insert(0, '_');
    }
    if is_word_of(KEYWORDS, &own) {
        own.push('_');
    }
    own
}

/// What the layers are called in Python: as here, unless a name has characters that Python's have not, or is taken.
pub(super) fn identifiers(steps: &[Step]) -> Vec<String> {
    let mut taken: HashSet<String> =
        steps.iter().filter(|step| is_free(&step.name)).map(|step| step.name.clone()).collect();
    let own = |step: &Step| {
        if is_free(&step.name) {
            return step.name.clone();
        }
        let mut own: String =
            step.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !own.starts_with(|c: char| c.is_ascii_alphabetic()) {
            own.insert_str(0, "layer_");
        }
        while !is_free(&own) || !taken.insert(own.clone()) {
            own.push('_');
        }
        own
    };
    steps.iter().map(own).collect()
}

/// The line of a layer, called `name`, in the constructor, if it has one, and its value in `forward`. `vectors` tells whether it reads
/// vectors, not images.
fn lines(
    step: &Step,
    name: &str,
    names: &HashMap<Value, String>,
    vectors: bool,
) -> Result<(Option<String>, String)> {
    let refuse = |reason: &str| Error::Export {
        layer: step.name.clone(),
        target: "PyTorch",
        reason: reason.to_owned(),
    };
    let inputs: Option<Vec<&str>> = step.inputs.iter().map(|x| names.get(x).map(String::as_str)).collect();
    let inputs = inputs.ok_or_else(|| refuse("it reads what no layer before it computes"))?;
    let x = inputs[0];
    let bias = if step.params.iter().any(|spec| spec.name == "bias") { "" } else { ", bias=False" };
    let own = |x: &str| format!("self.{name}({x})");
    let op = step.op.ok_or_else(|| refuse("it is not a single op on its input and its parameters"))?;
    Ok(match grouped(op) {
        Op::Conv2dForward(ops::Conv2dForward { conv, act }) => {
            let (x, padding) = padded(x, conv.pad, "");
            let [kh, kw] = conv.kernel;
            let layer = format!(
                "nn.Conv2d({}, {}, ({kh}, {kw}){}{padding}{}{bias})",
                conv.inputs,
                conv.outputs,
                stride(conv.stride),
                spread(conv)
            );
            (Some(layer), activated(&own(&x), act))
        }
        Op::LinearForward(ops::LinearForward { linear, act }) => {
            let layer = format!("nn.Linear({}, {}{bias})", linear.inputs, linear.outputs);
            (Some(layer), activated(&own(x), act))
        }
        Op::BatchNormTrain(ops::BatchNormTrain { bn: norm }) => {
            // Shorter than the nearest f32: 0.01, not 0.00999999.
            let momentum = (f64::from(1.0 - step.momentum().unwrap_or(0.9)) * 1e6).round() / 1e6;
            let rank = if vectors { 1 } else { 2 };
            let layer =
                format!("nn.BatchNorm{rank}d({}, eps={}, momentum={momentum})", step.x.c, norm.epsilon);
            (Some(layer), activated(&own(x), norm.act))
        }
        Op::GroupNorm(ops::GroupNorm { groups, epsilon, act }) => {
            let layer = format!("nn.GroupNorm({groups}, {}, eps={epsilon})", step.x.c);
            (Some(layer), activated(&own(x), act))
        }
        Op::PRelu(_) => (Some(format!("nn.PReLU({})", step.x.c)), own(x)),
        Op::LayerNorm(ops::LayerNorm { epsilon }) => {
            let layer = format!("nn.LayerNorm({}, eps={epsilon})", step.x.c);
            let last = own(&format!("{x}.permute(0, 2, 3, 1)"));
            (Some(layer), if vectors { own(x) } else { format!("{last}.permute(0, 3, 1, 2)") })
        }
        Op::LocalResponseNorm(norm) if norm.size.is_multiple_of(2) => {
            return Err(refuse("PyTorch has more neighbours before a channel, of an even number"));
        }
        Op::LocalResponseNorm(ops::LocalResponseNorm { size, alpha, beta, bias }) => {
            (None, format!("F.local_response_norm({x}, {size}, alpha={alpha}, beta={beta}, k={bias})"))
        }
        Op::ZeroPad(ops::ZeroPad { top, bottom, left, right }) => {
            (None, format!("F.pad({x}, ({left}, {right}, {top}, {bottom}))"))
        }
        Op::Upsample(ops::Upsample { by: [down, across], bilinear }) => {
            let mode = if bilinear { "bilinear" } else { "nearest" };
            (None, format!("F.interpolate({x}, scale_factor=({down}, {across}), mode=\"{mode}\")"))
        }
        Op::MaxPool(ops::MaxPool { pool }) => {
            let (x, padding) = padded(x, pool.pad, ", value=float(\"-inf\")");
            (None, format!("F.max_pool2d({x}, {}{padding})", window(pool)))
        }
        // Of all of an image: a vector.
        Op::AveragePool(_) if step.flat => (None, format!("{x}.mean((2, 3))")),
        Op::AveragePool(ops::AveragePool { pool }) => {
            let average = averaged(x, pool, step.x);
            (None, average.ok_or_else(|| refuse("PyTorch's average can't leave its padding out"))?)
        }
        // From and to the order (row, column, channel).
        Op::Reshape(ops::Reshape { to }) if !step.flat => {
            let x = if step.x.h * step.x.w > 1 { format!("{x}.permute(0, 2, 3, 1)") } else { x.to_owned() };
            (None, format!("{x}.reshape(-1, {}, {}, {}).permute(0, 3, 1, 2)", to.h, to.w, to.c))
        }
        // In the order (row, column, channel), which the layer behind was trained with.
        Op::Reshape(_) if step.x.h * step.x.w > 1 => (None, format!("{x}.permute(0, 2, 3, 1).flatten(1)")),
        Op::Reshape(_) => (None, format!("{x}.flatten(1)")),
        // Of whole samples, as torchvision's StochasticDepth.
        Op::Dropout(ops::Dropout { rate, noise: Noise::Sample, .. }) => {
            let ones = if vectors { "1" } else { "1, 1, 1" };
            (None, format!("{x} * F.dropout({x}.new_ones((len({x}), {ones})), {rate}, self.training)"))
        }
        Op::Dropout(ops::Dropout { rate, noise, .. }) => {
            let of = if noise == Noise::Channel && !vectors { "2d" } else { "" };
            (Some(format!("nn.Dropout{of}({rate})")), own(x))
        }
        Op::Activate(ops::Activate { act }) => (None, activated(x, act)),
        Op::Scale(ops::Scale { factor }) => (None, format!("{x} * {factor}")),
        Op::ChannelShuffle(ops::ChannelShuffle { groups }) => {
            (None, format!("F.channel_shuffle({x}, {groups})"))
        }
        Op::Slice(ops::Slice { from, channels }) => (None, format!("{x}[:, {from}:{}]", from + channels)),
        Op::Concat(_) => (None, format!("torch.cat([{}], 1)", inputs.join(", "))),
        Op::Merge(ops::Merge { how: ops::How::Product }) => (None, inputs.join(" * ")),
        Op::Merge(ops::Merge { how: ops::How::Sum }) => (None, inputs.join(" + ")),
        Op::Add(ops::Add { act }) => (None, activated(&inputs.join(" + "), act)),
        _ => return Err(refuse("what it computes has no module there")),
    })
}

fn activated(value: &str, act: Activation) -> String {
    match act {
        Activation::None => value.to_owned(),
        Activation::BoundedRelu(most) if most != 6.0 => format!("F.hardtanh({value}, 0.0, {most:?})"),
        Activation::LeakyRelu(slope) => format!("F.leaky_relu({value}, {slope})"),
        // PyTorch's own has a slope of 1/6 alone.
        Activation::HardSigmoid(slope) if slope != 1.0 / 6.0 => {
            format!("torch.clamp({value} * {slope} + 0.5, 0.0, 1.0)")
        }
        act => format!("F.{}({value})", act.label().to_lowercase()),
    }
}

/// Dilation and groups, where they are not 1.
fn spread(conv: Conv2d) -> String {
    let [down, across] = conv.dilation;
    let dilation =
        if [down, across] == [1, 1] { String::new() } else { format!(", dilation=({down}, {across})") };
    if conv.groups == 1 { dilation } else { format!("{dilation}, groups={}", conv.groups) }
}

fn stride(stride: [usize; 2]) -> String {
    if stride == [1, 1] { String::new() } else { format!(", stride=({}, {})", stride[0], stride[1]) }
}

fn window(pool: Pool2d) -> String {
    format!("({}, {}), stride=({}, {})", pool.kernel[0], pool.kernel[1], pool.stride[0], pool.stride[1])
}

/// The mean of each window of an image of shape `image`. `None` for padding that PyTorch can't leave out.
fn averaged(x: &str, pool: Pool2d, image: Shape) -> Option<String> {
    // PyTorch counts all padding or none, and never what `ceil_mode` adds.
    let with = |pad: Pad, counts: &str| {
        let padding = symmetric(pad)?;
        let counts = if pad == Pad::VALID { "" } else { counts };
        let ceil = match pool.pad {
            all if all == pad => "",
            all if all == (Pool2d { pad, ..pool }).ceil(image).pad => ", ceil_mode=True",
            _ => return None,
        };
        Some(format!("F.avg_pool2d({x}, {}{padding}{ceil}{counts})", window(pool)))
    };
    if pool.counted == Pad::VALID {
        let Pad { top, left, .. } = pool.pad;
        return with(Pad { top, bottom: top, left, right: left }, ", count_include_pad=False");
    }
    with(pool.counted, "").or_else(|| {
        let Pad { top, bottom, left, right } = pool.counted;
        let x = format!("F.pad({x}, ({left}, {right}, {top}, {bottom}))");
        let rest = Pool2d::new(pool.kernel, pool.stride, pool.pad.without(pool.counted));
        let image = Shape::new(image.n, image.h + top + bottom, image.w + left + right, image.c);
        averaged(&x, rest, image)
    })
}

/// The argument for a padding that is the same on opposite sides.
fn symmetric(pad: Pad) -> Option<String> {
    let same = pad.top == pad.bottom && pad.left == pad.right;
    let padding =
        if pad == Pad::VALID { String::new() } else { format!(", padding=({}, {})", pad.top, pad.left) };
    same.then_some(padding)
}

/// The input and the argument for a padding: PyTorch's layers pad opposite sides alike, so other paddings
/// come before them.
fn padded(x: &str, pad: Pad, value: &str) -> (String, String) {
    match symmetric(pad) {
        Some(padding) => (x.to_owned(), padding),
        None => {
            let Pad { top, bottom, left, right } = pad;
            (format!("F.pad({x}, ({left}, {right}, {top}, {bottom}){value})"), String::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_checkpoint::Tensors;
    use towers_layers::{
        BatchNormalization, ChannelShuffle, ChannelSlice, Concatenate, Conv2D, Dense, Dropout, Flatten,
        GlobalAveragePooling2D, Graph,
    };
    use towers_models::Model;

    /// PyTorch normalizes vectors and images by different modules.
    #[test]
    fn normalizations_know_what_they_read() {
        let mut graph = Graph::new("mine", [8, 8, 3]);
        let norm = BatchNormalization::new;
        let mut x = graph.add(Conv2D::new(4, 3), graph.input()).unwrap();
        x = graph.add_named("of_images", norm().activation(Activation::Relu), x).unwrap();
        let pooled = graph.add(GlobalAveragePooling2D, x).unwrap();
        let pooled = graph.add_named("of_means", norm(), pooled).unwrap();
        x = graph.add(Flatten, x).unwrap();
        x = graph.add(Dense::new(4).activation(Activation::Relu), x).unwrap();
        x = graph.add(Dropout::new(0.5), x).unwrap();
        x = graph.add_named("of_vectors", norm(), x).unwrap();
        let logits = graph.add(Concatenate, [x, pooled]).unwrap();
        let (model, tensors) = (Model::new(graph, logits), Tensors::new());
        let source = Source::of(&model, &tensors);
        let module = write(&source, "mine.safetensors").unwrap();
        for (name, rank) in [("of_images", 2), ("of_means", 1), ("of_vectors", 1)] {
            let line = format!("self.{name} = nn.BatchNorm{rank}d(4, eps=0.001, momentum=0.01)");
            assert!(module.contains(&line), "{module}");
        }
    }

    #[test]
    fn groups_dilation_and_channels() {
        let mut graph = Graph::new("mine", [8, 8, 3]);
        let x = graph.add_named("first", Conv2D::new(8, 3).dilation_rate([2, 1]), graph.input()).unwrap();
        let x = graph.add_named("second", Conv2D::new(8, 1).groups(4).use_bias(false), x).unwrap();
        let x = graph.add_named("shuffled", ChannelShuffle::new(2), x).unwrap();
        let logits = graph.add_named("part", ChannelSlice::new(2, 4), x).unwrap();
        let (model, tensors) = (Model::new(graph, logits), Tensors::new());
        let source = Source::of(&model, &tensors);
        let module = write(&source, "mine.safetensors").unwrap();
        for line in [
            "self.first = nn.Conv2d(3, 8, (3, 3), dilation=(2, 1))",
            "self.second = nn.Conv2d(8, 8, (1, 1), groups=4, bias=False)",
            "shuffled = F.channel_shuffle(second, 2)",
            "part = shuffled[:, 2:6]",
        ] {
            assert!(module.contains(line), "{module}");
        }
    }

    /// A state dict has the names of its module, and the file of either comes back.
    #[test]
    fn layers_have_names_of_python() {
        let mut graph = Graph::new("mine", [8, 8, 3]);
        let mut x = graph.input();
        for name in ["my conv", "my_conv", "my-conv", "3x3", "f\u{fc}r", "class", "train", "layer1.0.conv1"] {
            x = graph.add_named(name, Conv2D::new(3, 1), x).unwrap();
        }
        let steps = graph.steps(x);
        let names =
            ["my_conv_", "my_conv", "my_conv__", "layer_3x3", "f_r", "class_", "train_", "layer1_0_conv1"];
        assert_eq!(identifiers(&steps), names);
        let mut tensors = Tensors::new();
        for (k, step) in steps.iter().enumerate() {
            for spec in &step.params {
                let values = vec![k as f32; spec.shape.iter().product()];
                tensors.insert(format!("{}/{}", step.name, spec.name), spec.shape.clone(), values).unwrap();
            }
        }
        let model = Model::new(graph, x);
        let source = Source::of(&model, &tensors);
        let module = write(&source, "mine.safetensors").unwrap();
        assert!(module.contains("        my_conv__ = self.my_conv__(my_conv)\n"), "{module}");
        let state = super::super::state_dict(&source).unwrap();
        assert!(names.iter().all(|name| state.get(&format!("{name}.weight")).is_some()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.safetensors");
        towers_checkpoint::save_tensors(&file, &state, state.metadata()).unwrap();
        let back = super::super::TorchWeights::read(&file).unwrap().assign(&steps).unwrap();
        assert_eq!(back, tensors);
    }
}
