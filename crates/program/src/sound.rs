//! The rules of a program that may be placed. Devices make slices of memory, and rely on them:
//!
//! 1. Each tensor exists. It lies where the caller laid it out, among the channels of another tensor, or where
//!    [`place`](crate::Executable::place) puts it: [`homes_fit`].
//! 2. Each operand and result has the shape and the arena that its op asks for. Results lie in arenas that a program
//!    may write: [`fits`].
//! 3. A tensor that `place` puts somewhere is written once, and before it is read: [`is_written_once`]. The caller
//!    writes the input, unless a step that comes before all its readers does, as in a stage of a pipeline.
//! 4. No step overwrites a tensor that a later step reads: [`conflict`](crate::conflict).
//! 5. In memory, a step's results lie apart from each other and from all that it reads, except for an operand whose
//!    place the op can take: `Executable::is_sound`.
//!
//! The fields of a program are public, so all of it is checked when a program is placed, and the second rule also
//! when a step is added.

use crate::{Arena, Error, Home, Kind, Op, Phase, Program, Result, Shape, Step, TensorId};

/// The first rule, for all tensors.
pub(crate) fn homes_fit(program: &Program) -> Result<()> {
    let refused = |index: usize, accepted| {
        let (op, what, value) = ("place", "the number of a tensor", index as f64);
        Err(Error::Value { op, what, value, accepted })
    };
    let count = program.tensors.len();
    if let Some(id) = mentioned(program).find(|id| id.0 >= count) {
        return refused(id.0, "below the number of tensors");
    }
    if program.gradients.len() != count {
        return refused(program.gradients.len(), "the number of entries for gradients, one a tensor");
    }
    for (index, tensor) in program.tensors.iter().enumerate() {
        if !tensor.arena.is_batched() && tensor.shape != Shape::vectors(1, tensor.shape.c) {
            return refused(index, "that of a run, outside of batches");
        }
        let (mut inner, mut depth) = (tensor, 0);
        while let Home::In(outer, channel) = inner.home {
            let outer = program.tensor(outer);
            let (part, whole) = (inner.shape, outer.shape);
            let is_range = part.with_c(whole.c) == whole && channel.saturating_add(part.c) <= whole.c;
            depth += 1;
            if !is_range || inner.arena != outer.arena || depth > count {
                return refused(index, "that of a range of another tensor's channels");
            }
            inner = outer;
        }
    }
    Ok(())
}

/// The second rule, for the tensors that the caller reads and writes.
pub(crate) fn ends_fit(program: &Program) -> Result<()> {
    let mut ends = program.kept().chain(program.output_gradient);
    ends.try_for_each(|id| is_at_home(program, "place", &Kind::batch("an input or output"), id))
}

/// The tensors that a program names.
fn mentioned(program: &Program) -> impl Iterator<Item = TensorId> {
    let outer = program.tensors.iter().filter_map(|tensor| match tensor.home {
        Home::In(outer, _) => Some(outer),
        Home::Free | Home::At(_) => None,
    });
    let in_steps = program.steps.iter().flat_map(|step| step.reads().chain(step.results.iter().copied()));
    let gradients = program.gradients.iter().flatten().map(|(id, _)| *id);
    outer.chain(in_steps).chain(gradients).chain(program.kept()).chain(program.output_gradient)
}

