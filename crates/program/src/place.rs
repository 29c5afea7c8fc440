//! The places of tensors in memory: best fit in one arena, by their live ranges.

use crate::check::{self, LiveRange, live_ranges};
use crate::passes::is_executable;
use crate::{Arena, Error, Home, Layout, Program, Result, Span, Step, TensorId, sound};
use core::cmp::Reverse;

/// Every tensor starts at a multiple of so many elements: two cache lines in f32, one in half precision.
const ALIGN: usize = 32;

/// A program in which every tensor has its place, for batches of up to a size.
#[derive(Clone, Debug)]
pub struct Executable {
    program: Program,
    batch: usize,
    /// By tensor, for the largest batch.
    layouts: Vec<Layout>,
    /// By the place in [`Arena::ALL`]: the elements that steps touch.
    lens: [usize; Arena::ALL.len()],
}

impl Executable {
    /// Places the tensors of a program. Memory rests for `rest` steps before it serves again: a device that runs steps side by side
    /// need not wait for it then.
    ///
    /// # Errors
    /// If an operand or a result doesn't have the shape and arena of its op, or if a step would overwrite a tensor that another step
    /// needs. Then a layer or a pass is wrong, never a network.
    pub fn place(program: Program, batch: usize, rest: usize) -> Result<Self> {
        let unsound = |value, accepted| Err(Error::Option { op: "place", what: "a tensor", value, accepted });
        sound::homes_fit(&program)?;
        program.steps.iter().try_for_each(|step| sound::fits(&program, step))?;
        sound::ends_fit(&program)?;
        if !sound::is_written_once(&program) {
            return unsound("read before it is written, or written twice", "written once, and then read");
        }
        if check::conflict(&program).is_some() {
            return unsound("overwritten while it is needed", "read before it is overwritten");
        }
        let ranges = live_ranges(&program);
        let layouts = layouts(&program, &ranges, batch, rest);
        let lens = Arena::ALL.map(|arena| end(&program, &ranges, &layouts, arena));
        let placed = Executable { program, batch, layouts, lens };
        let apart = "apart from what is read, and from the other results";
        match placed.is_sound() {
            true => Ok(placed),
            false => unsound("beside what is read or written", apart),
        }
    }

    /// Whether no step writes where it must not, now that places are known.
    fn is_sound(&self) -> bool {
        self.program.steps.iter().all(|step| self.is_apart(step))
            && self.fixed_lie_apart()
            && self.buckets_are_left_alone()
    }

    /// Whether each result of a step lies apart, as a run of memory, from all that the step reads and from its other results. It may be the
    /// very memory of an operand that the op can replace. A backend makes slices of memory, and relies on this.
    fn is_apart(&self, step: &Step) -> bool {
        // No backend computes the sum of a bucket.
        if sound::is_bucket(step) {
            return true;
        }
        step.results.iter().enumerate().all(|(k, &result)| {
            let root = self.program.root(result).0;
            let is_related = |other: TensorId| self.program.root(other).0 == root;
            is_executable(&self.program, step, root)
                && step
                    .reads()
                    .all(|read| read != result && (is_related(read) || self.are_apart(result, read)))
                && step.results[..k].iter().all(|&other| self.are_apart(result, other))
        })
    }

    /// Whether two tensors have no element in common, each from its first to its last one.
    fn are_apart(&self, a: TensorId, b: TensorId) -> bool {
        let is_elsewhere = self.program.tensor(a).arena != self.program.tensor(b).arena;
        let [a, b] = [a, b].map(|id| self.layouts[id.index()]);
        is_elsewhere || a.end() <= b.offset || b.end() <= a.offset
    }

