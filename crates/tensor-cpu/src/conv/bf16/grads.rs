use super::grid::Grid;
use super::tiles::{Aligned, DEPTH, Level, Product, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS, Tiles, halves};
use crate::Cpu;
use crate::conv::grads::{flattened, portion};
use crate::conv::problem::Axis;
use crate::threads::Shards;
use core::ops::Range;
use tensor_backend::{Conv2d, Layout, View};

/// At least so many tasks are wanted, and at most so many elements of partial sums.
const MIN_TASKS: usize = 16;
const PARTIALS_LEN: usize = 1 << 20;

/// At most so many bytes of both operands are multiplied before the next ones.
const CHUNK_BYTES: usize = 1 << 20;

/// How the gradient of the weights is cut up, by the shapes alone.
///
/// The images are cut into parts and a part into *chunks*, some images or some rows of one, each of which is laid out as a
/// line of pixels with their padding: those of the output's gradient transposed, with zeros in the padding, so that every tap
/// is one long sum; those of the input as pairs of neighbours, once from the even ones and once from the odd ones, since
/// a tap may begin at either. The former is done first, for all tasks. A task sums one part for a range of inputs and all
/// outputs and taps. Each part has its own sums, which are added in the order of the parts.
struct Plan {
    conv: Conv2d,
    x: Layout,
    dy: Layout,
    axes: [Axis; 2],
    parts: usize,
    /// Tiles of outputs and of inputs.
    outputs: usize,
    inputs: usize,
    /// Tiles of inputs in a range, an even number, and ranges.
    range: usize,
    ranges: usize,
    /// Images of a chunk and rows of one, and chunks of a part along both.
    size: [usize; 2],
    count: [usize; 2],
}

/// Where the pixels of a chunk go.
struct Line {
    grid: Grid,
    /// Pixels of all images, without what fills up the last step.
    pixels: usize,
    /// Steps of a sum.
    steps: usize,
    /// Pairings of neighbours that are needed: the one that begins with an even pixel, and the other one.
    pairings: usize,
}

impl Line {
    fn new(mut grid: Grid, images: usize, kernel: [usize; 2]) -> Line {
        let (pixels, furthest) = (images * grid.pixels(), grid.furthest(kernel));
        let steps = pixels.div_ceil(DEPTH);
        let (past, pairings) = if furthest > 0 { (furthest.next_multiple_of(2), 2) } else { (0, 1) };
        grid.phase_len = (steps * DEPTH + past) * SIDE;
        grid.block_len = grid.phases() * grid.phase_len;
        Line { grid, pixels, steps, pairings }
    }

    /// Elements of a tile of inputs in one phase and pairing, with what a tap reads past the end.
    fn len(&self) -> usize {
        self.grid.phase_len
    }

    /// Elements of a tile of inputs in all phases and pairings.
    fn x_len(&self) -> usize {
        self.pairings * self.grid.block_len
    }

    /// Elements of a tile of outputs.
    fn dy_len(&self) -> usize {
        self.steps * TILE_HALVES
    }
}

impl Plan {
    fn new(conv: &Conv2d, x: Layout, dy: Layout) -> Plan {
        let (conv, x, dy) = flattened(conv, x, dy);
        let [outputs, inputs] = [conv.outputs.div_ceil(SIDE), conv.inputs.div_ceil(SIDE)];
        let (pairs, taps) = (inputs.div_ceil(2), conv.kernel[0] * conv.kernel[1]);
        let parts = (PARTIALS_LEN / (taps * outputs * inputs * TILE_SUMS)).min(MIN_TASKS);
        let parts = parts.max(MIN_TASKS.div_ceil(pairs)).min(x.shape.n).max(1);
        let range = 2 * (pairs / MIN_TASKS.div_ceil(parts)).max(1);
        let axes = [
            Axis::forward(x.shape.h, dy.shape.h, conv.kernel[0], conv.stride[0], conv.pad.top),
            Axis::forward(x.shape.w, dy.shape.w, conv.kernel[1], conv.stride[1], conv.pad.left),
        ];
        let mut plan = Plan {
            conv,
            x,
            dy,
            axes,
            parts,
            outputs,
            inputs,
            range,
            ranges: inputs.div_ceil(range),
            size: [1; 2],
            count: [1; 2],
        };
        let bytes = |rows: usize| {
            let line = plan.line(1, &(0..rows));
            2 * (range.min(inputs) * line.x_len() + outputs * line.dy_len())
        };
        let most = [x.shape.n.div_ceil(parts), dy.shape.h];
        let rows = (1..=most[1]).rev().find(|&rows| bytes(rows) <= CHUNK_BYTES).unwrap_or(1);
        let images = if rows == most[1] { (CHUNK_BYTES / bytes(rows)).clamp(1, most[0]) } else { 1 };
        plan.size = [images, rows];
        plan.count = [most[0].div_ceil(images), most[1].div_ceil(rows)];
        plan
    }

