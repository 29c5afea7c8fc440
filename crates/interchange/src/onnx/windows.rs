//! Convolutions, poolings, and zeros around images.

use super::extent::Extent;
use super::graph::{Of, Reader};
use super::node::Node;
use serde_json::{Value, json};

/// Zeros around an image.
enum Padding {
    /// As many as it takes for an output of the same size, divided by the strides.
    Same,
    /// Above, to the left, below, and to the right.
    Zeros([i64; 4]),
}

impl Padding {
    fn of(node: &Node<'_>) -> Result<Self, String> {
        match (node.word("auto_pad", "NOTSET")?, node.ints("pads")?) {
            ("NOTSET" | "VALID", None) => Ok(Padding::Zeros([0; 4])),
            ("NOTSET", Some(&[a, b, c, d])) if [a, b, c, d].iter().all(|&n| n >= 0) => {
                Ok(Padding::Zeros([a, b, c, d]))
            }
            ("SAME_UPPER", None) => Ok(Padding::Same),
            _ => {
                Err(node
                    .refuse("must have its padding in four numbers from 0 on, pads, or auto_pad=SAME_UPPER"))
            }
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Padding::Zeros([0, 0, 0, 0]))
    }

    /// As an option of Keras' layers.
    fn option(&self) -> Value {
        match self {
            Padding::Same => "same".into(),
            _ if self.is_none() => "valid".into(),
            Padding::Zeros([top, left, bottom, right]) => json!([[top, bottom], [left, right]]),
        }
    }
}

/// Windows over an image.
struct Windows {
    size: [i64; 2],
    strides: [i64; 2],
    padding: Padding,
    /// Whether a last window may reach over the edge, if it begins inside or in the zeros before.
    ceil: bool,
}

impl Windows {
    fn of(node: &Node<'_>, size: [i64; 2]) -> Result<Self, String> {
        if let Some(dilations) = node.pair("dilations")?.filter(|&all| all != [1, 1]) {
            return Err(node.form(format!("with dilations={dilations:?}")));
        }
        let strides = node.pair("strides")?.unwrap_or([1, 1]);
        Ok(Windows { size, strides, padding: Padding::of(node)?, ceil: false })
    }
}

impl<'g> Reader<'g> {
    /// Rows and columns behind windows over an image.
    fn windowed(
        &mut self,
        node: &Node<'g>,
        sides: [Extent; 2],
        windows: &Windows,
    ) -> Result<[Extent; 2], String> {
        let Windows { size, strides, padding, ceil } = windows;
        let mut all = sides;
        for (k, side) in all.iter_mut().enumerate() {
            let long = match (side.known(), padding) {
                (None, _) => {
                    *side = self.new_size();
                    continue;
                }
                (Some(long), Padding::Same) => long + strides[k] - 1,
                (Some(long), Padding::Zeros(zeros)) => {
                    long.saturating_add(zeros[k]).saturating_add(zeros[k + 2]) - size[k] + strides[k]
                }
            };
            if long < strides[k] {
                return Err(node.refuse("has windows that are larger than its images"));
            }
            let fit = long / strides[k];
            let before = if let Padding::Zeros(zeros) = padding { zeros[k] } else { 0 };
            let inside = side.known().is_some_and(|side| fit * strides[k] < side.saturating_add(before));
            let reaches = *ceil && long % strides[k] > 0 && inside;
            *side = Extent::number(fit + i64::from(reaches));
        }
        Ok(all)
    }

    pub(super) fn convolution(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let kernel = self.kernel(node, 4)?;
        let bias = self.constant(node, 2)?.cloned();
        let (x, [_, rows, columns]) = self.image(node, 0)?;
        let [filters, _, h, w] = kernel.shape[..] else { return Err(node.unknown()) };
        node.only("group", 1)?;
        let own = [h as i64, w as i64];
        if let Some(named) = node.ints("kernel_shape")?
            && named != own
        {
            return Err(node.refuse(format!("has the kernel_shape {named:?}, but weights of {own:?}")));
        }
        let windows = Windows::of(node, own)?;
        let sides = self.windowed(node, [rows, columns], &windows)?;
        let about = json!({
            "filters": filters, "kernel_size": own, "strides": windows.strides, "padding": windows.padding.option(),
            "use_bias": bias.is_some(),
        });
        let mut weights = vec![("kernel", kernel)];
        if let Some(bias) = bias {
            let vector = Some(bias).filter(|bias| bias.shape == [filters]);
            weights.push((
                "bias",
                vector.ok_or_else(|| node.refuse("must have a number for each filter as its bias"))?,
            ));
        }
        let shape = self.with_sides(&x, Some(filters), sides);
        Ok(self.weighted(node, "Conv2D", about, x, shape, weights))
    }

    /// The shape of images with other rows and columns than those of a layer, and maybe other channels.
    fn with_sides(&self, x: &str, channels: Option<usize>, [rows, columns]: [Extent; 2]) -> Vec<Extent> {
        let mut shape = self.shape(x);
        shape.truncate(2);
        if let (Some(channels), Some(own)) = (channels, shape.get_mut(1)) {
            *own = Extent::number(channels as i64);
        }
        shape.extend([rows, columns]);
        shape
    }

    pub(super) fn pooling(&mut self, node: &Node<'g>, class: &str) -> Result<Of, String> {
        let (x, [_, rows, columns]) = self.image(node, 0)?;
        let size = node.pair("kernel_shape")?.ok_or_else(|| node.refuse("lacks its `kernel_shape`"))?;
        let ceil = node.flag("ceil_mode", false)?;
        let windows = Windows { ceil, ..Windows::of(node, size)? };
        let mut about = json!({
            "pool_size": windows.size, "strides": windows.strides, "padding": windows.padding.option(),
        });
        if ceil {
            about["ceil_mode"] = true.into();
        }
        if node.op() == "MaxPool" {
            node.only("storage_order", 0)?;
        } else if node.flag("count_include_pad", false)? && !windows.padding.is_none() {
            about["count_include_pad"] = true.into();
        }
        let sides = self.windowed(node, [rows, columns], &windows)?;
        let shape = self.with_sides(&x, None, sides);
        Ok(self.plain(node, class, about, vec![x], shape))
    }

    /// Zeros around images.
    pub(super) fn pad(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let (x, [_, rows, columns]) = self.image(node, 0)?;
        let (pads, value) = match node.since(11) {
            true => {
                let pads = self.constant(node, 1)?.and_then(|pads| pads.known_numbers());
                (pads, self.number(node, 2)?.unwrap_or(0.0))
            }
            false => (node.ints("pads")?.map(<[i64]>::to_vec), node.float("value", 0.0)?),
        };
        let mode = node.word("mode", "constant")?;
        let pads = pads.unwrap_or_default();
        let zeros = match pads[..] {
            [0, 0, top, left, 0, 0, bottom, right] => [top, left, bottom, right],
            _ => return Err(node.form(format!("of {pads:?}"))),
        };
        if mode != "constant" || value != 0.0 || zeros.iter().any(|&n| n < 0) {
            return Err(node.form("of anything but zeros around an image"));
        }
        let windows = Windows { size: [1, 1], strides: [1, 1], padding: Padding::Zeros(zeros), ceil: false };
        let sides = self.windowed(node, [rows, columns], &windows)?;
        let [top, left, bottom, right] = zeros;
        let about = json!({"padding": [[top, bottom], [left, right]]});
        let shape = self.with_sides(&x, None, sides);
        Ok(self.plain(node, "ZeroPadding2D", about, vec![x], shape))
    }
}
