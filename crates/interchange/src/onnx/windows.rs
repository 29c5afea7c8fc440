//! Convolutions, poolings, and zeros around images.

use super::axes::Axis;
use super::extent::{Extent, shown};
use super::graph::{Of, Reader};
use super::node::Node;
use super::nodes::{Nodes, Numbers, pads};
use super::proto::{INT64, TensorProto};
use super::tensor::Tensor;
use serde_json::{Value, json};
use towers_layers::Step;
use towers_program::{Activation, Pad, Pool2d};

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
    dilations: [i64; 2],
    padding: Padding,
    /// Whether a last window may reach over the edge, if it begins inside or in the zeros before.
    ceil: bool,
}

impl Windows {
    fn of(node: &Node<'_>, size: [i64; 2]) -> Result<Self, String> {
        let [strides, dilations] =
            [node.pair("strides")?, node.pair("dilations")?].map(|all| all.unwrap_or([1; 2]));
        Ok(Windows { size, strides, dilations, padding: Padding::of(node)?, ceil: false })
    }
}

/// More rows or columns than any image has.
const MOST: i64 = 65_536;

impl<'g> Reader<'g> {
    /// Rows and columns behind windows over an image.
    fn windowed(
        &mut self,
        node: &Node<'g>,
        sides: [Extent; 2],
        windows: &Windows,
    ) -> Result<[Extent; 2], String> {
        let Windows { size, strides, dilations, padding, ceil } = windows;
        let reach = |k: usize| (size[k] - 1).saturating_mul(dilations[k]);
        let mut all = sides;
        for (k, side) in all.iter_mut().enumerate() {
            let long = match (side.known(), padding) {
                (None, _) => {
                    *side = self.new_size();
                    continue;
                }
                (Some(long), Padding::Same) => long + strides[k] - 1,
                (Some(long), Padding::Zeros(zeros)) => {
                    long.saturating_add(zeros[k]).saturating_add(zeros[k + 2]).saturating_sub(reach(k)) - 1
                        + strides[k]
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
        if self.constant(node, 1)?.is_some_and(|kernel| kernel.shape.len() == 3) {
            return self.over_channels(node);
        }
        let kernel = self.kernel(node, 4)?;
        let bias = self.constant(node, 2)?.cloned();
        let (x, [_, rows, columns]) = self.image(node, 0)?;
        let [filters, _, h, w] = kernel.shape[..] else { return Err(node.unknown()) };
        let groups = node.int("group", 1)?;
        if groups < 1 {
            return Err(node.refuse("must have a number from 1 on as its `group`"));
        }
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
            "dilation_rate": windows.dilations, "groups": groups, "use_bias": bias.is_some(),
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

    /// A convolution over the channels of a vector, as ECA has it: they become the rows of an image with one channel.
    fn over_channels(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let kernel = self.kernel(node, 3)?;
        let x = self.tensor(node, 0)?;
        let x = self.base(x)?;
        let over = [Axis::Batch, Axis::Single, Axis::Channels];
        let (Some(channels), &[1, 1, size]) = (x.shape[1].known(), &kernel.shape[..]) else {
            return Err(node.form(format!("of weights of {:?}", kernel.shape)));
        };
        let bias = if self.constant(node, 2)?.is_some() { " and a bias" } else { "" };
        if x.kinds() != over || !bias.is_empty() {
            let seen = shown(&x.seen());
            return Err(node.form(format!("of {seen} and weights of {:?}{bias}", kernel.shape)));
        }
        node.only("group", 1)?;
        let pads = node.ints("pads")?;
        let by = match node.ints("dilations")? {
            None => 1,
            Some(&[by]) => by,
            Some(all) => return Err(node.form(format!("along one axis with the dilations {all:?}"))),
        };
        let around = (size as i64 - 1).saturating_mul(by);
        let is_same = pads
            .is_some_and(|all| all.len() == 2 && all.iter().all(|pad| pad.checked_mul(2) == Some(around)));
        let is_whole = node.ints("strides")?.is_none_or(|all| all == [1])
            && node.word("auto_pad", "NOTSET")? == "NOTSET";
        if !is_same || !is_whole || node.ints("kernel_shape")?.is_some_and(|all| all != [size as i64]) {
            return Err(node.form("that leaves out channels"));
        }
        let one = Extent::number(1);
        let rows = vec![x.shape[0].clone(), one.clone(), x.shape[1].clone(), one];
        let image = self.new_name(node.output(), "_channels");
        self.push(
            "Reshape",
            image.clone(),
            json!({"target_shape": [channels, 1, 1]}),
            vec![x.layer.clone()],
            rows.clone(),
        );
        let about = json!({
            "filters": 1, "kernel_size": [size, 1], "padding": "same", "dilation_rate": [by, 1], "use_bias": false,
        });
        let weights = [("kernel", kernel.shaped(vec![1, 1, size, 1]))];
        let Of::Layer(convolved) = self.weighted(node, "Conv2D", about, image, rows, weights) else {
            return Err(node.unknown());
        };
        let back = self.new_name(&convolved, "_back");
        let shape = x.shape.clone();
        self.push(
            "Reshape",
            back.clone(),
            json!({"target_shape": [1, 1, channels]}),
            vec![convolved],
            shape.clone(),
        );
        Ok(x.beside(back, shape).into())
    }

    /// The shape of images with other rows and columns than those of a layer, and maybe other channels.
    pub(super) fn with_sides(
        &self,
        x: &str,
        channels: Option<usize>,
        [rows, columns]: [Extent; 2],
    ) -> Vec<Extent> {
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
        if windows.dilations != [1, 1] {
            return Err(node.form(format!("with dilations={:?}", windows.dilations)));
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
        let (x, _) = self.image(node, 0)?;
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
        if mode != "constant" || value != 0.0 {
            return Err(node.form("of anything but zeros around an image"));
        }
        // A number below 0 cuts off.
        let [cut, zeros] = [-1, 1].map(|sign| zeros.map(|n| (sign * n.clamp(-MOST, MOST)).max(0)));
        let x = if cut == [0; 4] { x } else { self.cropped(node, x, cut)? };
        if zeros == [0; 4] {
            return Ok(Of::Layer(x));
        }
        let (sides, about) = self.beside(node, &x, zeros, "padding")?;
        let shape = self.with_sides(&x, None, sides);
        Ok(self.plain(node, "ZeroPadding2D", about, vec![x], shape))
    }

    /// An image without rows above, columns to the left, rows below, and columns to the right.
    pub(super) fn cropped(&mut self, node: &Node<'g>, x: String, cut: [i64; 4]) -> Result<String, String> {
        let (sides, about) = self.beside(node, &x, cut.map(|n| -n), "cropping")?;
        let shape = self.with_sides(&x, None, sides);
        match self.plain(node, "Cropping2D", about, vec![x], shape) {
            Of::Layer(cropped) => Ok(cropped),
            _ => Err(node.unknown()),
        }
    }

    /// An image without some of the first or last rows or columns: from `start` to `end` of an axis, as of a `Slice`. `None` for
    /// another axis.
    pub(super) fn without_border(
        &mut self,
        node: &Node<'g>,
        x: &Tensor,
        axis: usize,
        [start, end]: [i64; 2],
    ) -> Result<Option<Tensor>, String> {
        let kinds = x.kinds();
        let is_last = match kinds[..] {
            [Axis::Batch, Axis::Channels, Axis::Rows, Axis::Columns] => false,
            [Axis::Batch, Axis::Rows, Axis::Columns, Axis::Channels] => true,
            _ => return Ok(None),
        };
        let side = match kinds[axis] {
            Axis::Rows => 0,
            Axis::Columns => 1,
            _ => return Ok(None),
        };
        // How much is cut off at the front and at the back, for which the extent need not be known.
        let extent = x.seen()[axis].known();
        let front =
            if start >= 0 { Some(start) } else { extent.map(|extent| extent.saturating_add(start).max(0)) };
        let back = match end {
            _ if end < 0 => Some(end.saturating_neg()),
            _ if end >= i64::from(i32::MAX) => Some(0),
            _ => extent.map(|extent| extent.saturating_sub(end).max(0)),
        };
        let (Some(front), Some(back)) = (front, back) else { return Ok(None) };
        let mut cut = [0; 4];
        (cut[side], cut[side + 2]) = (front.min(MOST), back.min(MOST));
        let own = self.base(x.clone())?;
        let layer = self.cropped(node, own.layer, cut)?;
        let shape = self.shape(&layer);
        let cut = Tensor::of(layer, shape);
        if !is_last {
            return Ok(Some(cut));
        }
        let axes = cut.axes.permuted(&[0, 2, 3, 1]).ok_or_else(|| node.unknown())?;
        Ok(Some(Tensor { axes, ..cut }))
    }

    /// Rows and columns of an image with other sides, and their numbers as an option of Keras' layers.
    fn beside(
        &mut self,
        node: &Node<'g>,
        x: &str,
        more: [i64; 4],
        option: &str,
    ) -> Result<([Extent; 2], Value), String> {
        let [_, _, rows, columns] = &self.shape(x)[..] else { return Err(node.unknown()) };
        let (size, padding) = ([1; 2], Padding::Zeros(more));
        let windows = Windows { size, strides: size, dilations: size, padding, ceil: false };
        let sides = self.windowed(node, [rows.clone(), columns.clone()], &windows)?;
        let [top, left, bottom, right] = more.map(i64::abs);
        Ok((sides, json!({option: [[top, bottom], [left, right]]})))
    }
}

impl Nodes<'_> {
    /// A pooling, with the padding that counts before it.
    pub(super) fn pooled(&mut self, step: &Step, op: &str, operands: &[&str], pool: Pool2d) -> String {
        // Padding that counts is part of the image: `count_include_pad` counts all padding, or none.
        if pool.counted != Pad::VALID {
            let part = self.helper(step, "padded");
            let x = self.padded(step, operands[0], pads(pool.counted).map(|side| side as i64), part);
            let pool = Pool2d::new(pool.kernel, pool.stride, pool.pad.without(pool.counted));
            return self.pooled(step, op, &[&x], pool);
        }
        let (kernel, stride, pads) = (pool.kernel, pool.stride, pads(pool.pad));
        let about = [Numbers("kernel_shape", &kernel), Numbers("strides", &stride), Numbers("pads", &pads)];
        self.activated(step, op, operands, &about, Activation::None)
    }

    /// Zeros around an image, or pixels less where a number is negative.
    pub(super) fn padded(
        &mut self,
        step: &Step,
        x: &str,
        [top, left, bottom, right]: [i64; 4],
        output: String,
    ) -> String {
        let name = self.helper(step, "pads");
        let all = [0, 0, top, left, 0, 0, bottom, right];
        self.graph.initializer.push(TensorProto {
            dims: vec![all.len() as i64],
            data_type: INT64,
            name: name.clone(),
            raw_data: all.map(i64::to_le_bytes).concat().into(),
            ..TensorProto::default()
        });
        self.node("Pad", &[x, &name], &[], output)
    }
}
