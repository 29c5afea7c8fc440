use crate::group::Grouped;
use crate::{Error, Optimizer, ParamGroup, Result};
use program::{Device, Moments, OptimizerStep, ParamRun, Span, Storage};

/// An optimizer for one arena of parameters: its rule, and its state.
///
/// The state lies on the device, in arenas with the layout of the parameters: the velocity of SGD with
/// momentum, the mean squares of RMSprop, the means and mean squares of Adam, which also counts its steps.
/// SGD without momentum has none. It starts at 0. To save a run, write [`export`](OptimizerState::export)'s
/// numbers. To resume it exactly, [`import`](OptimizerState::import) them.
///
/// Here a straight line is fitted to four points, by least squares:
///
/// ```
/// use optim::{Curve, Optimizer, OptimizerState, Progress, Schedule, Sgd};
/// use program::Span;
///
/// let device = tensor_cpu::reference();
/// let (mut params, mut grads) = (device.alloc(2)?, device.alloc(2)?); // slope, intercept
/// let mut state = OptimizerState::new(&device, Sgd::keras().momentum(0.9), 2)?;
/// let schedule = Schedule::from(Curve::cosine());
///
/// let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0)];
/// for step in 0..200 {
///     let line = params.to_vec(&device, 0, 2)?;
///     let mut gradient = [0.0; 2];
///     for (x, y) in points {
///         let error = line[0] * x + line[1] - y;
///         gradient[0] += error * x / 4.0;
///         gradient[1] += error / 4.0;
///     }
///     device.upload(&gradient, &mut grads, 0)?;
///     let lr = schedule.lr(0.1, &Progress::at_step(step, 20, 10));
///     state.step(&device, lr, &mut params, &grads, Span::new(0, 2))?;
/// }
/// let line = params.to_vec(&device, 0, 2)?;
/// assert!((line[0] - 2.0).abs() < 1e-3 && (line[1] - 1.0).abs() < 1e-3);
/// # Ok::<(), optim::Error>(())
/// ```
#[derive(Debug)]
pub struct OptimizerState {
    optimizer: Optimizer,
    /// Empty if the rule has no use for them.
    arenas: [Storage; 2],
    /// The number of steps; empty if the rule does not use it.
    steps: Storage,
    /// `None` if all parameters follow the same rule.
    groups: Option<Grouped>,
    epoch: u64,
    /// The runs of the next step, kept so that a step allocates nothing.
    runs: Vec<ParamRun>,
}

impl OptimizerState {
    /// Zeros for an arena of `len` parameters on `device`. The only call that allocates on the device.
    ///
    /// # Errors
    /// If an option of the optimizer is outside of its domain, or the device has no memory left.
    pub fn new(device: &Device, optimizer: impl Into<Optimizer>, len: usize) -> Result<Self> {
        let optimizer = optimizer.into();
        optimizer.validate()?;
        let names = names(&optimizer);
        let arena = |k| device.alloc(if k < names.len() { len } else { 0 });
        let (arenas, steps) = ([arena(0)?, arena(1)?], device.alloc(counted(&optimizer))?);
        Ok(OptimizerState { optimizer, arenas, steps, groups: None, epoch: 0, runs: Vec::with_capacity(1) })
    }

    /// The same with groups of parameters, which are told by their names and places in the arena. Places that no name has are
    /// left alone. Without groups all is as before: one launch over everything.
    ///
    /// ```
    /// use optim::{OptimizerState, Sgd};
    /// use program::Span;
    ///
    /// let device = tensor_cpu::device(1);
    /// let params = [("dense/kernel", Span::new(0, 2)), ("dense/bias", Span::new(2, 1))];
    /// let groups = ["*/bias:lr-multiplier=2,epochs=1".parse()?];
    /// let mut state = OptimizerState::new(&device, Sgd::keras(), 3)?.grouped(&groups, params)?;
    ///
    /// let (mut weights, mut grads) = (device.alloc(3)?, device.alloc(3)?);
    /// device.fill(1.0, &mut grads, Span::new(0, 3))?;
    /// for epoch in 0..2 {
    ///     state.begin_epoch(epoch);
    ///     state.step(&device, 0.5, &mut weights, &grads, Span::new(0, 3))?;
    /// }
    /// assert_eq!(weights.to_vec(&device, 0, 3)?, [-1.0, -1.0, -1.0]);
    /// # Ok::<(), optim::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an option of a group is outside of its domain. That a group takes no parameter is for
    /// [`ParamGroup::check_all`] to say: an arena may hold a part of a network.
    pub fn grouped<'n>(
        mut self,
        groups: &[ParamGroup],
        params: impl IntoIterator<Item = (&'n str, Span)>,
    ) -> Result<Self> {
        groups.iter().try_for_each(ParamGroup::validate)?;
        if !groups.is_empty() {
            let grouped = Grouped::new(&self.optimizer, groups, params.into_iter());
            self.runs.reserve(grouped.len());
            self.groups = Some(grouped);
        }
        Ok(self)
    }