    fn taps(&self) -> usize {
        self.conv.kernel[0] * self.conv.kernel[1]
    }

    /// Chunks of a part.
    fn chunks(&self) -> usize {
        self.count[0] * self.count[1]
    }

    /// The images and rows of a chunk; the last ones of a part may be empty.
    fn chunk(&self, part: usize, index: usize) -> [Range<usize>; 2] {
        let part = portion(self.x.shape.n, self.parts, part);
        let along = |range: Range<usize>, size: usize, index: usize| {
            let start = range.end.min(range.start + index * size);
            start..range.end.min(start + size)
        };
        [
            along(part, self.size[0], index / self.count[1]),
            along(0..self.dy.shape.h, self.size[1], index % self.count[1]),
        ]
    }

    fn line(&self, images: usize, rows: &Range<usize>) -> Line {
        let [y, x] = &self.axes;
        Line::new(Grid::new([y, x], images, rows, &(0..x.outputs), SIDE), images, self.conv.kernel)
    }

    /// The line of the largest chunks.
    fn longest(&self) -> Line {
        self.line(self.size[0], &(0..self.size[1]))
    }

    /// Elements of one part's sums: (tap, tile of outputs, tile of inputs, output, input).
    fn sums_len(&self) -> usize {
        self.taps() * self.outputs * self.inputs * TILE_SUMS
    }

    fn partials_len(&self) -> usize {
        self.parts * self.sums_len()
    }

    /// Elements of 32 bits for the gradient of the outputs, chunk by chunk.
    fn turned_len(&self) -> usize {
        self.parts * self.chunks() * self.outputs * self.longest().dy_len() / 2
    }

    /// Elements of 32 bits that a thread needs: for a range of inputs, or two tiles of outputs, on the way to their places, and
    /// the places of the inputs.
    fn worker_len(&self) -> usize {
        let line = self.longest();
        let inputs = self.range.min(self.inputs) * (line.grid.block_len + line.x_len()) + SIDE;
        inputs.max(2 * line.dy_len()).next_multiple_of(2 * SIDE) / 2
    }

