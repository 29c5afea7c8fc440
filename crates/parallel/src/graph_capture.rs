use crate::{Collective, Error, Result};
use core::fmt::Display;
use core::ops::Range;
use towers_program::{CaptureStatus, Device, GraphCache, ReplayArgs};

/// CUDA graph capture of the work that all replicas repeat at every step, in the same order.
///
/// A device without graphs runs the work every time. A GPU runs it the first time, reserves memory and
/// chooses algorithms. The second time it captures the work, and from then on it replays the graph. Until
/// some work comes a third time, the operations of the collective run one by one. If one replica can't
/// capture the work, none does: `Nccl` explains why.
///
/// ```
/// use towers_parallel::{Collective, Error, GraphCapture, run_replicas};
/// use towers_program::ReplayArgs;
///
/// let runs = run_replicas(&[towers_tensor_cpu::device(1)], |mut replica| {
///     let (mut capture, mut runs) = (GraphCapture::default(), 0);
///     for _ in 0..3 {
///         let work = |_: &mut dyn Collective| -> towers_parallel::Result<()> {
///             runs += 1;
///             Ok(())
///         };
///         capture.run(&replica.device, replica.collective.as_mut(), &"update", &ReplayArgs::default(), work)?;
///     }
///     Ok::<_, Error>(runs)
/// })?;
/// assert_eq!(runs, [3]);
/// # Ok::<(), Error>(())
/// ```
pub struct GraphCapture<K> {
    /// The graphs, by work and shard.
    graphs: GraphCache<(K, usize)>,
    /// The known work, and its phase. It is the same on all replicas, whichever shards they have.
    known: Vec<(K, CapturePhase)>,
    settled: bool,
}

/// The phase of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePhase {
    /// It runs for the first time.
    WarmUp,
    /// It is captured, and then replayed.
    Capture,
    /// It is replayed.
    Replay,
}

impl<K> Default for GraphCapture<K> {
    fn default() -> Self {
        GraphCapture { graphs: GraphCache::default(), known: Vec::new(), settled: false }
    }
}

impl<K: Clone + PartialEq> GraphCapture<K> {
    /// Begins the next phase of the work of `key`. All replicas call it together, except for replays.
    ///
    /// # Errors
    /// Those of the collective.
    pub fn begin(&mut self, collective: &mut dyn Collective, key: &K) -> Result<CapturePhase> {
        let phase = match self.known.iter_mut().find(|(known, _)| known == key) {
            Some((_, phase)) => {
                *phase =
                    if *phase == CapturePhase::WarmUp { CapturePhase::Capture } else { CapturePhase::Replay };
                *phase
            }
            None => {
                self.known.push((key.clone(), CapturePhase::WarmUp));
                CapturePhase::WarmUp
            }
        };
        let settled = phase == CapturePhase::Replay;
        if settled != self.settled {
            if let Some(queued) = collective.queued() {
                queued.all_agree(true)?;
                queued.set_blocking(!settled);
            }
            self.settled = settled;
        }
        Ok(phase)
    }

    /// The graphs of this replica, by work and shard. In the phase of capture it [prepares](GraphCache::prepare) those of all
    /// its shards, and then it [runs](GraphCache::run) them, as in all phases.
    pub fn graphs(&mut self) -> &mut GraphCache<(K, usize)> {
        &mut self.graphs
    }

    /// In the phase of capture, before any replay: the replicas agree on the next phase of the work of `key`.
    /// The shards of this one are at best `prepared` so far.
    ///
    /// # Errors
    /// Those of the collective.
    pub fn agree(
        &mut self,
        collective: &mut dyn Collective,
        key: &K,
        shards: Range<usize>,
        prepared: CaptureStatus,
    ) -> Result<()> {
        // Operations on the host are never captured, so the others need not know.
        let mut all = |well| collective.queued().map_or(Ok(well), |queued| queued.all_agree(well));
        if all(prepared == CaptureStatus::Yes)? {
            return Ok(());
        }
        let again = all(prepared != CaptureStatus::Never)?;
        for shard in shards {
            let of_shard = (key.clone(), shard);
            match again {
                true => self.graphs.forget(&of_shard),
                false => self.graphs.refuse(&of_shard, "another replica can't record its step".into()),
            }
        }
        if again {
            // The next time is a warm-up again.
            self.known
                .iter_mut()
                .filter(|(known, _)| known == key)
                .for_each(|(_, phase)| *phase = CapturePhase::WarmUp);
        }
        Ok(())
    }

