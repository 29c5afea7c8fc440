use super::kernels::{BLOCK, GradTile, Kernels, PackRun};
use super::problem::{inside, is_pointwise};
use crate::Cpu;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Conv2d, Layout, Shape, View};

/// About so many tasks are wanted, and at most so many elements of partial sums.
const TASKS: usize = 16;
const PARTIALS_LEN: usize = 1 << 19;

/// Up to so many inputs under a row of the kernel share a tile.
const FEW_INPUTS: usize = 12;

/// About so many elements of both operands are summed over before the next tile: what stays near the core. Packed ones of 1x1
/// convolutions are read panel by panel, and may be as many as the second cache holds.
const CHUNK_LEN: usize = 1 << 14;
const POINTWISE_CHUNK_LEN: usize = 1 << 16;

/// So many pixels are packed together: what they have in one panel, then in the next one.
const PIXELS_TOGETHER: usize = 8;

/// How the gradient of the weights is cut up, by the shapes alone.
///
/// The images are cut into parts, the inputs and the panels of outputs into ranges; a task sums one part for one range of
/// each and all taps. With several parts each has its own sums, which are added in the order of the parts.
struct Plan {
    conv: Conv2d,
    x: Layout,
    dy: Layout,
    parts: usize,
    /// Ranges of inputs, and ranges of panels of outputs.
    ranges: [usize; 2],
    /// Vectors of outputs, and the panels that they form.
    vectors: usize,
    panels: usize,
    /// Images of a part that are summed before the next tile, and rows of one.
    chunk: [usize; 2],
    /// Inputs and vectors of outputs of the largest tile.
    tile: [usize; 2],
    /// Lanes of a vector.
    lanes: usize,
}

impl Plan {
    fn new(conv: &Conv2d, x: Layout, dy: Layout, kernels: &Kernels) -> Plan {
        let (conv, x, dy) = flattened(conv, x, dy);
        let vectors = conv.outputs.div_ceil(kernels.width);
        let widest = kernels.grad.len();
        let nv = vectors.div_ceil(vectors.div_ceil(widest).max(1)).max(1);
        let tile = [kernels.grad[nv - 1].len(), nv];
        let parts = (PARTIALS_LEN / conv.weights().max(1)).clamp(1, TASKS.min(x.shape.n.max(1)));
        let panels = vectors.div_ceil(nv);
        let ranges = ranges(&conv, TASKS / parts, [conv.inputs.div_ceil(tile[0]), panels]);
        let image = x.shape.per_sample() / ranges[0] + dy.shape.per_sample() / ranges[1];
        let chunk_len = if is_pointwise(&conv) { POINTWISE_CHUNK_LEN } else { CHUNK_LEN };
        let images = (chunk_len / image.max(1)).max(1);
        let rows = (chunk_len * dy.shape.h).div_ceil(image.max(1)).clamp(1, dy.shape.h.max(1));
        Plan {
            conv,
            x,
            dy,
            parts,
            ranges,
            vectors,
            panels,
            chunk: [images, rows],
            tile,
            lanes: kernels.width,
        }
    }

    fn partials_len(&self) -> usize {
        if self.parts == 1 { 0 } else { self.parts * self.conv.weights() }
    }

    /// Elements for the packed inputs and the packed gradients of a chunk; nothing for what tiles read in place.
    ///
    /// Pixels of many channels lie so far apart that they share few sets of a cache, and a tile would wait for most of them. Tiles
    /// read whole vectors of gradients, so those of other lengths are packed too.
    fn packed_len(&self) -> [usize; 2] {
        let [images, rows] = self.chunk;
        let pixels = images.min(self.x.shape.n) * rows * self.dy.shape.w;
        let inputs = self.conv.inputs.div_ceil(self.ranges[0]);
        let many = self.conv.kernel == [1, 1] && inputs >= 4 * self.tile[0];
        let ragged = !self.conv.outputs.is_multiple_of(self.lanes);
        let len = |packs: bool, step: usize| if packs { pixels * step } else { 0 };
        let columns = self.panels.div_ceil(self.ranges[1]) * self.tile[1] * self.lanes;
        [len(many, self.input_step()), len(many || ragged, columns)]
    }

