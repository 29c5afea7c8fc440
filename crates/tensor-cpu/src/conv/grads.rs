use super::kernels::{GradTile, Kernels};
use super::problem::{inside, is_pointwise};
use crate::Cpu;
use crate::threads::Shards;
use core::ops::Range;
use program::{Conv2d, Layout, Shape, View};

/// At least so many tasks are wanted, and at most so many elements of partial sums.
const MIN_TASKS: usize = 16;
const PARTIALS_LEN: usize = 1 << 19;

/// Up to so many inputs under a row of the kernel share a tile.
const FEW_INPUTS: usize = 12;

/// About so many elements of both operands are summed over before the next tile: what stays near the core.
const CHUNK_LEN: usize = 1 << 14;

/// How the gradient of the weights is cut up, by the shapes alone.
///
/// The images are cut into parts and the inputs into ranges; a task sums one part for one range of inputs and all outputs
/// and taps. With several parts each has its own sums, which are added in the order of the parts.
struct Plan {
    conv: Conv2d,
    x: Layout,
    dy: Layout,
    parts: usize,
    ranges: usize,
    /// Images of a part that are summed before the next tile, and rows of one.
    chunk: [usize; 2],
    /// Inputs and vectors of outputs of the largest tile.
    tile: [usize; 2],
}

impl Plan {
    fn new(conv: &Conv2d, x: Layout, dy: Layout, kernels: &Kernels) -> Plan {
        let (conv, x, dy) = flattened(conv, x, dy);
        let vectors = conv.outputs.div_ceil(kernels.width);
        let widest = kernels.grad.len();
        let nv = vectors.div_ceil(vectors.div_ceil(widest).max(1)).max(1);
        let tile = [kernels.grad[nv - 1].len(), nv];
        let parts = (PARTIALS_LEN / conv.weights().max(1)).clamp(1, MIN_TASKS.min(x.shape.n.max(1)));
        let ranges = MIN_TASKS.div_ceil(parts).min(conv.inputs.div_ceil(tile[0])).max(1);
        let image = x.shape.per_sample() / ranges + dy.shape.per_sample();
        let images = (CHUNK_LEN / image.max(1)).max(1);
        let rows = (CHUNK_LEN * dy.shape.h).div_ceil(image.max(1)).clamp(1, dy.shape.h.max(1));
        Plan { conv, x, dy, parts, ranges, chunk: [images, rows], tile }
    }

    fn partials_len(&self) -> usize {
        if self.parts == 1 { 0 } else { self.parts * self.conv.weights() }
    }

    fn part(&self, index: usize) -> Range<usize> {
        portion(self.x.shape.n, self.parts, index)
    }
}

/// The `index`th of `parts` nearly equal portions of `0..all`.
pub(super) fn portion(all: usize, parts: usize, index: usize) -> Range<usize> {
    let start = |i: usize| i * (all / parts) + i.min(all % parts);
    start(index)..start(index + 1)
}