    /// Whether each tensor at a fixed place that a step writes lies apart from all others at fixed places.
    fn fixed_lie_apart(&self) -> bool {
        let (mut used, mut written) = (vec![false; self.layouts.len()], vec![false; self.layouts.len()]);
        for step in self.program.steps.iter().filter(|step| !sound::is_bucket(step)) {
            step.reads().for_each(|id| used[self.program.root(id).0.index()] = true);
            step.results.iter().for_each(|&id| written[self.program.root(id).0.index()] = true);
        }
        let tensors = self.program.tensors.iter().zip(&self.layouts).enumerate();
        let fixed = tensors.filter(|(id, (tensor, layout))| {
            let is_used = used[*id] || written[*id];
            matches!(tensor.home, Home::At(_)) && is_used && !layout.shape.is_empty()
        });
        let mut fixed: Vec<(usize, &Layout, bool)> =
            fixed.map(|(id, (tensor, layout))| (tensor.arena as usize, layout, written[id])).collect();
        fixed.sort_by_key(|(arena, layout, _)| (*arena, layout.offset));
        // By arena: the ends of all tensors so far, and of those that are written.
        let mut ends = [[0; 2]; Arena::ALL.len()];
        fixed.into_iter().all(|(arena, layout, is_written)| {
            let [of_all, of_written] = &mut ends[arena];
            let is_apart = layout.offset >= if is_written { *of_all } else { *of_written };
            *of_all = layout.end().max(*of_all);
            if is_written {
                *of_written = layout.end().max(*of_written);
            }
            is_apart
        })
    }

    /// Whether no step uses a bucket after the start of its all-reduce, which runs beside later steps.
    fn buckets_are_left_alone(&self) -> bool {
        let mut started: Vec<TensorId> = Vec::new();
        self.program.steps.iter().all(|step| {
            let mut all = step.reads().chain(step.results.iter().copied());
            let is_left_alone = all.all(|id| started.iter().all(|&bucket| self.are_apart(bucket, id)));
            started.extend(step.results.iter().filter(|_| sound::is_bucket(step)));
            is_left_alone
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The largest batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// A step.
    pub fn step(&self, k: usize) -> &Step {
        &self.program.steps[k]
    }

    /// How many elements of an arena the program needs.
    pub fn len(&self, arena: Arena) -> usize {
        self.lens[arena as usize]
    }

    /// The layout of a tensor for a batch of `n` samples.
    pub fn layout(&self, id: TensorId, n: usize) -> Layout {
        let layout = self.layouts[id.index()];
        if self.program.tensor(id).arena.is_batched() { layout.samples(0..n) } else { layout }
    }

    /// The place of a tensor that is no batch.
    pub fn span(&self, id: TensorId) -> Span {
        let layout = self.layouts[id.index()];
        Span::new(layout.offset, layout.shape.len())
    }

    /// The numbers of the operands of a concatenation that must be copied, with where in the result they go.
    pub fn copied_parts<'a>(
        &'a self,
        step: &'a Step,
        n: usize,
    ) -> impl Iterator<Item = (usize, Layout)> + 'a {
        let whole = self.layout(step.results[0], n);
        let parts = check::copied_parts(&self.program, step);
        parts.map(move |(operand, range)| (operand, whole.channels(range)))
    }

    /// Whether a slice lies inside of its operand, so that there is nothing to copy.
    pub fn is_inside(&self, step: &Step, channel: usize) -> bool {
        check::is_inside(&self.program, step.results[0], step.operands[0], channel)
    }

    /// Whether a step's first result takes the place of an operand.
    pub fn is_in_place(&self, step: &Step, operand: TensorId) -> bool {
        self.program.is_same_memory(operand, step.results[0])
    }

    /// Checks that memory is as large as the program needs.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for an arena that is too small.
    pub fn check_len(&self, arena: Arena, len: usize) -> Result<()> {
        let what = match arena {
            Arena::Activations => "the memory of activations",
            Arena::Statistics => "the memory of statistics",
            Arena::Parameters => "the parameters' arena",
            Arena::Gradients => "the gradients' arena",
            Arena::Averages => "the running averages' arena",
            Arena::Labels => "the labels",
        };
        Span::new(0, self.len(arena)).check("run", what, len)
    }
}

/// Where each tensor lies, for the largest batch.
fn layouts(program: &Program, ranges: &[Option<LiveRange>], batch: usize, rest: usize) -> Vec<Layout> {
    let mut offsets = vec![0; program.tensors.len()];
    for arena in Arena::ALL.into_iter().filter(|arena| arena.is_placed()) {
        let requests = requests(program, ranges, arena, batch, rest);
        // Behind all tensors at fixed places.
        let start = fixed_end(program, arena, batch);
        for (request, offset) in best_fit(requests).0 {
            offsets[request.index] = start.saturating_add(offset);
        }
    }
    let layout = |index: usize| {
        let tensor = &program.tensors[index];
        let (root, channel) = program.root(TensorId(index));
        let offset = match program.tensor(root).home {
            Home::At(offset) => offset,
            _ => offsets[root.index()],
        };
        let n = if tensor.arena.is_batched() { batch } else { tensor.shape.n };
        let stride = program.shape(root).c;
        Layout { offset: offset.saturating_add(channel), shape: tensor.shape.with_n(n), stride }
    };
    (0..program.tensors.len()).map(layout).collect()
}

/// The memory of the tensors of an arena that have no fixed place.
fn requests(
    program: &Program,
    ranges: &[Option<LiveRange>],
    arena: Arena,
    batch: usize,
    rest: usize,
) -> Vec<Request> {
    let of_arena = |&(index, _): &(usize, &Option<LiveRange>)| program.tensors[index].arena == arena;
    let request = |(index, range): (usize, &Option<LiveRange>)| {
        let LiveRange { from, to } = (*range)?;
        let live = LiveRange { from, to: to.saturating_add(rest) };
        // The input comes first, so that training and inference find it at the same place.
        let first = index == program.input.index();
        Some(Request { index, len: elements(program, index, batch), live, first })
    };
    ranges.iter().enumerate().filter(of_arena).filter_map(request).collect()
}

/// The elements of a tensor that lies back to back.
fn elements(program: &Program, index: usize, batch: usize) -> usize {
    let tensor = &program.tensors[index];
    tensor.shape.len().saturating_mul(if tensor.arena.is_batched() { batch } else { 1 })
}

/// The end of the tensors at fixed places in an arena.
fn fixed_end(program: &Program, arena: Arena, batch: usize) -> usize {
    let of_arena = program.tensors.iter().enumerate().filter(|(_, tensor)| tensor.arena == arena);
    let ends = of_arena.filter_map(|(index, tensor)| match tensor.home {
        Home::At(offset) => Some(offset.saturating_add(elements(program, index, batch))),
        Home::Free | Home::In(..) => None,
    });
    ends.max().map_or(0, |end| end.checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX))
}

