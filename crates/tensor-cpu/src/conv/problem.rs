use super::kernels::BLOCK;
use core::ops::Range;
use towers_program::{Conv2d, Layout};

/// One direction of a [`Problem`]: which source coordinates an output reads.
///
/// Output `o` reads, with tap `t`, the source at `o * step + first + t * dilation` (minus that where `down`) and the weights
/// at `w_first + t * w_step`. Coordinates outside of `0..size` read zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Source pixels.
    pub size: usize,
    /// Output pixels.
    pub outputs: usize,
    pub step: usize,
    pub taps: usize,
    pub dilation: usize,
    pub first: isize,
    pub down: bool,
    pub w_first: usize,
    pub w_step: usize,
}

impl Axis {
    pub fn forward(size: usize, outputs: usize, kernel: usize, stride: usize, pad: usize) -> Axis {
        let first = -(pad as isize);
        // From a single output there is no step, and none may make its packed row longer.
        let step = if outputs > 1 { stride } else { 1 };
        Axis { size, outputs, step, taps: kernel, dilation: 1, first, down: false, w_first: 0, w_step: 1 }
    }

    /// A forward axis of `conv`: its rows (0) or columns (1).
    pub fn of(conv: &Conv2d, axis: usize, size: usize, outputs: usize) -> Axis {
        let pad = [conv.pad.top, conv.pad.left][axis];
        let dense = Axis::forward(size, outputs, conv.kernel[axis], conv.stride[axis], pad);
        Axis { dilation: dilation(conv, axis), ..dense }
    }

    /// The gradients of the inputs `phase, phase + stride, ...` of `inputs`: input `i` was read by output
    /// `(i + pad - k * dilation) / stride` through the kernel's element `k`, for the `k` that divide.
    fn backward(conv: &Conv2d, axis: usize, size: usize, inputs: usize, phase: usize) -> Axis {
        let (kernel, stride, dilation) = (conv.kernel[axis], conv.stride[axis], dilation(conv, axis));
        let at = (phase + [conv.pad.top, conv.pad.left][axis]) as isize;
        let from = |k: usize| at - (k * dilation) as isize;
        // What divides once does so again after as many elements.
        let common = gcd(stride, dilation);
        let w_step = stride / common;
        let w_first = (0..kernel.min(w_step)).find(|&k| from(k) % stride as isize == 0).unwrap_or(kernel);
        let taps = (kernel - w_first).div_ceil(w_step);
        let first = if taps == 0 { 0 } else { from(w_first) / stride as isize };
        let outputs = inputs.saturating_sub(phase).div_ceil(stride);
        Axis { size, outputs, step: 1, taps, dilation: dilation / common, first, down: true, w_first, w_step }
    }

    /// The smallest source coordinate of output 0.
    pub fn low(&self) -> isize {
        if self.down { self.first - self.reach() as isize } else { self.first }
    }

    /// Source pixels from [`Axis::low`] to the one that tap `t` reads.
    pub fn rise(&self, t: usize) -> usize {
        self.dilation * if self.down { self.taps - 1 - t } else { t }
    }

    /// Source pixels from the one that the first tap reads to that of the last.
    pub fn reach(&self) -> usize {
        self.taps.saturating_sub(1) * self.dilation
    }

    /// Source pixels under `outputs` neighbouring outputs.
    pub fn extent(&self, outputs: usize) -> usize {
        if outputs == 0 || self.taps == 0 { 0 } else { (outputs - 1) * self.step + self.reach() + 1 }
    }
}

/// The dilation along an axis, if there is something to be apart.
fn dilation(conv: &Conv2d, axis: usize) -> usize {
    if conv.kernel[axis] > 1 { conv.dilation[axis] } else { 1 }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Of `count` places, `step` apart from `first` on, those that lie inside of `0..size`.
pub(super) fn inside(count: usize, size: usize, step: usize, first: isize) -> Range<usize> {
    let start = (-first).max(0).unsigned_abs().div_ceil(step).min(count);
    let end = (size as isize - first).max(0).unsigned_abs().div_ceil(step);
    start..end.clamp(start, count)
}

/// Where outputs lie: elements to the first, from one image, row and pixel to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub offset: usize,
    pub image: usize,
    pub row: usize,
    pub pixel: usize,
}

/// A source whose columns under the kernel were merged into channels: see [`Problem::merged`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    /// Stride and left padding of the convolution, along a row.
    pub stride: usize,
    pub left: usize,
    /// Channels before merging.
    pub channels: usize,
}

