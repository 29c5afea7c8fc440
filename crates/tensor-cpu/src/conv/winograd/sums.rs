use super::kernels::{Filter, Gather, Spread, Transforms};
use super::size::Size;
use super::tiles::{TRANSFORMED_TILES, Tiles};
use crate::Cpu;
use crate::conv::grads::portion;
use crate::conv::kernels::{BLOCK, Kernels, SumTile};
use crate::conv::sums::Finish;
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Conv2d, Layout};

/// About so many elements of transformed inputs and sums are at work at once: what stays in the core's second cache beside weights.
const TASK_LEN: usize = 104 << 10;

/// At least so many tasks are wanted.
const MIN_TASKS: usize = 8;

/// So many elements of transformed weights don't stay near a core: every task would read them again.
const FAR_WEIGHTS: usize = 1 << 20;

/// Tiles of a round.
const ROUND_TILES: usize = 64;

/// A pass over a convolution: its outputs from its inputs, or, with the kernel turned around, its inputs' gradients from its
/// outputs'.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    size: Size,
    source: Layout,
    out: Layout,
    channels: usize,
    columns: usize,
    /// Zeros above and left of the source.
    pad: [usize; 2],
    turned: bool,
}

impl Pass {
    pub fn forward(size: Size, conv: &Conv2d, x: Layout, y: Layout) -> Pass {
        let pad = [conv.pad.top, conv.pad.left];
        Pass { size, source: x, out: y, channels: conv.inputs, columns: conv.outputs, pad, turned: false }
    }

    pub fn backward(size: Size, conv: &Conv2d, dy: Layout, dx: Layout) -> Pass {
        let pad = [2 - conv.pad.top, 2 - conv.pad.left];
        Pass { size, source: dy, out: dx, channels: conv.outputs, columns: conv.inputs, pad, turned: true }
    }

    /// Elements of scratch memory that [`Pass::run`] needs.
    pub fn scratch_len(&self, cpu: &Cpu) -> usize {
        let plan = Plan::new(self, cpu);
        plan.zeros_len() + plan.weights_len().next_multiple_of(BLOCK) + plan.work_len(cpu.pool().count())
    }

    /// Computes all outputs of the pass.
    pub fn run(&self, cpu: &Cpu, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
        let plan = Plan::new(self, cpu);
        let mut scratch = cpu.scratch(self.scratch_len(cpu));
        let (zeros, rest) = scratch.split_at_mut(plan.zeros_len());
        zeros.fill(0.0);
        let (weights, work) = rest.split_at_mut(plan.weights_len().next_multiple_of(BLOCK));
        transform_weights(cpu, &plan, w, weights);
        let job = Job { plan: &plan, source, zeros, weights, finish, out: Shards::new(out) };
        let pieces = plan.tiles.count().div_ceil(plan.piece);
        let tiles = |piece: usize| piece * plan.piece..((piece + 1) * plan.piece).min(plan.tiles.count());
        if plan.far {
            (0..pieces).for_each(|piece| job.round(cpu, tiles(piece), work));
            return;
        }
        let (worker_len, workers) = (plan.worker_len(), Shards::new(work));
        cpu.pool().run_on(pieces, &|thread, piece| {
            // SAFETY: a thread runs one task at a time.
            let memory = unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };
            job.task(tiles(piece), memory);
        });
    }
}

/// How the sums of a forward pass, or of an input's gradient, are cut up, by the shapes and the vectors' width alone.
///
/// The tiles are cut into pieces. The pixels under a piece are transformed, the result is multiplied with the transformed
/// weights, position by position, and the products are transformed back. Where weights stay near a core, a piece is a task.
/// The sums of a position overwrite the used inputs of the one before, which leaves more of the cache to weights. Where they
/// don't, all threads work on one larger piece, a round, whose positions are tasks: each weight is read once a round.
struct Plan {
    pass: Pass,
    tiles: Tiles,
    kernels: &'static Kernels,
    transforms: &'static Transforms,
    /// Tiles of a piece, and whether it is a round.
    piece: usize,
    far: bool,
    /// Vectors of columns; panels that they form.
    vectors: usize,
    panels: usize,
}

