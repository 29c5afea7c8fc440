use crate::Result;
use crate::data::{Piece, Share};
use crate::run::partial_sums::PartialSums;
use towers_layers::Network;
use towers_parallel::{CapturePhase, Collective, Exchanges, GraphCapture, Shards};
use towers_program::{CaptureStatus, Device, ReplayArgs, Span};

/// The passes of a replica over its shards of every batch, and the sum of their results over all replicas.
pub(crate) struct Passes {
    shards: Shards,
    /// With virtual replicas or micro-batches: sums along a tree over all shards. Otherwise the only pass
    /// leaves its result in `grads`.
    sums: Option<PartialSums>,
    /// The spans in which replicas add up their gradients. The sums begin during the pass over the replica's
    /// last shard.
    buckets: Vec<Span>,
    /// The kind of the last passes.
    kind: Option<Kind>,
    capture: GraphCapture<Work>,
}

/// Work that repeats at every step, for batches of this many samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    kind: Kind,
    global: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A whole step, if the batch is one shard. It updates this number of spans of parameters, which shrinks
    /// when the training of a parameter group ends.
    Step {
        runs: usize,
    },
    /// The passes up to the sum over the shards, and the update after it.
    Gradients,
    Update {
        runs: usize,
    },
    /// The middle of a sharpness-aware step, between its two passes.
    Ascent {
        runs: usize,
    },
    /// As [`Kind::Gradients`], with layers that synchronize with those of other replicas. Threads of the host
    /// meet as well, which can't be captured.
    Synchronized,
    /// A batch of the validation data.
    Evaluation,
}

impl Passes {
    /// Allocates all memory. With `in_order`, sums have the same order on any number of replicas; replicas
    /// with several shards each need that. At most `in_flight` passes are between their begin and their end.
    pub(crate) fn new(network: &Network, shards: Shards, in_order: bool, in_flight: usize) -> Result<Self> {
        let sums = || PartialSums::new(network.device(), &shards, network.arena().grads.len(), in_flight);
        let sums = (in_order && shards.total() > 1).then(sums).transpose()?;
        Ok(Passes { shards, sums, buckets: network.buckets(), kind: None, capture: GraphCapture::default() })
    }

    /// From now on this replica has these shards of every batch, out of as many. Captured graphs are gone.
    pub(crate) fn set_shards(&mut self, network: &Network, shards: Shards) -> Result<()> {
        // The memory of the old sums is free before that of the new ones is allocated.
        let in_order = self.sums.take().is_some();
        *self = Passes::new(network, shards, in_order, 1)?;
        Ok(())
    }

    /// Whether every batch is one shard, so that there is nothing to add up.
    pub(crate) fn is_single(&self) -> bool {
        self.shards.total() == 1
    }

    /// The reason if some work is never captured.
    pub(crate) fn capture_refusal(&self) -> Option<&str> {
        self.capture.refusal()
    }

    /// The shards of this replica.
    pub(crate) fn shards(&self) -> &Shards {
        &self.shards
    }

    /// Runs a pass over the shard `own`, or a part of one. If it `ends`, adds up this run of its result.
    pub(crate) fn with_shard(
        &mut self,
        network: &mut Network,
        own: usize,
        ends: Option<Span>,
        pass: impl FnOnce(&mut Network) -> Result<()>,
    ) -> Result<()> {
        let (device, sums) = (network.device().clone(), &mut self.sums);
        sums.iter_mut().for_each(|sums| sums.swap(own, &mut network.arena_mut().grads));
        let done = pass(network).and_then(|()| match (&mut *sums, ends) {
            (Some(sums), Some(at)) => Ok(sums.end(&device, own, &mut network.arena_mut().grads, at)?),
            _ => Ok(()),
        });
        sums.iter_mut().for_each(|sums| sums.swap(own, &mut network.arena_mut().grads));
        done
    }

