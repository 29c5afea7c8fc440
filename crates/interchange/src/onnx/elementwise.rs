//! Sums and products: with numbers, of layers, and as steps of layers that are several nodes.

use super::constants::Constant;
use super::extent::Extent;
use super::graph::{Of, Part, Reader};
use super::node::Node;
use crate::layout;
use models::IMAGES;
use serde_json::{Value, json};

impl<'g> Reader<'g> {
    /// Sums, scales, and the steps of layers that are several nodes.
    pub(super) fn elementwise(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let (op, operands) = (node.op(), node.names().len());
        let needed = if ["Erf", "Sigmoid"].contains(&op) { 1 } else { 2 };
        if operands != needed {
            return Err(node.form(format!("of {operands} operands")));
        }
        for k in 0..operands {
            if let Some(Of::Pooled(..)) = self.value(node, k)? {
                self.layer(node, k)?;
            }
        }
        let (mut a, mut b) = (self.value(node, 0)?.cloned(), self.value(node, 1)?.cloned());
        // What can be swapped has the layer first, and the other one last.
        let swapped =
            matches!((&a, &b), (Some(Of::Constant(_)), Some(_)) | (Some(Of::Part(..)), Some(Of::Layer(_))));
        let swapped = swapped && ["Add", "Max", "Mul"].contains(&op);
        if swapped {
            (a, b) = (b, a);
        }
        // Whether this node alone reads the layer, so that the layer may compute more.
        let alone = self.is_alone(node, usize::from(swapped));
        let axes = match &a {
            Some(Of::Layer(x) | Of::Part(_, x)) => self.shape(x).len(),
            _ => 0,
        };
        let number = match &b {
            Some(Of::Constant(constant)) => constant.float_beside(axes),
            _ => None,
        };
        let near = |x: f32| number.is_some_and(|number| (number - x).abs() < 1e-6);
        Ok(match (op, a.ok_or_else(|| node.unknown())?, b) {
            ("Mul" | "Add", Of::Layer(x), Some(Of::Constant(c))) if self.is_of_pixels(op, &x, &c, alone) => {
                *(if op == "Mul" { &mut self.scale } else { &mut self.shift }) = Some(c);
                Of::Layer(x)
            }
            ("Div", Of::Layer(x), _) if near(core::f32::consts::SQRT_2) => Of::Part(Part::Scaled, x),
            ("Erf", Of::Part(Part::Scaled, x), _) => Of::Part(Part::Erf, x),
            ("Add", Of::Part(Part::Erf, x), _) if near(1.0) => Of::Part(Part::Sum, x),
            ("Mul", Of::Layer(x), Some(Of::Part(Part::Sum, y))) if x == y => Of::Part(Part::Twice, x),
            ("Mul", Of::Part(Part::Twice, x), _) if near(0.5) => self.activate(node, "gelu", x),
            // Or halved first.
            ("Mul", Of::Part(Part::Sum, x), _) if near(0.5) => Of::Part(Part::Half, x),
            ("Mul", Of::Layer(x), Some(Of::Part(Part::Half, y))) if x == y => self.activate(node, "gelu", x),
            ("Max", Of::Layer(x), Some(Of::Constant(_))) if number == Some(0.0) => {
                self.activate(node, "relu", x)
            }
            ("Sigmoid", Of::Layer(x), _) => Of::Part(Part::Sigmoid, x),
            ("Mul", Of::Layer(x), Some(Of::Part(Part::Sigmoid, y))) if x == y => {
                self.activate(node, "silu", x)
            }
            ("Mul", Of::Part(Part::Ungrouped(groups, epsilon), x), Some(Of::Constant(gamma))) => {
                Of::Part(Part::Multiplied(groups, epsilon, self.per_channel(node, &x, &gamma)?), x)
            }
            ("Add", Of::Part(Part::Multiplied(groups, epsilon, gamma), x), Some(Of::Constant(beta))) => {
                let beta = self.per_channel(node, &x, &beta)?;
                let (about, shape) = (json!({"groups": groups, "epsilon": epsilon}), self.shape(&x));
                self.weighted(node, "GroupNormalization", about, x, shape, [("gamma", gamma), ("beta", beta)])
            }
            (_, Of::Layer(x), Some(Of::Constant(c))) => {
                match self.bias(&x, &c).filter(|_| alone && op == "Add") {
                    Some(bias) => {
                        let layer = self.layers.last_mut();
                        layer.into_iter().for_each(|layer| layer.options["use_bias"] = true.into());
                        self.weights.insert(format!("{x}/bias"), bias);
                        Of::Layer(x)
                    }
                    None => self.rescaling(node, x, &c, number, alone)?,
                }
            }
            ("Add", Of::Layer(x), Some(Of::Layer(y))) => {
                let (shape, other) = (self.shape(&x), self.shape(&y));
                if shape.len() != other.len() {
                    return Err(node.form("of an image and a vector"));
                }
                self.plain(node, "Add", json!({}), vec![x, y], shape)
            }
            _ => return Err(node.unknown()),
        })
    }