    /// Elements from one pixel's packed inputs to the next: an odd number of cache lines, so that pixels share few sets of a cache.
    fn input_step(&self) -> usize {
        let lines = self.conv.inputs.div_ceil(self.ranges[0]).div_ceil(BLOCK);
        (lines | 1) * BLOCK
    }

    /// Elements for the partial sums, and for what each thread packs.
    fn scratch_len(&self, threads: usize) -> usize {
        self.partials_len().next_multiple_of(BLOCK) + threads * self.packed_len().iter().sum::<usize>()
    }

    fn part(&self, index: usize) -> Range<usize> {
        portion(self.x.shape.n, self.parts, index)
    }
}

/// How many ranges of inputs and of panels make about so many tasks, at most one for each tile of inputs and panel. Those of a 1x1
/// convolution are nearly square, so that a task reads few numbers for its products.
fn ranges(conv: &Conv2d, tasks: usize, [tiles, panels]: [usize; 2]) -> [usize; 2] {
    let most = if is_pointwise(conv) { panels.min(tasks) } else { 1 };
    let of_panels = (0..usize::BITS).map(|k| 1 << k).take_while(|&n| n <= most);
    let both = of_panels.map(|n| [tasks.div_ceil(n).min(tiles.max(1)), n]);
    let read = |[inputs, outputs]: &[usize; 2]| conv.inputs / inputs + conv.outputs / outputs;
    both.min_by_key(read).unwrap_or([1; 2])
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
pub(super) fn scratch_len(conv: &Conv2d, x: Layout, dy: Layout, kernels: &Kernels, threads: usize) -> usize {
    Plan::new(conv, x, dy, kernels).scratch_len(threads)
}

/// `dw[tap, i, j] = sum over pixels p of x[p + tap, i] * dy[p, j]`
pub(super) fn run(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    if dw.is_empty() {
        return;
    }
    let kernels = Kernels::of(cpu.simd());
    let plan = Plan::new(conv, x.layout, dy.layout, kernels);
    let (len, packed_len) = (dw.len(), plan.packed_len());
    let worker_len = packed_len.iter().sum::<usize>();
    let mut scratch = cpu.scratch(plan.scratch_len(cpu.pool().count()));
    let (partials, workers) = scratch.split_at_mut(plan.partials_len().next_multiple_of(BLOCK));
    let workers = Shards::new(workers);
    let out = Shards::new(if plan.parts == 1 { &mut *dw } else { &mut *partials });
    let [of_inputs, of_panels] = plan.ranges;
    cpu.pool().run_on(plan.parts * of_inputs * of_panels, &|thread, task| {
        let (part, range) = (task / (of_inputs * of_panels), task % (of_inputs * of_panels));
        // SAFETY: a thread runs one task at a time; the address of the part's own sums.
        let (memory, out) = unsafe {
            (workers.part(thread * worker_len..(thread + 1) * worker_len), out.as_ptr().add(part * len))
        };
        let inputs = portion(plan.conv.inputs, of_inputs, range / of_panels);
        let panels = portion(plan.panels, of_panels, range % of_panels);
        let packed = memory.split_at_mut(packed_len[0]).into();
        Task { plan: &plan, kernels, x: x.data, dy: dy.data, inputs, panels, packed, out }
            .run(plan.part(part));
    });
    if plan.parts > 1 {
        add_up(cpu, &partials[..plan.parts * len], dw);
    }
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
            columns > 1 && self.ranges[0] == 1 && columns * self.conv.inputs <= self.tile[0].max(FEW_INPUTS);
        let few = few && self.conv.dilation[1] == 1;
        (few && self.x.is_contiguous() && !all.is_empty()).then_some(all)
    }
}

/// The sums over one part of the images, for one range of inputs and of panels.
struct Task<'a> {
    plan: &'a Plan,
    kernels: &'static Kernels,
    x: &'a [f32],
    dy: &'a [f32],
    inputs: Range<usize>,
    panels: Range<usize>,
    /// Memory for the inputs of a chunk, and for the gradients of its panels.
    packed: [&'a mut [f32]; 2],
    /// Room for all weights.
    out: *mut f32,
}

