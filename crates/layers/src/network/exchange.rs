//! The exchanges of a pass with other replicas and other stages.

use super::instance::Network;
use super::lowering::Prepared;
use super::micro_batch::MicroBatch;
use crate::Result;
use towers_program::ops::{Neighbor, Receive, Send};
use towers_program::{Device, Executable, Layout, Op, Span, Step, Storage};

/// The exchanges with other replicas and other stages in the middle of a pass. A trainer implements those
/// that its programs have.
///
/// All replicas call the same methods in the same order. A call returns when all have called it, or with an
/// error if another replica or the device has failed.
pub trait Exchange {
    /// Starts an asynchronous all-reduce of the run `at` of `grads`. The trainer waits for all of them after
    /// the pass. A trainer that adds up after the pass does nothing here, as by default.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_reduce_start(
        &mut self,
        _device: &Device,
        _grads: &mut Storage,
        _at: Span,
    ) -> towers_program::Result<()> {
        Ok(())
    }

    /// Replaces the run `at` of `data` by its sum over all replicas, with the same bits on all.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_reduce(&mut self, _device: &Device, _data: &mut Storage, _at: Span) -> towers_program::Result<()> {
        Err(missing("all_reduce"))
    }

    /// Completes the run `at` of `data`, which has an equal part for each replica, in the order of the ranks.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_gather(&mut self, _device: &Device, _data: &mut Storage, _at: Span) -> towers_program::Result<()> {
        Err(missing("all_gather"))
    }

    /// Sends a tensor to another stage, without waiting for it. Its elements lie back to back.
    ///
    /// # Errors
    /// If the other stage has failed.
    fn send(
        &mut self,
        _to: Neighbor,
        _device: &Device,
        _data: &Storage,
        _at: Layout,
    ) -> towers_program::Result<()> {
        Err(missing("send"))
    }

    /// Waits for a tensor that another stage sends. Its elements lie back to back.
    ///
    /// # Errors
    /// If the other stage has failed, or sends another number of elements.
    fn receive(
        &mut self,
        _from: Neighbor,
        _device: &Device,
        _data: &mut Storage,
        _at: Layout,
    ) -> towers_program::Result<()> {
        Err(missing("receive"))
    }
}

/// The error of an exchange that the trainer does not implement.
fn missing(op: &'static str) -> towers_program::Error {
    let (what, value, accepted) = ("the pass", "alone", "made with an exchange that does this");
    towers_program::Error::Option { op, what, value, accepted }
}

impl Network {
    /// Makes [passes with an exchange](Network::train_pass_with) share batch statistics, as replica `rank` of
    /// `replicas`. Layers such as [`BatchNormalization`](crate::BatchNormalization) then use the statistics
    /// of the whole batch of all replicas. Up to rounding, all replicas together compute what one replica
    /// would with all samples. Returns whether the network has such a layer.
    ///
    /// From then on all replicas make a pass for every batch, even without samples.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn synchronize(&mut self, rank: usize, replicas: usize) -> Result<bool> {
        let (recomputes, place) = (self.device.recomputes(), Some([rank, replicas]));
        let synchronized =
            self.graph.prepared(self.output, self.max_batch(), self.mode, recomputes, place)?;
        self.device.prepare(&synchronized.executable)?;
        let (synchronizes, words) = (synchronized.synchronizes, self.label_words());
        for micro_batch in &mut self.micro_batches {
            let programs: Vec<&Prepared> =
                [&self.infer, &synchronized].into_iter().chain(&self.train).collect();
            // The batch in it is gone: replicas make ready before their first one.
            *micro_batch = MicroBatch::new(&programs, &self.device, self.infer.executable.batch(), words)?;
        }
        self.synchronized = Some(synchronized);
        Ok(synchronizes)
    }
}

/// Does the exchange that a step is.
pub(super) fn run(
    exchange: &mut dyn Exchange,
    program: &Executable,
    step: &Step,
    device: &Device,
    micro_batch: &mut MicroBatch,
    grads: &mut Storage,
) -> towers_program::Result<()> {
    let span = || program.span(step.results[0]);
    match step.op {
        Op::AllReduceStart(_) => {
            // Without samples there are zeros in place.
            if micro_batch.n > 0 {
                device.finish_grads(grads, span())?;
            }
            exchange.all_reduce_start(device, grads, span())
        }
        Op::AllGather(_) => exchange.all_gather(device, &mut micro_batch.statistics, span()),
        Op::AllReduce(_) => exchange.all_reduce(device, &mut micro_batch.statistics, span()),
        Op::Send(Send { to }) => exchange.send(
            to,
            device,
            &micro_batch.activations,
            program.layout(step.operands[0], micro_batch.n),
        ),
        Op::Receive(Receive { from, .. }) => {
            let at = program.layout(step.results[0], micro_batch.n);
            exchange.receive(from, device, &mut micro_batch.activations, at)
        }
        _ => Ok(()),
    }
}