    /// Loads each of this replica's shards of a batch, and runs `pass` on it, with the exchanges with other
    /// replicas that it has, if any. Devices with graphs capture the work first, once, and replay it from then on.
    /// After each shard's pass, `ended` may read its results.
    pub(crate) fn each(
        &mut self,
        network: &mut Network,
        collective: &mut dyn Collective,
        batch: &Share,
        kind: Kind,
        args: &ReplayArgs,
        (mut pass, mut ended): (
            impl FnMut(&mut Network, &Piece<'_>, Option<Exchanges<'_>>) -> Result<()>,
            impl FnMut(&mut Network, &Piece<'_>) -> Result<()>,
        ),
    ) -> Result<()> {
        self.kind = Some(kind);
        let Passes { shards, sums, capture, .. } = self;
        let (device, own) = (network.device().clone(), shards.own());
        let work = Work { kind, global: batch.global() };
        let captures =
            capture.begin(collective, &work)? == CapturePhase::Capture && kind != Kind::Synchronized;
        let phases = if captures {
            &[CapturePhase::Capture, CapturePhase::Replay][..]
        } else {
            &[CapturePhase::Replay]
        };
        let ends = if kind == Kind::Evaluation { network.arena().metrics } else { all(network) };
        for phase in phases {
            let mut captured = CaptureStatus::Yes;
            for (number, shard) in own.clone().enumerate() {
                let piece = batch.piece_of(shards, number);
                match phase {
                    // Nothing is copied: another replica must not wait for a copy.
                    CapturePhase::Capture => piece.set_batch(network)?,
                    _ => piece.send(network)?,
                }
                let starts_sums = kind == Kind::Gradients && shard + 1 == own.end;
                // The pass writes to the shard's result directly: a graph needs the same memory each time.
                sums.iter_mut().for_each(|sums| sums.swap(number, &mut network.arena_mut().grads));
                let mut run = || -> Result<()> {
                    piece.load(network)?;
                    let with_others = Exchanges::of_replicas(collective);
                    let exchanges = match (kind, &*sums) {
                        (Kind::Synchronized, _) => Some(with_others),
                        (_, Some(sums)) if starts_sums => {
                            Some(with_others.with_sums(Some(sums.nodes()), sums.siblings()))
                        }
                        (_, None) if starts_sums => Some(with_others.with_sums(None, &[])),
                        _ => None,
                    };
                    pass(network, &piece, exchanges)?;
                    match sums {
                        Some(sums) if !starts_sums => {
                            Ok(sums.end(&device, number, &mut network.arena_mut().grads, ends)?)
                        }
                        _ => Ok(()),
                    }
                };
                let done = match (phase, kind) {
                    (CapturePhase::Capture, _) => {
                        captured = captured.max(capture.graphs().prepare(&device, &(work, shard), run));
                        Ok(())
                    }
                    (_, Kind::Synchronized) => run(),
                    _ => {
                        let args = ReplayArgs { first: piece.first(), ..*args };
                        capture.graphs().run(&device, (work, shard), &args, run)
                    }
                };
                sums.iter_mut().for_each(|sums| sums.swap(number, &mut network.arena_mut().grads));
                done?;
                if *phase != CapturePhase::Capture {
                    ended(network, &piece)?;
                }
            }
            if *phase == CapturePhase::Capture {
                capture.agree(collective, &work, own.clone(), captured)?;
            }
        }
        Ok(())
    }

    /// Runs the work after the sum over the shards of a batch of `global` samples: the update, or the ascent between two passes.
    pub(crate) fn after(
        &mut self,
        device: &Device,
        collective: &mut dyn Collective,
        global: usize,
        kind: Kind,
        args: &ReplayArgs,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.capture.run(device, collective, &Work { kind, global }, args, |_| work())
    }

    /// Replaces `grads` by the sum over all shards of all replicas, except for parts that are summed yet.
    pub(crate) fn finish(&mut self, collective: &mut dyn Collective, network: &mut Network) -> Result<()> {
        if self.kind.take() != Some(Kind::Gradients) {
            return self.add_up(collective, network, all(network));
        }
        let device = network.device().clone();
        let grads = &mut network.arena_mut().grads;
        if let (Some(sums), Some(rest)) = (&self.sums, self.buckets.last()) {
            sums.end_last(&device, grads, *rest)?;
        }
        let nodes = self.sums.as_ref().map(PartialSums::nodes);
        Ok(collective.finish_all_reduce(&device, nodes, &self.buckets, grads)?)
    }

    /// Replaces the span `at` of `grads` by the sum over all shards of all replicas.
    pub(crate) fn add_up(
        &self,
        collective: &mut dyn Collective,
        network: &mut Network,
        at: Span,
    ) -> Result<()> {
        let device = network.device().clone();
        let nodes = self.sums.as_ref().map(PartialSums::nodes);
        Ok(collective.all_reduce(&device, nodes, &mut network.arena_mut().grads, at)?)
    }
}

fn all(network: &Network) -> Span {
    Span::new(0, network.arena().grads.len())
}