/// Sums over taps and channels for every output pixel and column:
/// `out[p, j] = sum over taps t, channels i of source[p * step + t, i] * w[t, i, j]`.
///
/// A forward convolution is one of these, and a gradient of the input one for each phase of the stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub images: usize,
    /// Numbers a source pixel and an output pixel has.
    pub channels: usize,
    pub columns: usize,
    pub y: Axis,
    pub x: Axis,
    pub source: Layout,
    pub out: Places,
    /// Kernel columns of the weights' layout.
    pub kernel_width: usize,
    /// Whether the weights lie as (tap, column, channel).
    pub transposed: bool,
    pub merge: Option<Merge>,
}

/// With at most so many channels the columns under the kernel are merged into channels.
pub(super) const FEW_CHANNELS: usize = 4;

impl Problem {
    /// `conv` on `source`, into `out`.
    ///
    /// Images of a 1x1 kernel without stride become one row of pixels.
    pub fn forward(conv: &Conv2d, source: Layout, out: Layout) -> Problem {
        let (s, o) = (source.shape, out.shape);
        Problem {
            images: s.n,
            channels: conv.inputs,
            columns: conv.outputs,
            y: Axis::of(conv, 0, s.h, o.h),
            x: Axis::of(conv, 1, s.w, o.w),
            source,
            out: places(out, [0; 2], [1; 2]),
            kernel_width: conv.kernel[1],
            transposed: false,
            merge: None,
        }
        .flattened(conv)
    }

    /// The same for vectors. Images of few channels (colours) would leave most of a block empty and make
    /// short loops. So their pixels under one row of the kernel become the channels of one pixel: they lie
    /// together in memory, as their weights do.
    pub fn merged(mut self) -> Problem {
        let Axis { step: stride, taps, dilation, first, outputs, .. } = self.x;
        if !self.transposed && self.channels <= FEW_CHANNELS && taps > 1 && dilation == 1 {
            self.merge = Some(Merge { stride, left: first.unsigned_abs(), channels: self.channels });
            self.channels *= taps;
            self.kernel_width = 1;
            self.x = Axis::forward(outputs, outputs, 1, 1, 0);
        }
        self
    }

    /// The gradient of the inputs whose row and column leave `phase` when divided by the stride; `source` is the
    /// output's gradient, `out` the input's.
    pub fn backward(conv: &Conv2d, source: Layout, out: Layout, phase: [usize; 2]) -> Problem {
        let (s, o) = (source.shape, out.shape);
        Problem {
            images: s.n,
            channels: conv.outputs,
            columns: conv.inputs,
            y: Axis::backward(conv, 0, s.h, o.h, phase[0]),
            x: Axis::backward(conv, 1, s.w, o.w, phase[1]),
            source,
            out: places(out, phase, conv.stride),
            kernel_width: conv.kernel[1],
            transposed: true,
            merge: None,
        }
        .flattened(conv)
    }

    /// The same with all images in one row, where pixels have nothing to do with each other.
    fn flattened(mut self, conv: &Conv2d) -> Problem {
        if is_pointwise(conv) {
            let pixels = self.source.shape.rows();
            self.images = 1;
            for axis in [&mut self.y, &mut self.x] {
                (axis.size, axis.outputs) = (1, 1);
            }
            (self.x.size, self.x.outputs) = (pixels, pixels);
            self.source.shape.n = 1;
            self.source.shape.h = 1;
            self.source.shape.w = pixels;
        }
        self
    }

    /// Output pixels of an image.
    pub fn pixels(&self) -> usize {
        self.y.outputs * self.x.outputs
    }

    pub fn taps(&self) -> usize {
        self.y.taps * self.x.taps
    }

    pub fn has_outputs(&self) -> bool {
        self.columns * self.images * self.pixels() > 0
    }

    /// Whether there is something to add up: of a kernel that is smaller than the stride, some phases have no taps.
    pub fn has_products(&self) -> bool {
        self.channels * self.taps() > 0
    }

    /// Blocks of channels.
    pub fn blocks(&self) -> usize {
        self.channels.div_ceil(BLOCK)
    }

    /// Where the weights of a tap start.
    pub fn weights(&self, tap: usize) -> usize {
        let v = self.y.w_first + tap / self.x.taps * self.y.w_step;
        let u = self.x.w_first + tap % self.x.taps * self.x.w_step;
        (v * self.kernel_width + u) * self.channels * self.columns
    }
}

/// Whether each output pixel reads the input pixel of the same number alone.
pub(super) fn is_pointwise(conv: &Conv2d) -> bool {
    conv.kernel == [1, 1] && conv.stride == [1, 1] && conv.pad == towers_program::Pad::VALID
}

fn places(at: Layout, phase: [usize; 2], stride: [usize; 2]) -> Places {
    let row = at.shape.w * at.stride;
    Places {
        offset: at.offset + phase[0] * row + phase[1] * at.stride,
        image: at.shape.h * row,
        row: stride[0] * row,
        pixel: stride[1] * at.stride,
    }
}
