use super::groups::Grouped;
use super::sharpness::Sharpness;
use super::state_of;
use super::trained::Trained;
use crate::{Device, Error, ParamRun, Result, Span, Storage};
use std::collections::HashMap;
use towers_optim::{Optimizer, ParamGroup, Sam};

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
/// use towers_optim::{Curve, Progress, Schedule, Sgd};
/// use towers_program::{OptimizerState, Span};
///
/// let device = towers_tensor_cpu::reference();
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
///     state.step(&device, lr, &mut params, &mut grads, Span::new(0, 2))?;
/// }
/// let line = params.to_vec(&device, 0, 2)?;
/// assert!((line[0] - 2.0).abs() < 1e-3 && (line[1] - 1.0).abs() < 1e-3);
/// # Ok::<(), towers_program::Error>(())
/// ```
#[derive(Debug)]
pub struct OptimizerState {
    optimizer: Optimizer,
    /// An arena for each name of the rule that has most, then the number of steps if a rule counts them. The rest is empty.
    state: [Storage; 3],
    /// The rows and columns of the parameters that Muon steps over.
    matrices: HashMap<String, [usize; 2]>,
    /// `None` if all parameters follow the same rule.
    groups: Option<Grouped>,
    trained: Trained,
    sharpness: Option<Sharpness>,
    epochs_done: u64,
    /// The runs of the next step, kept so that a step allocates nothing.
    runs: Vec<ParamRun>,
}

impl OptimizerState {
    /// Zeros for an arena of `len` parameters on `device`. No other call allocates there, except that an optimizer that clips, or is
    /// [sharpness-aware](Self::sharpness_aware), does so in its first step, and when groups begin or end.
    ///
    /// # Errors
    /// If an option of the optimizer is outside of its domain, or the device has no memory left.
    pub fn new(device: &Device, optimizer: impl Into<Optimizer>, len: usize) -> Result<Self> {
        let optimizer = optimizer.into();
        optimizer.validate()?;
        let (arenas, counts) = state_of(optimizer.rules());
        let mut lens = core::iter::repeat_n(len, arenas).chain(counts.then_some(1));
        let mut arena = || device.alloc(lens.next().unwrap_or(0));
        let state = [arena()?, arena()?, arena()?];
        Ok(OptimizerState {
            optimizer,
            state,
            matrices: HashMap::new(),
            groups: None,
            trained: Trained::whole(len),
            sharpness: None,
            epochs_done: 0,
            runs: Vec::with_capacity(1),
        })
    }

