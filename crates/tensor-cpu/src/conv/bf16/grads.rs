use super::grid::Grid;
use super::level;
use super::patch::Patch;
use super::tile::{Aligned, DEPTH, ROW_BYTES, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS, halves};
use super::tiles::{Pairs, Product, Tiles, Walk};
use crate::Cpu;
use crate::conv::grads::{flattened, portion};
use crate::conv::problem::Axis;
use crate::element::Bf16;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Conv2d, Layout, View};

/// At least so many tasks are wanted, and at most so many elements of partial sums.
const MIN_TASKS: usize = 16;
const PARTIALS_LEN: usize = 1 << 19;

/// At most so many bytes of both operands are multiplied before the next ones.
const CHUNK_BYTES: usize = 1 << 20;

/// How the gradient of the weights is cut up, by the shapes alone.
///
/// The images are cut into parts and a part into *chunks*, some images or some rows of one. Each chunk is
/// laid out as a line of pixels with their padding. The output's gradient is transposed, with zeros in the
/// padding, so that every tap is one long sum. The input is stored as pairs of neighbours, once from the even
/// ones and once from the odd ones, since a tap may begin at either. The former is done first, for all tasks.
/// A task sums one part for a range of inputs and all outputs and taps. Each part has its own sums, which are
/// added in the order of the parts.
struct Plan {
    conv: Conv2d,
    x: Layout,
    dy: Layout,
    axes: [Axis; 2],
    /// Whether the inputs are those of patches.
    patch: Option<Patch>,
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
    /// Steps of a sum.
    steps: usize,
    /// Pairings of neighbours that are needed: the one that begins with an even pixel, and the other one.
    pairings: usize,
}

impl Line {
    fn new(mut grid: Grid, images: usize, axes: [&Axis; 2]) -> Line {
        let (steps, furthest) = ((images * grid.pixels()).div_ceil(DEPTH), grid.furthest(axes));
        let (past, pairings) = if furthest > 0 { (furthest.next_multiple_of(2), 2) } else { (0, 1) };
        grid.phase_len = (steps * DEPTH + past) * SIDE;
        grid.block_len = grid.phases() * grid.phase_len;
        Line { grid, steps, pairings }
    }

    /// Elements of a tile of inputs in one phase and pairing, with those that a tap reads past the end.
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
        let (mut conv, x, dy) = flattened(conv, x, dy);
        let mut axes = [Axis::of(&conv, 0, x.shape.h, dy.shape.h), Axis::of(&conv, 1, x.shape.w, dy.shape.w)];
        let patch = Patch::of(axes.each_ref(), conv.inputs, x);
        if let Some(patch) = patch {
            (axes, conv.inputs, conv.kernel) = (patch.axes(), patch.len(), [1, 1]);
        }
        let [outputs, inputs] = [conv.outputs.div_ceil(SIDE), conv.inputs.div_ceil(SIDE)];
        let (pairs, taps) = (inputs.div_ceil(2), conv.kernel[0] * conv.kernel[1]);
        let parts = (PARTIALS_LEN / (taps * outputs * inputs * TILE_SUMS)).min(MIN_TASKS);
        let parts = parts.max(MIN_TASKS.div_ceil(pairs)).min(x.shape.n).max(1);
        let range = 2 * (pairs / MIN_TASKS.div_ceil(parts)).max(1);
        let mut plan = Plan {
            conv,
            x,
            dy,
            axes,
            patch,
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
        Line::new(Grid::new([y, x], images, rows, &(0..x.outputs), SIDE), images, [y, x])
    }

