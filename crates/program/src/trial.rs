use crate::{
    Arena, Backend, Executable, Home, Ints, Layout, Memory, Op, Phase, Program, Result, Shape, Span, Step,
    StepArgs, Storage, Target, Tensor, TensorId, Write,
};
use core::ops::Range;

/// A program of some ops, with the numbers that their tensors hold before it runs: for tests and benchmarks of ops.
///
/// Every tensor has separate memory with other numbers around it. A result may also lie in the place of an
/// operand: [`in_place_of`](Trial::in_place_of).
///
/// ```
/// use towers_program::{Activation, Layout, Shape, Trial, Write, ops::Activate};
///
/// let (shape, mut trial) = (Shape::vectors(2, 3), Trial::new(2));
/// let x = trial.activations(Layout::contiguous(shape), &[1.0, -2.0, 3.0, -4.0, 5.0, -6.0]);
/// let y = trial.activations(Layout::contiguous(shape), &[0.0; 6]);
/// trial.step(Activate { act: Activation::Relu }, &[x], &[y], Write::Set);
/// assert!(trial.executable()?.to_string().contains("= activate relu"));
/// # Ok::<(), towers_program::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    program: Program,
    /// By arena; labels apart.
    numbers: [Vec<f32>; Arena::ALL.len()],
    labels: Vec<u32>,
    batch: usize,
    shift: usize,
    /// Of all steps.
    phase: Phase,
}

/// Tensors begin at a multiple of so many elements, or some elements after it.
const ALIGN: usize = 64;

impl Trial {
    /// For batches of up to `batch` samples.
    pub fn new(batch: usize) -> Self {
        // Programs have an input, which none of these ops reads.
        let shape = Shape::vectors(1, 0);
        let input = Tensor { shape, arena: Arena::Activations, home: Home::At(0), name: None };
        let program = Program {
            tensors: vec![input],
            steps: Vec::new(),
            layers: vec!["trial".to_owned()],
            input: TensorId(0),
            output: TensorId(0),
            output_gradient: None,
            input_gradient: None,
            gradients: vec![None],
        };
        let labels = vec![0; batch.max(1) * Target::WORDS];
        // Devices prepare for training.
        let phase = Phase::Backward;
        Trial { program, numbers: Default::default(), labels, batch, shift: 0, phase }
    }

    /// Runs of numbers begin `shift` elements behind a multiple of 64, which they do not by default.
    pub fn shifted(self, shift: usize) -> Self {
        Trial { shift, ..self }
    }

    /// A program that devices prepare for inference alone.
    pub fn for_inference(self) -> Self {
        Trial { phase: Phase::Forward, ..self }
    }

    /// A batch of activations. `values` are those of the memory in which it lies as `layout` says: the channels of a wider tensor, from channel
    /// `layout.offset` on.
    pub fn activations(&mut self, layout: Layout, values: &[f32]) -> TensorId {
        let whole = layout.shape.with_n(1).with_c(layout.stride);
        let len = values.len().max(whole.len() * self.batch.max(1));
        let offset = self.place(Arena::Activations, 0, values, len);
        let root = self.program.add_tensor(whole, Arena::Activations, Home::At(offset));
        let shape = layout.shape.with_n(1);
        self.program.add_tensor(shape, Arena::Activations, Home::In(root, layout.offset))
    }

    /// A run of numbers.
    pub fn run(&mut self, arena: Arena, values: &[f32]) -> TensorId {
        let offset = self.place(arena, self.shift, values, values.len());
        self.program.add_tensor(Shape::vectors(1, values.len()), arena, Home::At(offset))
    }

    /// The labels of the batch: a number each, or the words of a [`Target`].
    pub fn labels(&mut self, labels: &[u32]) -> TensorId {
        self.labels_of(labels, Target::WORDS)
    }

