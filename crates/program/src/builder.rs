use crate::{Arena, Home, Op, Parameter, Phase, Program, Result, Shape, Span, Tensor, TensorId};

/// Makes the forward part of a [`Program`].
///
/// ```
/// use towers_program::{Activation, Builder, Shape, ops::Activate};
///
/// let mut builder = Builder::new(Shape::new(1, 8, 8, 3));
/// builder.layer("relu");
/// let y = builder.push(Activate { act: Activation::Relu }, &[builder.input()], &[])?[0];
/// assert_eq!(builder.finish(y).to_string(), "\
/// relu:
///   %1 (8, 8, 3) = activate relu %0
/// ");
/// # Ok::<(), towers_program::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    phase: Phase,
}

impl Builder {
    /// A program for inputs of this shape, that of one sample.
    pub fn new(input: Shape) -> Self {
        let tensors = vec![Tensor { shape: input, arena: Arena::Activations, home: Home::Free, name: None }];
        let (input, gradients) = (TensorId(0), vec![None]);
        Builder {
            program: Program {
                tensors,
                steps: Vec::new(),
                layers: Vec::new(),
                input,
                output: input,
                output_gradient: None,
                input_gradient: None,
                gradients,
            },
            phase: Phase::Forward,
        }
    }

    /// The images.
    pub fn input(&self) -> TensorId {
        self.program.input
    }

    /// A tensor's shape.
    pub fn shape(&self, id: TensorId) -> Shape {
        self.program.shape(id)
    }

    /// All steps from here on belong to this layer.
    pub fn layer(&mut self, name: &str) {
        self.program.layers.push(name.to_owned());
    }

    /// All steps from here on belong to this phase; at first to [`Phase::Forward`].
    pub fn in_phase(&mut self, phase: Phase) -> &mut Self {
        self.phase = phase;
        self
    }

    /// A parameter to read.
    pub fn parameter(&mut self, Parameter { name, span, trained }: Parameter) -> TensorId {
        let gradient = self.fixed(&name, Arena::Gradients, span);
        let parameter = self.fixed(&name, Arena::Parameters, span);
        self.program.gradients[parameter.0] = Some((gradient, trained));
        parameter
    }

    /// A run of an arena that the caller laid out.
    pub fn fixed(&mut self, name: &str, arena: Arena, span: Span) -> TensorId {
        let shape = Shape::vectors(1, span.len);
        let id = self.program.add_tensor(shape, arena, Home::At(span.offset));
        self.program.tensors[id.0].name = Some(name.to_owned());
        id
    }

    /// Adds a step. Its last results are those that are given; the ones before are new. All are returned.
    ///
    /// # Errors
    /// If operands and results do not fit.
    pub fn push(
        &mut self,
        op: impl Into<Op>,
        operands: &[TensorId],
        given: &[TensorId],
    ) -> Result<Vec<TensorId>> {
        let layer = self.program.layers.len().saturating_sub(1);
        self.program.push(op.into(), operands, given, (layer, self.phase, "lower"))
    }

    /// The program that ends with this output.
    pub fn finish(self, output: TensorId) -> Program {
        Program { output, ..self.program }
    }
}
