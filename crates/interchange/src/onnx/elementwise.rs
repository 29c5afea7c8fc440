//! Sums, products and their like: of a layer's output and numbers, and of two layers' outputs.

use super::axes::Axis;
use super::constants::{Constant, Values};
use super::extent::{Extent, shown};
use super::graph::{Of, Reader};
use super::lower::larger_first;
use super::node::Node;
use super::patterns;
use super::tensor::Tensor;
use super::term::{Kind, Term};
use crate::layout;
use serde_json::json;
use std::sync::Arc;
use towers_models::IMAGES;

impl<'g> Reader<'g> {
    /// A sum, difference, product, quotient or power, or the larger or the smaller number.
    pub(super) fn elementwise(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let operands = node.names().len();
        let is_sum = ["Sum", "Max", "Min"].contains(&node.op());
        if operands < 1
            || (!is_sum && operands != 2)
            || (is_sum && !node.since(8) && operands > 2 && node.op() != "Sum")
        {
            return Err(node.form(format!("of {operands} operands")));
        }
        let mut all = self.given(node, 0)?;
        for k in 1..operands {
            let next = self.given(node, k)?;
            let next = self.aligned(node, &all, next)?;
            all = self.two(node, all, next, operands == 2)?;
        }
        Ok(all)
    }

    fn given(&mut self, node: &Node<'g>, k: usize) -> Result<Of, String> {
        let value = self.value(node, k)?.cloned();
        value.ok_or_else(|| node.refuse(format!("lacks its operand number {}", k + 1)))
    }

    /// The second operand of the operators before version 7, which say at which axis it begins.
    fn aligned(&mut self, node: &Node<'g>, first: &Of, second: Of) -> Result<Of, String> {
        if node.since(7) || !["Add", "Sub", "Mul", "Div", "Pow"].contains(&node.op()) {
            return Ok(second);
        }
        let (broadcasts, axis) = (node.flag("broadcast", false)?, node.given("axis")?);
        node.ints("consumed_inputs")?;
        let rank = match first {
            Of::Constant(first) => first.shape.len(),
            Of::Layer(name) => self.shape(name).len(),
            Of::Seen(tensor) => tensor.axes.len(),
        };
        match (second, axis) {
            (Of::Constant(second), Some(axis)) if broadcasts => {
                let behind =
                    usize::try_from(axis).ok().and_then(|axis| rank.checked_sub(axis + second.shape.len()));
                let behind = behind.ok_or_else(|| node.form(format!("at the axis {axis}")))?;
                let shape = [second.shape.clone(), vec![1; behind]].concat();
                Ok(Of::Constant(second.shaped(shape)))
            }
            (_, Some(axis)) => Err(node.form(format!("at the axis {axis}"))),
            (second, None) => Ok(second),
        }
    }

    /// `named` tells whether the result is the node's own.
    fn two(&mut self, node: &Node<'g>, a: Of, b: Of, named: bool) -> Result<Of, String> {
        let op = if node.op() == "Sum" { "Add" } else { node.op() };
        match (a, b) {
            (Of::Constant(a), Of::Constant(b)) => {
                let sound = super::arithmetic::joined(op, &a, &b).filter(|_| !named);
                sound.map(Of::Constant).ok_or_else(|| node.unknown())
            }
            (Of::Constant(c), x) => {
                let x = self.tensor_of(x);
                self.with_constant(node, op, x, &c, Some(1), named)
            }
            (x, Of::Constant(c)) => {
                let x = self.tensor_of(x);
                self.with_constant(node, op, x, &c, None, named)
            }
            (a, b) => {
                let (a, b) = (self.tensor_of(a), self.tensor_of(b));
                self.of_tensors(node, op, a, b)
            }
        }
    }

    fn tensor_of(&self, of: Of) -> Tensor {
        match of {
            Of::Seen(tensor) => *tensor,
            Of::Layer(layer) => {
                let shape = self.shape(&layer);
                Tensor::of(layer, shape)
            }
            Of::Constant(_) => Tensor::of(String::new(), Vec::new()),
        }
    }