    /// Tells the epoch, counted from 0, which decides which groups are still trained.
    pub fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// How many runs of the arena a step moves in this epoch: as long as the number stays, it moves the same.
    pub fn runs(&self) -> usize {
        self.groups.as_ref().map_or(1, |groups| groups.runs(self.epoch, Span::new(0, usize::MAX)).count())
    }

    /// The rule.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The names of all optimizers' arenas.
    pub const ARENAS: [&str; 3] = ["velocity", "mean", "mean_square"];

    /// The arenas of the memory with their names in a checkpoint, each laid out as the parameters: `velocity`, `mean_square`, or
    /// `mean` and `mean_square`; none for SGD without momentum.
    pub fn arenas(&self) -> impl Iterator<Item = (&'static str, &Storage)> {
        names(&self.optimizer).iter().copied().zip(&self.arenas)
    }

    /// How many steps were taken, where the rule needs to know, as Adam's does. Waits for the device.
    ///
    /// # Errors
    /// If `device` is another than the state's, or reports an error.
    pub fn steps(&self, device: &Device) -> Result<Option<f32>> {
        Ok(self.steps.to_vec(device, 0, self.steps.len())?.first().copied())
    }

    /// One step with learning rate `lr` over a run of the parameters, as one launch on the device for all parameters that follow
    /// one rule and are neighbours. `grads` is laid out
    /// as `params`, but may be longer. `lr` and the optimizer's constants act in f32. Adam counts each call as a step, so all that
    /// belongs to a step comes in one.
    ///
    /// # Errors
    /// If `lr` is not a finite number of 0 or more, or the device refuses the operands: buffers of another device, or
    /// too short for `at`.
    pub fn step(
        &mut self,
        device: &Device,
        lr: f64,
        params: &mut Storage,
        grads: &Storage,
        at: Span,
    ) -> Result<()> {
        let rate = lr as f32;
        if !(rate.is_finite() && rate >= 0.0) {
            return Err(Error::LearningRate { lr });
        }
        self.runs.clear();
        match &self.groups {
            Some(groups) => self.runs.extend(groups.runs(self.epoch, at)),
            None => self.runs.push(ParamRun::new(at, self.optimizer.weight_decay())),
        }
        let [first, second] = &mut self.arenas;
        let step = match &self.optimizer {
            Optimizer::Sgd(sgd) => OptimizerStep::Sgd(*sgd, first),
            Optimizer::Rmsprop(rmsprop) => OptimizerStep::Rmsprop(*rmsprop, first),
            Optimizer::Adam(adam) => {
                let moments = Moments { mean: first, mean_square: second, steps: &mut self.steps };
                OptimizerStep::Adam(*adam, moments)
            }
        };
        Ok(device.optimizer_step(step, rate, params, grads, &self.runs)?)
    }

    /// The memory's numbers, copied from the device: its arenas one after the other, then the number of steps. Exact, but for the
    /// f64 reference, whose numbers are rounded.
    ///
    /// # Errors
    /// If `device` is another than the state's, or reports an error.
    pub fn export(&self, device: &Device) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for part in self.arenas.iter().chain([&self.steps]) {
            values.extend(part.to_vec(device, 0, part.len())?);
        }
        Ok(values)
    }

    /// Replaces the memory's numbers by those of an [`export`](OptimizerState::export).
    ///
    /// # Errors
    /// If their number is another, or `device` is another than the state's.
    pub fn import(&mut self, device: &Device, values: &[f32]) -> Result<()> {
        let parts = || self.arenas.iter().chain([&self.steps]);
        let (expected, got) = (parts().map(Storage::len).sum(), values.len());
        if got != expected {
            let state = match names(&self.optimizer) {
                [] => "no state".to_owned(),
                names => names.join(" and "),
            };
            return Err(Error::StateLength { state, expected, got });
        }
        let mut rest = values;
        for part in self.arenas.iter_mut().chain([&mut self.steps]) {
            let (own, others) = rest.split_at(part.len());
            device.upload(own, part, 0)?;
            rest = others;
        }
        Ok(())
    }
}

/// What the arenas are called: some of [`OptimizerState::ARENAS`].
fn names(optimizer: &Optimizer) -> &'static [&'static str] {
    match optimizer {
        Optimizer::Sgd(sgd) if sgd.momentum == 0.0 => &[],
        Optimizer::Sgd(_) => &["velocity"],
        Optimizer::Rmsprop(_) => &["mean_square"],
        Optimizer::Adam(_) => &["mean", "mean_square"],
    }
}

/// 1 where the rule counts its steps, else 0.
fn counted(optimizer: &Optimizer) -> usize {
    usize::from(matches!(optimizer, Optimizer::Adam(_)))
}
