//! From terms to layers.

use super::axes::Axis;
use super::constants::Constant;
use super::extent::{Extent, shown};
use super::graph::{Of, Reader};
use super::node::{Node, without};
use super::patterns;
use super::tensor::Tensor;
use super::term::{Kind, Term};
use serde_json::{Value, json};
use std::sync::Arc;
use towers_models::CLASSES;

impl From<Tensor> for Of {
    fn from(tensor: Tensor) -> Of {
        match tensor.term.is_leaf() && tensor.is_plain() && tensor.len.is_none() {
            true => Of::Layer(tensor.layer),
            false => Of::Seen(Box::new(tensor)),
        }
    }
}

impl<'g> Reader<'g> {
    /// A node's operand that depends on the images.
    pub(super) fn tensor(&mut self, node: &Node<'g>, k: usize) -> Result<Tensor, String> {
        match self.value(node, k)?.cloned() {
            Some(Of::Layer(layer)) => {
                let shape = self.shape(&layer);
                Ok(Tensor::of(layer, shape))
            }
            Some(Of::Seen(tensor)) => Ok(*tensor),
            Some(Of::Constant(_)) => Err(node.unknown()),
            None => Err(node.refuse(format!("lacks its operand number {}", k + 1))),
        }
    }

    /// The layer that computes a tensor, with the tensor's axes on it.
    pub(super) fn base(&mut self, tensor: Tensor) -> Result<Tensor, String> {
        // All of an image in a vector.
        let flat = tensor.axes.len() == 2;
        let layer = self.lowered(&tensor.layer, &tensor.term, flat)?;
        let shape = self.shape(&layer);
        Ok(Tensor { layer, term: Term::leaf(), shape, ..tensor })
    }

    /// The layer that computes a tensor with just its axes; `wanted` names it, where it must be another one.
    pub(super) fn plain_layer(
        &mut self,
        tensor: Tensor,
        wanted: &str,
        node: Option<&Node<'g>>,
    ) -> Result<String, String> {
        let own = self.base(tensor)?;
        if own.is_plain() && own.len.is_none() {
            return Ok(own.layer);
        }
        let seen = own.seen();
        let (class, options) = if own.axes.len() == 2 && own.shape.len() == 4 {
            match (own.axes.is_flat(&own.shape, true), own.axes.is_flat(&own.shape, false)) {
                (true, _) => {
                    let name = self.new_name(wanted, "_flat");
                    let len = own.len.and_then(|len| usize::try_from(len).ok());
                    self.flattened.insert(name.clone(), len);
                    let seen = vec![seen[0].clone(), own.len.map_or(seen[1].clone(), Extent::number)];
                    self.push("Flatten", name.clone(), json!({}), vec![own.layer], seen);
                    return Ok(name);
                }
                (false, true) => ("Flatten", json!({})),
                _ => ("", json!({})),
            }
        } else if let Some(groups) = own.axes.shuffled(&own.shape) {
            ("ChannelShuffle", json!({"groups": groups}))
        } else if own.axes.len() == 4 && own.shape.len() == 2 && own.kinds()[2..] == [Axis::Single; 2] {
            // A vector is a 1x1 image here.
            match CLASSES.contains(&"Reshape") {
                false => return Ok(own.layer),
                true => ("Reshape", json!({"target_shape": [1, 1, seen[1].known()]})),
            }
        } else {
            ("", json!({}))
        };
        if class.is_empty() {
            let what = format!("axes of {} that are no image's and no vector's", shown(&seen));
            return Err(match node {
                Some(node) => node.form(format!("of {what}")),
                None => format!("its output has {what}"),
            });
        }
        let name = self.new_name(wanted, "_view");
        self.push(class, name.clone(), options, vec![own.layer], seen);
        Ok(name)
    }

    /// The layer of a term of another layer's output.
    pub(super) fn lowered(&mut self, layer: &str, term: &Arc<Term>, flat: bool) -> Result<String, String> {
        if term.is_leaf() {
            return Ok(layer.to_owned());
        }
        let key = (layer.to_owned(), Arc::as_ptr(term) as usize, flat);
        if let Some((_, done)) = self.lowered.get(&key) {
            return Ok(done.clone());
        }
        let name = self.lower(layer, term, flat)?;
        // The term stays, and so does its address.
        self.lowered.insert(key, (Arc::clone(term), name.clone()));
        Ok(name)
    }

