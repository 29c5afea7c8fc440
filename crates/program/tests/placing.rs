//! Programs at random, some of them broken. What is placed computes what it says, step by step, whatever memory its
//! tensors share; and it runs on the CPU and on the reference.
#![allow(clippy::unwrap_used)]

use core::ops::Range;
use proptest::prelude::*;
use std::collections::HashMap;
use towers_program::ops::*;
use towers_program::passes::{self, Training};
use towers_program::{
    Activation, Arena, BatchNorm, Builder, Conv2d, Device, Executable, Home, Layout, Memory, Noise, Op, Pad,
    Parameter, Phase, Pool2d, Program, Shape, Span, Step, StepArgs, Target, TensorId,
};

const BATCH: usize = 3;

/// A network that grows op by op.
struct Net {
    builder: Builder,
    /// The end of all runs that were laid out.
    end: usize,
    images: Vec<TensorId>,
}

impl Net {
    fn span(&mut self, len: usize) -> Span {
        self.end += len;
        Span::new(self.end - len, len)
    }

    fn parameter(&mut self, len: usize) -> TensorId {
        let span = self.span(len);
        self.builder.parameter(Parameter { name: format!("p{}", span.offset), span, trained: true })
    }

    fn push(&mut self, op: impl Into<Op>, operands: &[TensorId], given: &[TensorId]) {
        let y = self.builder.push(op, operands, given).unwrap()[0];
        self.images.push(y);
    }

    /// One more op of kind `op`, which reads the tensors that `a` and `b` choose.
    fn grow(&mut self, op: usize, a: usize, b: usize) {
        let [x, other] = [a, b].map(|k| self.images[k % self.images.len()]);
        let shape = self.builder.shape(x);
        let act = Activation::ALL[b % Activation::ALL.len()];
        let bn = BatchNorm { epsilon: 1e-3, act };
        match op {
            0 | 1 => {
                let conv = Conv2d::new(shape.c, 2, [1; 2]);
                let mut operands = vec![x, self.parameter(conv.weights())];
                operands.extend((op == 1).then(|| self.parameter(2)));
                self.push(Conv2dForward { conv, act }, &operands, &[]);
            }
            2 => {
                let [gamma, beta] = [(); 2].map(|()| self.parameter(shape.c));
                let sums = self.span(2 * shape.c);
                let sums = self.builder.fixed("sums", Arena::Gradients, sums);
                self.push(BatchNormTrain { bn }, &[x, gamma, beta], &[sums]);
            }
            3 => {
                let [gamma, beta] = [(); 2].map(|()| self.parameter(shape.c));
                self.push(GroupNorm { groups: 1, epsilon: 1e-3, act }, &[x, gamma, beta], &[]);
            }
            4 => self.push(Activate { act }, &[x], &[]),
            5 if self.builder.shape(other) == shape => self.push(Add { act }, &[x, other], &[]),
            5 | 6 => self.push(Concat, &[x, other], &[]),
            7 => self.push(Slice { from: b % shape.c, channels: 1 }, &[x], &[]),
            8 => self.push(Scale { factor: 0.5 }, &[x], &[]),
            9 => self.push(Dropout { rate: 0.5, noise: Noise::Element, domain: 1 }, &[x], &[]),
            _ => {
                let pool = Pool2d::new([1; 2], [1; 2], Pad::VALID);
                if op == 10 {
                    self.push(MaxPool { pool }, &[x], &[]);
                } else {
                    self.push(AveragePool { pool }, &[x], &[]);
                }
            }
        }
    }

    /// The forward pass, with its loss.
    fn finish(mut self) -> Program {
        let all = self.images.clone();
        self.push(Concat, &all, &[]);
        let last = self.images[self.images.len() - 1];
        self.push(Reshape { to: self.builder.shape(last).flatten() }, &[last], &[]);
        let logits = self.images[self.images.len() - 1];
        let labels = self.builder.fixed("labels", Arena::Labels, Span::new(0, Target::WORDS));
        let metrics = self.span(2);
        let metrics = self.builder.fixed("metrics", Arena::Gradients, metrics);
        let loss = CrossEntropy { gradient: true, multi_label: false };
        let results = self.builder.in_phase(Phase::Loss).push(loss, &[logits, labels], &[metrics]).unwrap();
        Program { output_gradient: Some(results[0]), ..self.builder.finish(logits) }
    }
}

/// A sound program, made by some of the passes. `None` where a gradient is refused: of an op that has none.
fn program(ops: &[(usize, usize, usize)], way: usize) -> Option<Program> {
    let builder = Builder::new(Shape::new(1, 2, 2, 2));
    let mut net = Net { images: vec![builder.input()], builder, end: 0 };
    net.builder.layer("all");
    ops.iter().for_each(|&(op, a, b)| net.grow(op, a, b));
    let forward = net.finish();
    let options = Training {
        input_gradient: way.is_multiple_of(2),
        recompute: way.is_multiple_of(3),
        sync_batch_norm: None,
        bucket: (way == 5).then_some(4),
    };
    match way {
        0 => Some(passes::inference(forward)),
        1 => passes::differentiate(forward, true).ok(),
        _ => passes::training(forward, options).ok(),
    }
}

