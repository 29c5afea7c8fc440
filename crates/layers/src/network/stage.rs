//! A network as a stage of a larger one: its passes one by one, and what goes in and out between stages.

use super::instance::Network;
use crate::{Draws, Error, Mode, Result};
use tensor::{Backend, Span, Storage, View};

impl Network {
    /// Has all that follows work on another lane: its batch, and what its last passes left.
    ///
    /// # Errors
    /// [`Error::Batch`] if there is no such lane.
    pub fn choose_lane(&mut self, lane: usize) -> Result<()> {
        if lane >= self.lanes.len() {
            let accepted = format!("{} lanes", self.lanes.len());
            return Err(Error::Batch { accepted, given: format!("lane {lane}") });
        }
        self.lane = lane;
        Ok(())
    }

    /// The first part of a training pass: the forward pass of the current batch. Metrics are set to 0.
    ///
    /// With [`loss_pass`](Network::loss_pass), in the last stage, or
    /// [`set_output_gradient`](Network::set_output_gradient), in the others, and [`backward_pass`](Network::backward_pass) it
    /// does what [`train_pass`](Network::train_pass) does, bit for bit.
    ///
    /// # Errors
    /// [`Error::InferenceOnly`], or what the device says.
    pub fn forward_pass(&mut self, draws: Draws) -> Result<()> {
        if self.mode == Mode::Inference {
            return Err(Error::InferenceOnly);
        }
        let all = Span::new(0, self.arena.grads.len());
        let zero = if self.n() == 0 { all } else { self.arena.metrics };
        self.device.fill(0.0, &mut self.arena.grads, zero)?;
        if self.n() == 0 { Ok(()) } else { self.forward(Some(draws), None, 1) }
    }

    /// The loss of the current batch after its forward pass, and the gradient with which its backward pass begins.
    ///
    /// # Errors
    /// [`Error::GlobalBatch`] for a global batch smaller than the current one, or what the device says.
    pub fn loss_pass(&mut self, label_smoothing: f32, global_batch: usize) -> Result<()> {
        if global_batch < self.n().max(1) {
            return Err(Error::GlobalBatch { global_batch, own: self.n() });
        }
        if self.n() == 0 {
            return Ok(());
        }
        self.loss(label_smoothing, global_batch)
    }

    /// The backward pass of the current batch, from the gradient of the output on; `draws` are those of its forward pass.
    ///
    /// # Errors
    /// What the device says.
    pub fn backward_pass(&mut self, draws: Draws) -> Result<()> {
        if self.n() == 0 {
            return Ok(());
        }
        self.backward(draws, None, 1, |_, _, _| Ok::<_, Error>(()))?;
        self.finish_grads()
    }

    /// A forward pass as in inference, without a loss: what a stage but the last does in evaluation. Metrics are set to 0.
    ///
    /// # Errors
    /// What the device says.
    pub fn infer_pass(&mut self) -> Result<()> {
        self.device.fill(0.0, &mut self.arena.grads, self.arena.metrics)?;
        if self.n() == 0 { Ok(()) } else { self.forward(None, None, 1) }
    }

    /// Copies the output of the last forward pass, for the next stage.
    ///
    /// # Errors
    /// What the device says.
    pub fn read_output(&self, into: &mut Vec<f32>) -> Result<()> {
        self.read(Some(self.logits()), into)
    }

    /// Copies the gradient of the input after a backward pass, for the stage before. Only a network that was built with
    /// [`Mode::TrainingWithInputGradient`] has one.
    ///
    /// # Errors
    /// What the device says.
    pub fn read_input_gradient(&self, into: &mut Vec<f32>) -> Result<()> {
        self.read(self.input_gradient(), into)
    }

    /// Sets the gradient of the output, as the next stage computed it, for the backward pass of the current batch.
    ///
    /// # Errors
    /// [`Error::Batch`] if it has another size than the output.
    pub fn set_output_gradient(&mut self, dy: &[f32]) -> Result<()> {
        let train = self.training().ok_or(Error::InferenceOnly)?;
        let at = train.program().output_gradient.map(|id| self.layout(train, id));
        let at = at.ok_or(Error::InferenceOnly)?;
        if dy.len() != at.shape.len() {
            let accepted = format!("a gradient of {} numbers", at.shape.len());
            return Err(Error::Batch { accepted, given: dy.len().to_string() });
        }
        Ok(self.device.upload(dy, &mut self.lanes[self.lane].activations, at.offset)?)
    }

    /// The input, the output and their gradients lie back to back.
    fn read(&self, tensor: Option<View<'_, Storage>>, into: &mut Vec<f32>) -> Result<()> {
        let Some(View { data, layout }) = tensor else { return Err(Error::InferenceOnly) };
        into.resize(layout.shape.len(), 0.0);
        Ok(self.device.download(data, layout.offset, into)?)
    }
}
