//! Live ranges of tensors, and the check that no step overwrites a live tensor.

use crate::ops::{AllGather, Concat, Slice};
use crate::{Arena, Error, Home, Op, Program, Result, Shape, Span, Step, TensorId};
use core::ops::Range;

/// The first step that writes a piece of memory, and the last one that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// The number of the first step.
    pub from: usize,
    /// The number of the last step.
    pub to: usize,
}

impl LiveRange {
    /// Whether two ranges have a step in common.
    pub fn overlaps(self, other: LiveRange) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// A step that overwrites a live tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The step's number.
    pub step: usize,
    /// The tensor that it writes.
    pub written: TensorId,
    /// The tensor that it destroys.
    pub needed: TensorId,
}

/// When each tensor is written and read.
struct Uses {
    /// By tensor: the step that writes it; `None` for inputs.
    written: Vec<Option<usize>>,
    /// By tensor: the last step that reads it; `None` if nothing does.
    read: Vec<Option<usize>>,
}

impl Uses {
    fn new(program: &Program) -> Self {
        let count = program.tensors.len();
        let mut uses = Uses { written: vec![None; count], read: vec![None; count] };
        for (k, step) in program.steps.iter().enumerate() {
            step.results.iter().for_each(|id| uses.written[id.index()] = Some(k));
            step.reads().for_each(|id| uses.read[id.index()] = Some(k));
        }
        program.kept().for_each(|id| uses.read[id.index()] = Some(program.steps.len()));
        uses
    }
}

/// The results that a step writes. If tensors lie inside of each other, a concatenation or a slice writes
/// none.
fn writes(program: &Program, step: &Step) -> Vec<(TensorId, Range<usize>)> {
    let channels = |id: TensorId| {
        let (root, from) = program.root(id);
        (root, from..from + program.shape(id).c)
    };
    match step.op {
        Op::Concat(Concat) => copied_parts(program, step)
            .map(|(_, range)| {
                let (root, from) = program.root(step.results[0]);
                (root, from + range.start..from + range.end)
            })
            .collect(),
        Op::Slice(Slice { from, .. }) if is_inside(program, step.results[0], step.operands[0], from) => {
            Vec::new()
        }
        _ => step.results.iter().map(|&id| channels(id)).collect(),
    }
}

/// Whether the memory of `part` is that of some channels of `whole`.
pub(crate) fn is_inside(program: &Program, part: TensorId, whole: TensorId, channel: usize) -> bool {
    let ((of_part, at), (of_whole, from)) = (program.root(part), program.root(whole));
    of_part == of_whole && at == from + channel
}

/// The numbers of the operands of a concatenation that don't lie inside of the result yet, with the channels that they go to.
pub(crate) fn copied_parts<'a>(
    program: &'a Program,
    step: &'a Step,
) -> impl Iterator<Item = (usize, Range<usize>)> + 'a {
    let mut from = 0;
    step.operands.iter().enumerate().filter_map(move |(operand, &part)| {
        let range = from..from + program.shape(part).c;
        from = range.end;
        (!is_inside(program, part, step.results[0], range.start)).then_some((operand, range))
    })
}

/// Checks that each tensor inside of another one is a range of its channels, in the same arena.
pub(crate) fn homes_fit(program: &Program) -> Result<()> {
    for (index, tensor) in program.tensors.iter().enumerate() {
        let (mut inner, mut depth) = (tensor, 0);
        while let Home::In(outer, channel) = inner.home {
            let outer = program.tensor(outer);
            let (part, whole) = (inner.shape, outer.shape);
            let is_range = part.with_c(whole.c) == whole && channel.saturating_add(part.c) <= whole.c;
            depth += 1;
            if !is_range || inner.arena != outer.arena || depth > program.tensors.len() {
                let (what, value) = ("the place of a tensor", index as f64);
                let accepted = "a range of another tensor's channels";
                return Err(Error::Value { op: "place", what, value, accepted });
            }
            inner = outer;
        }
    }
    Ok(())
}

/// Checks that a step's results have the shapes and arenas that its op gives them.
pub(crate) fn fits(program: &Program, step: &Step) -> Result<()> {
    let op = step.op.name();
    let shapes: Vec<Shape> = step.operands.iter().map(|&id| program.shape(id)).collect();
    let expected = step.op.results(&shapes)?;
    Error::check_len(op, "the list of results", Span::new(0, step.results.len()), expected.len())?;
    for (k, (&id, shape)) in step.results.iter().zip(expected).enumerate() {
        Error::check_shape(op, "a result", program.shape(id), shape)?;
        let [value, accepted] = [program.tensor(id).arena, step.op.arena(k)].map(Arena::place);
        if value != accepted {
            return Err(Error::Option { op, what: "a result", value, accepted });
        }
    }
    let alike = |onto| program.is_same_memory(onto, step.results[0]);
    match step.onto {
        Some(onto) if !(step.op.adds() && alike(onto)) => {
            let accepted = "an op that can, in the memory of that tensor";
            Err(Error::Option { op, what: "the op", value: "added to a tensor", accepted })
        }
        _ => Ok(()),
    }
}

