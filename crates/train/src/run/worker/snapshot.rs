//! Copies of a replica's tensors for checkpoints, and their restoration.

use super::Worker;
use crate::run::prepared_run::StageTensors;
use crate::run::run_data::RunData;
use crate::{Error, Result, Resume};
use serde_json::Value;
use std::sync::{MutexGuard, PoisonError};
use towers_callbacks::{Picture, Snapshot};
use towers_checkpoint::Tensors;
use towers_config::draw_batch as draw;
use towers_config::{Saved, Training};
use towers_layers::Role;
use towers_trained::{Description, LOSS_SCALE, OPTIMIZER_STEPS};

impl Worker<'_> {
    /// Restores this replica from a checkpoint.
    pub(super) fn restore(&mut self, resume: &Resume) -> Result<()> {
        let arena = self.network.arena_mut();
        let slots = arena.slots().to_vec();
        for slot in &slots {
            arena.load(&self.device, slot, resume.values(&slot.name, &slot.shape)?)?;
        }
        let mut memory = Vec::new();
        for (kind, arena) in self.optimizer.arenas().enumerate() {
            let mut values = vec![0.0; arena.len()];
            for slot in slots.iter().filter(|slot| slot.role == Role::Trainable) {
                let Some(name) = self.optimizer.names_of(&slot.name).get(kind) else { continue };
                let saved = resume.values(&format!("{name}/{}", slot.name), &slot.shape)?;
                values[slot.span.range()].copy_from_slice(saved);
            }
            memory.append(&mut values);
        }
        if self.optimizer.steps(&self.device)?.is_some() {
            memory.extend(resume.values(OPTIMIZER_STEPS, &[1])?);
        }
        self.optimizer.import(&self.device, &memory)?;
        if let Some(average) = &mut self.average {
            average.import(&self.network, |name, shape| resume.values(name, shape))?;
        }
        if let (Some(_), Ok(&[scale, good_steps])) =
            (self.device.loss_scale()?, resume.values(LOSS_SCALE, &[2]))
        {
            self.device.set_loss_scale([scale, good_steps])?;
        }
        self.state = resume.state.clone();
        self.plateau =
            super::plateau(&self.run.config.training).map(|plateau| plateau.after(&self.state.history));
        Ok(())
    }

    /// Allows a snapshot: the stages of a pipeline leave copies of their tensors for the first one.
    pub(crate) fn meet_for_snapshot(&mut self) -> Result<()> {
        if self.stage.stages() == 1 {
            return Ok(());
        }
        if self.collective.rank() == 0 && !self.stage.is_first() {
            let own = (self.own_parameters()?, self.own_memory()?);
            self.other_stages().insert(self.stage.number(), own);
        }
        Ok(self.stage.replica.barrier()?)
    }

    fn other_stages(&self) -> MutexGuard<'_, StageTensors> {
        self.run.stage_tensors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parameters and running averages of all stages.
    fn parameters(&self) -> Result<Tensors> {
        let mut tensors = self.own_parameters()?;
        self.other_stages().values().try_for_each(|(parameters, _)| tensors.append(parameters.clone()))?;
        Ok(tensors)
    }

    /// The parameters and running averages of this stage, copied from the device.
    fn own_parameters(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        let arena = self.network.arena();
        for slot in arena.slots() {
            let values = arena.storage(slot).to_vec(&self.device, slot.span.offset, slot.span.len)?;
            tensors.insert(&slot.name, slot.shape.clone(), values)?;
        }
        Ok(tensors)
    }

    /// The averages of this stage, and each kind of its optimizer's state, copied from the device.
    fn own_memory(&self) -> Result<Vec<Tensors>> {
        let mut averages = Tensors::new();
        if let Some(average) = &self.average {
            average.export(&self.network, &mut averages)?;
        }
        let mut kinds = vec![averages];
        for (kind, arena) in self.optimizer.arenas().enumerate() {
            let mut tensors = Tensors::new();
            for slot in self.network.arena().slots().iter().filter(|slot| slot.role == Role::Trainable) {
                let Some(name) = self.optimizer.names_of(&slot.name).get(kind) else { continue };
                let values = arena.to_vec(&self.device, slot.span.offset, slot.span.len)?;
                tensors.insert(format!("{name}/{}", slot.name), slot.shape.clone(), values)?;
            }
            kinds.push(tensors);
        }
        Ok(kinds)
    }

    /// The tensors that only training needs: the loss scale, the averages, and the optimizer's state. Each kind
    /// is complete before the next, so that their order doesn't tell where the stages were cut.
    fn memory(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        if let Some(state) = self.device.loss_scale()? {
            tensors.insert(LOSS_SCALE, vec![2], state.to_vec())?;
        }
        if let Some(steps) = self.optimizer.steps(&self.device)? {
            tensors.insert(OPTIMIZER_STEPS, vec![1], vec![steps])?;
        }
        for (kind, own) in self.own_memory()?.into_iter().enumerate() {
            tensors.append(own)?;
            self.other_stages().values().try_for_each(|(_, memory)| tensors.append(memory[kind].clone()))?;
        }
        Ok(tensors)
    }

    /// The content of `model.safetensors`.
    fn model(&self) -> Result<Tensors> {
        let mut tensors = self.parameters()?;
        tensors.append(self.description()?)?;
        Ok(tensors)
    }

    /// The classes, the preprocessing, and all else that inference needs beside the parameters.
    fn description(&self) -> Result<Tensors> {
        let RunData { classes, dataset, input, augmentation, train, .. } = &self.run.data;
        let Training { model: network, layer, .. } = &self.run.config.training;
        let about = Description::new(network, train.shape(), classes).layers(&layer.layers).dataset(dataset);
        let mut tensors = Tensors::new();
        let multi_label = self.run.model.is_multi_label();
        about.input(input).options(augmentation).multi_label(multi_label).add_to(&mut tensors)?;
        self.run.config.training.data.resize.add_to(&mut tensors);
        Ok(tensors)
    }
}

impl Snapshot for Worker<'_> {
    fn all_tensors(&self) -> towers_callbacks::Result<Tensors> {
        let mut tensors = self.model()?;
        tensors.append(self.memory()?)?;
        Ok(tensors)
    }

    fn optimizer_tensors(&self) -> towers_callbacks::Result<Tensors> {
        Ok(self.memory()?)
    }

    fn model_tensors(&self) -> towers_callbacks::Result<Tensors> {
        Ok(self.model()?)
    }

    fn saved(&self) -> towers_callbacks::Result<Value> {
        let model = self.description()?.metadata().clone();
        let saved = Saved { config: self.run.config.clone(), state: self.state.clone(), model };
        serde_json::to_value(saved).map_err(towers_callbacks::Error::other)
    }

    fn batch_picture(&self, count: usize) -> towers_callbacks::Result<Option<Picture>> {
        let RunData { train, augmentation, .. } = &self.run.data;
        let epoch = self.state.epochs_done.saturating_sub(1);
        let options = self.run.config.training.loader_options();
        let picture = draw(train, augmentation, options, epoch, count);
        Ok(Some(picture.map_err(Error::from)?))
    }
}
