use super::grid::Grid;
use super::level;
use super::patch::Patch;
use super::tile::{Aligned, DEPTH, SIDE, TILE_BYTES, TILE_HALVES, TILE_SUMS, bits, halves, offsets};
use super::tiles::{FinishRun, Narrow, Product, Tiles};
use crate::Cpu;
use crate::conv::cut::{Cut, Segment};
use crate::conv::problem::Problem;
use crate::conv::sums::Finish;
use crate::element::Bf16;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::View;

/// At least so many tasks are wanted, and at most so many bytes of a task's source.
const MIN_TASKS: usize = 16;
const SOURCE_BYTES: usize = 320 << 10;

/// Columns of a panel: two tiles.
const PANEL: usize = 2 * SIDE;

/// How a [`Problem`] is cut up, by its shapes alone.
///
/// A *segment* is some images, or rows of one, or pixels of one row; a *group* some panels of columns. A task
/// is one segment and one group: it lays out the segment's inputs, then multiplies them with each panel.
struct Plan {
    /// Blocks of channels.
    blocks: usize,
    cut: Cut,
}

impl Plan {
    fn new(p: &Problem) -> Plan {
        let (blocks, panels) = (p.channels.div_ceil(DEPTH), p.columns.div_ceil(PANEL).max(1));
        let [rows, pixels] = [p.y.outputs, p.x.outputs];
        let bytes = |rows: usize, pixels: usize| blocks * DEPTH * 2 * p.y.extent(rows) * p.x.extent(pixels);
        let all = p.images * rows * pixels;
        let target = all.div_ceil(MIN_TASKS).max(PANEL);
        let of_row = target.min(SOURCE_BYTES / bytes(1, 1)).max(1).next_multiple_of(PANEL);
        let size = if rows == 1 && pixels > of_row {
            [1, 1, of_row]
        } else {
            let fits = |rows: &usize| rows * pixels <= target && bytes(*rows, pixels) <= SOURCE_BYTES;
            let fitting = (1..=rows).rev().find(fits).unwrap_or(1);
            let images = (target / (rows * pixels).max(1)).min(SOURCE_BYTES / bytes(rows, pixels).max(1));
            if fitting == rows { [images.max(1), rows, pixels] } else { [1, fitting, pixels] }
        };
        Plan { blocks, cut: Cut::new(p, size, panels, MIN_TASKS) }
    }

    /// The columns of a panel.
    fn panel(&self, p: &Problem, index: usize) -> Range<usize> {
        index * PANEL..((index + 1) * PANEL).min(p.columns)
    }

    /// Where a panel's rounded weights lie, in numbers of 16 bits.
    fn weights(&self, p: &Problem, panel: usize) -> Range<usize> {
        let of = |columns: usize| p.taps() * self.blocks * columns * TILE_HALVES;
        let columns = self.panel(p, panel);
        of(columns.start / SIDE)..of(columns.end.div_ceil(SIDE))
    }

    /// Numbers of 32 bits with room for all rounded weights, and for a thread's source: tiles may read past its end.
    fn weights_len(&self, p: &Problem) -> usize {
        p.taps() * self.blocks * p.columns.div_ceil(SIDE) * TILE_HALVES / 2
    }

    fn source_len(&self, p: &Problem) -> usize {
        let [images, rows, pixels] = self.cut.size;
        let grid = Grid::largest([&p.y, &p.x], images.min(p.images), rows, pixels, DEPTH);
        self.len_of(p, &grid).next_multiple_of(2 * SIDE) / 2
    }

    /// The place of a segment's source, and its elements, with the zeros after it and the elements that a
    /// tile reads past its last pixel.
    fn source(&self, p: &Problem, segment: &Segment) -> (Grid, usize) {
        let Segment { images, rows, pixels } = segment;
        let grid = Grid::new([&p.y, &p.x], images.len(), rows, pixels, DEPTH);
        (grid, self.len_of(p, &grid))
    }

    fn len_of(&self, p: &Problem, grid: &Grid) -> usize {
        self.blocks * grid.block_len + self.past(p, grid) * DEPTH
    }

    /// Pixels that a tile may read behind a segment's last one.
    fn past(&self, p: &Problem, grid: &Grid) -> usize {
        grid.furthest([&p.y, &p.x]) + SIDE
    }

    /// Numbers of 32 bits with room for where each tap begins.
    fn taps_len(&self, p: &Problem) -> usize {
        (p.taps() * size_of::<usize>() / size_of::<f32>()).next_multiple_of(SIDE)
    }

    fn worker_len(&self, p: &Problem) -> usize {
        self.source_len(p) + self.taps_len(p)
    }