    /// Runs, captures or replays work that is independent of shards, in its current phase.
    ///
    /// # Errors
    /// Those of the work and of the collective.
    pub fn run<E: From<Error> + From<towers_program::Error> + Display>(
        &mut self,
        device: &Device,
        collective: &mut dyn Collective,
        key: &K,
        args: &ReplayArgs,
        mut work: impl FnMut(&mut dyn Collective) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.begin(collective, key)? == CapturePhase::Capture {
            let prepared = self.graphs.prepare(device, &(key.clone(), 0), || work(collective));
            self.agree(collective, key, 0..1, prepared)?;
        }
        self.graphs.run(device, (key.clone(), 0), args, || work(collective))
    }

    /// The reason if some work is never captured.
    pub fn refusal(&self) -> Option<&str> {
        self.graphs.refusal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nodes, Queued};
    use towers_program::{Span, Storage};

    /// Another replica: its answer when all meet, and the calls of the collective.
    #[derive(Default)]
    struct Other {
        says: Vec<bool>,
        heard: String,
    }

    impl Collective for Other {
        fn rank(&self) -> usize {
            0
        }

        fn world(&self) -> usize {
            2
        }

        fn all_reduce(&mut self, _: &Device, _: Option<Nodes<'_>>, _: &mut Storage, _: Span) -> Result<()> {
            Ok(())
        }

        fn broadcast(&mut self, _: &Device, _: &mut Storage, _: Span, _: usize) -> Result<()> {
            Ok(())
        }

        fn all_gather(&mut self, _: &Device, _: &mut Storage, _: Span) -> Result<()> {
            Ok(())
        }

        fn barrier(&mut self) -> Result<()> {
            Ok(())
        }

        fn queued(&mut self) -> Option<&mut dyn Queued> {
            Some(self)
        }

        fn abort(&self, _: &str) {}
    }

    impl Queued for Other {
        fn all_agree(&mut self, well: bool) -> Result<bool> {
            self.heard += if well { "together " } else { "not well " };
            Ok(well && self.says.pop().unwrap_or(true))
        }

        fn set_blocking(&mut self, blocking: bool) {
            self.heard += if blocking { "one by one " } else { "ahead " };
        }

        fn at_step(&self, _: u64) {}
    }

    fn heard(capture: &mut GraphCapture<&'static str>, other: &mut Other, work: &'static str) -> String {
        let device = towers_tensor_cpu::device(1);
        capture
            .run(&device, other, &work, &ReplayArgs::default(), |_| Ok::<_, Error>(device.synchronize()?))
            .unwrap();
        core::mem::take(&mut other.heard)
    }

    #[test]
    fn only_work_that_all_have_done_twice_runs_ahead() {
        let (mut capture, mut other) = (GraphCapture::default(), Other::default());
        let mut turns = |work| (0..4).map(|_| heard(&mut capture, &mut other, work)).collect::<Vec<_>>();
        assert_eq!(turns("a step"), ["", "together ", "together ahead ", ""]);
        assert_eq!(turns("a shorter one"), ["together one by one ", "together ", "together ahead ", ""]);
    }

    #[test]
    fn what_one_writes_down_later_all_write_down_later() {
        let (mut capture, mut other) = (GraphCapture::default(), Other::default());
        assert_eq!(heard(&mut capture, &mut other, "a step"), "");
        // The other replica's algorithm is replaced: both try again.
        other.says = vec![true, false];
        assert_eq!(heard(&mut capture, &mut other, "a step"), "together together ");
        assert_eq!(heard(&mut capture, &mut other, "a step"), "together ");
        assert_eq!(heard(&mut capture, &mut other, "a step"), "together ahead ");
    }

    #[test]
    fn what_one_can_never_write_down_all_run_every_time() {
        let (mut capture, mut other) = (GraphCapture::default(), Other::default());
        assert_eq!(heard(&mut capture, &mut other, "a step"), "");
        other.says = vec![false, false];
        assert_eq!(heard(&mut capture, &mut other, "a step"), "together together ");
        assert_eq!(heard(&mut capture, &mut other, "a step"), "together ahead ");
    }
}
