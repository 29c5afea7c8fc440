//! Live ranges of tensors, and the check that no step overwrites a live tensor.

use crate::ops::{AllGather, Concat, Slice};
use crate::{Home, Op, Program, Step, TensorId};
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

/// The tensors that share memory, and the steps that use them. Steps stay as they are meanwhile.
pub(crate) struct Sharing {
    uses: Uses,
    /// By tensor: the steps that read or write it.
    steps: Vec<Vec<usize>>,
    /// By root: all tensors in its memory.
    inside: Vec<Vec<TensorId>>,
}

impl Sharing {
    pub(crate) fn new(program: &Program) -> Self {
        let count = program.tensors.len();
        let (mut steps, mut inside) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (k, step) in program.steps.iter().enumerate() {
            step.reads().chain(step.results.iter().copied()).for_each(|id| steps[id.index()].push(k));
        }
        for id in (0..count).map(TensorId) {
            inside[program.root(id).0.index()].push(id);
        }
        Sharing { uses: Uses::new(program), steps, inside }
    }

    /// Whether no step behind step `k`, nor a caller, reads a tensor's memory.
    pub(crate) fn is_dead_after(&self, program: &Program, id: TensorId, k: usize) -> bool {
        let is_read = |other: &TensorId| self.uses.read[other.index()].is_some_and(|read| read > k);
        let others = &self.inside[program.root(id).0.index()];
        !others.iter().any(|&other| is_read(&other) && program.overlap(other, id))
    }

    /// Puts a free tensor inside of another one.
    pub(crate) fn put(&mut self, program: &mut Program, part: TensorId, whole: TensorId, channel: usize) {
        program.tensors[part.index()].home = Home::In(whole, channel);
        let own = core::mem::take(&mut self.inside[part.index()]);
        self.inside[program.root(whole).0.index()].extend(own);
    }

    /// The same, unless a condition fails for a step that uses the memory, or a step overwrites a tensor too early.
    pub(crate) fn put_if(
        &mut self,
        program: &mut Program,
        (part, whole, channel): (TensorId, TensorId, usize),
        holds: impl Fn(&Program, &Step, TensorId) -> bool,
    ) {
        let root = program.root(whole).0;
        let before = self.inside[root.index()].len();
        self.put(program, part, whole, channel);
        let of_tensor = |id: &TensorId| self.steps[id.index()].iter().copied();
        let mut steps: Vec<usize> = self.inside[root.index()].iter().flat_map(of_tensor).collect();
        steps.sort_unstable();
        steps.dedup();
        let is_sound =
            |&k: &usize| holds(program, &program.steps[k], root) && self.conflict_at(program, k).is_none();
        if !steps.iter().all(is_sound) {
            program.tensors[part.index()].home = Home::Free;
            self.inside[part.index()] = self.inside[root.index()].split_off(before);
        }
    }

    /// The tensor that step `k` overwrites too early.
    fn conflict_at(&self, program: &Program, k: usize) -> Option<Conflict> {
        let step = &program.steps[k];
        let is_needed = |&id: &TensorId| {
            let [written, read] = [&self.uses.written, &self.uses.read].map(|uses| uses[id.index()]);
            let is_own = step.results.contains(&id);
            let is_there = written.is_none_or(|written| written < k);
            let is_read = read.is_some_and(|read| read > k || read == k && !may_replace(program, step, id));
            !is_own && is_there && is_read
        };
        let destroyed = |(root, range): (TensorId, Range<usize>)| {
            let shares = move |id: &TensorId| {
                let from = program.root(*id).1;
                range.start < from + program.shape(*id).c && from < range.end
            };
            self.inside[root.index()].iter().copied().filter(shares).filter(is_needed).min()
        };
        let needed = writes(program, step).into_iter().filter_map(destroyed).min()?;
        Some(Conflict { step: k, written: step.results[0], needed })
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

/// The first step that overwrites a tensor before its last reader. A sound program has none.
pub fn conflict(program: &Program) -> Option<Conflict> {
    let sharing = Sharing::new(program);
    (0..program.steps.len()).find_map(|k| sharing.conflict_at(program, k))
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