    /// Whether it is a step of the preprocessing that exports have in them: a factor for each channel of the
    /// images, and then a summand for each channel or value, both of them under their names.
    fn is_of_pixels(&self, op: &str, x: &str, constant: &Constant, alone: bool) -> bool {
        let is_step = match op {
            "Mul" => constant.name == layout::SCALE && self.scale.is_none() && constant.shape == [3, 1, 1],
            _ => constant.name == layout::SHIFT && constant.shape.len() == 3,
        };
        let fits = || {
            let shape = self.shape(x);
            let own = constant.shape.iter().map(|&extent| Extent::number(extent as i64));
            constant.shape[1..] == [1, 1] && constant.shape[0] == 3 || own.eq(shape[1..].iter().cloned())
        };
        is_step && self.names_pixels && alone && x == IMAGES && self.shift.is_none() && fits()
    }

    /// A number for each channel of an image.
    fn per_channel(&self, node: &Node<'g>, x: &str, constant: &Constant) -> Result<Constant, String> {
        let channels = self.shape(x).get(1).and_then(Extent::known).and_then(|n| usize::try_from(n).ok());
        let vector = channels.and_then(|channels| constant.vector(channels, 2));
        vector.ok_or_else(|| {
            node.form(format!("with {:?} instead of a number for each channel", constant.shape))
        })
    }

    /// A sum, difference, product or quotient with a number, or with one for each color: `(x - mean) / std` is one layer.
    fn rescaling(
        &mut self,
        node: &Node<'g>,
        x: String,
        by: &Constant,
        number: Option<f32>,
        alone: bool,
    ) -> Result<Of, String> {
        let shape = self.shape(&x);
        let colors = shape.len() == 4 && shape[1] == Extent::number(3);
        let colors = by.vector(3, 2).filter(|_| colors);
        let numbers = match (number, colors.as_ref().and_then(|colors| colors.few_floats(3))) {
            (Some(number), _) => [number; 3],
            (None, Some(&[r, g, b])) => [r, g, b],
            _ => return Err(node.form(format!("of {} and {:?}", super::extent::shown(&shape), by.shape))),
        };
        // What the layer before has done, if it is such a one.
        let before = self.layers.last();
        let before = before.filter(|layer| alone && layer.name == x && layer.class == "Rescaling");
        let mut all = before
            .map_or([[1.0; 3], [0.0; 3]], |layer| ["scale", "offset"].map(|key| three(&layer.options[key])));
        let is_first = before.is_none();
        for (k, number) in numbers.into_iter().map(f64::from).enumerate() {
            match node.op() {
                _ if !number.is_finite() => return Err(node.form(format!("of {number}"))),
                "Add" => all[1][k] += number,
                "Sub" => all[1][k] -= number,
                "Mul" => all.iter_mut().for_each(|all| all[k] *= number),
                "Div" if number != 0.0 => all.iter_mut().for_each(|all| all[k] /= number),
                _ => return Err(node.form(format!("of {number}"))),
            }
        }
        let [scale, offset] = all.map(|all| if all == [all[0]; 3] { json!(all[0]) } else { json!(all) });
        let options = json!({"scale": scale, "offset": offset});
        match self.layers.last_mut().filter(|_| !is_first) {
            Some(layer) => layer.options = options.as_object().cloned().unwrap_or_default(),
            None => return Ok(self.plain(node, "Rescaling", options, vec![x], shape)),
        }
        Ok(Of::Layer(x))
    }

    /// The bias of the last layer, a product that came without one, if a sum with this constant is that.
    fn bias(&self, name: &str, bias: &Constant) -> Option<Constant> {
        let layer = self.layers.last()?;
        let (outputs, behind) = if layer.class == "Dense" { ("units", 0) } else { ("filters", 2) };
        if layer.name != name || layer.options.get("use_bias") != Some(&false.into()) {
            return None;
        }
        bias.vector(usize::try_from(layer.options[outputs].as_u64()?).ok()?, behind)
    }
}

/// An option of a `Rescaling`: a number for all colors, or one for each.
fn three(value: &Value) -> [f64; 3] {
    std::array::from_fn(|k| value.as_f64().or(value[k].as_f64()).unwrap_or_default())
}