/// The same sums over images of one row, where pixels have nothing to do with each other: long rows make long loops.
pub(super) fn flattened(conv: &Conv2d, x: Layout, dy: Layout) -> (Conv2d, Layout, Layout) {
    let pixels = x.shape.rows();
    let width = (64..=256).chain(16..64).find(|&width| pixels.is_multiple_of(width));
    let (true, Some(width)) = (is_pointwise(conv), width) else { return (*conv, x, dy) };
    let flat = |at: Layout| {
        let shape = Shape::new(pixels / width, 1, width, at.shape.c);
        Layout { shape, ..at }
    };
    (*conv, flat(x), flat(dy))
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch_len(conv: &Conv2d, x: Layout, dy: Layout, kernels: &Kernels) -> usize {
    Plan::new(conv, x, dy, kernels).partials_len()
}

/// `dw[tap, i, j] = sum over pixels p of x[p + tap, i] * dy[p, j]`
pub(super) fn run(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    if dw.is_empty() {
        return;
    }
    let kernels = Kernels::of(cpu.simd());
    let plan = Plan::new(conv, x.layout, dy.layout, kernels);
    let tasks = plan.parts * plan.ranges;
    if plan.parts == 1 {
        let dw = Shards::new(dw);
        cpu.pool().run(tasks, &|task| plan.task(kernels, x.data, dy.data, 0, task, dw.as_ptr()));
        return;
    }
    let len = dw.len();
    let mut scratch = cpu.scratch(plan.partials_len());
    let partials = Shards::new(&mut scratch);
    cpu.pool().run(tasks, &|task| {
        let (part, range) = (task / plan.ranges, task % plan.ranges);
        // SAFETY: the address of the part's own sums.
        let out = unsafe { partials.as_ptr().add(part * len) };
        plan.task(kernels, x.data, dy.data, part, range, out);
    });
    add_up(cpu, &scratch[..plan.parts * len], dw);
}

/// Adds the parts' sums, in the order of the parts.
fn add_up(cpu: &Cpu, partials: &[f32], dw: &mut [f32]) {
    const RUN: usize = 4096;
    let len = dw.len();
    let dw = Shards::new(dw);
    cpu.pool().run(len.div_ceil(RUN), &|task| {
        let range = task * RUN..((task + 1) * RUN).min(len);
        // SAFETY: each run belongs to one task.
        let dw = unsafe { dw.part(range.clone()) };
        for (i, part) in partials.chunks_exact(len).enumerate() {
            let part = &part[range.clone()];
            if i == 0 {
                dw.copy_from_slice(part);
            } else {
                dw.iter_mut().zip(part).for_each(|(dw, part)| *dw += part);
            }
        }
    });
}

impl Plan {
    /// Sums one part of the images for one range of inputs, to `out`, which has room for all weights.
    fn task(&self, kernels: &Kernels, x: &[f32], dy: &[f32], part: usize, range: usize, out: *mut f32) {
        let part = self.part(part);
        let inputs = portion(self.conv.inputs, self.ranges, range);
        let [ky, kx] = self.conv.kernel;
        let [images, rows] = self.chunk;
        let mut add = false;
        let mut chunk = |images: Range<usize>, rows: Range<usize>| {
            for tap in 0..ky * kx {
                let pixels = self.pixels(tap % kx);
                let Some(merged) = self.merged() else {
                    self.tile(kernels, x, dy, [&images, &rows, &pixels], tap, &inputs, add, out);
                    continue;
                };
                // The pixels under all columns of the kernel at once, then those at the edges.
                if tap % kx == 0 {
                    let all = 0..kx * self.conv.inputs;
                    self.tile(kernels, x, dy, [&images, &rows, &merged], tap, &all, add, out);
                }
                for edge in [pixels.start..merged.start, merged.end..pixels.end] {
                    if !edge.is_empty() {
                        self.tile(kernels, x, dy, [&images, &rows, &edge], tap, &inputs, true, out);
                    }
                }
            }
            add = true;
        };
        if part.is_empty() {
            // To set the sums.
            chunk(part.clone(), 0..0);
        }
        for start in part.clone().step_by(images) {
            for row in (0..self.dy.shape.h).step_by(rows) {
                chunk(start..(start + images).min(part.end), row..(row + rows).min(self.dy.shape.h));
            }
        }
    }

    /// The outputs of a row whose input under column `kx` of the kernel lies inside of the image.
    fn pixels(&self, kx: usize) -> Range<usize> {
        inside(
            self.dy.shape.w,
            self.x.shape.w,
            self.conv.stride[1],
            (kx * self.conv.dilation[1]) as isize - self.conv.pad.left as isize,
        )
    }

    /// The outputs of a row whose inputs under all columns of the kernel lie inside of the image. These
    /// inputs must be few enough to share a tile, and lie together in memory as their weights do.
    fn merged(&self) -> Option<Range<usize>> {
        let [_, columns] = self.conv.kernel;
        let all = self.pixels(0).start..self.pixels(columns - 1).end;
        let few =
            columns > 1 && self.ranges == 1 && columns * self.conv.inputs <= self.tile[0].max(FEW_INPUTS);
        let few = few && self.conv.dilation[1] == 1;
        (few && self.x.is_contiguous() && !all.is_empty()).then_some(all)
    }

    /// The sums over a box (images, rows and pixels) of outputs, for one tap and some inputs. Inputs past the last
    /// are the first ones of the pixel to the right, and of the next tap.
    fn tile(
        &self,
        kernels: &Kernels,
        x: &[f32],
        dy: &[f32],
        [images, rows, pixels]: [&Range<usize>; 3],
        tap: usize,
        inputs: &Range<usize>,
        add: bool,
        out: *mut f32,
    ) {
        let (conv, xs, ys) = (&self.conv, self.x, self.dy);
        let ky = tap / conv.kernel[1] * conv.dilation[0];
        let kx = tap % conv.kernel[1] * conv.dilation[1];
        let all = inside(ys.shape.h, xs.shape.h, conv.stride[0], ky as isize - conv.pad.top as isize);
        let rows = all.start.max(rows.start)..all.end.min(rows.end);
        let none = images.is_empty() || rows.is_empty() || pixels.is_empty();
        let (mut a, mut b) = (0, 0);
        if !none {
            let iy = rows.start * conv.stride[0] + ky - conv.pad.top;
            let ix = pixels.start * conv.stride[1] + kx - conv.pad.left;
            a = xs.offset + ((images.start * xs.shape.h + iy) * xs.shape.w + ix) * xs.stride;
            b = ys.offset
                + ((images.start * ys.shape.h + rows.start) * ys.shape.w + pixels.start) * ys.stride;
        }
        let (x_row, y_row) = (xs.shape.w * xs.stride, ys.shape.w * ys.stride);
        let mut tile = GradTile {
            a: x.as_ptr(),
            a_steps: [conv.stride[1] * xs.stride, conv.stride[0] * x_row, xs.shape.h * x_row],
            b: dy.as_ptr(),
            b_steps: [ys.stride, y_row, ys.shape.h * y_row],
            counts: if none { [0; 3] } else { [pixels.len(), rows.len(), images.len()] },
            out,
            out_step: conv.outputs,
            lanes: kernels.width,
            add,
        };
        let last = |steps: [usize; 3]| steps.iter().zip(tile.counts).map(|(s, n)| s * (n - 1)).sum::<usize>();
        debug_assert!(none || a + last(tile.a_steps) + inputs.end <= x.len());
        debug_assert!(none || b + last(tile.b_steps) + conv.outputs <= dy.len());
        debug_assert!((tap * conv.inputs + inputs.end) * conv.outputs <= conv.weights());
        let tiles = inputs.len().div_ceil(self.tile[0]);
        let vectors = conv.outputs.div_ceil(kernels.width);
        let panels = vectors.div_ceil(self.tile[1]);
        for panel in (0..panels).map(|panel| portion(vectors, panels, panel)) {
            let columns = panel.start * kernels.width..(panel.end * kernels.width).min(conv.outputs);
            tile.lanes = columns.len() - (panel.len() - 1) * kernels.width;
            for t in 0..tiles {
                let range = portion(inputs.len(), tiles, t);
                let first = inputs.start + range.start;
                // SAFETY: the kernels fit the CPU; rows and pixels under the tap lie inside of both tensors,
                // the weights of the tile inside of `out`. No other task has this part and these inputs.
                unsafe {
                    tile.a = x.as_ptr().wrapping_add(a + first);
                    tile.b = dy.as_ptr().wrapping_add(b + columns.start);
                    tile.out = out.add((tap * conv.inputs + first) * conv.outputs + columns.start);
                    kernels.grad[panel.len() - 1][range.len() - 1](&tile);
                }
            }
        }
    }
}
