//! Larger images: `Resize`, `Upsample`.

use super::extent::Extent;
use super::graph::{Of, Reader};
use super::node::Node;
use super::nodes::{Nodes, Word};
use crate::source::Weights;
use serde_json::json;
use towers_layers::Step;
use towers_program::ops::Upsample;

impl<'g> Reader<'g> {
    /// Images a whole number of times as large.
    pub(super) fn resize(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let mode = node.word("mode", "nearest")?;
        // Older operators begin at the corner of the first pixel.
        let first = if node.since(11) { "half_pixel" } else { "asymmetric" };
        let place = node.word("coordinate_transformation_mode", first)?;
        let rounding =
            node.word("nearest_mode", if node.since(11) { "round_prefer_floor" } else { "floor" })?;
        // Of what has no effect on larger images of these kinds.
        node.flag("antialias", false)?;
        node.float("cubic_coeff_a", -0.75)?;
        node.float("extrapolation_value", 0.0)?;
        node.only("exclude_outside", 0)?;
        let is_repeated = match (place, rounding) {
            ("asymmetric" | "tf_half_pixel_for_nn", "floor") => true,
            // Exactly between two pixels lies none.
            ("half_pixel" | "pytorch_half_pixel", "round_prefer_floor" | "round_prefer_ceil") => true,
            _ => false,
        };
        let interpolation = match mode {
            "nearest" if is_repeated => "nearest",
            "linear" if ["half_pixel", "pytorch_half_pixel"].contains(&place) => "bilinear",
            _ => return Err(node.form(format!("with mode={mode}, {place} and {rounding}"))),
        };
        let (x, [_, rows, columns]) = self.image(node, 0)?;
        let factors = match node.op() {
            "Upsample" if !node.since(9) => node.floats("scales")?.and_then(of_scales),
            "Upsample" => self.constant(node, 1)?.and_then(|scales| of_scales(&scales.as_floats()?)),
            _ if !node.since(11) => {
                self.constant(node, 1)?.and_then(|scales| of_scales(&scales.as_floats()?))
            }
            _ => {
                // The region of interest, for crops alone.
                self.constant(node, 1)?;
                let scales = self.constant(node, 2)?.and_then(|scales| of_scales(&scales.as_floats()?));
                match self.constant(node, 3)? {
                    Some(sizes) => sizes.as_numbers().and_then(|sizes| of_sizes(sizes, [&rows, &columns])),
                    None => scales,
                }
            }
        };
        let Some([down, across]) = factors else {
            return Err(node.form("by anything but a whole number for the rows and one for the columns"));
        };
        let side = |reader: &mut Self, side: &Extent, by: i64| match side.known() {
            Some(size) => Extent::number(size.saturating_mul(by)),
            None => reader.new_size(),
        };
        let sides = [side(self, &rows, down), side(self, &columns, across)];
        let shape = self.with_sides(&x, None, sides);
        let about = json!({"size": [down, across], "interpolation": interpolation});
        Ok(self.plain(node, "UpSampling2D", about, vec![x], shape))
    }
}

/// The factors of rows and columns, if they are whole numbers and nothing else is scaled.
fn of_scales(scales: &[f32]) -> Option<[i64; 2]> {
    let &[1.0, 1.0, down, across] = scales else { return None };
    let whole = |by: f32| (by >= 1.0 && by.fract() == 0.0 && by <= 65_536.0).then_some(by as i64);
    Some([whole(down)?, whole(across)?])
}

/// The same from the sizes of the output.
fn of_sizes(sizes: &[Extent], from: [&Extent; 2]) -> Option<[i64; 2]> {
    let [_, _, rows, columns] = sizes else { return None };
    let factor = |to: &Extent, from: &Extent| {
        let (to, from) = (to.known()?, from.known().filter(|&from| from > 0)?);
        (to >= from && to % from == 0).then_some(to / from)
    };
    Some([factor(rows, from[0])?, factor(columns, from[1])?])
}

impl Nodes<'_> {
    /// The nodes of larger images.
    pub(super) fn resized(&mut self, step: &Step, x: &str, op: Upsample) -> String {
        let [down, across] = op.by.map(|by| by as f32);
        let name = format!("{}_scales", step.name);
        let scales = self.initializer(Weights { name, shape: vec![4], data: vec![1.0, 1.0, down, across] });
        let (mode, place) = if op.bilinear { ("linear", "half_pixel") } else { ("nearest", "asymmetric") };
        let about = [
            Word("mode", mode),
            Word("coordinate_transformation_mode", place),
            Word("nearest_mode", "floor"),
        ];
        let output = self.output(step);
        self.node("Resize", &[x, "", &scales], &about, output)
    }
}
