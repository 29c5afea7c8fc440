mod groups;
mod sharpness;
mod state;
mod trained;

pub use state::OptimizerState;

use crate::{Error, Ints, Result, Span, Storage};
use towers_optim::{UpdateRule, WeightDecay};

/// A run of parameters that a step treats alike: PyTorch's parameter group, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamRun {
    /// Its place in the arenas.
    pub at: Span,
    /// The factor of the step's learning rate; 1 changes no bit.
    pub lr_multiplier: f32,
    /// Takes the place of the optimizer's.
    pub weight_decay: WeightDecay,
    /// Takes the place of the step's rule, if given.
    pub rule: Option<UpdateRule>,
    /// Elements of a row of the matrix, for [`Muon`](towers_optim::Muon) alone; 1 for a vector.
    pub columns: usize,
}

impl ParamRun {
    /// A run that keeps the learning rate.
    pub const fn new(at: Span, weight_decay: WeightDecay) -> Self {
        ParamRun { at, lr_multiplier: 1.0, weight_decay, rule: None, columns: 1 }
    }

    /// The run's own rule in a step of `rule`, with its weight decay.
    pub fn rule_in(&self, rule: &UpdateRule) -> UpdateRule {
        self.rule.unwrap_or(*rule).with_weight_decay(self.weight_decay)
    }

    /// Rows and columns of the matrix.
    ///
    /// # Errors
    /// If the last row is not whole.
    pub fn shape(&self) -> Result<[usize; 2]> {
        let rows = self.at.len / self.columns.max(1);
        Error::check_len("optimizer_step", "a matrix", self.at, rows * self.columns)?;
        Ok([rows, self.columns])
    }

    /// How many arenas a step of `rule` on these runs needs at least, and whether a rule counts its steps.
    pub fn state_in(rule: &UpdateRule, runs: &[ParamRun]) -> (usize, bool) {
        state_of(core::iter::once(*rule).chain(runs.iter().filter_map(|run| run.rule)))
    }
}

/// How many arenas steps of these rules need, and whether one counts its steps.
fn state_of(rules: impl Iterator<Item = UpdateRule>) -> (usize, bool) {
    rules.fold((0, false), |(arenas, counts), rule| {
        (arenas.max(rule.state().len()), counts || rule.counts_steps())
    })
}

/// The gradients of parameters whose norms are taken together, for [`Backend::clip_grads`](crate::Backend::clip_grads) and
/// [`Backend::ascend`](crate::Backend::ascend).
#[derive(Debug)]
pub struct GradNorms {
    /// The places of the gradients in their arena, one for each parameter.
    pub at: Vec<Span>,
    /// The same on the device: the offset and the length of each. A table of other places never reaches
    /// outside of the arena.
    pub table: Ints,
    /// The norms that were taken last. Clipping by value leaves them alone.
    pub norms: Storage,
}
