//! The memory of a program as slices: the one place where an offset becomes a reference.

use crate::Buffer;
use crate::element::Element;
use core::marker::PhantomData;
use towers_program::{Arena, Executable, Layout, Memory, Result, Step, StepArgs, TensorId, View, ViewMut};

/// The memory of a program, whose size was checked, for steps that work on it one at a time.
pub(crate) struct Arenas<'a, E> {
    program: &'a Executable,
    n: usize,
    activations: *mut E,
    /// By the place in [`Arena::ALL`]; null for those that hold no f32.
    numbers: [*mut f32; Arena::ALL.len()],
    labels: &'a [u32],
    memory: PhantomData<&'a mut [E]>,
}

impl<'a, E: Element> Arenas<'a, E> {
    pub(crate) fn new(
        program: &'a Executable,
        args: &StepArgs,
        memory: Memory<'a, Buffer, Vec<u32>>,
    ) -> Result<Self> {
        let Memory { activations, statistics, params, grads, averages, labels } = memory;
        // Of an activations' buffer in another format there are no numbers.
        let activations = activations.numbers_mut::<E>().unwrap_or_default();
        let lens =
            [activations.len(), statistics.len(), params.len(), grads.len(), averages.len(), labels.len()];
        program.check_memory(args, lens)?;
        // Parameters and averages are only ever read.
        let numbers = [
            core::ptr::null_mut(),
            statistics.as_mut_ptr(),
            params.as_ptr().cast_mut(),
            grads.as_mut_ptr(),
            averages.as_ptr().cast_mut(),
            core::ptr::null_mut(),
        ];
        let activations = activations.as_mut_ptr();
        Ok(Arenas { program, n: args.n, activations, numbers, labels, memory: PhantomData })
    }

    /// The operands and results of a step. The loan ends with the step, so no two steps' slices meet.
    pub(crate) fn of<'s>(&'s mut self, step: &'s Step) -> Operands<'s, 'a, E> {
        Operands { arenas: self, step, lent: 0 }
    }
}

/// The operands and results of one step, as slices.
pub(crate) struct Operands<'s, 'a, E> {
    arenas: &'s mut Arenas<'a, E>,
    step: &'s Step,
    /// A bit for each result that was lent: each is, once.
    lent: u32,
}

impl<'s, E: Element> Operands<'s, '_, E> {
    /// A tensor of activations that the step reads. One whose place the result takes can't be read beside it.
    pub(crate) fn read(&self, operand: TensorId) -> View<'s, [E]> {
        self.view(self.readable(operand))
    }

    /// A tensor of activations that is a result.
    pub(crate) fn write(&mut self, result: TensorId) -> ViewMut<'s, [E]> {
        let id = self.result(result);
        let layout = self.arenas.program.layout(id, self.arenas.n);
        self.part(id, layout)
    }

    /// A part of the first result, for a step that writes one part after the other.
    pub(crate) fn write_part(&mut self, layout: Layout) -> ViewMut<'_, [E]> {
        self.part(self.step.results[0], layout)
    }

    /// A run of f32 that the step reads.
    pub(crate) fn run(&self, operand: TensorId) -> &'s [f32] {
        let id = self.readable(operand);
        let (first, len) = self.place(id);
        // SAFETY: as for `part`; the run is not written, as `readable` made sure.
        unsafe { core::slice::from_raw_parts(first, len) }
    }

    /// A run of f32 that is a result.
    pub(crate) fn run_mut(&mut self, result: TensorId) -> &'s mut [f32] {
        let id = self.result(result);
        let (first, len) = self.place(id);
        // SAFETY: as for `part`; `result` lends each result once.
        unsafe { core::slice::from_raw_parts_mut(first, len) }
    }

    /// The same for a result that the step may lack: nothing then.
    pub(crate) fn optional_run_mut(&mut self, result: Option<TensorId>) -> &'s mut [f32] {
        result.map_or_else(Default::default, |result| self.run_mut(result))
    }

    pub(crate) fn labels(&self) -> &'s [u32] {
        self.arenas.labels
    }

    fn readable(&self, id: TensorId) -> TensorId {
        assert!(self.step.operands.contains(&id), "a step reads its operands");
        let program = self.arenas.program.program();
        let is_written = self.step.results.iter().any(|&result| program.is_same_memory(result, id));
        assert!(!is_written, "an operand in whose place the result lies is not read beside it");
        id
    }

    fn result(&mut self, id: TensorId) -> TensorId {
        let result = self.step.results.iter().position(|&result| result == id);
        let bit = 1 << result.expect("a step writes its results");
        assert!(self.lent & bit == 0, "a result is lent once");
        self.lent |= bit;
        id
    }

    fn view(&self, id: TensorId) -> View<'s, [E]> {
        let layout = self.arenas.program.layout(id, self.arenas.n);
        debug_assert_eq!(self.arena(id), Arena::Activations);
        // SAFETY: as for `part`; nothing writes to it, as `readable` made sure.
        let data =
            unsafe { core::slice::from_raw_parts(self.arenas.activations.add(layout.offset), len(layout)) };
        View::new(data, Layout { offset: 0, ..layout })
    }

    fn part(&self, id: TensorId, layout: Layout) -> ViewMut<'s, [E]> {
        debug_assert_eq!(self.arena(id), Arena::Activations);
        // SAFETY: `check_memory` made sure that every tensor lies inside of its arena. `Executable::place` made sure of three things.
        // Operands and results lie in the arenas of their kinds. No result lies in an arena that is only read. Each result
        // lies apart from the step's other tensors, except an operand whose place it takes: `readable` refuses that one.
        // The arenas are borrowed as long as the slices, and exclusively where they are written.
        let data = unsafe {
            core::slice::from_raw_parts_mut(self.arenas.activations.add(layout.offset), len(layout))
        };
        ViewMut::new(data, Layout { offset: 0, ..layout })
    }

    /// The first number and the length of a run of f32.
    fn place(&self, id: TensorId) -> (*mut f32, usize) {
        let (first, span) = (self.arenas.numbers[self.arena(id) as usize], self.arenas.program.span(id));
        debug_assert!(!first.is_null(), "{} hold no runs of f32", self.arena(id));
        // SAFETY: the run lies inside of its arena, as `check_memory` made sure. That is the arena of the operand's kind, as
        // `Executable::place` made sure, and holds f32.
        (unsafe { first.add(span.offset) }, span.len)
    }

    fn arena(&self, id: TensorId) -> Arena {
        self.arenas.program.program().tensor(id).arena
    }
}

/// Elements from the first to the last one of a layout.
fn len(layout: Layout) -> usize {
    layout.end() - layout.offset
}