    fn scratch_len(&self, p: &Problem, threads: usize) -> usize {
        self.weights_len(p) + threads * self.worker_len(p)
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch_len(p: &Problem, threads: usize) -> usize {
    if !p.has_outputs() || !p.has_products() {
        return 0;
    }
    let (p, _) = patched(p);
    Plan::new(&p).scratch_len(&p, threads)
}

/// Computes all outputs of the problem.
pub(super) fn run(cpu: &Cpu, p: &Problem, source: &[Bf16], w: &[f32], finish: Finish, out: &mut [Bf16]) {
    if !p.has_outputs() {
        return;
    }
    let tiles = level::tiles(cpu.bf16());
    if !p.has_products() {
        return finish_zeros(tiles, p, finish, out);
    }
    let (p, patch) = &patched(p);
    let plan = Plan::new(p);
    let mut scratch = cpu.scratch(plan.scratch_len(p, cpu.pool().count()));
    let (weights, workers) = scratch.split_at_mut(plan.weights_len(p));
    {
        let weights = Shards::new(weights);
        cpu.pool().run(p.taps() * plan.cut.panels, &|task| {
            let (panel, tap) = (task / p.taps(), task % p.taps());
            let range = plan.weights(p, panel);
            let len = range.len() / p.taps();
            let at = range.start + tap * len;
            // SAFETY: panels and taps do not overlap.
            let to = unsafe { weights.part(at / 2..(at + len) / 2) };
            pack_weights(tiles, p, &plan.panel(p, panel), &w[p.weights(tap)..], halves(to));
        });
    }
    let (worker_len, workers) = (plan.worker_len(p), Shards::new(workers));
    let job = Job {
        p,
        patch: *patch,
        plan: &plan,
        tiles,
        source,
        weights: halves(weights),
        finish,
        out: Shards::new(out),
    };
    cpu.pool().run_on(plan.cut.tasks(), &|thread, task| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };
        let (source, taps) = memory.split_at_mut(plan.source_len(p));
        job.task(task, halves(source), &mut offsets(taps)[..p.taps()]);
    });
}

/// The same sums over a source that is laid out in patches.
fn patched(p: &Problem) -> (Problem, Option<Patch>) {
    let patch = Patch::of([&p.y, &p.x], p.channels, p.source);
    let patched = patch.map(|patch| {
        let [y, x] = patch.axes();
        Problem { channels: patch.len(), y, x, kernel_width: 1, ..*p }
    });
    (patched.unwrap_or(*p), patch)
}

/// What becomes of outputs that are sums of nothing.
fn finish_zeros(tiles: &Tiles, p: &Problem, finish: Finish, out: &mut [Bf16]) {
    let zeros = Aligned([0.0f32; 2 * TILE_SUMS]);
    for (image, row) in (0..p.images).flat_map(|image| (0..p.y.outputs).map(move |row| (image, row))) {
        for (pixel, column) in
            (0..p.x.outputs).flat_map(|pixel| (0..p.columns).step_by(PANEL).map(move |c| (pixel, c)))
        {
            let columns = column..(column + PANEL).min(p.columns);
            let y = p.out.offset + image * p.out.image + row * p.out.row + pixel * p.out.pixel + column;
            let y = &mut out[y..y + columns.len()];
            let run = FinishRun {
                sums: zeros.0.as_ptr(),
                count: 1,
                ..finish_run(p, &finish, &columns, y.as_mut_ptr())
            };
            // SAFETY: the functions fit the processor; two tiles of sums, and as many outputs as columns.
            unsafe { (tiles.finish)(&run) };
        }
    }
}

/// What is done to no sums yet, on the way to outputs of these columns.
fn finish_run(p: &Problem, finish: &Finish, columns: &Range<usize>, y: *mut Bf16) -> FinishRun {
    let of = |run: &[f32]| run[columns.clone()].as_ptr();
    FinishRun {
        sums: core::ptr::null(),
        count: 0,
        y,
        y_step: p.out.pixel,
        columns: columns.len(),
        bias: finish.bias.map_or(core::ptr::null(), of),
        affine: finish.affine.map_or([core::ptr::null(); 2], |runs| runs.map(of)),
        add: finish.add,
        relu: finish.relu,
    }
}