    /// With a number, or with one for each channel. `left` is the operand of the tensor, if the constant is before it.
    fn with_constant(
        &mut self,
        node: &Node<'g>,
        op: &str,
        x: Tensor,
        constant: &Constant,
        left: Option<usize>,
        named: bool,
    ) -> Result<Of, String> {
        let alone = named && self.is_alone(node, left.unwrap_or(0));
        if self.is_of_pixels(op, &x, constant, alone) {
            *(if op == "Mul" { &mut self.scale } else { &mut self.shift }) = Some(constant.clone());
            return Ok(x.into());
        }
        if op == "Add" && alone && self.add_bias(&x, constant) {
            return Ok(x.into());
        }
        if ["Add", "Mul"].contains(&op) && alone && self.joins_norm(op, &x, constant) {
            return Ok(x.into());
        }
        let refuse = || node.form(format!("of {} and {:?}", shown(&x.seen()), constant.shape));
        let numbers = numbers(&x, constant).ok_or_else(refuse)?;
        let name = constant.name.strip_suffix(".weight").unwrap_or_default();
        let term = &x.term;
        let affine = |op: &str, of: &Arc<Term>, numbers: &[f64]| Term::affine(op, of, numbers, name, node);
        let term = match (op, left, &numbers[..]) {
            ("Add" | "Mul", ..) | ("Sub" | "Div", None, _) => affine(op, term, &numbers)?,
            ("Sub", Some(_), _) => affine("Add", &affine("Mul", term, &[-1.0])?, &numbers)?,
            ("Div", Some(_), _) => {
                affine("Mul", &Term::function("reciprocal", Arc::clone(term), node), &numbers)?
            }
            ("Max", _, &[least]) => Term::clip(least, f64::INFINITY, term, node),
            ("Min", _, &[most]) => Term::clip(f64::NEG_INFINITY, most, term, node),
            ("Pow", None, &[2.0]) => Term::product(Arc::clone(term), Arc::clone(term), node),
            ("Pow", None, &[0.5]) => Term::function("sqrt", Arc::clone(term), node),
            ("Pow", None, &[-0.5]) => {
                let root = Term::function("sqrt", Arc::clone(term), node);
                Term::function("reciprocal", root, node)
            }
            _ => return Err(refuse()),
        };
        self.settled(x.with_term(term))
    }

    /// A product that is an activation is one at once: it is no part of a larger pattern.
    fn settled(&mut self, x: Tensor) -> Result<Of, String> {
        let (_, of) = x.term.scaled();
        let is_product = matches!(of.kind, Kind::Product(..)) && patterns::activation(&x.term).is_some();
        Ok(if is_product { self.base(x)?.into() } else { x.into() })
    }