    /// The same for [`Muon`](towers_optim::Muon), which steps over the parameters of these names, as matrices of these rows (inputs)
    /// and columns (outputs), once the state is [grouped](OptimizerState::grouped). All others follow the
    /// [rule of the rest](Optimizer::rest). Other optimizers don't ask for shapes.
    ///
    /// ```
    /// use towers_optim::{Muon, Optimizer, Sgd};
    /// use towers_program::{OptimizerState, Span};
    ///
    /// let device = towers_tensor_cpu::device(1);
    /// let muon = Optimizer::from(Muon::new()).rest(Sgd::keras());
    /// let params = [("dense/kernel", Span::new(0, 4)), ("dense/bias", Span::new(4, 2))];
    /// let state = OptimizerState::new(&device, muon, 6)?;
    /// let mut state = state.matrices([("dense/kernel", [2, 2])]).grouped(&[], params)?;
    ///
    /// let (mut weights, mut grads) = (device.alloc(6)?, device.alloc(6)?);
    /// device.upload(&[1.0, 0.0, 0.0, 0.01, 5.0, 5.0], &mut grads, 0)?;
    /// state.step(&device, 0.1, &mut weights, &mut grads, Span::new(0, 6))?;
    /// let weights = weights.to_vec(&device, 0, 6)?;
    /// assert!(weights[3] / weights[0] > 0.5, "far from 0.01");
    /// assert_eq!(weights[4..], [-0.5, -0.5]);
    /// # Ok::<(), towers_program::Error>(())
    /// ```
    pub fn matrices<'n>(mut self, matrices: impl IntoIterator<Item = (&'n str, [usize; 2])>) -> Self {
        self.matrices = matrices.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect();
        self
    }

    /// The same with groups of parameters, which are told by their names and places in the arena. With groups, places that no
    /// name has are left alone. Gradients are clipped by the norm of each of `params`, and LARS and LAMB scale the step of each;
    /// before, the arena is a single one. Muon's is then a vector.
    ///
    /// ```
    /// use towers_optim::Sgd;
    /// use towers_program::{OptimizerState, Span};
    ///
    /// let device = towers_tensor_cpu::device(1);
    /// let params = [("dense/kernel", Span::new(0, 2)), ("dense/bias", Span::new(2, 1))];
    /// let groups = ["*/bias:lr-multiplier=2,epochs=1".parse()?];
    /// let mut state = OptimizerState::new(&device, Sgd::keras(), 3)?.grouped(&groups, params)?;
    ///
    /// let (mut weights, mut grads) = (device.alloc(3)?, device.alloc(3)?);
    /// device.fill(1.0, &mut grads, Span::new(0, 3))?;
    /// for epochs_done in 0..2 {
    ///     state.begin_epoch(epochs_done);
    ///     state.step(&device, 0.5, &mut weights, &mut grads, Span::new(0, 3))?;
    /// }
    /// assert_eq!(weights.to_vec(&device, 0, 3)?, [-1.0, -1.0, -1.0]);
    /// # Ok::<(), towers_program::Error>(())
    /// ```
    ///
    /// # Errors
    /// If an option of a group is outside of its domain, or a matrix is larger than its place. That a group takes no parameter is for
    /// [`ParamGroup::check_all`] to say: an arena may hold a part of a network.
    pub fn grouped<'n>(
        mut self,
        groups: &[ParamGroup],
        params: impl IntoIterator<Item = (&'n str, Span)>,
    ) -> Result<Self> {
        groups.iter().try_for_each(ParamGroup::validate)?;
        let params: Vec<(&str, Span)> = params.into_iter().collect();
        for (name, at) in &params {
            let len = self.matrices.get(*name).map_or(0, |[rows, columns]| rows * columns);
            Error::check_len("optimizer_step", "a matrix", Span::new(at.offset, len.max(at.len)), at.len)?;
        }
        let trained = |name| ParamGroup::of(groups, name).map_or(0..u64::MAX, ParamGroup::trained);
        self.trained = Trained::new(params.iter().map(|&(name, at)| (at, trained(name))).collect());
        if !groups.is_empty() || self.optimizer.rules().any(|rule| rule.of_tensors()) {
            let grouped = Grouped::new(&self.optimizer, groups, &self.matrices, params.into_iter());
            self.runs.reserve(grouped.len());
            self.groups = Some(grouped);
        }
        Ok(self)
    }

    /// The same with sharpness-aware steps: see [`Sam`]. Such a step begins with [`ascend`](Self::ascend), by the gradients at the
    /// parameters. Then come the gradients there, [`descend`](Self::descend) and [`step`](Self::step). This takes memory for a
    /// copy of the parameters; between two steps, nothing of it is needed.
    ///
    /// ```
    /// use towers_optim::{Sam, Sgd};
    /// use towers_program::{OptimizerState, Span};
    ///
    /// let (device, at) = (towers_tensor_cpu::device(1), Span::new(0, 2));
    /// let (mut params, mut grads) = (device.alloc(2)?, device.alloc(2)?);
    /// let mut state = OptimizerState::new(&device, Sgd::keras(), 2)?.sharpness_aware(&device, Sam::new(0.5))?;
    ///
    /// device.upload(&[3.0, 4.0], &mut grads, 0)?;
    /// state.ascend(&device, &mut params, &grads)?;
    /// assert_eq!(params.to_vec(&device, 0, 2)?, [0.3, 0.4]);
    /// device.upload(&[5.0, 5.0], &mut grads, 0)?; // the gradients there
    /// state.descend(&device, &mut params)?;
    /// state.step(&device, 0.1, &mut params, &mut grads, at)?;
    /// assert_eq!(params.to_vec(&device, 0, 2)?, [-0.5, -0.5]);
    /// # Ok::<(), towers_program::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the distance is not a positive number, or the device has no memory left.
    pub fn sharpness_aware(mut self, device: &Device, sam: Sam) -> Result<Self> {
        self.sharpness = Some(Sharpness::new(device, sam, self.trained.end())?);
        Ok(self)
    }

    /// Whether a step takes two passes.
    pub fn is_sharpness_aware(&self) -> bool {
        self.sharpness.is_some()
    }

    /// Tells how many epochs are done, which decides which groups are still trained.
    pub fn begin_epoch(&mut self, epochs_done: u64) {
        self.epochs_done = epochs_done;
    }

    /// A number of runs of the arena: as long as it stays, a step moves the same ones at the same multiples of its rate.
    pub fn runs(&self) -> usize {
        self.groups.as_ref().map_or(1, |groups| groups.changes_left(self.epochs_done))
    }

    /// The optimizer.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// The arenas of the memory, each laid out as the parameters. [`names_of`](OptimizerState::names_of) a parameter says which
    /// numbers of it they hold.
    pub fn arenas(&self) -> impl Iterator<Item = &Storage> {
        self.state.iter().take(state_of(self.optimizer.rules()).0)
    }

    /// The [names](towers_optim::UpdateRule::state) of the first arenas where they hold the state of this parameter.
    pub fn names_of(&self, param: &str) -> &'static [&'static str] {
        match self.optimizer.rest {
            Some(rest) if !self.matrices.contains_key(param) => rest.rule.state(),
            _ => self.optimizer.rule.state(),
        }
    }

    /// How many steps were taken, where the rule needs to know, as Adam's does. Waits for the device.
    ///
    /// # Errors
    /// If `device` is another than the state's, or reports an error.
    pub fn steps(&self, device: &Device) -> Result<Option<f32>> {
        let (arenas, counts) = state_of(self.optimizer.rules());
        let steps = self.state[arenas].to_vec(device, 0, usize::from(counts))?;
        Ok(steps.first().copied())
    }

    /// Keeps the parameters, and moves all that are still trained to where the loss is higher. `grads` is laid out as `params`, but
    /// may be longer. Does nothing unless steps are [sharpness-aware](Self::sharpness_aware).
    ///
    /// In half precision gradients that are not finite move nothing, and the coming step neither.
    ///
    /// # Errors
    /// If the device refuses the operands: buffers of another device, or too short.
    pub fn ascend(&mut self, device: &Device, params: &mut Storage, grads: &Storage) -> Result<()> {
        match &mut self.sharpness {
            Some(sharpness) => sharpness.ascend(device, (&mut self.trained, self.epochs_done), params, grads),
            None => Ok(()),
        }
    }

    /// Brings the parameters back to where the last [`ascend`](Self::ascend) began, bit for bit.
    ///
    /// # Errors
    /// As [`ascend`](Self::ascend).
    pub fn descend(&self, device: &Device, params: &mut Storage) -> Result<()> {
        self.sharpness.as_ref().map_or(Ok(()), |sharpness| sharpness.descend(device, params))
    }

    /// One step with learning rate `lr` over a run of the parameters, as one launch on the device for all parameters that follow
    /// one rule and are neighbours. `grads` is laid out
    /// as `params`, but may be longer. `lr` and the optimizer's constants act in f32. Adam counts each call as a step, so all that
    /// belongs to a step comes in one.
    ///
    /// An optimizer that clips does so first, in place: the gradients of all parameters that are still trained, wherever the run
    /// lies.
    ///
    /// # Errors
    /// If `lr` is not a finite number of 0 or more, or the device refuses the operands: buffers of another device, or
    /// too short for `at`.
    pub fn step(
        &mut self,
        device: &Device,
        lr: f64,
        params: &mut Storage,
        grads: &mut Storage,
        at: Span,
    ) -> Result<()> {
        let rate = Optimizer::rate(lr)?;
        if let Some(clip) = self.optimizer.clip
            && let Some(now) = self.trained.at(device, self.epochs_done)?
        {
            device.clip_grads(clip, grads, now)?;
        }
        let rule = &self.optimizer.rule;
        self.runs.clear();
        match &self.groups {
            Some(groups) => self.runs.extend(groups.runs(self.epochs_done, at)),
            None => self.runs.push(ParamRun::new(at, rule.weight_decay())),
        }
        let (arenas, counts) = state_of(self.optimizer.rules());
        let state = &mut self.state.each_mut()[..arenas + usize::from(counts)];
        device.optimizer_step(rule, rate, params, grads, state, &self.runs)
    }

    /// The memory's numbers, copied from the device: its arenas one after the other, then the number of steps. Exact, but for the
    /// f64 reference, whose numbers are rounded.
    ///
    /// # Errors
    /// If `device` is another than the state's, or reports an error.
    pub fn export(&self, device: &Device) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        for part in &self.state {
            values.extend(part.to_vec(device, 0, part.len())?);
        }
        Ok(values)
    }

    /// Replaces the memory's numbers by those of an [`export`](OptimizerState::export).
    ///
    /// # Errors
    /// If their number is another, or `device` is another than the state's.
    pub fn import(&mut self, device: &Device, values: &[f32]) -> Result<()> {
        let (expected, got) = (self.state.iter().map(Storage::len).sum(), values.len());
        if got != expected {
            let mut names: Vec<&str> =
                self.optimizer.rules().flat_map(|rule| rule.state()).copied().collect();
            names.dedup();
            let state = if names.is_empty() { "no state".to_owned() } else { names.join(" and ") };
            return Err(Error::StateLength { state, expected, got });
        }
        let mut rest = values;
        for part in &mut self.state {
            let (own, others) = rest.split_at(part.len());
            device.upload(own, part, 0)?;
            rest = others;
        }
        Ok(())
    }
}
