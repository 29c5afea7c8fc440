//! Depthwise convolutions.

use crate::activation;
use crate::driver::{Arg, Geometry, Ptr, args, u32_of};
use crate::operand::Run;
use crate::ops::convolution::Weights;
use crate::ops::tiles::THREADS;
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::Depthwise;
use towers_program::{Activation, BatchNorm, Error, Pad, Result, Shape, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "depthwise.cu",
    text: include_str!("../../kernels/depthwise.cu"),
    kernels: &[
        "depthwise_sums",
        "depthwise_input_gradient",
        "depthwise_weight_gradient",
        "depthwise_tap_gradient",
    ],
};

/// Neighbouring outputs of a thread, in depthwise.cu.
const OUTPUTS: usize = 4;
/// Channels of a thread, where they lie so.
const VECTOR: usize = 4;
/// Channels side by side in a block for the gradient of the weights.
const LANES: u32 = 32;
/// The most parts of such a gradient, and floats of all of them.
const MOST_PARTS: usize = 256;
const MOST_PARTIALS: usize = 1 << 22;

/// The last arguments of all kernels but for the channels of a thread: of the samples, the two images, the windows.
struct Windows {
    n: u32,
    outputs: u32,
    filters: u32,
    x: [u32; 2],
    y: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    dilation: [u32; 2],
    before: [i32; 2],
}

/// Arguments of a kernel: its own, the windows, and the channels of a thread.
macro_rules! window_args {
    ($s:expr, $vector:expr, $($arg:expr),* $(,)?) => {
        args![
            $($arg,)* $s.n, $s.outputs, $s.filters, $s.x[0], $s.x[1], $s.y[0], $s.y[1], $s.kernel[0], $s.kernel[1],
            $s.stride[0], $s.stride[1], $s.dilation[0], $s.dilation[1], $s.before[0], $s.before[1], $vector
        ]
    };
}

impl Windows {
    fn new(op: &'static str, conv: &Depthwise, x: Shape, y: Shape) -> Result<Windows> {
        // Places of pixels are sums of two of these, in 31 bits.
        let number = |what, value: usize| match u32_of(op, what, value)? {
            number if number < 1 << 30 => Ok(number),
            _ => Err(Error::Value { op, what, value: value as f64, accepted: "below 2^30" }),
        };
        let sum = |parts: [usize; 3]| parts.into_iter().fold(0, usize::saturating_add);
        let Pad { top, bottom, left, right } = conv.pad;
        number("the padded height", sum([x.h, top, bottom]))?;
        number("the padded width", sum([x.w, left, right]))?;
        let pair = |what, [a, b]: [usize; 2]| Ok::<_, Error>([number(what, a)?, number(what, b)?]);
        Ok(Windows {
            n: number("the number of samples", x.n)?,
            outputs: number("the number of channels", conv.outputs())?,
            filters: number("the number of filters", conv.multiplier)?,
            x: pair("the size of the input", [x.h, x.w])?,
            y: pair("the size of the output", [y.h, y.w])?,
            kernel: pair("the size of the kernel", conv.kernel)?,
            stride: pair("the stride", conv.stride)?,
            dilation: pair("the dilation", conv.dilation)?,
            before: pair("the padding", [top, left])?.map(|pad| pad as i32),
        })
    }

    /// The gradient of the input as sums of that of the output, for a stride of 1: the kernel is turned.
    fn turned(self) -> Windows {
        let before = [0, 1].map(|k| ((self.kernel[k] - 1) * self.dilation[k]) as i32 - self.before[k]);
        Windows { x: self.y, y: self.x, before, ..self }
    }

    /// The number of the code for this kernel and stride; 0 for that for any.
    fn code(&self) -> u32 {
        let ([k, across], [s, along]) = (self.kernel, self.stride);
        let known = matches!((k, s), (1 | 7, 1) | (3 | 5, 1 | 2));
        if known && k == across && s == along && self.dilation == [1; 2] { 10 * k + s } else { 0 }
    }
}