    /// The labels of the batch, each with up to this number of words.
    pub fn labels_of(&mut self, labels: &[u32], words: usize) -> TensorId {
        self.labels.resize(self.labels.len().max(self.batch.max(1) * words), 0);
        self.labels[..labels.len()].copy_from_slice(labels);
        self.program.add_tensor(Shape::vectors(1, words), Arena::Labels, Home::At(0))
    }

    /// A result in the memory of a tensor.
    pub fn in_place_of(&mut self, id: TensorId) -> TensorId {
        let Tensor { shape, arena, home, .. } = *self.program.tensor(id);
        self.program.add_tensor(shape, arena, home)
    }

    /// Adds a step, which may add its first result to the numbers there: its own, or those of an earlier step in the same memory.
    pub fn step(&mut self, op: impl Into<Op>, operands: &[TensorId], results: &[TensorId], write: Write) {
        let onto = (write == Write::Add).then(|| {
            let mut written = self.program.steps.iter().rev().flat_map(|step| step.results.iter().copied());
            let before = written.find(|&id| self.program.is_same_memory(id, results[0]));
            before.unwrap_or_else(|| self.in_place_of(results[0]))
        });
        self.program.steps.push(Step {
            op: op.into(),
            operands: operands.into(),
            results: results.into(),
            onto,
            layer: 0,
            phase: self.phase,
            pass: "trial",
        });
    }

    /// The program, checked.
    ///
    /// # Errors
    /// As [`Executable::place`].
    pub fn executable(&self) -> Result<Executable> {
        Executable::place(self.program.clone(), self.batch.max(1), 0)
    }

    /// The program on a device, with all numbers in their places.
    ///
    /// # Errors
    /// As [`Executable::place`], and the errors of the device.
    pub fn on(self, device: &dyn Backend) -> Result<TrialRun<'_>> {
        let executable = self.executable()?;
        device.prepare(&executable)?;
        let upload = |arena: Arena| {
            let numbers = &self.numbers[arena as usize];
            let mut buffer = match arena {
                Arena::Activations => device.alloc_activations(numbers.len())?,
                _ => device.alloc(numbers.len())?,
            };
            device.upload(numbers, &mut buffer, 0)?;
            Ok::<_, crate::Error>(buffer)
        };
        let mut labels = device.alloc_ints(self.labels.len())?;
        device.upload_ints(&self.labels, &mut labels)?;
        Ok(TrialRun {
            device,
            executable,
            activations: upload(Arena::Activations)?,
            statistics: upload(Arena::Statistics)?,
            parameters: upload(Arena::Parameters)?,
            gradients: upload(Arena::Gradients)?,
            averages: upload(Arena::Averages)?,
            labels,
            before: self.numbers,
        })
    }

    /// Puts `values` behind all that is there, and leaves room for `len`.
    fn place(&mut self, arena: Arena, shift: usize, values: &[f32], len: usize) -> usize {
        // Numbers that every format holds.
        let between = |k: usize| (k % 13) as f32 - 6.0;
        let numbers = &mut self.numbers[arena as usize];
        let offset = numbers.len().next_multiple_of(ALIGN) + shift;
        let until = (offset + len).next_multiple_of(ALIGN) + 1;
        numbers.extend((numbers.len()..until).map(between));
        numbers[offset..offset + values.len()].copy_from_slice(values);
        offset
    }
}

/// A [`Trial`] on a device.
#[derive(Debug)]
pub struct TrialRun<'a> {
    device: &'a dyn Backend,
    /// The program.
    pub executable: Executable,
    /// Activations.
    pub activations: Storage,
    /// Statistics.
    pub statistics: Storage,
    /// Parameters.
    pub parameters: Storage,
    /// Gradients, sums, metrics.
    pub gradients: Storage,
    /// Running averages.
    pub averages: Storage,
    /// Labels.
    pub labels: Ints,
    before: [Vec<f32>; Arena::ALL.len()],
}

