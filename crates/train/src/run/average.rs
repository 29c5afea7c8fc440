//! A moving average of a replica's weights and running statistics.

use crate::Result;
use towers_checkpoint::Tensors;
use towers_layers::{Network, Role, Slot};
use towers_optim::{Ema, Progress};
use towers_program::{Span, Storage};
use towers_trained::AVERAGE;

/// The averages of one network, in the layout of its arenas.
pub(crate) struct Average {
    ema: Ema,
    params: Storage,
    running: Storage,
    /// The trained part of the parameters; the rest does not change.
    trained: Span,
    statistics: Span,
}

impl Average {
    /// Averages with the network's current values.
    pub(crate) fn new(ema: Ema, network: &Network) -> Result<Self> {
        let (device, arena) = (network.device(), network.arena());
        let (trained, statistics) = (arena.trainable, Span::new(0, arena.running.len()));
        let (params, running) = (device.alloc(trained.end())?, device.alloc(statistics.len)?);
        let mut average = Average { ema, params, running, trained, statistics };
        average.mix(0.0, network)?;
        Ok(average)
    }

    /// Updates the averages after the steps that are `done`.
    pub(crate) fn after(&mut self, done: &Progress, network: &mut Network) -> Result<()> {
        if let Some(momentum) = self.ema.momentum_after(done) {
            self.mix(momentum as f32, network)?;
        }
        if self.has_overwritten(done) { self.overwrite(network) } else { Ok(()) }
    }

    /// Whether the averages have replaced the weights after the steps that are `done`.
    pub(crate) fn has_overwritten(&self, done: &Progress) -> bool {
        self.ema.overwrites_after(done)
    }

    /// Replaces the network's weights by the averages.
    pub(crate) fn overwrite(&self, network: &mut Network) -> Result<()> {
        let device = network.device().clone();
        let (arena, statistics) = (network.arena_mut(), self.statistics);
        device.ema_step(0.0, 1.0, &self.params, self.trained, &mut arena.params, self.trained)?;
        Ok(device.ema_step(0.0, 1.0, &self.running, statistics, &mut arena.running, statistics)?)
    }

    /// Multiplies the averages by `momentum`, and adds the rest from the network.
    fn mix(&mut self, momentum: f32, network: &Network) -> Result<()> {
        let (device, arena) = (network.device(), network.arena());
        device.ema_step(momentum, 1.0, &arena.params, self.trained, &mut self.params, self.trained)?;
        let statistics = self.statistics;
        Ok(device.ema_step(momentum, 1.0, &arena.running, statistics, &mut self.running, statistics)?)
    }

    /// Copies of the averages, for a checkpoint.
    pub(crate) fn export(&self, network: &Network, into: &mut Tensors) -> Result<()> {
        for slot in averaged(network) {
            let of = if slot.role == Role::Trainable { &self.params } else { &self.running };
            let values = of.to_vec(network.device(), slot.span.offset, slot.span.len)?;
            into.insert(name(slot), slot.shape.clone(), values)?;
        }
        Ok(())
    }

    /// Restores the averages of a checkpoint; `values` finds its tensors.
    pub(crate) fn import<'t>(
        &mut self,
        network: &Network,
        values: impl Fn(&str, &[usize]) -> Result<&'t [f32]>,
    ) -> Result<()> {
        for slot in averaged(network) {
            let of = if slot.role == Role::Trainable { &mut self.params } else { &mut self.running };
            network.device().upload(values(&name(slot), &slot.shape)?, of, slot.span.offset)?;
        }
        Ok(())
    }
}

fn name(slot: &Slot) -> String {
    format!("{AVERAGE}/{}", slot.name)
}

/// All parameters and statistics that change in training.
fn averaged(network: &Network) -> impl Iterator<Item = &Slot> {
    let changes = |slot: &&Slot| matches!(slot.role, Role::Trainable | Role::Running { .. });
    network.arena().slots().iter().filter(changes)
}