/// What follows the sums.
#[derive(Clone, Copy)]
struct Finish {
    bias: Ptr,
    /// Gamma, beta, mean and variance, or nothing.
    norm: [Ptr; 4],
    epsilon: f32,
    act: Activation,
}

const NOTHING: Finish = Finish { bias: Ptr::NULL, norm: [Ptr::NULL; 4], epsilon: 0.0, act: Activation::None };

impl Cuda {
    pub(crate) fn op_depthwise(
        &self,
        conv: &Depthwise,
        act: Activation,
        x: View<Buffer>,
        Weights { w, b }: Weights,
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "depthwise_fwd";
        let bias = b.map_or(Ok(Ptr::NULL), |b| self.operand(op, "the bias", b))?;
        self.depthwise_forward(op, conv, x, w, Finish { bias, act, ..NOTHING }, y)
    }

    /// The convolution and the normalization behind it, with running averages.
    pub(crate) fn op_depthwise_normalized(
        &self,
        conv: &Depthwise,
        bn: &BatchNorm,
        x: View<Buffer>,
        Weights { w, b }: Weights,
        [gamma, beta, mean, variance]: [Run; 4],
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "depthwise_bn_act_fwd_infer";
        let bias = b.map_or(Ok(Ptr::NULL), |b| self.operand(op, "the bias", b))?;
        let [gamma, beta] = self.scale(op, [gamma, beta])?;
        let (mean, variance) =
            (self.operand(op, "the mean", mean)?, self.operand(op, "the variance", variance)?);
        let norm = [gamma, beta, mean, variance];
        self.depthwise_forward(op, conv, x, w, Finish { bias, norm, epsilon: bn.epsilon, act: bn.act }, y)
    }

    fn depthwise_forward(
        &self,
        op: &'static str,
        conv: &Depthwise,
        x: View<Buffer>,
        w: Run,
        finish: Finish,
        y: View<Buffer>,
    ) -> Result<()> {
        let w = self.operand(op, "the weights", w)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let windows = Windows::new(op, conv, x.shape, y.shape)?;
        self.depthwise_sums(&windows, &x, w, finish, &y, false, Write::Set)
    }

    fn depthwise_sums(
        &self,
        windows: &Windows,
        x: &Place,
        w: Ptr,
        finish: Finish,
        y: &Place,
        turned: bool,
        write: Write,
    ) -> Result<()> {
        if y.shape.is_empty() {
            return Ok(());
        }
        let vector = self.depthwise_vector(windows, &[x, y], w);
        let [gamma, beta, mean, variance] = finish.norm;
        let args = window_args![
            windows,
            vector,
            x.ptr,
            x.stride as u32,
            w,
            finish.bias,
            gamma,
            beta,
            mean,
            variance,
            finish.epsilon,
            activation::packed(finish.act),
            y.ptr,
            y.stride as u32,
            u32::from(turned),
            u32::from(write == Write::Add),
            windows.code(),
        ];
        let shape = y.shape;
        let items = shape.n * shape.h * shape.w.div_ceil(OUTPUTS) * (shape.c / vector as usize);
        self.launch("depthwise_sums", Geometry::line(self.blocks(items, THREADS), THREADS), args)
    }

    pub(crate) fn op_depthwise_input_gradient(
        &self,
        conv: &Depthwise,
        dy: View<Buffer>,
        w: Run,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "depthwise_bwd_data";
        let w = self.operand(op, "the weights", w)?;
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        let windows = Windows::new(op, conv, dx.shape, dy.shape)?;
        if conv.stride == [1; 2] && conv.multiplier == 1 {
            return self.depthwise_sums(&windows.turned(), &dy, w, NOTHING, &dx, true, write);
        }
        if dx.shape.is_empty() {
            return Ok(());
        }
        let vector = self.depthwise_vector(&windows, &[&dy, &dx], w);
        let args = window_args![
            windows,
            vector,
            dy.ptr,
            dy.stride as u32,
            w,
            dx.ptr,
            dx.stride as u32,
            u32::from(write == Write::Add),
            windows.code(),
        ];
        let blocks = self.blocks(dx.shape.len() / vector as usize, THREADS);
        self.launch("depthwise_input_gradient", Geometry::line(blocks, THREADS), args)
    }

