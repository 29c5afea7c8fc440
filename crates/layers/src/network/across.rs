//! Training passes in which several replicas, each with a part of the batch, normalize over the whole of it.

use super::instance::Network;
use super::lane::Lane;
use super::lowering::Prepared;
use crate::{Draws, Error, Result};
use tensor::{Backend, Device, Op, Span, Storage};

/// The way to the other replicas in the middle of a pass. The trainer of several replicas implements it; this crate knows none of the ways.
///
/// All replicas call the same methods in the same order. Each call returns when all have come, or with an error if another
/// replica has failed or the device has.
pub trait AcrossReplicas {
    /// This replica's number, from 0.
    fn rank(&self) -> usize;

    /// How many replicas there are.
    fn world(&self) -> usize;

    /// Replaces the run `at` of `data` by its sum over all replicas, with the same bits on all.
    ///
    /// # Errors
    /// If replicas can't meet.
    fn sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> tensor::Result<()>;

    /// Completes the run `at` of `data`, which has an equal part for each replica, one behind the other: each brings its own.
    ///
    /// # Errors
    /// If replicas can't meet.
    fn gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> tensor::Result<()>;
}

impl Network {
    /// Makes ready for [`train_pass_across`](Network::train_pass_across) as replica `rank` of so many. Says whether replicas exchange
    /// anything.
    ///
    /// # Errors
    /// What the device says.
    pub fn prepare_across(&mut self, rank: usize, replicas: usize) -> Result<bool> {
        let (recomputes, place) = (self.device.recomputes(), Some([rank, replicas]));
        let across = self.graph.prepared(self.output, self.max_batch(), self.mode, recomputes, place)?;
        let exchanges = across.exchanges();
        for lane in &mut self.lanes {
            let programs: Vec<&Prepared> = [&self.infer, &across].into_iter().chain(&self.train).collect();
            // The batch in it is gone: replicas make ready before their first one.
            *lane = Lane::new(&programs, &self.device, self.infer.executable.batch())?;
        }
        self.across = Some(across);
        Ok(exchanges)
    }

    /// As [`train_pass`](Network::train_pass), but layers that compute with statistics of the batch, as
    /// [`BatchNormalization`](crate::BatchNormalization) does, take those of the whole batch of all `replicas`. So together they
    /// compute, up to rounding, what one replica would with all samples.
    ///
    /// All replicas call it for every batch, those without samples too: they exchange all the same.
    ///
    /// # Errors
    /// As [`train_pass`](Network::train_pass), [`Error::NotPrepared`] without [`prepare_across`](Network::prepare_across), and if replicas
    /// can't meet.
    pub fn train_pass_across(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        replicas: &mut dyn AcrossReplicas,
    ) -> Result<()> {
        if self.across.is_none() {
            return Err(Error::NotPrepared);
        }
        self.train(draws, label_smoothing, global_batch, Some(replicas), |_, _, _| Ok::<_, Error>(()))?;
        self.finish_grads()
    }
}

/// Does the exchange that a step is.
pub(super) fn exchange(
    op: &Op,
    device: &Device,
    replicas: &mut dyn AcrossReplicas,
    statistics: &mut Storage,
    at: Span,
) -> tensor::Result<()> {
    match op {
        Op::Gather(_) => replicas.gather(device, statistics, at),
        Op::SumOverReplicas(_) => replicas.sum(device, statistics, at),
        _ => Ok(()),
    }
}
