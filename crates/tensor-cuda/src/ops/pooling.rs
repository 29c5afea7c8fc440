//! Largest and mean elements of windows.

use crate::driver::{Geometry, args, u32_of};
use crate::engine::product::divisor;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::{Error, Pad, Pool2d, Result, Shape, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "pooling.cu",
    text: include_str!("../../kernels/pooling.cu"),
    kernels: &[
        "maxpool_fwd",
        "maxpool_bwd_apart",
        "maxpool_winners",
        "maxpool_bwd",
        "avgpool_fwd",
        "avgpool_bwd",
    ],
};

const THREADS: u32 = 256;

/// The common arguments of all kernels: of the samples, the images, and the windows.
struct Windows {
    n: u32,
    c: u32,
    x: [u32; 2],
    y: [u32; 2],
    kernel: [u32; 2],
    stride: [usize; 2],
    top: u32,
    left: u32,
    /// Rows of the padded image that count in averages, from the first to the one behind the last; then columns.
    counted: [u32; 4],
}

/// Arguments of a kernel: its own, the windows, the image whose pixels the threads take, and the channels of a
/// thread.
macro_rules! window_args {
    ($s:expr, $walk:expr, $vector:expr, $($arg:expr),* $(,)?) => {
        args![
            $($arg,)* $s.n, $s.c, $s.x[0], $s.x[1], $s.y[0], $s.y[1], $s.kernel[0], $s.kernel[1],
            divisor($s.stride[0]), divisor($s.stride[1]), $s.top, $s.left, divisor($walk.c / $vector as usize),
            divisor($walk.h), divisor($walk.w), $vector
        ]
    };
}

impl Windows {
    fn new(op: &'static str, pool: &Pool2d, x: Shape, y: Shape) -> Result<Windows> {
        // Places of pixels are divided by these sizes, in 31 bits.
        let u32_of = |what, value| {
            let number = u32_of(op, what, value)?;
            let accepted = "below 2^30";
            if value < 1 << 30 {
                Ok(number)
            } else {
                Err(Error::Value { op, what, value: value as f64, accepted })
            }
        };
        let (pad, [kh, kw], [sh, sw]) = (pool.pad, pool.kernel, pool.stride);
        // Sums of a size and its padding do not overflow either.
        let sum = |parts: [usize; 4]| parts.into_iter().fold(0, usize::saturating_add);
        u32_of("the padded height", sum([x.h, pad.top, pad.bottom, sh]))?;
        u32_of("the padded width", sum([x.w, pad.left, pad.right, sw]))?;
        Ok(Windows {
            n: u32_of("the number of samples", x.n)?,
            c: u32_of("the number of channels", x.c)?,
            x: [u32_of("the height", x.h)?, u32_of("the width", x.w)?],
            y: [u32_of("the output's height", y.h)?, u32_of("the output's width", y.w)?],
            kernel: [u32_of("the window's height", kh)?, u32_of("the window's width", kw)?],
            stride: [sh, sw],
            top: u32_of("the padding", pad.top)?,
            left: u32_of("the padding", pad.left)?,
            counted: [
                pad.top - pool.counted.top,
                pad.top + x.h + pool.counted.bottom,
                pad.left - pool.counted.left,
                pad.left + x.w + pool.counted.right,
            ]
            .map(|place| place as u32),
        })
    }
}