/// Rounds the weights `w` of one tap and some columns: (block of channels, tile of columns, pair of channels, column, channel).
fn pack_weights(tiles: &Tiles, p: &Problem, columns: &Range<usize>, w: &[f32], to: &mut [u16]) {
    let mut rows = Aligned([0u16; TILE_HALVES]);
    let mut to = to.chunks_exact_mut(TILE_HALVES);
    for channel in (0..p.channels).step_by(DEPTH) {
        let channels = DEPTH.min(p.channels - channel);
        for column in columns.clone().step_by(SIDE) {
            let count = SIDE.min(columns.end - column);
            let Some(to) = to.next() else { return };
            if channels < DEPTH || count < SIDE {
                rows.0.fill(0);
            }
            // The rows of memory are those of columns, or of channels.
            let (at, src_step, row) = if p.transposed {
                (column * p.channels + channel, p.channels, DEPTH)
            } else {
                (channel * p.columns + column, p.columns, SIDE)
            };
            let [count, len] = if p.transposed { [count, channels] } else { [channels, count] };
            let (src, dst) = (w[at..].as_ptr(), rows.0.as_mut_ptr());
            let run = Narrow { src, src_step, dst, count, len, row };
            // SAFETY: the functions fit the processor; the weights of these channels and columns, and whole tiles.
            unsafe {
                (tiles.narrow)(&run);
                if p.transposed {
                    (tiles.turn)(rows.0.as_ptr(), to.as_mut_ptr());
                } else {
                    (tiles.weave)(rows.0.as_ptr(), to.as_mut_ptr());
                }
            }
        }
    }
}

struct Job<'a> {
    p: &'a Problem,
    patch: Option<Patch>,
    plan: &'a Plan,
    tiles: &'static Tiles,
    source: &'a [Bf16],
    weights: &'a [u16],
    finish: Finish<'a>,
    out: Shards<'a, Bf16>,
}

/// What a segment reads: numbers, and elements from one pixel and block of channels to the next.
struct Source<'a> {
    numbers: &'a [u16],
    pixel: usize,
    block: usize,
}

/// The tiles of a segment: 16 neighbours each in a phase of the grid, cut from runs of a row of outputs, of an image or of
/// all, as makes the fewest.
struct Tiling {
    /// Images, rows of one and outputs of a row; pixels from one image and row to the next.
    counts: [usize; 3],
    image: usize,
    width: usize,
    /// Images and rows that are apart, pixels of a run and its tiles.
    runs: [usize; 2],
    len: usize,
    of_run: usize,
}

impl Tiling {
    fn new(grid: &Grid, segment: &Segment) -> Tiling {
        let counts = [segment.images.len(), segment.rows.len(), segment.pixels.len()];
        let ([images, rows, outputs], image, width) = (counts, grid.pixels(), grid.width());
        let of_image = (rows - 1) * width + outputs;
        let cuts =
            [([images, rows], outputs), ([images, 1], of_image), ([1, 1], (images - 1) * image + of_image)];
        let tiles = |&([images, rows], len): &([usize; 2], usize)| images * rows * len.div_ceil(SIDE);
        let (runs, len) = cuts.into_iter().min_by_key(tiles).unwrap_or(cuts[0]);
        Tiling { counts, image, width, runs, len, of_run: len.div_ceil(SIDE) }
    }

    fn count(&self) -> usize {
        self.runs[0] * self.runs[1] * self.of_run
    }

    /// The pixels of a tile, counted in a phase of the grid.
    fn pixels(&self, tile: usize) -> Range<usize> {
        let (run, within) = (tile / self.of_run, tile % self.of_run);
        let first = run / self.runs[1] * self.image + run % self.runs[1] * self.width;
        let start = first + within * SIDE;
        start..(start + SIDE).min(first + self.len)
    }
}