impl Plan {
    fn new(pass: &Pass, cpu: &Cpu) -> Plan {
        let kernels = Kernels::of(cpu.simd());
        let tiles = Tiles::new(pass.size, pass.out, pass.pad);
        let vectors = pass.columns.div_ceil(kernels.width);
        let panels = vectors.div_ceil(kernels.sum.len()).max(1);
        let wide = vectors.div_ceil(panels).max(1);
        // As many tiles of the kernel as a panel has vectors, so that each can ask for a share of the next panel.
        let rows = kernels.sum[wide - 1].len() * wide;
        let each = pass.size.positions() * pass.channels.max(vectors * kernels.width);
        let most = (TASK_LEN / each.max(1)).clamp(rows, 8 * rows) / rows * rows;
        let task = most.min(tiles.count().div_ceil(MIN_TASKS)).max(1);
        let weights = pass.size.positions() * pass.channels * vectors * kernels.width;
        let far = weights >= FAR_WEIGHTS && task < tiles.count();
        Plan {
            pass: *pass,
            tiles,
            kernels,
            transforms: Transforms::of(cpu.simd(), pass.size),
            piece: if far { ROUND_TILES.min(tiles.count()) } else { task },
            far,
            vectors,
            panels,
        }
    }

    fn positions(&self) -> usize {
        self.pass.size.positions()
    }

    /// Columns with the padding to whole vectors.
    fn padded(&self) -> usize {
        self.vectors * self.kernels.width
    }

    /// Elements of a place: of the transformed inputs of one position, in blocks of channels, each with all tiles of a piece, or
    /// of the sums of one. Not a multiple of a page: the same element of many places is written together.
    fn place_len(&self) -> usize {
        self.piece * self.padded().max(self.pass.channels).next_multiple_of(BLOCK) + BLOCK
    }

    fn weights_len(&self) -> usize {
        self.positions() * self.pass.channels * self.padded()
    }

    /// Zeros for pixels outside of the images.
    fn zeros_len(&self) -> usize {
        self.pass.channels.next_multiple_of(BLOCK)
    }

    /// Elements for one thread that has its own pieces: a place for each position and one more, and room for outputs outside of
    /// the images.
    fn worker_len(&self) -> usize {
        (self.positions() + 1) * self.place_len() + self.outside_len()
    }

    fn outside_len(&self) -> usize {
        self.padded().next_multiple_of(BLOCK)
    }

    /// Elements for all threads.
    fn work_len(&self, threads: usize) -> usize {
        let of_round = 2 * self.positions() * self.place_len() + threads * self.outside_len();
        if self.far { of_round } else { threads * self.worker_len() }
    }

    fn panel(&self, index: usize) -> Range<usize> {
        portion(self.vectors, self.panels, index)
    }

    /// Where the weights of a panel lie among those of a position, as (channel, column).
    fn packed(&self, panel: &Range<usize>) -> usize {
        panel.start * self.kernels.width * self.pass.channels
    }
}

/// The weights of every position, packed for the kernels.
fn transform_weights(cpu: &Cpu, plan: &Plan, w: &[f32], to: &mut [f32]) {
    let (pass, lanes) = (&plan.pass, plan.kernels.width);
    let position = pass.channels * plan.padded();
    let to = Shards::new(to);
    cpu.pool().run(pass.channels.div_ceil(BLOCK), &|block| {
        let channels = block * BLOCK..((block + 1) * BLOCK).min(pass.channels);
        for panel in (0..plan.panels).map(|panel| plan.panel(panel)) {
            // The channels of a block share the cache lines of weights that are turned.
            for (vector, channel) in panel.clone().flat_map(|v| channels.clone().map(move |c| (v, c))) {
                let column = vector * lanes;
                let count = lanes.min(pass.columns - column);
                let at = plan.packed(&panel) + (channel * panel.len() + vector - panel.start) * lanes;
                let mut turned = [[0.0; BLOCK]; 9];
                let from = if pass.turned {
                    // The weights lie as (tap, column, channel), and the last tap comes first.
                    for (tap, lanes) in turned.iter_mut().enumerate() {
                        let w = &w[((8 - tap) * pass.columns + column) * pass.channels + channel..];
                        let w = w.iter().step_by(pass.channels).take(count);
                        lanes.iter_mut().zip(w).for_each(|(to, &w)| *to = w);
                    }
                    core::array::from_fn(|tap| turned[tap].as_ptr())
                } else {
                    core::array::from_fn(|tap| {
                        w[(tap * pass.channels + channel) * pass.columns + column..][..count].as_ptr()
                    })
                };
                debug_assert!((plan.positions() - 1) * position + at + lanes <= to.len());
                // SAFETY: the kernels fit the CPU; there are `count` lanes at each tap; every channel's
                // vectors have separate places.
                unsafe {
                    let to = to.as_ptr().add(at);
                    (plan.transforms.filter)(&Filter { from, lanes: count, to, position });
                }
            }
        }
    });
}

