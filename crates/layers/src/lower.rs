use crate::{Layer, ParamSpec, Role};
use program::{Arena, Builder, Op, Parameter, Result, Shape, Span, TensorId};

/// The program to which a layer adds its ops, with the layer's parameters.
pub struct Lower<'a> {
    builder: &'a mut Builder,
    name: &'a str,
    training: bool,
    params: Vec<TensorId>,
    /// By parameter: the place of the sums for a running average.
    sums: Vec<Span>,
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamPlace {
    pub(crate) span: Span,
    /// For running averages: where in the gradients' arena the forward pass leaves the sums.
    pub(crate) sums: Span,
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
        builder.layer(name);
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
        Lower { builder, name, training, params, sums }
    }

    /// The layer's unique name.
    pub fn name(&self) -> &str {
        self.name
    }

    /// Whether this is a training step. In inference a layer uses running averages and drops nothing.
    pub fn is_training(&self) -> bool {
        self.training
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
    /// If the operands do not fit.
    pub fn push(&mut self, op: impl Into<Op>, operands: &[TensorId]) -> Result<TensorId> {
        Ok(self.builder.push(op, operands, &[])?[0])
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
        Ok(self.builder.push(op, operands, given.as_slice())?[0])
    }

    /// The same for a layer that has some of this one's parameters, from number `first` on.
    ///
    /// # Errors
    /// As [`Layer::lower`].
    pub fn lower(&mut self, layer: &dyn Layer, first: usize, x: TensorId) -> Result<TensorId> {
        let count = layer.params(self.shape(x)).len();
        let own = first..first + count;
        let (params, sums) = (self.params[own.clone()].to_vec(), self.sums[own].to_vec());
        let (name, training) = (self.name, self.training);
        layer.lower(&mut Lower { builder: &mut *self.builder, name, training, params, sums }, x)
    }
}