impl Task<'_> {
    fn run(&mut self, part: Range<usize>) {
        let Plan { dy, chunk: [images, rows], .. } = *self.plan;
        if part.is_empty() {
            // To set the sums.
            self.chunk(&part, 0..0, false);
        }
        for start in part.clone().step_by(images) {
            for row in (0..dy.shape.h).step_by(rows) {
                let add = start > part.start || row > 0;
                self.chunk(&(start..(start + images).min(part.end)), row..(row + rows).min(dy.shape.h), add);
            }
        }
    }

    fn chunk(&mut self, images: &Range<usize>, rows: Range<usize>, add: bool) {
        let plan = self.plan;
        let [ky, kx] = plan.conv.kernel;
        let inputs = self.inputs.clone();
        for tap in 0..ky * kx {
            let pixels = plan.pixels(tap % kx);
            let Some(merged) = plan.merged() else {
                self.tiles([images, &rows, &pixels], tap, &inputs, add);
                continue;
            };
            // The pixels under all columns of the kernel at once, then those at the edges.
            if tap % kx == 0 {
                self.tiles([images, &rows, &merged], tap, &(0..kx * plan.conv.inputs), add);
            }
            for edge in [pixels.start..merged.start, merged.end..pixels.end] {
                if !edge.is_empty() {
                    self.tiles([images, &rows, &edge], tap, &inputs, true);
                }
            }
        }
    }

    /// The sums over a box (images, rows and pixels) of outputs, for one tap and some inputs. Inputs past the last
    /// are the first ones of the pixel to the right, and of the next tap.
    fn tiles(
        &mut self,
        [images, rows, pixels]: [&Range<usize>; 3],
        tap: usize,
        inputs: &Range<usize>,
        add: bool,
    ) {
        let Plan { conv, x: xs, dy: ys, lanes, vectors, panels: panel_count, tile: [tile_inputs, _], .. } =
            self.plan;
        let ky = tap / conv.kernel[1] * conv.dilation[0];
        let kx = tap % conv.kernel[1] * conv.dilation[1];
        let under = inside(ys.shape.h, xs.shape.h, conv.stride[0], ky as isize - conv.pad.top as isize);
        let rows = under.start.max(rows.start)..under.end.min(rows.end);
        let none = images.is_empty() || rows.is_empty() || pixels.is_empty();
        let counts = if none { [0; 3] } else { [pixels.len(), rows.len(), images.len()] };
        let (mut a, mut b) = (0, 0);
        if !none {
            let iy = rows.start * conv.stride[0] + ky - conv.pad.top;
            let ix = pixels.start * conv.stride[1] + kx - conv.pad.left;
            a = xs.offset + ((images.start * xs.shape.h + iy) * xs.shape.w + ix) * xs.stride;
            b = ys.offset
                + ((images.start * ys.shape.h + rows.start) * ys.shape.w + pixels.start) * ys.stride;
        }
        let (x_row, y_row) = (xs.shape.w * xs.stride, ys.shape.w * ys.stride);
        let x_steps = [conv.stride[1] * xs.stride, conv.stride[0] * x_row, xs.shape.h * x_row];
        let y_steps = [ys.stride, y_row, ys.shape.h * y_row];
        debug_assert!((tap * conv.inputs + inputs.end) * conv.outputs <= conv.weights());
        let columns_of = |panels: Range<usize>| panels.start * lanes..(panels.end * lanes).min(conv.outputs);
        let panels = self.panels.clone().map(|panel| portion(*vectors, *panel_count, panel));
        let [first, last] =
            [self.panels.start, self.panels.end - 1].map(|panel| portion(*vectors, *panel_count, panel));
        let all = columns_of(first.start..last.end);
        // SAFETY: rows and pixels under the tap lie inside of both tensors.
        let mut x = unsafe { Pixels::new(self.x, a + inputs.start, x_steps, counts, inputs.len()) };
        // SAFETY: as above.
        let y = unsafe { Pixels::new(self.dy, b + all.start, y_steps, counts, all.len()) };
        let [packed_x, packed_y] = &mut self.packed;
        let (mut counts_of_tile, all_pixels) = (counts, counts.iter().product::<usize>());
        if !packed_x.is_empty() {
            let step = self.plan.input_step();
            x.pack(self.kernels, core::iter::once((0..inputs.len(), step)), packed_x);
            x = Pixels::dense(packed_x.as_ptr(), step, counts);
            // The gradients are packed too, and both are one long row.
            counts_of_tile = [all_pixels, 1, 1];
        }
        if !packed_y.is_empty() {
            let parts = panels.clone().map(|panel| {
                let of_panel = columns_of(panel.clone());
                (of_panel.start - all.start..of_panel.end - all.start, panel.len() * lanes)
            });
            y.pack(self.kernels, parts, packed_y);
        }
        let tiles = inputs.len().div_ceil(*tile_inputs);
        for panel in panels {
            let columns = columns_of(panel.clone());
            let before = columns.start - all.start;
            let y = match packed_y.is_empty() {
                true => Pixels { first: y.first.wrapping_add(before), ..y },
                false => {
                    let first = packed_y.as_ptr().wrapping_add(before * all_pixels);
                    Pixels::dense(first, panel.len() * lanes, counts)
                }
            };
            for t in 0..tiles {
                let range = portion(inputs.len(), tiles, t);
                let out = (tap * conv.inputs + inputs.start + range.start) * conv.outputs + columns.start;
                // SAFETY: the kernels fit the CPU; `Pixels` are inside of their memory, the weights of the tile inside of
                // `out`. No other task has this part, these inputs and these panels.
                unsafe {
                    self.kernels.grad[panel.len() - 1][range.len() - 1](&GradTile {
                        a: x.first.wrapping_add(range.start),
                        a_steps: x.steps,
                        b: y.first,
                        b_steps: y.steps,
                        counts: counts_of_tile,
                        out: self.out.add(out),
                        out_step: conv.outputs,
                        lanes: columns.len() - (panel.len() - 1) * lanes,
                        add,
                    });
                }
            }
        }
    }
}

