//! The places of tensors in memory: best fit in one arena, by their live ranges.

use crate::check::{self, LiveRange, live_ranges};
use crate::passes::is_executable;
use crate::{Arena, Error, Home, Layout, Op, Program, Result, Span, Step, TensorId};
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
    /// [`Error::Option`] if a step would overwrite what another one needs: a fault of a pass, never of a network.
    pub fn place(program: Program, batch: usize, rest: usize) -> Result<Self> {
        let unsound = |value| {
            let (what, accepted) = ("a tensor", "read before it is overwritten, and apart from what is read");
            Err(Error::Option { op: "place", what, value, accepted })
        };
        // The fields of a program are public, and devices rely on this check.
        check::homes_fit(&program)?;
        for step in &program.steps {
            check::fits(&program, step)?;
        }
        if check::conflict(&program).is_some() {
            return unsound("overwritten while it is needed");
        }
        let ranges = live_ranges(&program);
        let mut offsets = vec![0; program.tensors.len()];
        for arena in Arena::ALL.into_iter().filter(|arena| arena.is_placed()) {
            let mut requests: Vec<Request> = Vec::new();
            for (index, range) in ranges.iter().enumerate() {
                let tensor = &program.tensors[index];
                if let Some(LiveRange { from, to }) = range.filter(|_| tensor.arena == arena) {
                    let samples = if arena.is_batched() { batch } else { 1 };
                    let len = tensor.shape.len().saturating_mul(samples);
                    let live = LiveRange { from, to: to.saturating_add(rest) };
                    // The input comes first, so that training and inference find it at the same place.
                    let first = index == program.input.index();
                    requests.push(Request { index, len, live, first });
                }
            }
            for (request, offset) in best_fit(requests).0 {
                offsets[request.index] = offset;
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
        let layouts: Vec<Layout> = (0..program.tensors.len()).map(layout).collect();
        let end = |arena: Arena| {
            let is_there = |index: usize| {
                let root = program.root(TensorId(index)).0;
                let is_fixed = matches!(program.tensor(root).home, Home::At(_));
                program.tensors[index].arena == arena && (is_fixed || ranges[root.index()].is_some())
            };
            let inside = (0..layouts.len()).filter(|&index| is_there(index));
            inside.map(|index| layouts[index].end()).max().unwrap_or(0)
        };
        let lens = Arena::ALL.map(end);
        let placed = Executable { program, batch, layouts, lens };
        match placed.program.steps.iter().all(|step| placed.is_apart(step)) {
            true => Ok(placed),
            false => unsound("beside what is read"),
        }
    }

    /// Whether each result of a step lies apart, as a run of memory, from all that the step reads and from its other results. It may be the
    /// very memory of an operand that the op can replace. A backend makes slices of memory, and relies on this.
    fn is_apart(&self, step: &Step) -> bool {
        // The sum of gradients takes their place, and no backend computes it.
        if matches!(step.op, Op::AllReduceStart(_)) {
            return true;
        }
        let results = step.results.iter().enumerate();
        results.into_iter().all(|(k, &result)| {
            let root = self.program.root(result).0;
            let others = step.reads().chain(step.results[..k].iter().copied());
            is_executable(&self.program, step, root)
                && others.into_iter().all(|other| {
                    let [a, b] = [result, other].map(|id| self.layouts[id.index()]);
                    let is_elsewhere = self.program.tensor(result).arena != self.program.tensor(other).arena;
                    let is_related = self.program.root(other).0 == root;
                    is_elsewhere || is_related || a.end() <= b.offset || b.end() <= a.offset
                })
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
    pub fn is_in_place(&self, step: &Step, operand: usize) -> bool {
        self.program.is_same_memory(step.operands[operand], step.results[0])
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
        program.tensors[a.index()].arena = Arena::Statistics;
        assert!(
            refused(program)
                .contains("conv2d: a result is in the statistics, but must be in the activations")
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