struct Job<'a> {
    plan: &'a Plan,
    source: &'a [f32],
    zeros: &'a [f32],
    weights: &'a [f32],
    finish: Finish<'a>,
    out: Shards<'a>,
}

impl Job<'_> {
    /// A piece, by one thread.
    fn task(&self, tiles: Range<usize>, memory: &mut [f32]) {
        let (plan, len) = (self.plan, self.plan.place_len());
        let (places, outside) = memory.split_at_mut((plan.positions() + 1) * len);
        self.transform(&tiles, &Shards::new(&mut places[len..]), 0);
        for position in 0..plan.positions() {
            let (sums, inputs) = places[position * len..][..2 * len].split_at_mut(len);
            self.multiply(position, tiles.len(), inputs, sums);
        }
        self.transform_back(&tiles, places, 0, outside);
    }

    /// A piece, by all threads.
    fn round(&self, cpu: &Cpu, tiles: Range<usize>, memory: &mut [f32]) {
        let (plan, len) = (self.plan, self.plan.place_len());
        let (inputs, rest) = memory.split_at_mut(plan.positions() * len);
        let (sums, outside) = rest.split_at_mut(plan.positions() * len);
        let groups = tiles.len().div_ceil(TRANSFORMED_TILES);
        let group = |index: usize| {
            let first = tiles.start + index * TRANSFORMED_TILES;
            first..(first + TRANSFORMED_TILES).min(tiles.end)
        };
        {
            let inputs = Shards::new(inputs);
            cpu.pool()
                .run(groups, &|index| self.transform(&group(index), &inputs, index * TRANSFORMED_TILES));
        }
        {
            let sums = Shards::new(sums);
            cpu.pool().run(plan.positions(), &|position| {
                // SAFETY: positions do not overlap.
                let sums = unsafe { sums.part(position * len..(position + 1) * len) };
                self.multiply(position, tiles.len(), &inputs[position * len..][..len], sums);
            });
        }
        let (sums, outside) = (&*sums, Shards::new(outside));
        cpu.pool().run_on(groups, &|thread, index| {
            let range = thread * plan.outside_len()..(thread + 1) * plan.outside_len();
            // SAFETY: a thread runs one task at a time.
            let outside = unsafe { outside.part(range) };
            self.transform_back(&group(index), sums, index * TRANSFORMED_TILES, outside);
        });
    }

    /// The inputs under some tiles, the `first` ones of a piece and further, as (position, block of channels, tile, channel).
    fn transform(&self, tiles: &Range<usize>, to: &Shards, first: usize) {
        let (plan, source) = (self.plan, self.plan.pass.source);
        assert!(source.end() <= self.source.len() && self.zeros.len() >= plan.pass.channels);
        assert!(plan.positions() * plan.place_len() <= to.len() && first + tiles.len() <= plan.piece);
        for (i, tile) in tiles.clone().enumerate() {
            let from = plan.tiles.inputs(tile, source, self.source.as_ptr(), self.zeros.as_ptr());
            // SAFETY: the kernels fit the processor; pixels lie in the source, or are zeros; `to` has a place for every
            // position, block and tile of a piece, and those of a tile are written by one task.
            unsafe {
                (plan.transforms.input)(&Spread {
                    from: from.as_ptr(),
                    channels: plan.pass.channels,
                    to: to.as_ptr().add((first + i) * BLOCK),
                    position: plan.place_len(),
                    block: plan.piece * BLOCK,
                    ahead: plan.tiles.step(source),
                });
            }
        }
    }

    /// The sums over channels of so many tiles at one position.
    fn multiply(&self, position: usize, tiles: usize, inputs: &[f32], sums: &mut [f32]) {
        for panel in 0..self.plan.panels {
            self.multiply_panel(position, self.plan.panel(panel), tiles, inputs, sums);
        }
    }

    fn multiply_panel(
        &self,
        position: usize,
        panel: Range<usize>,
        tiles: usize,
        inputs: &[f32],
        sums: &mut [f32],
    ) {
        let plan = self.plan;
        let (channels, lanes, padded) = (plan.pass.channels, plan.kernels.width, plan.padded());
        let at = position * channels * padded + plan.packed(&panel);
        let weights = &self.weights[at..][..channels * panel.len() * lanes];
        let kernels = plan.kernels.sum[panel.len() - 1];
        let blocks = channels.div_ceil(BLOCK);
        let taps = [0];
        let mut tile = SumTile {
            a: inputs.as_ptr(),
            a_half: 0,
            taps: taps.as_ptr(),
            tap_count: 1,
            blocks,
            block_len: plan.piece * BLOCK,
            last: channels - blocks.saturating_sub(1) * BLOCK,
            b: weights.as_ptr(),
            ahead: weights.as_ptr(),
            y: sums.as_mut_ptr(),
            y_step: padded,
            y_half: 0,
            lanes,
            bias: core::ptr::null(),
            add: false,
            affine: [core::ptr::null(); 2],
            relu: None,
        };
        let parts = tiles.div_ceil(kernels.len());
        for part in 0..parts {
            let rows = portion(tiles, parts, part);
            let half = rows.len().div_ceil(2);
            (tile.a_half, tile.y_half) = (half * BLOCK, half * padded);
            // The next panel's weights follow on these.
            tile.ahead = weights.as_ptr().wrapping_add(weights.len() + part * channels * BLOCK);
            tile.a = inputs[rows.start * BLOCK..].as_ptr();
            tile.y = sums[rows.start * padded + panel.start * lanes..].as_mut_ptr();
            debug_assert!((rows.end - 1) * padded + panel.end * lanes <= sums.len());
            // SAFETY: the kernels fit the processor; the tiles' inputs and sums lie in both slices, whole vectors of them.
            unsafe { kernels[rows.len() - 1](&tile) }
        }
    }

    /// The outputs of some tiles, the `first` ones of a piece and further, from their sums.
    fn transform_back(&self, tiles: &Range<usize>, sums: &[f32], first: usize, outside: &mut [f32]) {
        let (plan, out) = (self.plan, self.plan.pass.out);
        assert!(out.end() <= self.out.len() && outside.len() >= plan.pass.columns);
        let outside = outside.as_mut_ptr().cast_const();
        for (i, tile) in tiles.clone().enumerate() {
            let to = plan.tiles.outputs(tile, out, self.out.as_ptr(), outside);
            let gather = Gather {
                from: sums[(first + i) * plan.padded()..].as_ptr(),
                position: plan.place_len(),
                channels: plan.pass.columns,
                to: to.as_ptr().cast(),
                bias: self.finish.bias.map_or(core::ptr::null(), <[f32]>::as_ptr),
                add: self.finish.add,
                affine: self
                    .finish
                    .affine
                    .map_or([core::ptr::null(); 2], |affine| affine.map(<[f32]>::as_ptr)),
                relu: self.finish.relu,
            };
            // SAFETY: the kernels fit the processor; the sums of every position are there; the outputs of a tile lie in the
            // output, or in this thread's memory, and are written by this task alone.
            unsafe { (plan.transforms.output)(&gather) }
        }
    }
}