/// How many elements of an arena the steps touch.
fn end(program: &Program, ranges: &[Option<LiveRange>], layouts: &[Layout], arena: Arena) -> usize {
    let is_there = |index: usize| {
        let root = program.root(TensorId(index)).0;
        let is_fixed = matches!(program.tensor(root).home, Home::At(_));
        program.tensors[index].arena == arena && (is_fixed || ranges[root.index()].is_some())
    };
    let inside = (0..layouts.len()).filter(|&index| is_there(index));
    inside.map(|index| layouts[index].end()).max().unwrap_or(0)
}

/// Memory that is needed for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    /// Of the tensor.
    index: usize,
    len: usize,
    live: LiveRange,
    /// Whether it lies at the start.
    first: bool,
}

/// In which order requests take their places, the first one first.
type Order = fn(&Request) -> (usize, usize);

/// Those that leave the fewest choices come first: large ones, or those that are in the way of most others. Where lives are short, as in
/// inference, one after the other often fits best.
const ORDERS: [Order; 3] = [
    |request| (request.len, request.live.to - request.live.from),
    |request| (request.len.saturating_mul(request.live.to - request.live.from + 1), request.len),
    |request| (usize::MAX - request.live.from, request.len),
];

/// A place for each request, so that two that live at the same time don't overlap; and the memory that it takes. Of several orders the
/// one that takes the least counts.
fn best_fit(requests: Vec<Request>) -> (Vec<(Request, usize)>, usize) {
    let attempts = ORDERS.iter().map(|order| {
        let mut turns = requests.clone();
        turns.sort_by_key(|request| (Reverse(request.first), Reverse(order(request)), request.index));
        one_by_one(turns)
    });
    attempts.min_by_key(|(_, len)| *len).unwrap_or_default()
}