    /// At least as long as the lines of all chunks.
    fn longest(&self) -> Line {
        let ([y, x], [images, rows]) = (&self.axes, self.size);
        Line::new(Grid::largest([y, x], images, rows, x.outputs, SIDE), images, [y, x])
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

    /// Elements of 32 bits that a thread needs for a range of inputs.
    fn worker_len(&self) -> usize {
        (self.range.min(self.inputs) * self.longest().x_len()).next_multiple_of(2 * SIDE) / 2
    }

    fn scratch_len(&self, threads: usize) -> usize {
        self.partials_len() + self.turned_len() + threads * self.worker_len()
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch_len(conv: &Conv2d, x: Layout, dy: Layout, threads: usize) -> usize {
    if conv.weights() == 0 { 0 } else { Plan::new(conv, x, dy).scratch_len(threads) }
}

/// `dw[tap, i, j] = sum over pixels p of x[p + tap, i] * dy[p, j]`
pub(super) fn run(cpu: &Cpu, conv: &Conv2d, x: View<[Bf16]>, dy: View<[Bf16]>, dw: &mut [f32]) {
    if dw.is_empty() || x.layout.shape.n * dy.layout.shape.per_sample() == 0 {
        return dw.fill(0.0);
    }
    let (plan, tiles) = (Plan::new(conv, x.layout, dy.layout), level::tiles(cpu.bf16()));
    let mut scratch = cpu.scratch(plan.scratch_len(cpu.pool().count()));
    let (partials, rest) = scratch.split_at_mut(plan.partials_len());
    let (turned, workers) = rest.split_at_mut(plan.turned_len());
    let (worker_len, workers) = (plan.worker_len(), Shards::new(workers));
    // SAFETY: a thread runs one task at a time.
    let memory = |thread: usize| unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };

    let (chunks, pairs) = (plan.parts * plan.chunks(), plan.outputs.div_ceil(2));
    let tile_len = plan.longest().dy_len() / 2;
    let places = Shards::new(turned);
    cpu.pool().run(chunks * pairs, &|task| {
        let (chunk, pair) = (task / pairs, task % pairs);
        let tiles_of_pair = 2 * pair..(2 * pair + 2).min(plan.outputs);
        let at = |tile: usize| (chunk * plan.outputs + tile) * tile_len;
        // SAFETY: chunks and tiles do not overlap.
        let to = unsafe { places.part(at(tiles_of_pair.start)..at(tiles_of_pair.end)) };
        plan.turn(tiles, dy.data, chunk, tiles_of_pair, halves(to));
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
    fn turn(&self, tiles: &Tiles, dy: &[Bf16], chunk: usize, pair: Range<usize>, to: &mut [u16]) {
        let [images, rows] = self.chunk(chunk / self.chunks(), chunk % self.chunks());
        if images.is_empty() || rows.is_empty() {
            return;
        }
        let line = self.line(images.len(), &rows);
        let along = |size: usize| Axis { size, ..ONE };
        let [y, x] = [rows.len(), self.dy.shape.w].map(along);
        let width = line.grid.width();
        let flat = Grid::new([&y, &x], 1, &(0..line.grid.pixels() / width), &(0..width), SIDE);
        let channels = pair.start * SIDE..(pair.end * SIDE).min(self.conv.outputs);
        let mut layout = self.dy.samples(images);
        layout.offset += rows.start * self.dy.shape.w * self.dy.stride;
        // The tiles of a short chunk are as far apart as those of the others.
        let tile_len = to.len() / pair.len();
        let walk = flat.walk(None, 0, View::new(dy, layout), &channels);
        assert!(line.dy_len() <= tile_len, "a chunk is longer than the longest");
        // SAFETY: the functions fit the processor; both tiles have room for the line.
        unsafe { (tiles.columns)(&Walk { len: line.steps * DEPTH, ..walk }, to.as_mut_ptr(), tile_len) };
    }

    /// Sums one part for some tiles of inputs, to `out`, which has room for a part's sums.
    fn task(
        &self,
        tiles: &Tiles,
        x: &[Bf16],
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
            let pairs = &mut memory[..range.len() * line.x_len()];
            self.pair(tiles, View::new(x, self.x.samples(images)), &line, &range, pairs);
            let turned = &turned[(part * self.chunks() + chunk) * self.outputs * apart..];
            self.multiply(tiles, &line, &range, turned, apart, pairs, chunk > 0, out);
        }
    }

    /// Lays out some tiles of inputs for a chunk's images: (tile, phase, pairing, pair of pixels, input, pixel).
    fn pair(&self, tiles: &Tiles, x: View<[Bf16]>, line: &Line, range: &Range<usize>, to: &mut [u16]) {
        for (tile, to) in range.clone().step_by(2).zip(to.chunks_mut(2 * line.x_len())) {
            let channels = tile * SIDE..((tile + 2).min(range.end) * SIDE).min(self.conv.inputs);
            for phase in 0..line.grid.phases() {
                let to = &mut to[phase * line.pairings * line.len()..];
                let walk = line.grid.walk(self.patch, phase, x, &channels);
                let pairs = Pairs {
                    dst: to.as_mut_ptr(),
                    tile_len: line.x_len(),
                    pairings: line.pairings,
                    pairing_len: line.len(),
                };
                debug_assert!(
                    (channels.len() - 1) / SIDE * line.x_len() + line.pairings * line.len() <= to.len()
                );
                // SAFETY: the functions fit the processor; both tiles have room for both pairings.
                unsafe { (tiles.pair)(&Walk { len: line.len() / SIDE, ..walk }, &pairs) };
            }
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
                let [y, x] = &self.axes;
                let [phase, shift] = line.grid.place([y.rise(ky), x.rise(kx)]);
                let from = shift / 2 * DEPTH;
                debug_assert!(from + line.dy_len() <= line.len());
                let b = input * line.x_len() + (phase * line.pairings + shift % 2) * line.len() + from;
                let at = ((tap * self.outputs + output) * self.inputs + range.start + input) * TILE_SUMS;
                let product = Product {
                    a: turned[output * apart..].as_ptr(),
                    a_row: ROW_BYTES,
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
                // SAFETY: the functions fit the CPU; the operands have room for all reads, and no other task
                // has these inputs of this part.
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
    Axis { size: 1, outputs: 1, step: 1, taps: 1, dilation: 1, first: 0, down: false, w_first: 0, w_step: 1 };
