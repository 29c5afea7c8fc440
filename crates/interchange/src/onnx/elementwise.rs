//! Sums and products: with numbers, of layers, and as steps of layers that are several nodes.

use super::constants::Constant;
use super::graph::{Of, Part, Reader, unknown};
use super::proto::NodeProto;
use crate::layout;
use models::IMAGES;
use serde_json::{Value, json};

impl<'g> Reader<'g> {
    /// Sums, scales, and the steps of layers that are several nodes.
    pub(super) fn elementwise(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        for k in 0..node.input.len() {
            if let Some(Of::Pooled(..)) = self.value(node, k) {
                self.layer(node, k)?;
            }
        }
        let (mut a, mut b) = (self.value(node, 0).cloned(), self.value(node, 1).cloned());
        let op = node.op_type.as_str();
        // What can be swapped has the layer first, and the other one last.
        let swapped =
            matches!((&a, &b), (Some(Of::Constant(_)), Some(_)) | (Some(Of::Part(..)), Some(Of::Layer(_))));
        let swapped = swapped && ["Add", "Max", "Mul"].contains(&op);
        if swapped {
            (a, b) = (b, a);
        }
        // Whether this node alone reads the layer, so that the layer may compute more.
        let alone =
            node.input.get(usize::from(swapped)).is_some_and(|x| self.reads.get(x.as_str()) == Some(&1));
        let number = match &b {
            Some(Of::Constant(constant)) => constant.few_floats(1).map(|floats| floats[0]),
            _ => None,
        };
        let near = |x: f32| number.is_some_and(|number| (number - x).abs() < 1e-6);
        Ok(match (op, a.ok_or_else(|| unknown(node))?, b) {
            ("Mul", Of::Layer(x), Some(Of::Constant(c))) if c.name == layout::SCALE && x == IMAGES => {
                self.scale = Some(c);
                Of::Layer(x)
            }
            ("Add", Of::Layer(x), Some(Of::Constant(c))) if c.name == layout::SHIFT && x == IMAGES => {
                self.shift = Some(c);
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
                Of::Part(Part::Multiplied(groups, epsilon, gamma), x)
            }
            ("Add", Of::Part(Part::Multiplied(groups, epsilon, gamma), x), Some(Of::Constant(beta))) => {
                let about = json!({"groups": groups, "epsilon": epsilon});
                let weights = [("gamma", gamma), ("beta", beta)].into_iter();
                self.layer_of(node, "GroupNormalization", about, x, weights)
            }
            ("Add", Of::Layer(x), Some(Of::Constant(bias))) if alone && self.lacks_bias(&x, &bias) => {
                let layer = self.layers.last_mut();
                layer.into_iter().for_each(|layer| layer.options["use_bias"] = true.into());
                self.weights.insert(format!("{x}/bias"), bias);
                Of::Layer(x)
            }
            (_, Of::Layer(x), Some(Of::Constant(c))) => self.rescaling(node, x, &c, alone)?,
            ("Add", Of::Layer(x), Some(Of::Layer(y))) => self.plain(node, "Add", json!({}), vec![x, y]),
            _ => return Err(unknown(node)),
        })
    }

    /// A sum, difference, product or quotient with a number, or with one for each color: `(x - mean) / std` is one layer.
    fn rescaling(&mut self, node: &NodeProto, x: String, by: &Constant, alone: bool) -> Result<Of, String> {
        let per_channel = by.shape.ends_with(&[3, 1, 1]);
        let numbers = match by.few_floats(3) {
            Some(&[number]) => [number; 3],
            Some(&[r, g, b]) if per_channel => [r, g, b],
            _ => return Err(unknown(node)),
        };
        // What the layer before has done, if it is such a one.
        let before = self.layers.last();
        let before = before.filter(|layer| alone && layer.name == x && layer.class == "Rescaling");
        let mut all = before
            .map_or([[1.0; 3], [0.0; 3]], |layer| ["scale", "offset"].map(|key| three(&layer.options[key])));
        let is_first = before.is_none();
        for (k, number) in numbers.into_iter().map(f64::from).enumerate() {
            match node.op_type.as_str() {
                _ if !number.is_finite() => return Err(unknown(node)),
                "Add" => all[1][k] += number,
                "Sub" => all[1][k] -= number,
                "Mul" => all.iter_mut().for_each(|all| all[k] *= number),
                "Div" if number != 0.0 => all.iter_mut().for_each(|all| all[k] /= number),
                _ => return Err(unknown(node)),
            }
        }
        let [scale, offset] = all.map(|all| if all == [all[0]; 3] { json!(all[0]) } else { json!(all) });
        let options = json!({"scale": scale, "offset": offset});
        match self.layers.last_mut().filter(|_| !is_first) {
            Some(layer) => layer.options = options.as_object().cloned().unwrap_or_default(),
            None => return Ok(self.plain(node, "Rescaling", options, vec![x])),
        }
        Ok(Of::Layer(x))
    }

    /// Whether `bias` is that of the last layer, a product that came without one.
    fn lacks_bias(&self, name: &str, bias: &Constant) -> bool {
        self.layers.last().is_some_and(|layer| {
            let outputs = if layer.class == "Dense" { "units" } else { "filters" };
            let len = bias.shape.iter().product::<usize>() as u64;
            layer.name == name
                && layer.options.get("use_bias") == Some(&false.into())
                && layer.options[outputs].as_u64() == Some(len)
                && bias
                    .shape
                    .get(bias.shape.len().wrapping_sub(if outputs == "units" { 1 } else { 3 }))
                    .copied()
                    == Some(len as usize)
        })
    }
}

/// An option of a `Rescaling`: a number for all colors, or one for each.
fn three(value: &Value) -> [f64; 3] {
    std::array::from_fn(|k| value.as_f64().or(value[k].as_f64()).unwrap_or_default())
}