    /// The gradients of the weights, in parts of some rows of the output, which are then added. The shapes decide the
    /// parts.
    pub(crate) fn op_depthwise_weight_gradient(
        &self,
        conv: &Depthwise,
        x: View<Buffer>,
        dy: View<Buffer>,
        Weights { w, b }: Weights,
    ) -> Result<()> {
        let op = "depthwise_bwd_filter";
        let dw = self.operand(op, "dw", w)?;
        let db = b.map(|db| self.operand(op, "db", db)).transpose()?;
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let weights = conv.weights();
        if weights > 0 && dy.shape.is_empty() {
            // SAFETY: the run of the gradients was checked.
            self.work(|| unsafe { self.driver().clear(dw, weights * size_of::<f32>()) })?;
        } else if weights > 0 {
            self.depthwise_parts(op, conv, &x, &dy, dw)?;
        }
        db.map_or(Ok(()), |db| self.column_sums(op, &dy, db))
    }

    fn depthwise_parts(
        &self,
        op: &'static str,
        conv: &Depthwise,
        x: &Place,
        dy: &Place,
        dw: Ptr,
    ) -> Result<()> {
        let windows = Windows::new(op, conv, x.shape, dy.shape)?;
        let (weights, rows) = (conv.weights(), dy.shape.n * dy.shape.h);
        let is_fast = windows.code() > 0 && self.depthwise_vector(&windows, &[x, dy], Ptr::NULL) > 1;
        let packs = if is_fast { windows.outputs / VECTOR as u32 } else { windows.outputs };
        let [kh, kw] = windows.kernel;
        let lanes = if is_fast { packs.min(LANES) } else { LANES };
        let lines = if is_fast { (THREADS / (lanes * kh)).clamp(1, 8) } else { THREADS / LANES };
        let most = MOST_PARTS.min(MOST_PARTIALS / weights).max(1);
        let each = rows.div_ceil(most).max(2 * lines as usize).min(rows);
        let parts = rows.div_ceil(each);
        let partials = if parts == 1 { dw } else { self.scratch(parts * weights * size_of::<f32>())? };
        let (x_stride, dy_stride) = (x.stride as u32, dy.stride as u32);
        let rows_each = u32_of(op, "the number of rows", each)?;
        let across = packs.div_ceil(lanes);
        if is_fast {
            let args = window_args![
                windows,
                VECTOR as u32,
                x.ptr,
                x_stride,
                dy.ptr,
                dy_stride,
                rows_each,
                partials,
                windows.code(),
            ];
            let floats = lines * kh * lanes * kw * VECTOR as u32;
            let shared = floats * size_of::<f32>() as u32;
            let geometry = Geometry { grid: [across, parts as u32, 1], block: [lanes, kh, lines], shared };
            self.launch("depthwise_weight_gradient", geometry, args)?;
        } else {
            let args: &[Arg] =
                window_args![windows, 1_u32, x.ptr, x_stride, dy.ptr, dy_stride, rows_each, partials];
            let shared = lines * lanes * size_of::<f32>() as u32;
            let grid = [across, parts as u32, u32_of(op, "the size of the kernel", conv.taps())?];
            let geometry = Geometry { grid, block: [lanes, lines, 1], shared };
            self.launch("depthwise_tap_gradient", geometry, args)?;
        }
        if parts == 1 {
            return Ok(());
        }
        self.sum_parts("sum_parts_f32", op, partials, [parts, weights], dw, Write::Set)
    }

    /// Channels of a thread: 4 where they and their weights lie in whole vectors, and each has one filter; else 1.
    fn depthwise_vector(&self, windows: &Windows, places: &[&Place], w: Ptr) -> u32 {
        let aligned = w.0.is_multiple_of((VECTOR * size_of::<f32>()) as u64);
        if aligned && windows.filters == 1 { self.neighbours(VECTOR, places) } else { 1 }
    }
}