/// All tensors that a program names.
fn ids(program: &Program) -> Vec<TensorId> {
    let all = program.steps.iter().flat_map(|step| step.reads().chain(step.results.iter().copied()));
    all.chain([program.input, program.output]).collect()
}

/// Breaks something, or nothing.
fn break_one(program: &mut Program, [what, k, m, n]: [usize; 4]) {
    let (ids, count) = (ids(program), program.steps.len());
    let [id, any] = [m, n].map(|at| ids[at % ids.len()]);
    let alike: Vec<TensorId> =
        ids.iter().copied().filter(|&x| program.shape(x) == program.shape(id)).collect();
    let alike = alike[n % alike.len()];
    let whole = ids.iter().copied().filter(|&x| program.shape(x).c > program.shape(id).c).nth(n % 4);
    let (tensor, step) = (&mut program.tensors[id.index()], &mut program.steps[k % count]);
    match what {
        0 => tensor.home = Home::Free,
        1 => tensor.home = Home::At(n % 40),
        2 => tensor.home = Home::In(alike, 0),
        3 => tensor.home = Home::In(whole.unwrap_or(any), n % 3),
        4 => tensor.arena = Arena::ALL[n % Arena::ALL.len()],
        5 => tensor.shape.c = n % 4,
        6 if !step.operands.is_empty() => {
            let at = m % step.operands.len();
            step.operands[at] = alike;
        }
        7 if !step.results.is_empty() => {
            let at = m % step.results.len();
            step.results[at] = alike;
        }
        8 => program.steps.swap(k % count, m % count),
        9 => drop(program.steps.remove(k % count)),
        10 => {
            let again = step.clone();
            program.steps.insert(m % count, again);
        }
        11 => step.onto = (n.is_multiple_of(2)).then_some(id),
        12 => {
            if let Op::Slice(slice) = &mut step.op {
                slice.from = n % 3;
            }
        }
        13 => program.output = any,
        _ => {}
    }
}

/// The number that stands for element `k` of a result of a step: all differ.
fn fresh(step: usize, result: usize, k: usize) -> u64 {
    (step as u64 + 1) << 40 | (result as u64) << 32 | k as u64
}

/// The elements of a tensor, in the order (sample, row, column, channel).
fn elements(at: Layout) -> impl Iterator<Item = usize> {
    let rows = if at.shape.is_empty() { 0 } else { at.shape.rows() };
    (0..rows).flat_map(move |row| (0..at.shape.c).map(move |c| at.offset + row * at.stride + c))
}

/// A program twice: on tensors that share nothing, and on the memory that it was placed in. A number stands for each element.
struct Simulation<'a> {
    placed: &'a Executable,
    /// By tensor.
    apart: HashMap<usize, Vec<u64>>,
    memory: HashMap<(Arena, usize), u64>,
}

