use super::kernels::{FilterGradient, Spread, Transforms};
use super::size::Size;
use super::tiles::{TRANSFORMED_TILES, Tiles};
use crate::Cpu;
use crate::conv::grads::portion;
use crate::conv::kernels::{BLOCK, GradTile, Kernels};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Conv2d, Layout, View};

/// So many elements of sums, transformed inputs and gradients stay in the core's second cache.
const CACHE_LEN: usize = 216 << 10;

/// Tiles that are summed over at once, at least and at most.
const CHUNK_TILES: [usize; 2] = [20, 96];

/// The same where sums don't stay in the cache: fewer read and write them too often.
const FAR_TILES: usize = 64;

/// At least so many tasks are wanted, of at least so many tiles, and at most so many elements of partial sums.
const MIN_TASKS: usize = 8;
const TASK_TILES: usize = 64;
const PARTIALS_LEN: usize = 9 << 19;

/// How the gradient of the weights is cut up, by the shapes and the vectors' width alone.
///
/// The tiles are cut into parts and the inputs into ranges. A task sums one part for one range of inputs and all outputs, at
/// every position. Then the sums of the parts are added, in their order, and transformed back.
///
/// Sums that don't stay in the cache are those of one part. All threads then transform a chunk, once for all inputs, and its
/// positions are tasks.
struct Plan {
    kernels: &'static Kernels,
    transforms: &'static Transforms,
    tiles: Tiles,
    x: Layout,
    dy: Layout,
    inputs: usize,
    outputs: usize,
    parts: usize,
    ranges: usize,
    /// Tiles that are summed over at once, and whether by all threads.
    chunk: usize,
    far: bool,
    /// Vectors of outputs; panels that they form.
    vectors: usize,
    panels: usize,
}

impl Plan {
    fn new(cpu: &Cpu, size: Size, conv: &Conv2d, x: Layout, dy: Layout) -> Plan {
        let kernels = Kernels::of(cpu.simd());
        let tiles = Tiles::new(size, dy, [conv.pad.top, conv.pad.left]);
        let vectors = conv.outputs.div_ceil(kernels.width);
        let panels = vectors.div_ceil(kernels.grad.len()).max(1);
        let sums = size.positions() * conv.inputs * vectors * kernels.width;
        let parts = (PARTIALS_LEN / sums).min(tiles.count() / TASK_TILES).clamp(1, MIN_TASKS);
        let ranges = MIN_TASKS.div_ceil(parts).min(conv.inputs.div_ceil(2 * BLOCK));
        let each = size.positions() * (conv.inputs.div_ceil(ranges) + conv.outputs);
        let rest = CACHE_LEN.saturating_sub(sums / ranges) / each;
        let stay = rest >= CHUNK_TILES[0];
        let chunk = if stay { rest.min(CHUNK_TILES[1]) } else { FAR_TILES };
        let far = !stay && parts == 1;
        Plan {
            kernels,
            transforms: Transforms::of(cpu.simd(), size),
            tiles,
            x,
            dy,
            inputs: conv.inputs,
            outputs: conv.outputs,
            parts,
            ranges: if far { 1 } else { ranges },
            chunk,
            far,
            vectors,
            panels,
        }
    }

    fn positions(&self) -> usize {
        self.tiles.size.positions()
    }

    /// Outputs with the padding to whole vectors and blocks.
    fn padded(&self) -> usize {
        (self.vectors * self.kernels.width).next_multiple_of(BLOCK)
    }

    /// The inputs of a range: whole blocks but for the last.
    fn range(&self, index: usize) -> Range<usize> {
        let blocks = portion(self.inputs.div_ceil(BLOCK), self.ranges, index);
        blocks.start * BLOCK..(blocks.end * BLOCK).min(self.inputs)
    }

    /// Elements from one tile's inputs to the next one's.
    fn input_step(&self) -> usize {
        self.inputs.div_ceil(BLOCK).div_ceil(self.ranges) * BLOCK
    }

    /// Elements of the transformed inputs of a chunk at one position, and of the gradients. Not a multiple of a page: the
    /// same place of many positions is written together.
    fn chunk_len(&self) -> [usize; 2] {
        [self.input_step(), self.padded()].map(|step| self.chunk * step + BLOCK)
    }

    /// Elements for one thread, or for all in a round.
    fn worker_len(&self) -> usize {
        self.positions() * self.chunk_len().iter().sum::<usize>()
    }