    fn scratch_len(&self, threads: usize) -> usize {
        self.partials_len() + self.turned_len() + threads * self.worker_len()
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(in crate::conv) fn scratch_len(conv: &Conv2d, x: Layout, dy: Layout, threads: usize) -> usize {
    Plan::new(conv, x, dy).scratch_len(threads)
}

/// `dw[tap, i, j] = sum over pixels p of x[p + tap, i] * dy[p, j]`
pub(in crate::conv) fn run(
    cpu: &Cpu,
    level: Level,
    conv: &Conv2d,
    x: View<[f32]>,
    dy: View<[f32]>,
    dw: &mut [f32],
) {
    if x.layout.shape.n * dy.layout.shape.per_sample() == 0 {
        return dw.fill(0.0);
    }
    let (plan, tiles) = (Plan::new(conv, x.layout, dy.layout), level.tiles());
    let mut scratch = cpu.scratch(plan.scratch_len(cpu.threads()));
    let (partials, rest) = scratch.split_at_mut(plan.partials_len());
    let (turned, workers) = rest.split_at_mut(plan.turned_len());
    let (worker_len, workers) = (plan.worker_len(), Shards::new(workers));
    // SAFETY: a thread runs one task at a time.
    let memory = |thread: usize| unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };

    let (chunks, pairs) = (plan.parts * plan.chunks(), plan.outputs.div_ceil(2));
    let tile_len = plan.longest().dy_len() / 2;
    let places = Shards::new(turned);
    cpu.pool().run_on(chunks * pairs, &|thread, task| {
        let (chunk, pair) = (task / pairs, task % pairs);
        let tiles_of_pair = 2 * pair..(2 * pair + 2).min(plan.outputs);
        let at = |tile: usize| (chunk * plan.outputs + tile) * tile_len;
        // SAFETY: chunks and tiles do not overlap.
        let to = unsafe { places.part(at(tiles_of_pair.start)..at(tiles_of_pair.end)) };
        plan.turn(tiles, dy.data, chunk, tiles_of_pair, halves(memory(thread)), halves(to));
    });

    let (turned, sums) = (halves(turned), Shards::new(partials));
    cpu.pool().run_on(plan.parts * plan.ranges, &|thread, task| {
        let (part, range) = (task / plan.ranges, task % plan.ranges);
        let range = range * plan.range..((range + 1) * plan.range).min(plan.inputs);
        // SAFETY: the address of the part's own sums, of which other tasks write those of other inputs.
        let out = unsafe { sums.as_ptr().add(part * plan.sums_len()) };
        plan.task(tiles, x.data, turned, part, range, halves(memory(thread)), out);
    });
    add_up(cpu, tiles, &plan, partials, dw);
}

/// Adds the parts' sums, in the order of the parts, and puts them in the order of the weights.
fn add_up(cpu: &Cpu, tiles: &Tiles, plan: &Plan, partials: &[f32], dw: &mut [f32]) {
    let dw = Shards::new(dw);
    let [outputs, inputs] = [plan.conv.outputs, plan.conv.inputs];
    cpu.pool().run(plan.taps() * plan.inputs, &|task| {
        let (tap, tile) = (task / plan.inputs, task % plan.inputs);
        let rows = tile * SIDE..((tile + 1) * SIDE).min(inputs);
        let at = (tap * inputs + rows.start) * outputs;
        // SAFETY: taps and tiles of inputs do not overlap.
        let dw = unsafe { dw.part(at..at + rows.len() * outputs) };
        for column in 0..plan.outputs {
            let at = ((tap * plan.outputs + column) * plan.inputs + tile) * TILE_SUMS;
            let mut sums = Aligned([0.0f32; TILE_SUMS]);
            for part in partials.chunks_exact(plan.sums_len()) {
                let part = &part[at..at + TILE_SUMS];
                sums.0.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            let mut turned = Aligned([0.0f32; TILE_SUMS]);
            // SAFETY: the functions fit the processor; a sum is as long as a pair of numbers of 16 bits.
            unsafe { (tiles.turn)(sums.0.as_ptr().cast(), turned.0.as_mut_ptr().cast()) };
            let columns = SIDE.min(outputs - column * SIDE);
            for (dw, sums) in dw.chunks_exact_mut(outputs).zip(turned.0.chunks_exact(SIDE)) {
                dw[column * SIDE..][..columns].copy_from_slice(&sums[..columns]);
            }
        }
    });
}

impl Plan {
    /// Lays out two tiles of the outputs' gradient for a chunk, counted through all parts.
    fn turn(
        &self,
        tiles: &Tiles,
        dy: &[f32],
        chunk: usize,
        pair: Range<usize>,
        pixels: &mut [u16],
        to: &mut [u16],
    ) {
        let [images, rows] = self.chunk(chunk / self.chunks(), chunk % self.chunks());
        if images.is_empty() || rows.is_empty() {
            return;
        }
        let line = self.line(images.len(), &rows);
        let (width, each) = (line.grid.width(), line.grid.pixels() * SIDE);
        let along = |size: usize| Axis { size, ..ONE };
        let [y, x] = [rows.len(), self.dy.shape.w].map(along);
        let mut flat = Grid::new([&y, &x], 1, &(0..line.grid.pixels() / width), &(0..width), SIDE);
        flat.block_len = line.dy_len();
        let pixels = &mut pixels[..pair.len() * line.dy_len()];
        for tile in pixels.chunks_exact_mut(line.dy_len()) {
            tile[line.pixels * SIDE..].fill(0);
        }
        let channels = pair.start * SIDE..(pair.end * SIDE).min(self.conv.outputs);
        for (i, image) in images.enumerate() {
            let from =
                self.dy.samples(image..image + 1).offset + rows.start * self.dy.shape.w * self.dy.stride;
            flat.fill(tiles, dy, self.dy, from, &channels, &mut pixels[i * each..]);
        }
        // The tiles of a short chunk are as far apart as those of the others.
        let apart = to.len() / pair.len();
        let mut pairs = Aligned([0u16; TILE_HALVES]);
        for (pixels, to) in pixels.chunks_exact(line.dy_len()).zip(to.chunks_exact_mut(apart)) {
            for (pixels, to) in pixels.chunks_exact(TILE_HALVES).zip(to.chunks_exact_mut(TILE_HALVES)) {
                // SAFETY: the functions fit the processor; all three are tiles.
                unsafe {
                    (tiles.weave)(pixels.as_ptr(), pairs.0.as_mut_ptr(), SIDE);
                    (tiles.turn)(pairs.0.as_ptr(), to.as_mut_ptr());
                }
            }
        }
    }

    /// Sums one part for some tiles of inputs, to `out`, which has room for a part's sums.
    fn task(
        &self,
        tiles: &Tiles,
        x: &[f32],
        turned: &[u16],
        part: usize,
        range: Range<usize>,
        memory: &mut [u16],
        out: *mut f32,
    ) {
        let apart = self.longest().dy_len();
        for chunk in 0..self.chunks() {
            let [images, rows] = self.chunk(part, chunk);
            if images.is_empty() || rows.is_empty() {
                continue;
            }
            let line = self.line(images.len(), &rows);
            let (pairs, pixels) = memory.split_at_mut(range.len() * line.x_len());
            self.pair(tiles, x, &line, images, &range, pixels, pairs);
            let turned = &turned[(part * self.chunks() + chunk) * self.outputs * apart..];
            self.multiply(tiles, &line, &range, turned, apart, pairs, chunk > 0, out);
        }
    }

    /// Lays out some tiles of inputs for a chunk: (tile, phase, pairing, pair of pixels, input, pixel).
    fn pair(
        &self,
        tiles: &Tiles,
        x: &[f32],
        line: &Line,
        images: Range<usize>,
        range: &Range<usize>,
        pixels: &mut [u16],
        to: &mut [u16],
    ) {
        // All channels of a pixel at once, since they lie together in memory; tile by tile then.
        let each = line.grid.pixels() * SIDE;
        let (grid, len) = (&line.grid, line.len());
        for phase in pixels.chunks_exact_mut(len).take(range.len() * grid.phases()) {
            phase[line.pixels * SIDE..].fill(0);
        }
        let channels = range.start * SIDE..(range.end * SIDE).min(self.conv.inputs);
        for (i, image) in images.enumerate() {
            let from = self.x.samples(image..image + 1).offset;
            grid.fill(tiles, x, self.x, from, &channels, &mut pixels[i * each..]);
        }
        for (at, to) in to.chunks_exact_mut(len).enumerate() {
            let (phase, pairing) = (at / line.pairings, at % line.pairings);
            let from = &pixels[phase * len + pairing * SIDE..][..len];
            // SAFETY: the functions fit the processor; both runs are that long.
            unsafe { (tiles.weave)(from.as_ptr(), to.as_mut_ptr(), len / DEPTH) };
        }
    }

    /// Multiplies both operands of a chunk.
    fn multiply(
        &self,
        tiles: &Tiles,
        line: &Line,
        range: &Range<usize>,
        turned: &[u16],
        apart: usize,
        pairs: &[u16],
        add: bool,
        out: *mut f32,
    ) {
        // SAFETY: the functions fit the processor.
        unsafe { (tiles.begin)() };
        let blocks = (0..range.len())
            .step_by(2)
            .flat_map(|input| (0..self.outputs).step_by(2).map(move |output| (input, output)));
        for (input, output) in blocks {
            let (high, wide) = (2.min(self.outputs - output), 2.min(range.len() - input));
            for tap in 0..self.taps() {
                let [ky, kx] = [tap / self.conv.kernel[1], tap % self.conv.kernel[1]];
                let [phase, shift] = line.grid.place([ky, kx]);
                let from = shift / 2 * DEPTH;
                debug_assert!(from + line.dy_len() <= line.len());
                let b = input * line.x_len() + (phase * line.pairings + shift % 2) * line.len() + from;
                let at = ((tap * self.outputs + output) * self.inputs + range.start + input) * TILE_SUMS;
                let product = Product {
                    a: turned[output * apart..].as_ptr(),
                    a_half: 2 * apart,
                    a_step: TILE_BYTES,
                    b: pairs[b..].as_ptr(),
                    b_half: 2 * line.x_len(),
                    b_step: TILE_BYTES,
                    taps: &raw const START,
                    tap_count: 1,
                    steps: line.steps,
                    // SAFETY: inside of the part's sums.
                    out: unsafe { out.add(at) },
                    out_half: self.inputs * TILE_BYTES,
                    add: usize::from(add),
                };
                // SAFETY: the functions fit the processor; the operands have room for what the steps read, and no other task has
                // these inputs of this part.
                unsafe { (tiles.product[high - 1][wide - 1])(&product) };
            }
        }
        // SAFETY: as above; no product follows.
        unsafe { (tiles.end)() };
    }
}

/// Where the steps of a product's only tap begin.
static START: usize = 0;

/// A pixel under a kernel of one element.
const ONE: Axis =
    Axis { size: 1, outputs: 1, step: 1, taps: 1, first: 0, down: false, w_first: 0, w_step: 1 };
