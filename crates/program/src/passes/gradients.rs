use crate::{Error, Op, Phase, Program, Result, Shape, Step, TensorId};

/// The gradients that are known so far, for an op that computes those of its operands.
pub struct Gradients {
    /// The forward pass, and the steps of the backward pass so far.
    pub(crate) program: Program,
    /// Of each tensor, whether anything reads its gradient.
    pub(crate) wanted: Vec<bool>,
    /// Of each tensor, its gradient.
    pub(crate) of: Vec<Option<TensorId>>,
    /// The layer to which new steps belong.
    pub(crate) layer: usize,
}

impl Gradients {
    /// Whether anything reads the gradient of this tensor.
    pub fn wants(&self, id: TensorId) -> bool {
        self.wanted[id.index()]
    }

    /// A tensor's shape.
    pub fn shape(&self, id: TensorId) -> Shape {
        self.program.shape(id)
    }

    /// The gradient of a step's first result.
    pub fn of(&self, step: &Step) -> TensorId {
        let gradient = self.of[step.results[0].index()];
        gradient.expect("a step is differentiated where its result has a gradient")
    }

    /// The places of the gradients of parameters.
    ///
    /// # Errors
    /// [`Error::Option`] if a tensor is no parameter, or another op has written its gradient.
    pub fn of_parameters(&self, parameters: &[TensorId]) -> Result<Vec<TensorId>> {
        let place = |&id: &TensorId| {
            let refused = |value| Error::Option {
                op: "differentiate",
                what: "a parameter",
                value,
                accepted: "one that a single op reads",
            };
            let (gradient, _) = self.program.gradients[id.index()].ok_or_else(|| refused("no parameter"))?;
            match self.program.writer(gradient) {
                None => Ok(gradient),
                Some(_) => Err(refused("read by two ops")),
            }
        };
        parameters.iter().map(place).collect()
    }

    /// Adds a step to the backward pass, as [`Builder::push`](crate::Builder::push) does to the forward pass.
    ///
    /// # Errors
    /// If operands and results do not fit.
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        operands: &[TensorId],
        given: &[TensorId],
    ) -> Result<Vec<TensorId>> {
        let place = (self.layer, Phase::Backward, "differentiate");
        let results = self.program.push(op.into(), operands, given, place)?;
        self.wanted.resize(self.program.tensors.len(), false);
        self.of.resize(self.program.tensors.len(), None);
        Ok(results)
    }
}