    fn lower(&mut self, layer: &str, term: &Arc<Term>, flat: bool) -> Result<String, String> {
        if let Some((activation, of)) = patterns::activation(term) {
            let x = self.lowered(layer, of, flat)?;
            let shape = self.shape(&x);
            return Ok(self.named(term, "Activation", json!({"activation": activation}), vec![x], shape));
        }
        let unknown = || Err(format!("{} in a form that is not supported", term.told));
        match &term.kind {
            Kind::Leaf => Ok(layer.to_owned()),
            Kind::Affine { scale, offset, named, of } => {
                if let Some(name) = self.normalization(layer, term, of, Some((scale, offset, named)))? {
                    return Ok(name);
                }
                let x = self.lowered(layer, of, flat)?;
                self.rescaled(term, x, [scale, offset], named)
            }
            Kind::Grouped(..) | Kind::Normalized(..) => {
                let name = self.normalization(layer, term, term, None)?;
                name.map_or_else(unknown, Ok)
            }
            Kind::Pooled(class, of) => {
                let x = self.lowered(layer, of, false)?;
                let mut shape = self.shape(&x);
                shape.truncate(2);
                let mut options = json!({});
                if !flat {
                    shape.extend([Extent::number(1), Extent::number(1)]);
                    options = json!({"keepdims": true});
                }
                Ok(self.named(term, class, options, vec![x], shape))
            }
            Kind::Sum(a, b) => self.merged("Add", layer, term, a, b, flat),
            Kind::Product(a, b) => self.merged("Multiply", layer, term, a, b, flat),
            Kind::Channels(from, len, of) => {
                let x = self.lowered(layer, of, flat)?;
                let mut shape = self.shape(&x);
                shape[1] = Extent::number(*len);
                Ok(self.named(term, "ChannelSlice", json!({"start": from, "channels": len}), vec![x], shape))
            }
            Kind::Clip(least, most, _) => {
                let shown = |x: f64| (x as f32).to_string();
                let limits = format!("from {} to {}", shown(*least), shown(*most));
                Err(format!("{} {limits}, but must be a ReLU, from 0 to inf, or from 0 to 6", term.told))
            }
            Kind::Mean(_) => Err(format!("{} over the channels, which is not supported", term.told)),
            Kind::Function(..) | Kind::Quotient(..) => unknown(),
        }
    }

    /// The sum or product of two terms of one layer.
    fn merged(
        &mut self,
        class: &str,
        layer: &str,
        term: &Term,
        a: &Arc<Term>,
        b: &Arc<Term>,
        flat: bool,
    ) -> Result<String, String> {
        let inputs = [self.lowered(layer, a, flat)?, self.lowered(layer, b, flat)?];
        let shapes = inputs.each_ref().map(|x| self.shape(x));
        let inputs = larger_first(inputs, &shapes);
        let shape = self.shape(&inputs[0]);
        Ok(self.named(term, class, json!({}), inputs.into(), shape))
    }

    /// A layer that is called as its term.
    fn named(
        &mut self,
        term: &Term,
        class: &str,
        options: Value,
        inputs: Vec<String>,
        shape: Vec<Extent>,
    ) -> String {
        let name = self.new_name(&term.output, "_act");
        if !CLASSES.contains(&class) {
            self.missing.get_or_insert_with(|| format!("{} {}", term.told, without(class)));
        }
        self.push(class, name.clone(), options, inputs, shape);
        name
    }

