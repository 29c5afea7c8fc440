use crate::parameter::{ParamPlace, ParamSpec, Role};
use core::ops::RangeInclusive;
use std::borrow::Cow;
use towers_program::{Arena, Builder, Error, Op, Parameter, Result, Shape, Span, TensorId};

/// A layer's configuration, as a [`Graph`](crate::Graph) holds it.
///
/// A custom layer lists its parameters and its ops. The output's shape, the backward pass and the memory
/// follow from the ops.
///
/// ```
/// use towers_layers::{Graph, Layer, Lower};
/// use towers_program::{Activation, Result, TensorId, ops};
///
/// /// `y = x + max(x, 0)`.
/// #[derive(Debug)]
/// struct Residual;
///
/// impl Layer for Residual {
///     fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
///         let relu = to.push(ops::Activate { act: Activation::Relu }, inputs)?;
///         to.push(ops::Add { act: Activation::None }, &[inputs[0], relu])
///     }
/// }
///
/// let mut graph = Graph::new("residual", [8, 8, 3]);
/// let y = graph.add(Residual, graph.input())?;
/// assert_eq!(graph.shape(y), graph.shape(graph.input()));
/// # Ok::<(), towers_layers::Error>(())
/// ```
pub trait Layer: core::fmt::Debug + Send + Sync {
    /// The type's name as Keras spells it, for the summary: `Conv2D`. By default the name of the Rust type.
    fn kind(&self) -> Cow<'static, str> {
        let name = core::any::type_name::<Self>();
        let name = name.split('<').next().unwrap_or(name);
        name.rsplit("::").next().unwrap_or(name).into()
    }

    /// How many tensors it may read, at least one. By default one. [`params`](Layer::params) and
    /// [`lower`](Layer::lower) are never called with another number.
    fn inputs(&self) -> RangeInclusive<usize> {
        1..=1
    }

    /// The parameters for inputs of these shapes, in the order in which [`Lower::params`] counts them.
    fn params(&self, _inputs: &[Shape]) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Adds the layer's ops to a program, and returns its output.
    ///
    /// # Errors
    /// If the layer can't take inputs of these shapes.
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId>;

    /// Whether the output is a batch of vectors, not of images, for the summary. By default as for the first input.
    fn makes_vectors(&self) -> bool {
        false
    }

    /// Whether the output is a batch of images though the input may be vectors. By default not.
    fn makes_images(&self) -> bool {
        false
    }

    /// Whether it only joins what the layers before it write into its output. It isn't among the layers that
    /// [work](crate::Graph::work), and where it must copy, this counts for the layer before it. By default not.
    fn only_joins(&self) -> bool {
        false
    }
}

/// Refuses a number of inputs that a layer can't read.
pub(crate) fn check_inputs(layer: &dyn Layer, given: usize) -> Result<(), String> {
    let (least, most) = layer.inputs().into_inner();
    let least = least.max(1);
    if (least..=most).contains(&given) {
        return Ok(());
    }
    let count = match most {
        _ if most == least => least.to_string(),
        usize::MAX => format!("{least} or more"),
        _ => format!("{least} to {most}"),
    };
    let tensors = if most == 1 { "tensor" } else { "tensors" };
    Err(format!("it reads {count} {tensors}, but was given {given}"))
}

/// The program to which a layer adds its ops, with the layer's parameters.
pub struct Lower<'a> {
    builder: &'a mut Builder,
    name: &'a str,
    training: bool,
    frozen: bool,
    params: Vec<TensorId>,
    /// By parameter: the place of the sums for a running average.
    sums: Vec<Span>,
}

impl<'a> Lower<'a> {
    /// For a layer of this name with parameters at these places.
    pub(crate) fn new(
        builder: &'a mut Builder,
        name: &'a str,
        training: bool,
        specs: &[ParamSpec],
        places: &[ParamPlace],
    ) -> Self {
        let param = |(ParamSpec { name: param, role, .. }, place): (&ParamSpec, &ParamPlace)| {
            let full = format!("{name}/{param}");
            if role.is_running() {
                builder.fixed(&full, Arena::Averages, place.span)
            } else {
                let trained = *role == Role::Trainable;
                builder.parameter(Parameter { name: full, span: place.span, trained })
            }
        };
        let params = specs.iter().zip(places).map(param).collect();
        let sums = places.iter().map(|place| place.sums).collect();
        let frozen = !specs.is_empty() && specs.iter().all(|spec| spec.role == Role::Frozen);
        Lower { builder, name, training, frozen, params, sums }
    }

    /// The layer's unique name.
    pub fn name(&self) -> &str {
        self.name
    }

    /// Whether this is a training step. In inference a layer uses running averages and drops nothing.
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// Whether training changes none of the layer's parameters and running averages. Then a normalization uses these
    /// averages in training too.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// A tensor's shape, for one sample.
    pub fn shape(&self, id: TensorId) -> Shape {
        self.builder.shape(id)
    }

    /// The layer's parameters, in the order of [`Layer::params`].
    pub fn params(&self) -> &[TensorId] {
        &self.params
    }

    /// Adds an op, and returns its first result.
    ///
    /// # Errors
    /// If the operands do not fit, or the op has no result, or one that must lie where the caller says.
    pub fn push(&mut self, op: impl Into<Op>, operands: &[TensorId]) -> Result<TensorId> {
        self.push_into(op.into(), operands, &[])
    }

    fn push_into(&mut self, op: Op, operands: &[TensorId], given: &[TensorId]) -> Result<TensorId> {
        let results = self.builder.push(op, operands, given)?;
        let none = Error::Length { op: op.name(), what: "the list of results", expected: 1, got: 0 };
        results.first().copied().ok_or(none)
    }

    /// Adds an op whose last result is the sums for the layer's running averages, and returns its first
    /// result.
    ///
    /// # Errors
    /// If the operands do not fit.
    pub fn push_with_sums(&mut self, op: impl Into<Op>, operands: &[TensorId]) -> Result<TensorId> {
        // They lie side by side.
        let sums = self.sums.iter().copied().filter(|sums| sums.len > 0);
        let all = sums.reduce(|all, sums| Span::new(all.offset, sums.end() - all.offset));
        let given =
            all.map(|span| self.builder.fixed(&format!("{}/sums", self.name), Arena::Gradients, span));
        self.push_into(op.into(), operands, given.as_slice())
    }

    /// The same for a layer that has some of this one's parameters, from number `first` on.
    ///
    /// # Errors
    /// As [`Layer::lower`].
    pub fn lower(&mut self, layer: &dyn Layer, first: usize, inputs: &[TensorId]) -> Result<TensorId> {
        if check_inputs(layer, inputs.len()).is_err() {
            let (op, what, expected) = ("a layer of another", "the list of inputs", *layer.inputs().start());
            return Err(Error::Length { op, what, expected, got: inputs.len() });
        }
        let shapes: Vec<Shape> = inputs.iter().map(|&x| self.shape(x)).collect();
        let count = layer.params(&shapes).len();
        let own = first..first + count;
        let (params, sums) = (self.params[own.clone()].to_vec(), self.sums[own].to_vec());
        let (name, training, frozen) = (self.name, self.training, self.frozen);
        layer.lower(&mut Lower { builder: &mut *self.builder, name, training, frozen, params, sums }, inputs)
    }
}

/// The inputs of the random numbers of a training pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from the start of the run.
    pub step: u64,
    /// The place of this network's first sample in the global batch.
    pub first_sample: u32,
}