impl TrialRun<'_> {
    /// Runs all steps, and brings the gradients into place.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn run(&mut self, args: &StepArgs) -> Result<()> {
        self.run_steps(0..self.executable.program().steps.len(), args)?;
        let all = Span::new(0, self.before[Arena::Gradients as usize].len());
        self.device.finish_grads(&mut self.gradients, all)
    }

    /// Runs some steps.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn run_steps(&mut self, steps: Range<usize>, args: &StepArgs) -> Result<()> {
        let memory = Memory {
            activations: &mut self.activations,
            statistics: &mut self.statistics,
            params: &self.parameters,
            grads: &mut self.gradients,
            averages: &self.averages,
            labels: &self.labels,
        };
        self.device.run(&self.executable, steps, args, memory)
    }

    /// The numbers of a tensor for a batch of `n` samples.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(&self, id: TensorId, n: usize) -> Result<Vec<f32>> {
        let at = self.executable.layout(id, n);
        let numbers = self.download(self.executable.program().tensor(id).arena)?;
        Ok(pixels(at).flat_map(|pixel| numbers[pixel].iter().copied()).collect())
    }

    /// The batches of activations.
    pub fn activation_ids(&self) -> Vec<TensorId> {
        let tensors = self.executable.program().tensors.iter().enumerate();
        let parts = tensors
            .filter(|(_, tensor)| tensor.arena == Arena::Activations && matches!(tensor.home, Home::In(..)));
        parts.map(|(id, _)| TensorId(id)).collect()
    }

    /// Puts other numbers in the place of a tensor, and of those around it.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write(&mut self, id: TensorId, values: &[f32]) -> Result<()> {
        let root = self.executable.program().root(id).0;
        let (arena, offset) =
            (self.executable.program().tensor(root).arena, self.executable.layout(root, 1).offset);
        self.before[arena as usize][offset..offset + values.len()].copy_from_slice(values);
        let device = self.device;
        device.upload(values, self.buffer_mut(arena), offset)
    }

    /// An element outside of all results that has changed, for batches of `n` samples.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn changed_outside(&self, n: usize) -> Result<Option<(Arena, usize)>> {
        let program = self.executable.program();
        for arena in Arena::ALL.into_iter().filter(|&arena| arena != Arena::Labels) {
            let (now, before) = (self.download(arena)?, &self.before[arena as usize]);
            let mut changed: Vec<bool> =
                now.iter().zip(before).map(|(now, before)| now.to_bits() != before.to_bits()).collect();
            let results = program.steps.iter().flat_map(|step| &step.results);
            for &result in results.filter(|&&result| program.tensor(result).arena == arena) {
                pixels(self.executable.layout(result, n)).for_each(|pixel| changed[pixel].fill(false));
            }
            if let Some(element) = changed.iter().position(|&changed| changed) {
                return Ok(Some((arena, element)));
            }
        }
        Ok(None)
    }

    fn download(&self, arena: Arena) -> Result<Vec<f32>> {
        let mut numbers = vec![0.0; self.before[arena as usize].len()];
        self.device.download(self.buffer(arena), 0, &mut numbers)?;
        Ok(numbers)
    }

    fn buffer(&self, arena: Arena) -> &Storage {
        match arena {
            Arena::Activations => &self.activations,
            Arena::Statistics => &self.statistics,
            Arena::Parameters => &self.parameters,
            Arena::Averages => &self.averages,
            Arena::Gradients | Arena::Labels => &self.gradients,
        }
    }

    fn buffer_mut(&mut self, arena: Arena) -> &mut Storage {
        match arena {
            Arena::Activations => &mut self.activations,
            Arena::Statistics => &mut self.statistics,
            Arena::Parameters => &mut self.parameters,
            Arena::Averages => &mut self.averages,
            Arena::Gradients | Arena::Labels => &mut self.gradients,
        }
    }
}

/// The elements of each pixel.
fn pixels(at: Layout) -> impl Iterator<Item = Range<usize>> {
    let rows = if at.shape.is_empty() { 0 } else { at.shape.rows() };
    (0..rows).map(move |row| at.offset + row * at.stride..at.offset + row * at.stride + at.shape.c)
}
