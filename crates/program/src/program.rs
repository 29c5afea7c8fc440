use crate::{Arena, Home, Op, Shape, Tensor, TensorId};

/// Which part of a training step a [`Step`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// From the input to the output.
    Forward,
    /// The loss and the gradient of the output.
    Loss,
    /// From the gradient of the output to those of the parameters.
    Backward,
}

/// An op with its operands: one line of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is computed.
    pub op: Op,
    /// The tensors that are read, in the op's order.
    pub operands: Vec<TensorId>,
    /// The tensors that are written, in the op's order.
    pub results: Vec<TensorId>,
    /// The op adds its first result to this tensor. Both lie in the same memory.
    pub onto: Option<TensorId>,
    /// The layer that it belongs to, in [`Program::layers`].
    pub layer: usize,
    /// When it runs.
    pub phase: Phase,
    /// The pass that made it.
    pub pass: &'static str,
}

impl Step {
    /// All that is read: the operands, and the tensor that is added to.
    pub fn reads(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.operands.iter().copied().chain(self.onto)
    }
}

/// A training step, or an inference pass, as data: ops over numbered tensors, each of which is written once.
///
/// A [`Builder`](crate::Builder) makes the forward part; [`passes`](crate::passes) do the rest; an
/// [`Executable`](crate::Executable) has a place in memory for each tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The tensors, by [`TensorId::index`].
    pub tensors: Vec<Tensor>,
    /// The ops, in the order in which they run.
    pub steps: Vec<Step>,
    /// The names of the layers that steps belong to.
    pub layers: Vec<String>,
    /// The images.
    pub input: TensorId,
    /// The class scores, or the next stage's input.
    pub output: TensorId,
    /// In training, the gradient of the output.
    pub output_gradient: Option<TensorId>,
    /// The gradient of the input, where it is asked for.
    pub input_gradient: Option<TensorId>,
    /// For each parameter's tensor, by index, that of its gradient, and whether an optimizer changes it.
    pub gradients: Vec<Option<(TensorId, bool)>>,
}

impl Program {
    /// A tensor's description.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0]
    }

    /// A tensor's shape.
    pub fn shape(&self, id: TensorId) -> Shape {
        self.tensor(id).shape
    }

    /// The tensors that callers write before the program, or read after it. Their memory serves nothing else.
    pub fn kept(&self) -> impl Iterator<Item = TensorId> + '_ {
        [self.input, self.output].into_iter().chain(self.input_gradient)
    }

    /// The tensor in whose memory another one lies, and from which of its channels on.
    pub fn root(&self, id: TensorId) -> (TensorId, usize) {
        let (mut root, mut channel) = (id, 0);
        while let Home::In(outer, at) = self.tensor(root).home {
            (root, channel) = (outer, channel + at);
        }
        (root, channel)
    }

    /// Whether two tensors share memory.
    pub fn overlap(&self, a: TensorId, b: TensorId) -> bool {
        let ((of_a, from_a), (of_b, from_b)) = (self.root(a), self.root(b));
        let [len_a, len_b] = [a, b].map(|id| self.shape(id).c);
        of_a == of_b && from_a < from_b + len_b && from_b < from_a + len_a
    }

    /// Whether two tensors are the same memory.
    pub fn is_same_memory(&self, a: TensorId, b: TensorId) -> bool {
        self.root(a) == self.root(b) && self.shape(a) == self.shape(b)
    }

    /// The number of the step that writes a tensor.
    pub fn writer(&self, id: TensorId) -> Option<usize> {
        self.steps.iter().position(|step| step.results.contains(&id))
    }

    /// The numbers of the steps that read a tensor.
    pub fn readers(&self, id: TensorId) -> impl Iterator<Item = usize> + '_ {
        let steps = self.steps.iter().enumerate();
        steps.filter(move |(_, step)| step.reads().any(|read| read == id)).map(|(k, _)| k)
    }

    /// Whether a tensor serves a single step, as one operand, and no caller.
    pub fn is_read_once(&self, id: TensorId) -> bool {
        let reads = self.steps.iter().flat_map(Step::reads).filter(|&read| read == id).count();
        reads == 1 && self.kept().all(|kept| kept != id)
    }

    /// Whether it has a backward pass.
    pub fn trains(&self) -> bool {
        self.steps.iter().any(|step| step.phase == Phase::Backward)
    }

    /// Adds a tensor.
    pub(crate) fn add_tensor(&mut self, shape: Shape, arena: Arena, home: Home) -> TensorId {
        self.tensors.push(Tensor { shape, arena, home, name: None });
        self.gradients.push(None);
        TensorId(self.tensors.len() - 1)
    }

    /// The multiply-adds of a step for one sample.
    pub fn multiply_adds(&self, step: &Step) -> usize {
        let shapes: Vec<Shape> = step.operands.iter().map(|&id| self.shape(id)).collect();
        step.op.multiply_adds(&shapes)
    }

    /// The steps of a phase and a layer: they follow one another.
    pub fn steps_of(&self, phase: Phase, layer: usize) -> core::ops::Range<usize> {
        let of = |step: &Step| step.phase == phase && step.layer == layer;
        let from = self.steps.iter().position(of).unwrap_or(0);
        from..from + self.steps[from..].iter().take_while(|step| of(step)).count()
    }
}