/// Places requests one by one, each in the smallest gap, or behind all requests that live with it.
fn one_by_one(turns: Vec<Request>) -> (Vec<(Request, usize)>, usize) {
    // By offset.
    let mut placed: Vec<(Request, usize)> = Vec::with_capacity(turns.len());
    let mut len = 0;
    for request in turns {
        let (mut end, mut best) = (0, None::<(usize, usize)>);
        for (other, offset) in placed.iter().filter(|(other, _)| other.live.overlaps(request.live)) {
            let gap = offset.saturating_sub(end);
            if *offset >= end.saturating_add(request.len) && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, end));
            }
            end = end.max(offset.saturating_add(other.len).next_multiple_of(ALIGN));
        }
        let offset = best.map_or(end, |(_, offset)| offset);
        let at = placed.partition_point(|(_, other)| *other < offset);
        placed.insert(at, (request, offset));
        len = len.max(offset.saturating_add(request.len));
    }
    (placed, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Layers, training_step};
    use proptest::prelude::*;

    fn request(index: usize, len: usize, from: usize, to: usize) -> Request {
        Request { index, len, live: LiveRange { from, to }, first: false }
    }

    #[test]
    fn a_large_tensor_lies_where_small_ones_were() {
        let all = vec![request(0, 64, 0, 3), request(1, 64, 0, 5), request(2, 128, 6, 9)];
        assert_eq!(best_fit(all).1, 128);
    }

    #[test]
    fn a_chain_takes_turns() {
        let chain = (0..20).map(|k| request(k, 96, k, k + 1)).collect();
        assert_eq!(best_fit(chain).1, 192);
        assert_eq!(best_fit(Vec::new()).1, 0);
    }

    #[test]
    fn a_part_lies_inside_of_the_whole_for_every_batch() {
        let mut net = Layers::new([4, 4, 3]);
        let (a, b) = (net.conv("a", 2, net.input()), net.conv("b", 3, net.input()));
        let both = net.concat(&[a, b]);
        let placed = Executable::place(training_step(net.loss(both), false), 6, 0).unwrap();
        let (whole, part) = (placed.layout(both, 4), placed.layout(b, 4));
        assert_eq!((part.offset, part.stride, part.shape.n), (whole.offset + 2, 5, 4));
        assert_eq!(placed.layout(placed.program().input, 6).offset, 0);
    }

    #[test]
    fn a_step_whose_tensors_do_not_fit_is_refused() {
        let build = || {
            let mut net = Layers::new([4, 4, 3]);
            let a = net.conv("a", 2, net.input());
            (net.finish(a), a)
        };
        let refused = |program: Program| Executable::place(program, 1, 0).unwrap_err().to_string();
        let (mut program, a) = build();
        program.tensors[a.index()].shape.c = 3;
        assert!(
            refused(program).contains("conv2d: a result has shape (1, 4, 4, 3), but (1, 4, 4, 2) is needed")
        );
        let (mut program, a) = build();
        program.tensors[a.index()].arena = Arena::Labels;
        assert!(
            refused(program).contains("conv2d: the output must be in the activations, not in the labels")
        );
        let (mut program, _) = build();
        program.steps[0].onto = Some(program.input);
        assert!(refused(program).contains("added to a tensor"));
        let (mut program, _) = build();
        program.steps[0].operands.pop();
        assert!(refused(program).contains("the list of operands"));
        let (mut program, a) = build();
        program.tensors[a.index()].home = Home::In(a, 0);
        assert!(
            refused(program).contains("a range of another tensor's channels"),
            "a tensor inside of itself"
        );
        let (mut program, a) = build();
        program.tensors[a.index()].home = Home::In(program.input, 2);
        assert!(
            refused(program).contains("a range of another tensor's channels"),
            "two channels from the last one on"
        );
        let (program, _) = build();
        assert!(Executable::place(program, 1, 0).is_ok());
    }

    #[test]
    fn an_unsound_program_is_refused() {
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, a);
        let sum = net.add(b, a);
        let mut program = net.finish(sum);
        program.tensors[b.index()].home = Home::In(a, 0);
        assert!(Executable::place(program, 1, 0).is_err());
    }

    proptest! {
        #[test]
        fn what_lives_at_the_same_time_does_not_overlap(
            requests in prop::collection::vec((0_usize..500, 0_usize..40, 0_usize..12), 0..60)
        ) {
            let requests: Vec<Request> =
                requests.into_iter().enumerate().map(|(k, (len, from, steps))| request(k, len, from, from + steps)).collect();
            let live_at = |step: usize| {
                requests.iter().filter(|r| (r.live.from..=r.live.to).contains(&step)).map(|r| r.len).sum::<usize>()
            };
            let floor = requests.iter().map(|r| live_at(r.live.from)).max().unwrap_or(0);
            let (placed, len) = best_fit(requests.clone());
            prop_assert_eq!(placed.len(), requests.len());
            prop_assert!(len >= floor);
            for (k, (a, at)) in placed.iter().enumerate() {
                prop_assert!(at + a.len <= len && at % ALIGN == 0);
                for (b, other) in &placed[..k] {
                    let apart = at + a.len <= *other || other + b.len <= *at;
                    prop_assert!(apart || !a.live.overlaps(b.live));
                }
            }
        }
    }
}