    /// Of two tensors that depend on the images.
    fn of_tensors(&mut self, node: &Node<'g>, op: &str, a: Tensor, b: Tensor) -> Result<Of, String> {
        let (mut a, mut b) = (a, b);
        if a.axes.len() != b.axes.len() {
            return Err(node.form("of an image and a vector"));
        }
        // Images of sizes that the graph leaves open: they are compared when they come.
        let is_open = a.is_plain() && b.is_plain() && alike(&a.shape, &b.shape);
        if is_open && a.axes != b.axes {
            b = Tensor {
                axes: a.axes.clone(),
                shape: a.shape.clone(),
                layer: self.base(b)?.layer,
                term: Term::leaf(),
                len: None,
            };
        }
        if a.axes.beside(&b.axes).is_none() {
            // As far as they are images or vectors by themselves.
            for x in [&mut a, &mut b] {
                let layer = self.plain_layer(x.clone(), &format!("{}_operand", node.output()), Some(node))?;
                *x = Tensor::of(layer.clone(), self.shape(&layer));
            }
        }
        let axes = a.axes.beside(&b.axes);
        let axes =
            axes.ok_or_else(|| node.form(format!("of {} and {}", shown(&a.seen()), shown(&b.seen()))))?;
        let shape: Vec<Extent> = match a.shape.len() >= b.shape.len() {
            true => larger(&a.shape, &b.shape),
            false => larger(&b.shape, &a.shape),
        };
        let together = a.layer == b.layer && !a.term.is_large() && !b.term.is_large();
        if together && !(a.term.is_leaf() && b.term.is_leaf()) {
            let (x, y) = (Arc::clone(&a.term), Arc::clone(&b.term));
            let term = match op {
                "Add" => Term::sum(x, y, node),
                "Sub" => Term::sum(x, Term::affine("Mul", &y, &[-1.0], "", node)?, node),
                "Mul" => Term::product(x, y, node),
                "Div" => Term::quotient(x, y, node),
                _ => return Err(node.unknown()),
            };
            return self.settled(Tensor { axes, shape, term, ..a });
        }
        let class = match op {
            "Add" => "Add",
            "Sub" => {
                let term = Term::affine("Mul", &b.term, &[-1.0], "", node)?;
                b = b.with_term(term);
                "Add"
            }
            "Mul" => "Multiply",
            _ => return Err(node.form("of two layers")),
        };
        let inputs = [self.base(a)?.layer, self.base(b)?.layer];
        let shapes = inputs.each_ref().map(|x| self.shape(x));
        let inputs = larger_first(inputs, &shapes);
        let layer = self.plain(node, class, json!({}), inputs.into(), shape.clone());
        match layer {
            Of::Layer(layer) => Ok(Tensor { layer, term: Term::leaf(), shape, axes, len: None }.into()),
            other => Ok(other),
        }
    }

    /// Whether it is a step of the preprocessing that exports have in them: a factor for each channel of the
    /// images, and then a summand for each channel or value, both of them under their names.
    fn is_of_pixels(&self, op: &str, x: &Tensor, constant: &Constant, alone: bool) -> bool {
        let is_step = match op {
            "Mul" => constant.name == layout::SCALE && self.scale.is_none() && constant.shape == [3, 1, 1],
            "Add" => constant.name == layout::SHIFT && constant.shape.len() == 3,
            _ => false,
        };
        let is_images = x.layer == IMAGES && x.term.is_leaf() && x.is_plain();
        let fits = || {
            let own = constant.shape.iter().map(|&extent| Extent::number(extent as i64));
            constant.shape[1..] == [1, 1] && constant.shape[0] == 3 || own.eq(x.shape[1..].iter().cloned())
        };
        is_step && self.names_pixels && alone && is_images && self.shift.is_none() && fits()
    }

    /// Whether a sum with this constant is the bias of a layer that came without one. It has it then.
    fn add_bias(&mut self, x: &Tensor, bias: &Constant) -> bool {
        if !x.term.is_leaf() {
            return false;
        }
        let Some(numbers) = numbers(x, bias).filter(|numbers| bias.len() == numbers.len()) else {
            return false;
        };
        let channels = x.shape[1].known();
        let layer = self.layers.iter_mut().rfind(|layer| layer.name == x.layer);
        let Some(layer) = layer.filter(|layer| layer.options.get("use_bias") == Some(&false.into())) else {
            return false;
        };
        if channels != i64::try_from(numbers.len()).ok() {
            return false;
        }
        layer.options["use_bias"] = true.into();
        let bias = bias.clone().shaped(vec![numbers.len()]);
        self.weights.insert(format!("{}/bias", x.layer), bias);
        true
    }

    /// Whether a factor or a summand for each channel of a batch normalization is one of its own weights. They have it then. Caffe's
    /// networks have such pairs.
    fn joins_norm(&mut self, op: &str, x: &Tensor, constant: &Constant) -> bool {
        let layer = self.layers.iter().rfind(|layer| layer.name == x.layer);
        if !x.term.is_leaf() || layer.is_none_or(|layer| layer.class != "BatchNormalization") {
            return false;
        }
        let Some(numbers) = numbers(x, constant).filter(|numbers| numbers.len() > 1) else { return false };
        for parameter in ["gamma", "beta"] {
            let Some(own) = self.weights.get_mut(&format!("{}/{parameter}", x.layer)) else { return false };
            let floats = own.as_floats().filter(|floats| floats.len() == numbers.len());
            let Some(floats) = floats else { return false };
            let of = |(&own, &number): (&f32, &f64)| match (op, parameter) {
                ("Mul", _) => own * number as f32,
                (_, "beta") => own + number as f32,
                _ => own,
            };
            own.values = Values::Floats(floats.iter().zip(&numbers).map(of).collect());
        }
        true
    }

