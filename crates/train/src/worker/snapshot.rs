//! Copies of a replica's tensors, for whoever wants to save them.

use super::{LOSS_SCALE, Prepared, STEPS, Worker};
use crate::{Picture, Result, Snapshot};
use checkpoint::Tensors;
use layers::Role;

impl Worker<'_> {
    /// Where a snapshot may be taken next: the stages of a pipeline hand their tensors to the first one.
    pub(crate) fn meet_for_snapshot(&mut self) -> Result<()> {
        if self.stage.stages() == 1 {
            return Ok(());
        }
        let hand_over = self.collective.rank() == 0 && !self.stage.stage.is_first();
        let own = if hand_over { Some((self.own_parameters()?, self.own_memory()?)) } else { None };
        self.stage.hand_over(own)
    }

    /// Parameters and running averages of all stages.
    fn parameters(&self) -> Result<Tensors> {
        let mut tensors = self.own_parameters()?;
        self.stage.each_other(|parameters, _| Ok(tensors.append(parameters)?))?;
        Ok(tensors)
    }

    /// Those of this stage, copied from the device.
    fn own_parameters(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        let arena = self.network.arena();
        for slot in arena.slots() {
            let values = arena.storage(slot).to_vec(&self.device, slot.span.offset, slot.span.len)?;
            tensors.insert(&slot.name, slot.shape.clone(), values)?;
        }
        Ok(tensors)
    }

    /// What this stage's optimizer and average remember, copied from the device.
    fn own_memory(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        if let Some(average) = &self.average {
            average.export(&self.device, &self.network, &mut tensors)?;
        }
        for (name, arena) in self.optimizer.arenas() {
            for slot in self.network.arena().slots().iter().filter(|slot| slot.role == Role::Trainable) {
                let values = arena.to_vec(&self.device, slot.span.offset, slot.span.len)?;
                tensors.insert(format!("{name}/{}", slot.name), slot.shape.clone(), values)?;
            }
        }
        Ok(tensors)
    }
}

impl Snapshot for Worker<'_> {
    fn all_tensors(&self) -> Result<Tensors> {
        let mut tensors = self.parameters()?;
        tensors.append(&self.optimizer_tensors()?)?;
        Ok(tensors)
    }

    fn optimizer_tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        if let Some(state) = self.device.loss_scale()? {
            tensors.insert(LOSS_SCALE, vec![2], state.to_vec())?;
        }
        if let Some(steps) = self.optimizer.steps(&self.device)? {
            tensors.insert(STEPS, vec![1], vec![steps])?;
        }
        tensors.append(&self.own_memory()?)?;
        self.stage.each_other(|_, memory| Ok(tensors.append(memory)?))?;
        Ok(tensors)
    }

    fn model_tensors(&self) -> Result<Tensors> {
        let mut tensors = self.parameters()?;
        crate::model_file::describe(&mut tensors, &self.config.model, self.prepared)?;
        Ok(tensors)
    }

    fn batch_picture(&self, count: usize) -> Result<Option<Picture>> {
        let Prepared { train, augmentation, .. } = self.prepared;
        let epoch = self.state.epoch.saturating_sub(1);
        crate::batch_picture::draw(train, augmentation, self.config.seed, epoch, count).map(Some)
    }
}