impl Job<'_> {
    /// One segment and one group of panels.
    fn task(&self, task: usize, memory: &mut [u16], taps: &mut [usize]) {
        let (p, plan) = (self.p, self.plan);
        let (segment, group) = plan.cut.task(p, task);
        let (grid, len) = plan.source(p, &segment);
        let source = self.in_place(&segment, &grid).unwrap_or_else(|| {
            let numbers = &mut memory[..len];
            self.lay_out(&segment, &grid, numbers);
            Source { numbers, pixel: DEPTH, block: grid.block_len }
        });
        for (tap, at) in taps.iter_mut().enumerate() {
            let [phase, pixels] = grid.place([p.y.rise(tap / p.x.taps), p.x.rise(tap % p.x.taps)]);
            *at = 2 * (phase * grid.phase_len + pixels * source.pixel);
        }
        let tiling = Tiling::new(&grid, &segment);
        // SAFETY: the functions fit the processor.
        unsafe { (self.tiles.begin)() };
        for panel in group {
            self.panel(&segment, &source, &tiling, taps, panel);
        }
        // SAFETY: as above; no product follows.
        unsafe { (self.tiles.end)() };
    }

    /// The images that a segment reads.
    fn images(&self, segment: &Segment) -> View<'_, [Bf16]> {
        View::new(self.source, self.p.source.samples(segment.images.clone()))
    }

    /// What a segment reads, where it lies: with whole blocks of channels, and no padding.
    fn in_place(&self, segment: &Segment, grid: &Grid) -> Option<Source<'_>> {
        let p = self.p;
        if self.patch.is_some() || !p.channels.is_multiple_of(DEPTH) {
            return None;
        }
        let first = grid.in_place(self.images(segment), self.plan.past(p, grid))?;
        Some(Source { numbers: &bits(self.source)[first..], pixel: p.source.stride, block: DEPTH })
    }

    /// Lays out the inputs of a segment: (block of channels, phase, pixel, channel).
    fn lay_out(&self, segment: &Segment, grid: &Grid, to: &mut [u16]) {
        let (p, blocks) = (self.p, self.plan.blocks);
        for (block, phase) in
            (0..blocks).flat_map(|block| (0..grid.phases()).map(move |phase| (block, phase)))
        {
            let channels = block * DEPTH..((block + 1) * DEPTH).min(p.channels);
            let to = &mut to[block * grid.block_len + phase * grid.phase_len..][..grid.phase_len];
            let walk = grid.walk(self.patch, phase, self.images(segment), &channels);
            // SAFETY: the functions fit the processor; the phase has room for every pixel.
            unsafe { (self.tiles.spread)(&walk, to.as_mut_ptr()) };
        }
        // Zeros behind the last image, as behind every other.
        to[blocks * grid.block_len..].fill(0);
    }

    /// All outputs of a segment in one panel, two tiles at a time.
    fn panel(&self, segment: &Segment, source: &Source, tiling: &Tiling, taps: &[usize], panel: usize) {
        let (p, blocks) = (self.p, self.plan.blocks);
        let columns = self.plan.panel(p, panel);
        let wide = columns.len().div_ceil(SIDE);
        let weights = &self.weights[self.plan.weights(p, panel)];
        let mut sums = Aligned([0.0f32; 4 * TILE_SUMS]);
        for tile in (0..tiling.count()).step_by(2) {
            let high = 2.min(tiling.count() - tile);
            let at = [tile, tile + high - 1].map(|tile| tiling.pixels(tile).start * source.pixel);
            let product = Product {
                a: source.numbers[at[0]..].as_ptr(),
                a_row: 2 * source.pixel,
                a_half: 2 * (at[1] - at[0]),
                a_step: 2 * source.block,
                b: weights.as_ptr(),
                b_half: TILE_BYTES,
                b_step: wide * TILE_BYTES,
                taps: taps.as_ptr(),
                tap_count: taps.len(),
                steps: blocks,
                out: sums.0.as_mut_ptr(),
                out_half: 2 * TILE_BYTES,
                add: 0,
            };
            // SAFETY: the functions fit the CPU; the source has room for a tile's reads past the last pixel,
            // and the panel has weights for every tap and block.
            unsafe { (self.tiles.product[high - 1][wide - 1])(&product) };
            for (half, sums) in sums.0.chunks_exact(2 * TILE_SUMS).take(high).enumerate() {
                self.finish(segment, tiling, tiling.pixels(tile + half), &columns, sums);
            }
        }
    }

    /// Stores those sums of a tile that are outputs.
    fn finish(
        &self,
        segment: &Segment,
        tiling: &Tiling,
        pixels: Range<usize>,
        columns: &Range<usize>,
        sums: &[f32],
    ) {
        let p = self.p;
        let mut run = finish_run(p, &self.finish, columns, self.out.as_ptr());
        let [images, rows, outputs] = tiling.counts;
        let mut pixel = pixels.start;
        while pixel < pixels.end {
            let (image, within) = (pixel / tiling.image, pixel % tiling.image);
            let (row, column) = (within / tiling.width, within % tiling.width);
            let next = pixels.end.min(pixel - column + tiling.width);
            let exists = image < images && row < rows;
            run.count = if exists { (next - pixel).min(outputs.saturating_sub(column)) } else { 0 };
            if run.count > 0 {
                let y = p.out.offset
                    + (segment.images.start + image) * p.out.image
                    + (segment.rows.start + row) * p.out.row
                    + (segment.pixels.start + column) * p.out.pixel
                    + columns.start;
                debug_assert!(y + (run.count - 1) * p.out.pixel + columns.len() <= self.out.len());
                run.sums = sums[(pixel - pixels.start) * SIDE..].as_ptr();
                // SAFETY: the functions fit the processor; the outputs of a segment and panel lie inside of the output and
                // are written by this task alone.
                unsafe {
                    run.y = self.out.as_ptr().add(y);
                    (self.tiles.finish)(&run);
                }
            }
            pixel = next;
        }
    }
}