impl Simulation<'_> {
    fn layout(&self, id: TensorId) -> Layout {
        self.placed.layout(id, self.placed.batch())
    }

    fn arena(&self, id: TensorId) -> Arena {
        self.placed.program().tensor(id).arena
    }

    /// What the caller has put into memory, where nothing was written yet.
    fn in_memory(&self, arena: Arena, element: usize) -> u64 {
        let of_caller = (arena as u64) << 32 | element as u64;
        self.memory.get(&(arena, element)).copied().unwrap_or(of_caller)
    }

    /// What a tensor holds, the same in both.
    fn read(&mut self, id: TensorId) -> Vec<u64> {
        let arena = self.arena(id);
        let there: Vec<u64> = elements(self.layout(id)).map(|at| self.in_memory(arena, at)).collect();
        let expected = self.apart.entry(id.index()).or_insert_with(|| there.clone());
        assert_eq!(&there, expected, "{} was overwritten", self.placed.program().name(id));
        there
    }

    fn write(&mut self, id: TensorId, values: Vec<u64>, into_memory: bool) {
        let arena = self.arena(id);
        assert!(!matches!(arena, Arena::Parameters | Arena::Averages | Arena::Labels), "written: {arena}");
        if into_memory {
            let places = elements(self.layout(id)).map(|at| (arena, at));
            self.memory.extend(places.zip(values.iter().copied()));
        }
        self.apart.insert(id.index(), values);
    }

    /// What a step does, and that its slices of memory are apart.
    fn step(&mut self, k: usize, step: &Step) {
        let read: Vec<Vec<u64>> = step.reads().map(|id| self.read(id)).collect();
        match step.op {
            Op::AllReduceStart(_) => {}
            Op::Concat(_) => {
                let copied: Vec<usize> =
                    self.placed.copied_parts(step, BATCH).map(|(part, _)| part).collect();
                let (parts, y) = (read.iter().zip(&step.operands), step.results[0]);
                let program = self.placed.program();
                let rows = self.layout(y).shape.rows();
                let values = (0..rows).flat_map(|row| {
                    parts.clone().flat_map(move |(values, id)| {
                        let c = program.shape(*id).c;
                        values[row * c..(row + 1) * c].iter().copied()
                    })
                });
                let values: Vec<u64> = values.collect();
                copied.iter().for_each(|&part| self.are_apart(step.operands[part], y));
                // Parts inside of the result have these values already.
                self.write(y, values, true);
            }
            Op::Slice(Slice { from, channels }) => {
                let (x, y) = (step.operands[0], step.results[0]);
                let c = self.placed.program().shape(x).c;
                let rows = read[0].chunks(c).flat_map(|row| row[from..from + channels].iter().copied());
                let (values, inside) = (rows.collect(), self.placed.is_inside(step, from));
                if !inside {
                    self.are_apart(x, y);
                }
                self.write(y, values, !inside);
            }
            _ => {
                for (r, &y) in step.results.iter().enumerate() {
                    step.results[..r].iter().for_each(|&other| self.are_apart(other, y));
                    for (operand, &x) in step.operands.iter().enumerate() {
                        let takes_place = r == 0 && step.op.in_place().contains(&operand);
                        if !(takes_place && self.placed.program().is_same_memory(x, y)) {
                            self.are_apart(x, y);
                        }
                    }
                    let count = self.layout(y).shape.len();
                    self.write(y, (0..count).map(|at| fresh(k, r, at)).collect(), true);
                }
            }
        }
    }

    /// From the first to the last element, as slices are.
    fn are_apart(&self, a: TensorId, b: TensorId) {
        let range = |id: TensorId| -> Range<usize> { self.layout(id).offset..self.layout(id).end() };
        let (of_a, of_b) = (range(a), range(b));
        let apart = self.arena(a) != self.arena(b) || of_a.end <= of_b.start || of_b.end <= of_a.start;
        let name = |id| self.placed.program().name(id);
        assert!(apart || of_a.is_empty() || of_b.is_empty(), "{} and {} overlap", name(a), name(b));
    }

    fn run(placed: &Executable) {
        let mut all = Simulation { placed, apart: HashMap::new(), memory: HashMap::new() };
        placed.program().steps.iter().enumerate().for_each(|(k, step)| all.step(k, step));
        placed.program().kept().for_each(|id| drop(all.read(id)));
    }
}

/// Runs a program in memory that is just large enough.
fn run(device: &Device, placed: &Executable) {
    let fill = |arena: Arena| {
        let len = placed.len(arena);
        let mut buffer = match arena {
            Arena::Activations => device.alloc_activations(len).unwrap(),
            _ => device.alloc(len).unwrap(),
        };
        let values: Vec<f32> = (0..len).map(|k| 0.1 + (k % 7) as f32 / 7.0).collect();
        device.upload(&values, &mut buffer, 0).unwrap();
        buffer
    };
    let (mut activations, mut statistics) = (fill(Arena::Activations), fill(Arena::Statistics));
    let (params, mut grads, averages) =
        (fill(Arena::Parameters), fill(Arena::Gradients), fill(Arena::Averages));
    let labels = device.alloc_ints(placed.len(Arena::Labels)).unwrap();
    device.prepare(placed).unwrap();
    let memory = Memory {
        activations: &mut activations,
        statistics: &mut statistics,
        params: &params,
        grads: &mut grads,
        averages: &averages,
        labels: &labels,
    };
    device.run(placed, 0..placed.program().steps.len(), &StepArgs::inference(BATCH), memory).unwrap();
}

fn on_devices(placed: &Executable) {
    Simulation::run(placed);
    run(&towers_tensor_cpu::device(1), placed);
    run(&towers_tensor_cpu::reference(), placed);
}

fn ops() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0..12_usize, 0..9_usize, 0..9_usize), 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever passes make is placed, and computes what it says.
    #[test]
    fn sound_programs_are_placed(ops in ops(), way in 0..8_usize, rest in 0..3_usize) {
        if let Some(program) = program(&ops, way) {
            let text = program.to_string();
            match Executable::place(program, BATCH, rest) {
                Ok(placed) => on_devices(&placed),
                Err(error) => prop_assert!(false, "{error}:\n{text}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// A broken program is refused, or harmless.
    #[test]
    fn broken_programs_are_refused(
        ops in ops(),
        way in 0..8_usize,
        faults in prop::collection::vec([0..14_usize, 0..99, 0..99, 0..99], 1..4),
    ) {
        if let Some(mut program) = program(&ops, way) {
            faults.into_iter().for_each(|fault| break_one(&mut program, fault));
            if let Ok(placed) = Executable::place(program, BATCH, 0) {
                on_devices(&placed);
            }
        }
    }
}