    /// The two numbers of a `Clip`; an infinite one is none.
    pub(super) fn clip(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let [least, most] = match node.since(11) {
            true => [self.number(node, 1)?, self.number(node, 2)?],
            false => [node.given_float("min")?, node.given_float("max")?],
        };
        let x = self.tensor(node, 0)?;
        let least = least.map_or(f64::NEG_INFINITY, f64::from);
        let most = most.map_or(f64::INFINITY, f64::from);
        let term = Term::clip(least, most, &x.term, node);
        Ok(x.with_term(term).into())
    }

    /// An activation `max(0, min(1, alpha x + beta))`, which is one of two numbers' layers.
    pub(super) fn hard_sigmoid(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let (alpha, beta) = (node.float("alpha", 0.2)?, node.float("beta", 0.5)?);
        let x = self.tensor(node, 0)?;
        let scaled = Term::affine("Mul", &x.term, &[alpha.into()], "", node)?;
        let line = Term::affine("Add", &scaled, &[beta.into()], "", node)?;
        let term = Term::clip(0.0, 1.0, &line, node);
        Ok(x.with_term(term).into())
    }
}

/// Whether two shapes may be the same when open sizes are known.
fn alike(a: &[Extent], b: &[Extent]) -> bool {
    let fits = |(a, b): (&Extent, &Extent)| a == b || a.known().is_none() && b.known().is_none();
    a.len() == b.len() && a[0] == b[0] && a.iter().zip(b).all(fits)
}

/// The larger extents of two shapes, where an extent of 1 fits any other one.
fn larger(long: &[Extent], short: &[Extent]) -> Vec<Extent> {
    let one = Extent::number(1);
    let beside = |(k, own): (usize, &Extent)| {
        let other = short.get(k).unwrap_or(&one);
        if own.is_one() { other.clone() } else { own.clone() }
    };
    long.iter().enumerate().map(beside).collect()
}

/// The numbers of a constant beside a tensor: one, or one for each channel.
pub(super) fn numbers(x: &Tensor, constant: &Constant) -> Option<Vec<f64>> {
    let kinds = x.kinds();
    let before = kinds.len().checked_sub(constant.shape.len())?;
    let mut channels = None;
    for (k, &extent) in constant.shape.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let is_channels = kinds[before + k] == Axis::Channels && x.shape[1] == Extent::number(extent as i64);
        if !is_channels || channels.replace(extent).is_some() {
            return None;
        }
    }
    let floats = constant.as_floats()?;
    (floats.len() == channels.unwrap_or(1)).then(|| floats.iter().map(|&x| x.into()).collect())
}

/// Whether a term is a part of the channels, for [`Reader::joined`](Reader): the range, the numbers of a layer of its own, and of what.
pub(super) type Range = (i64, i64, Vec<f64>, Vec<f64>, Arc<Term>);

/// The channels that a term is, if it is some of another one's, times a scale and plus an offset.
pub(super) fn range(x: &Tensor) -> Option<Range> {
    let (scale, offset, of) = match &x.term.kind {
        Kind::Affine { scale, offset, of, .. } => (scale.clone(), offset.clone(), of),
        _ => (vec![1.0], vec![0.0], &x.term),
    };
    let Kind::Channels(from, len, of) = &of.kind else { return None };
    let count = usize::try_from(*len).ok()?;
    let each = |all: Vec<f64>| if all.len() == count { all } else { vec![all[0]; count] };
    Some((*from, *len, each(scale), each(offset), Arc::clone(of)))
}