/// The second rule, for one step.
pub(crate) fn fits(program: &Program, step: &Step) -> Result<()> {
    let op = step.op.name();
    all_at_home(program, op, "the list of operands", step.op.operands(), &step.operands)?;
    let shapes: Vec<Shape> = step.operands.iter().map(|&id| program.shape(id)).collect();
    let expected = step.op.shapes(&shapes)?;
    if step.results.len() != expected.len() {
        let (what, got, expected) = ("the list of results", step.results.len(), expected.len());
        return Err(Error::Length { op, what, expected, got });
    }
    all_at_home(program, op, "the list of results", step.op.results(), &step.results)?;
    for (&id, shape) in step.results.iter().zip(expected) {
        Error::check_shape(op, "a result", program.shape(id), shape)?;
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

impl Program {
    /// Adds a step behind all others. Its last results are those that are given; the ones before are new.
    /// All are returned.
    pub(crate) fn push(
        &mut self,
        op: Op,
        operands: &[TensorId],
        given: &[TensorId],
        (layer, phase, pass): (usize, Phase, &'static str),
    ) -> Result<Vec<TensorId>> {
        let known = self.tensors.len();
        if let Some(id) = operands.iter().chain(given).find(|id| id.0 >= known) {
            let (what, accepted) = ("the number of a tensor", "one of this program's");
            return Err(Error::Value { op: op.name(), what, value: id.0 as f64, accepted });
        }
        let shapes: Vec<Shape> = operands.iter().map(|&id| self.shape(id)).collect();
        let expected = op.shapes(&shapes)?;
        let Some(new) = expected.len().checked_sub(given.len()) else {
            let (what, expected, got) = ("the list of given results", expected.len(), given.len());
            return Err(Error::Length { op: op.name(), what, expected, got });
        };
        let mut results = Vec::with_capacity(expected.len());
        for (k, shape) in expected.into_iter().enumerate() {
            let arena = Kind::of(op.results(), k).map_or(Arena::Activations, |kind| kind.arenas[0]);
            results.push(match given.get(k.wrapping_sub(new)) {
                Some(&id) => id,
                None => self.add_tensor(shape, arena, Home::Free),
            });
        }
        let step =
            Step { op, operands: operands.into(), results: results.clone(), onto: None, layer, phase, pass };
        fits(self, &step)?;
        self.steps.push(step);
        Ok(results)
    }
}

fn all_at_home(
    program: &Program,
    op: &'static str,
    what: &'static str,
    kinds: &'static [Kind],
    ids: &[TensorId],
) -> Result<()> {
    if !Kind::count_fits(kinds, ids.len()) {
        return Err(Error::Length { op, what, expected: kinds.len(), got: ids.len() });
    }
    let pairs = ids.iter().enumerate().filter_map(|(k, &id)| Some((Kind::of(kinds, k)?, id)));
    pairs.into_iter().try_for_each(|(kind, id)| is_at_home(program, op, &kind, id))
}

/// Checks that a tensor lies in the arena of its kind, and that its place there is known.
fn is_at_home(program: &Program, op: &'static str, kind: &Kind, id: TensorId) -> Result<()> {
    let refused = |got, accepted| Err(Error::Place { op, what: kind.name, got, accepted });
    let (arena, home) = (program.tensor(id).arena, program.tensor(program.root(id).0).home);
    if !kind.arenas.contains(&arena) {
        return refused(arena.place(), kind.arenas[0].place());
    }
    match home {
        Home::Free if !arena.is_placed() => refused("free", "at a place that the caller gives"),
        // Devices read labels from the first one on.
        Home::At(offset) if arena == Arena::Labels && offset > 0 => {
            refused("behind others", "the first in their memory")
        }
        _ => Ok(()),
    }
}

/// The third rule.
pub(crate) fn is_written_once(program: &Program) -> bool {
    let mut written = vec![false; program.tensors.len()];
    let is_free = |id: TensorId| program.tensor(program.root(id).0).home == Home::Free;
    for step in &program.steps {
        // A step that reads the input before any has written it shows that the caller has.
        written[program.input.0] |= step.reads().any(|id| id == program.input);
        if !step.reads().all(|id| written[id.0] || !is_free(id)) {
            return false;
        }
        for id in step.results.iter().filter(|&&id| is_free(id) || id == program.input) {
            if core::mem::replace(&mut written[id.0], true) {
                return false;
            }
        }
    }
    program.kept().all(|id| written[id.0] || id == program.input || !is_free(id))
}

/// Whether a step starts the all-reduce of a bucket. Its result is the memory of its operands.
pub(crate) fn is_bucket(step: &Step) -> bool {
    matches!(step.op, Op::AllReduceStart(_))
}