/// The first step that overwrites a tensor before its last reader. A sound program has none.
pub fn conflict(program: &Program) -> Option<Conflict> {
    let uses = Uses::new(program);
    let places: Vec<_> = (0..program.tensors.len()).map(|id| program.root(TensorId(id))).collect();
    program.steps.iter().enumerate().find_map(|(k, step)| {
        let writes = writes(program, step);
        let needed = (0..places.len()).map(TensorId).find(|&id| {
            let (root, from) = places[id.index()];
            let shares = |(of, range): &(TensorId, Range<usize>)| {
                *of == root && range.start < from + program.shape(id).c && from < range.end
            };
            let is_own = step.results.contains(&id);
            let is_there = uses.written[id.index()].is_none_or(|written| written < k);
            let is_read = uses.read[id.index()]
                .is_some_and(|read| read > k || read == k && !may_replace(program, step, id));
            !is_own && is_there && is_read && writes.iter().any(shares)
        })?;
        Some(Conflict { step: k, written: step.results[0], needed })
    })
}

/// Whether a step may write its first result over an operand.
fn may_replace(program: &Program, step: &Step, id: TensorId) -> bool {
    let in_place = step.op.in_place().iter().any(|&at| step.operands[at] == id);
    let once = step.reads().filter(|&read| program.overlap(read, id)).count() == 1;
    let is_part = matches!(step.op, Op::AllGather(AllGather { rank, .. })
        if is_inside(program, id, step.results[0], rank * program.shape(id).c));
    is_part || (in_place || step.onto == Some(id)) && once && program.is_same_memory(id, step.results[0])
}

/// The live range of the memory of each root tensor: from the first write to the last read of any tensor in
/// it. `None` for memory that is not [placed](crate::Arena::is_placed), and for tensors within another.
pub fn live_ranges(program: &Program) -> Vec<Option<LiveRange>> {
    let uses = Uses::new(program);
    let mut ranges: Vec<Option<LiveRange>> = vec![None; program.tensors.len()];
    for (index, tensor) in program.tensors.iter().enumerate() {
        // A tensor that passes have removed is neither written nor read.
        let is_used = uses.written[index].or(uses.read[index]).is_some();
        if !is_used || !tensor.arena.is_placed() || matches!(tensor.home, Home::At(_)) {
            continue;
        }
        let from = uses.written[index].unwrap_or(0);
        let to = uses.read[index].unwrap_or(from).max(from);
        let range = ranges[program.root(TensorId(index)).0.index()].get_or_insert(LiveRange { from, to });
        *range = LiveRange { from: range.from.min(from), to: range.to.max(to) };
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Layers;

    #[test]
    fn what_is_overwritten_too_early_is_found() {
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, a);
        let sum = net.add(b, a);
        let mut program = net.finish(sum);
        assert_eq!(conflict(&program), None);
        // Step 1 would overwrite what step 2 reads.
        program.tensors[b.index()].home = Home::In(a, 0);
        assert_eq!(conflict(&program), Some(Conflict { step: 1, written: b, needed: a }));
        program.tensors[b.index()].home = Home::Free;
        program.tensors[sum.index()].home = Home::In(b, 0);
        assert_eq!(conflict(&program), None);
        // Nothing may lie where the input is: it is kept.
        program.tensors[sum.index()].home = Home::In(program.input, 0);
        assert_eq!(conflict(&program).map(|conflict| conflict.needed), Some(program.input));
    }

    #[test]
    fn a_tensor_lives_from_its_first_part_to_its_last_reader() {
        let mut net = Layers::new([4, 4, 3]);
        let (a, b) = (net.conv("a", 2, net.input()), net.conv("b", 3, net.input()));
        let both = net.concat(&[a, b]);
        let c = net.conv("c", 2, both);
        let program = crate::passes::inference(net.finish(c));
        let ranges = live_ranges(&program);
        assert_eq!(ranges[both.index()], Some(LiveRange { from: 0, to: 3 }));
        assert_eq!((ranges[a.index()], ranges[b.index()]), (None, None));
        assert_eq!(ranges[c.index()], Some(LiveRange { from: 3, to: 4 }));
    }
}