    /// A normalization with its scale and offset.
    fn normalization(
        &mut self,
        layer: &str,
        term: &Term,
        of: &Term,
        affine: Option<(&Vec<f64>, &Vec<f64>, &String)>,
    ) -> Result<Option<String>, String> {
        let (class, about, x) = match &of.kind {
            Kind::Grouped(groups, epsilon, x) => {
                ("GroupNormalization", json!({"groups": groups, "epsilon": epsilon}), x)
            }
            Kind::Normalized(epsilon, x) => ("LayerNormalization", json!({"epsilon": epsilon}), x),
            _ => return Ok(None),
        };
        let x = self.lowered(layer, x, false)?;
        let shape = self.shape(&x);
        let channels = shape[1].known().and_then(|n| usize::try_from(n).ok());
        let channels = channels.ok_or_else(|| format!("{} of an open number of channels", term.told))?;
        let mut options = about;
        let Some((scale, offset, named)) = affine else {
            options["scale"] = false.into();
            options["center"] = false.into();
            return Ok(Some(self.named(term, class, options, vec![x], shape)));
        };
        let vector = |all: &[f64]| {
            let all: Vec<f32> =
                (0..channels).map(|k| all[if all.len() == 1 { 0 } else { k }] as f32).collect();
            Constant::of(vec![channels], all)
        };
        let wanted = if named.is_empty() { &term.output } else { named };
        let name = self.new_name(wanted, "_again");
        for (parameter, values) in [("gamma", scale), ("beta", offset)] {
            self.weights.insert(format!("{name}/{parameter}"), vector(values));
        }
        self.push(class, name.clone(), options, vec![x], shape);
        Ok(Some(name))
    }

    /// `x * scale + offset`.
    fn rescaled(
        &mut self,
        term: &Term,
        x: String,
        [scale, offset]: [&[f64]; 2],
        named: &str,
    ) -> Result<String, String> {
        let shape = self.shape(&x);
        // Equal numbers of all channels, as layer scales begin, are trained apart.
        let is_number = scale.len() == 1 && offset.len() == 1;
        let is_scalar = scale.iter().all(|&x| x == scale[0]) && offset.iter().all(|&x| x == offset[0]);
        let is_picture = shape.len() == 4 && shape[1] == Extent::number(3);
        let channels = shape[1].known().and_then(|n| usize::try_from(n).ok());
        if let Some(channels) = channels.filter(|_| !is_number && !is_picture && shape.len() == 4)
            && CLASSES.contains(&PER_CHANNEL)
        {
            let vector = |all: &[f64]| {
                (0..channels).map(|k| all[if all.len() == 1 { 0 } else { k }] as f32).collect::<Vec<_>>()
            };
            let name = self.new_name(if named.is_empty() { &term.output } else { named }, "_scale");
            let kernel = Constant { inputs_first: true, ..Constant::of(vec![channels, 1], vector(scale)) };
            self.weights.insert(format!("{name}/depthwise_kernel"), kernel);
            let has_bias = offset.iter().any(|&x| x != 0.0);
            if has_bias {
                let bias = Constant::of(vec![channels], vector(offset));
                self.weights.insert(format!("{name}/bias"), bias);
            }
            let options = json!({"kernel_size": [1, 1], "use_bias": has_bias});
            self.push(PER_CHANNEL, name.clone(), options, vec![x], shape);
            return Ok(name);
        }
        if !is_scalar && !is_picture {
            let what = format!("of {} and a number for each channel", shown(&shape));
            return Err(format!("{} {what}, which is not supported", term.told));
        }
        self.constant_scales += usize::from(!is_number && !is_picture);
        let one = |all: &[f64]| match all.iter().all(|&x| x == all[0]) {
            true => json!(all[0]),
            false => json!(all),
        };
        let options = json!({"scale": one(scale), "offset": one(offset)});
        Ok(self.named(term, "Rescaling", options, vec![x], shape))
    }
}

/// The class of a scale and an offset for each channel: of 1x1 pixels.
const PER_CHANNEL: &str = "DepthwiseConv2D";

/// Of two layers the one first that a number for each channel of the other one can meet.
pub(super) fn larger_first(inputs: [String; 2], shapes: &[Vec<Extent>; 2]) -> [String; 2] {
    let is_single = |shape: &[Extent]| shape.iter().skip(2).all(Extent::is_one);
    let [a, b] = inputs;
    match is_single(&shapes[0]) && !is_single(&shapes[1]) {
        true => [b, a],
        false => [a, b],
    }
}
