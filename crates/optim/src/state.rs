use crate::group::Grouped;
use crate::{Error, Optimizer, ParamGroup, Result};
use tensor::{Backend, Device, ParamRun, Span, Storage};

/// An optimizer at work on one arena of parameters: its rule, and what it remembers from step to step.
///
/// The memory is one run of numbers on the device, laid out as the parameters are: the velocity of SGD with momentum,
/// the mean squares of RMSprop; nothing for SGD without momentum. It starts at 0. To save a run, write
/// [`export`](OptimizerState::export)'s numbers under [`name`](OptimizerState::name); to go on with exactly the steps
/// of a run that was never stopped, [`import`](OptimizerState::import) them.
///
/// Here a straight line is fitted to four points, by least squares:
///
/// ```
/// use optim::{Curve, Optimizer, OptimizerState, Progress, Schedule, Sgd};
/// use tensor::{Backend, Device, Span};
///
/// let device = Device::reference();
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
    memory: Storage,
    /// `None` where all parameters follow the same rule.
    groups: Option<Grouped>,
    epoch: u64,
    /// What the next step moves: here so that a step allocates nothing.
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
        let memory = device.alloc(if state_name(&optimizer).is_some() { len } else { 0 })?;
        Ok(OptimizerState { optimizer, memory, groups: None, epoch: 0, runs: Vec::with_capacity(1) })
    }

    /// The same with groups of parameters, which are told by their names and places in the arena. Places that no name has are
    /// left alone. Without groups all is as before: one launch over everything.
    ///
    /// ```
    /// use optim::{OptimizerState, Sgd};
    /// use tensor::{Backend, Device, Span};
    ///
    /// let device = Device::cpu(1);
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

    /// What the memory is called in a checkpoint: `velocity` or `mean_square`; `None` where there is none.
    pub fn name(&self) -> Option<&'static str> {
        state_name(&self.optimizer)
    }

    /// The memory: laid out as the parameters, or empty where [`name`](OptimizerState::name) is `None`.
    pub fn memory(&self) -> &Storage {
        &self.memory
    }

    /// One step with learning rate `lr` over a run of the parameters, as one launch on the device for all parameters that follow
    /// one rule and are neighbours. `grads` is laid out
    /// as `params`, but may be longer. `lr` and the optimizer's constants act in f32.
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
            None => {
                let weight_decay = self.optimizer.weight_decay();
                self.runs.push(ParamRun { at, lr_multiplier: 1.0, weight_decay });
            }
        }
        match &self.optimizer {
            Optimizer::Sgd(sgd) => {
                device.sgd_steps(&sgd.at(rate), params, grads, &mut self.memory, &self.runs)?
            }
            Optimizer::Rmsprop(rmsprop) => {
                device.rmsprop_steps(&rmsprop.at(rate), params, grads, &mut self.memory, &self.runs)?;
            }
        }
        Ok(())
    }

    /// The memory's numbers, copied from the device: exact, but for the f64 reference, whose numbers are rounded.
    ///
    /// # Errors
    /// If `device` is another than the state's, or reports an error.
    pub fn export(&self, device: &Device) -> Result<Vec<f32>> {
        Ok(self.memory.to_vec(device, 0, self.memory.len())?)
    }

    /// Replaces the memory's numbers by those of an [`export`](OptimizerState::export).
    ///
    /// # Errors
    /// If their number is another, or `device` is another than the state's.
    pub fn import(&mut self, device: &Device, values: &[f32]) -> Result<()> {
        let (expected, got) = (self.memory.len(), values.len());
        if got != expected {
            let state = self.name().unwrap_or("no state");
            return Err(Error::StateLength { state, expected, got });
        }
        Ok(device.upload(values, &mut self.memory, 0)?)
    }
}

fn state_name(optimizer: &Optimizer) -> Option<&'static str> {
    match optimizer {
        Optimizer::Sgd(sgd) if sgd.momentum == 0.0 => None,
        Optimizer::Sgd(_) => Some("velocity"),
        Optimizer::Rmsprop(_) => Some("mean_square"),
    }
}