    /// Elements for all threads.
    fn work_len(&self, threads: usize) -> usize {
        self.worker_len() * if self.far { 1 } else { threads }
    }

    /// Elements of the sums at one position, and of a part.
    fn sums_len(&self) -> [usize; 2] {
        let each = self.inputs * self.padded();
        [each, each * self.positions()]
    }

    /// Zeros for pixels outside of the images.
    fn zeros_len(&self) -> usize {
        self.inputs.max(self.outputs).next_multiple_of(BLOCK)
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(crate) fn scratch_len(cpu: &Cpu, size: Size, conv: &Conv2d, x: Layout, dy: Layout) -> usize {
    let plan = Plan::new(cpu, size, conv, x, dy);
    plan.zeros_len() + plan.parts * plan.sums_len()[1] + plan.work_len(cpu.pool().count())
}

/// Computes the gradient of the weights.
pub(crate) fn run(cpu: &Cpu, size: Size, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    let plan = Plan::new(cpu, size, conv, x.layout, dy.layout);
    let mut scratch = cpu.scratch(scratch_len(cpu, size, conv, x.layout, dy.layout));
    let (zeros, rest) = scratch.split_at_mut(plan.zeros_len());
    zeros.fill(0.0);
    let (sums, workers) = rest.split_at_mut(plan.parts * plan.sums_len()[1]);
    let job = Job { plan: &plan, x: x.data, dy: dy.data, zeros, sums: Shards::new(sums) };
    if plan.far {
        job.rounds(cpu, workers);
    } else {
        let (worker_len, workers) = (plan.worker_len(), Shards::new(workers));
        cpu.pool().run_on(plan.parts * plan.ranges, &|thread, task| {
            // SAFETY: a thread runs one task at a time.
            let memory = unsafe { workers.part(thread * worker_len..(thread + 1) * worker_len) };
            job.task(task / plan.ranges, plan.range(task % plan.ranges), memory);
        });
    }
    transform_back(cpu, &plan, sums, dw);
}

struct Job<'a> {
    plan: &'a Plan,
    x: &'a [f32],
    dy: &'a [f32],
    zeros: &'a [f32],
    /// For every part: (position, input, output).
    sums: Shards<'a>,
}

impl Job<'_> {
    /// The sums of a part of the tiles, for some inputs.
    fn task(&self, part: usize, range: Range<usize>, memory: &mut [f32]) {
        let plan = self.plan;
        let tiles = portion(plan.tiles.count(), plan.parts, part);
        for start in tiles.clone().step_by(plan.chunk) {
            let chunk = start..(start + plan.chunk).min(tiles.end);
            self.transform(&chunk, &range, &Shards::new(memory), 0);
            for position in 0..plan.positions() {
                self.multiply([part, position], &range, chunk.len(), memory, start > tiles.start);
            }
        }
    }

    /// All sums, by all threads.
    fn rounds(&self, cpu: &Cpu, memory: &mut [f32]) {
        let (plan, all) = (self.plan, 0..self.plan.inputs);
        for start in (0..plan.tiles.count()).step_by(plan.chunk) {
            let chunk = start..(start + plan.chunk).min(plan.tiles.count());
            {
                let to = Shards::new(memory);
                cpu.pool().run(chunk.len().div_ceil(TRANSFORMED_TILES), &|task| {
                    let first = task * TRANSFORMED_TILES;
                    let end = (start + first + TRANSFORMED_TILES).min(chunk.end);
                    self.transform(&(start + first..end), &all, &to, first);
                });
            }
            cpu.pool().run(plan.positions(), &|position| {
                self.multiply([0, position], &all, chunk.len(), memory, start > 0);
            });
        }
    }