impl Cuda {
    pub(crate) fn op_maxpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
        let op = "maxpool_fwd";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let (s, vector) = (Windows::new(op, pool, x.shape, y.shape)?, self.vector(&[&x, &y]));
        let args = window_args![s, y.shape, vector, x.ptr, x.stride as u32, y.ptr, y.stride as u32];
        self.over_channels("maxpool_fwd", y.shape, vector, args)
    }

    pub(crate) fn op_maxpool_bwd(
        &self,
        pool: &Pool2d,
        x: View<Buffer>,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "maxpool_bwd";
        self.read(op, "the output", y)?;
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        let (s, vector) = (Windows::new(op, pool, x.shape, dy.shape)?, self.vector(&[&x, &dy, &dx]));
        let (x_stride, dy_stride, dx_stride) = (x.stride as u32, dy.stride as u32, dx.stride as u32);
        let add = u32::from(write == Write::Add);
        let [[kh, kw], [sh, sw]] = [pool.kernel, pool.stride];
        if kh <= sh && kw <= sw {
            let cells = |size: usize, before: usize, stride: usize| (size + before).div_ceil(stride);
            let (down, across) = (cells(x.shape.h, pool.pad.top, sh), cells(x.shape.w, pool.pad.left, sw));
            let cells = Shape::new(x.shape.n, down, across, x.shape.c);
            u32_of(op, "the number of windows", cells.rows())?;
            let args =
                window_args![s, cells, vector, x.ptr, x_stride, dy.ptr, dy_stride, dx.ptr, dx_stride, add];
            return self.over_channels("maxpool_bwd_apart", cells, vector, args);
        }
        let places = kh.saturating_mul(kw.max(sw));
        if places > 1 << 16 {
            let (what, accepted) = ("the size of windows that overlap", "at most 65536 pixels");
            return Err(Error::Value { op, what, value: places as f64, accepted });
        }
        let winners = self.scratch(dy.shape.len().saturating_mul(size_of::<u16>()))?;
        let args = window_args![s, dy.shape, vector, x.ptr, x_stride, winners];
        self.over_channels("maxpool_winners", dy.shape, vector, args)?;
        let args = window_args![s, dx.shape, vector, winners, dy.ptr, dy_stride, dx.ptr, dx_stride, add];
        self.over_channels("maxpool_bwd", dx.shape, vector, args)
    }

    pub(crate) fn op_avgpool_fwd(&self, pool: &Pool2d, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
        let op = "avgpool_fwd";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let is_whole = pool.kernel == [x.shape.h, x.shape.w] && pool.pad == Pad::VALID;
        if is_whole && [y.shape.h, y.shape.w] == [1; 2] && !y.shape.is_empty() {
            let scale = 1.0 / (x.shape.h * x.shape.w) as f32;
            return self.pixel_sums(op, &x, None, &y, scale, Write::Set);
        }
        let (s, vector) = (Windows::new(op, pool, x.shape, y.shape)?, self.vector(&[&x, &y]));
        let [top, bottom, left, right] = s.counted;
        let (x_stride, y_stride) = (x.stride as u32, y.stride as u32);
        let args =
            window_args![s, y.shape, vector, x.ptr, x_stride, y.ptr, y_stride, top, bottom, left, right];
        self.over_channels("avgpool_fwd", y.shape, vector, args)
    }

    pub(crate) fn op_avgpool_bwd(
        &self,
        pool: &Pool2d,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "avgpool_bwd";
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        let (s, vector) = (Windows::new(op, pool, dx.shape, dy.shape)?, self.vector(&[&dy, &dx]));
        let add = u32::from(write == Write::Add);
        let [top, bottom, left, right] = s.counted;
        let (dy_stride, dx_stride) = (dy.stride as u32, dx.stride as u32);
        let args = window_args![
            s, dx.shape, vector, dy.ptr, dy_stride, dx.ptr, dx_stride, add, top, bottom, left, right
        ];
        self.over_channels("avgpool_bwd", dx.shape, vector, args)
    }

    /// Launches a kernel whose threads take `vector` channels of a pixel of this shape at a time.
    fn over_channels(
        &self,
        kernel: &'static str,
        shape: Shape,
        vector: u32,
        args: &[crate::driver::Arg],
    ) -> Result<()> {
        if shape.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks(shape.len() / vector as usize, THREADS);
        self.launch(kernel, Geometry::line(blocks, THREADS), args)
    }
}