/// Some channels of a box of pixels: elements from one pixel, row and image to the next, and how many there are.
#[derive(Clone, Copy)]
struct Pixels {
    first: *const f32,
    steps: [usize; 3],
    counts: [usize; 3],
}

impl Pixels {
    /// # Safety
    /// All of them are inside of `data`.
    unsafe fn new(data: &[f32], at: usize, steps: [usize; 3], counts: [usize; 3], channels: usize) -> Pixels {
        let last = || steps.iter().zip(counts).map(|(s, n)| s * (n - 1)).sum::<usize>();
        debug_assert!(counts[0] == 0 || at + last() + channels <= data.len());
        Pixels { first: data.as_ptr().wrapping_add(at), steps, counts }
    }

    /// Those that were packed, with so many elements from one pixel to the next.
    fn dense(first: *const f32, step: usize, counts: [usize; 3]) -> Pixels {
        Pixels { first, steps: [step, counts[0] * step, counts[1] * counts[0] * step], counts }
    }

    /// Copies panels of the channels to one place, one behind the other. Each has its channels, and so many elements from one
    /// pixel to the next: whole vectors.
    fn pack(
        &self,
        kernels: &Kernels,
        panels: impl Iterator<Item = (Range<usize>, usize)> + Clone,
        to: &mut [f32],
    ) {
        let [count, rows, images] = self.counts;
        let pixels = count * rows * images;
        for line in 0..images * rows {
            let src = self.first.wrapping_add(line / rows * self.steps[2] + line % rows * self.steps[1]);
            for start in (0..count).step_by(PIXELS_TOGETHER) {
                let mut panel_start = 0;
                for (channels, step) in panels.clone() {
                    let blocks = channels.len().div_ceil(BLOCK);
                    let dst =
                        &mut to[panel_start + (line * count + start) * step..panel_start + pixels * step];
                    let run = PackRun {
                        src: src.wrapping_add(start * self.steps[0] + channels.start),
                        src_step: self.steps[0],
                        ahead: PIXELS_TOGETHER * self.steps[0],
                        dst: dst.as_mut_ptr(),
                        dst_step: step,
                        block_len: BLOCK,
                        count: PIXELS_TOGETHER.min(count - start),
                        blocks,
                        last: channels.len() - (blocks - 1) * BLOCK,
                    };
                    assert!(channels.len().next_multiple_of(kernels.width) <= step);
                    // SAFETY: the kernels fit the processor. The pixels are there, by the contract of `new`, and so is room for
                    // whole vectors of them.
                    unsafe { (kernels.pack)(&run) }
                    panel_start += pixels * step;
                }
            }
        }
    }
}