    /// Transforms some tiles, the `first` one of a chunk and further, to (position, tile, channel): first a range of inputs, then
    /// all gradients.
    fn transform(&self, tiles: &Range<usize>, range: &Range<usize>, to: &Shards, first: usize) {
        let (plan, [of_inputs, of_gradients]) = (self.plan, self.plan.chunk_len());
        assert!(plan.x.end() <= self.x.len() && plan.dy.end() <= self.dy.len());
        assert!(self.zeros.len() >= plan.inputs.max(plan.outputs));
        assert!(plan.worker_len() <= to.len() && first + tiles.len() <= plan.chunk);
        let zeros = self.zeros.as_ptr();
        let mut x = plan.x;
        x.offset += range.start;
        for (i, tile) in tiles.clone().enumerate() {
            let x_pixels = plan.tiles.inputs(tile, x, self.x.as_ptr(), zeros);
            let dy_pixels = plan.tiles.outputs(tile, plan.dy, self.dy.as_ptr(), zeros);
            // SAFETY: the kernels fit the processor; pixels lie in the tensors, or are zeros; there is a place for every
            // position and tile of a chunk, and those of a tile are written by one task.
            unsafe {
                (plan.transforms.input)(&Spread {
                    from: x_pixels.as_ptr(),
                    channels: range.len(),
                    to: to.as_ptr().add((first + i) * plan.input_step()),
                    position: of_inputs,
                    block: BLOCK,
                    ahead: plan.tiles.step(x),
                });
                (plan.transforms.gradient)(&Spread {
                    from: dy_pixels.as_ptr(),
                    channels: plan.outputs,
                    to: to.as_ptr().add(plan.positions() * of_inputs + (first + i) * plan.padded()),
                    position: of_gradients,
                    block: BLOCK,
                    ahead: plan.tiles.step(plan.dy),
                });
            }
        }
    }

    /// The sums of a part over a chunk of tiles at one position, from what they were transformed to.
    fn multiply(
        &self,
        [part, position]: [usize; 2],
        range: &Range<usize>,
        tiles: usize,
        transformed: &[f32],
        add: bool,
    ) {
        let (plan, lanes, [of_inputs, of_gradients]) =
            (self.plan, self.plan.kernels.width, self.plan.chunk_len());
        let sums = part * plan.sums_len()[1] + position * plan.sums_len()[0];
        let (inputs, gradients) = transformed.split_at(plan.positions() * of_inputs);
        let inputs = &inputs[position * of_inputs..][..of_inputs];
        let gradients = &gradients[position * of_gradients..][..of_gradients];
        let mut tile = GradTile {
            a: inputs.as_ptr(),
            a_steps: [plan.input_step(), 0, 0],
            b: gradients.as_ptr(),
            b_steps: [plan.padded(), 0, 0],
            counts: [tiles, 1, 1],
            out: self.sums.as_ptr(),
            out_step: plan.padded(),
            lanes,
            add,
        };
        for panel in (0..plan.panels).map(|panel| portion(plan.vectors, plan.panels, panel)) {
            let kernels = plan.kernels.grad[panel.len() - 1];
            let parts = range.len().div_ceil(kernels.len());
            for rows in (0..parts).map(|part| portion(range.len(), parts, part)) {
                let at = sums + (range.start + rows.start) * plan.padded() + panel.start * lanes;
                debug_assert!(at + (rows.len() - 1) * plan.padded() + panel.len() * lanes <= self.sums.len());
                tile.a = inputs[rows.start..].as_ptr();
                tile.b = gradients[panel.start * lanes..].as_ptr();
                // SAFETY: the kernels fit the processor; the chunk's tiles lie in both slices, whole vectors of gradients; the
                // sums of a part and these inputs belong to this task.
                unsafe {
                    tile.out = self.sums.as_ptr().add(at);
                    kernels[rows.len() - 1](&tile);
                }
            }
        }
    }
}

/// The gradients of the weights from the sums of all parts.
fn transform_back(cpu: &Cpu, plan: &Plan, sums: &[f32], dw: &mut [f32]) {
    let (lanes, [position, part]) = (plan.kernels.width, plan.sums_len());
    assert!(dw.len() == 9 * plan.inputs * plan.outputs && sums.len() == plan.parts * part);
    let dw = Shards::new(dw);
    cpu.pool().run(plan.inputs, &|input| {
        for column in (0..plan.outputs).step_by(lanes) {
            let place = |tap: usize| (tap * plan.inputs + input) * plan.outputs + column;
            // SAFETY: the kernels fit the processor; sums are there for whole vectors, weights for `lanes`; every input's
            // weights are written by one task.
            unsafe {
                (plan.transforms.filter_gradient)(&FilterGradient {
                    from: sums[input * plan.padded() + column..].as_ptr(),
                    position,
                    part,
                    parts: plan.parts,
                    lanes: lanes.min(plan.outputs - column),
                    to: core::array::from_fn(|tap| dw.as_ptr().add(place(tap))),
                });
            }
        }
    });
}
