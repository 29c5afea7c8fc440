use crate::Result;
use parallel::Collective;
use program::{Device, Prepared, Recorder, Turn};

/// Plays work that all replicas repeat from step to step, in the same order.
///
/// The first time that some work comes, memory is reserved and algorithms are chosen; the second time a GPU writes it down. Until
/// some work comes a third time the operations of their collective go one by one, and what one of them can't write down none does:
/// [`Nccl`](parallel::Nccl) says why.
pub(crate) struct Rounds<K> {
    recorder: Recorder<(K, usize)>,
    /// What has come, and how often. All replicas have the same here, whichever shards are theirs.
    known: Vec<(K, Round)>,
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Round {
    First,
    Second,
    Later,
}

impl<K> Default for Rounds<K> {
    fn default() -> Self {
        Rounds { recorder: Recorder::default(), known: Vec::new(), settled: false }
    }
}

impl<K: Clone + PartialEq> Rounds<K> {
    /// Begins the next round of the work of `key`, at which all replicas come together unless they have done it twice.
    pub(crate) fn begin(&mut self, collective: &mut dyn Collective, key: &K) -> Result<Round> {
        let round = match self.known.iter_mut().find(|(known, _)| known == key) {
            Some((_, round)) => {
                *round = if *round == Round::First { Round::Second } else { Round::Later };
                *round
            }
            None => {
                self.known.push((key.clone(), Round::First));
                Round::First
            }
        };
        let settled = round == Round::Later;
        if settled != self.settled {
            collective.come_together(true)?;
            collective.one_by_one(!settled);
            self.settled = settled;
        }
        Ok(round)
    }

    /// In the second round: writes down the work of `key` on one of this replica's shards.
    pub(crate) fn prepare(
        &mut self,
        device: &Device,
        key: &K,
        shard: usize,
        work: impl FnMut() -> Result<()>,
    ) -> Prepared {
        self.recorder.prepare(device, &(key.clone(), shard), work)
    }

    /// In the second round, before anything is played: has the replicas agree on what becomes of the work of `key`. This one's shards
    /// are at best `prepared` so far.
    pub(crate) fn agree(
        &mut self,
        collective: &mut dyn Collective,
        key: &K,
        shards: core::ops::Range<usize>,
        prepared: Prepared,
    ) -> Result<()> {
        if collective.come_together(prepared == Prepared::Yes)? {
            return Ok(());
        }
        let again = collective.come_together(prepared != Prepared::Never)?;
        for shard in shards {
            let of_shard = (key.clone(), shard);
            match again {
                true => self.recorder.forget(&of_shard),
                false => self.recorder.refuse(&of_shard, "another replica can't record its step".into()),
            }
        }
        if again {
            // This is the first round once more.
            self.known
                .iter_mut()
                .filter(|(known, _)| known == key)
                .for_each(|(_, round)| *round = Round::First);
        }
        Ok(())
    }

    /// Does the work of `key` on one of this replica's shards, in a round that has begun.
    pub(crate) fn play(
        &mut self,
        device: &Device,
        key: &K,
        shard: usize,
        turn: &Turn,
        work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.recorder.play(device, (key.clone(), shard), turn, work)
    }

    /// A whole round of work that has nothing to do with shards.
    pub(crate) fn whole(
        &mut self,
        device: &Device,
        collective: &mut dyn Collective,
        key: &K,
        turn: &Turn,
        mut work: impl FnMut(&mut dyn Collective) -> Result<()>,
    ) -> Result<()> {
        if self.begin(collective, key)? == Round::Second {
            let prepared = self.prepare(device, key, 0, || work(collective));
            self.agree(collective, key, 0..1, prepared)?;
        }
        self.play(device, key, 0, turn, || work(collective))
    }

    /// Why recorded work has to run every time, if some does.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.recorder.refusal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use parallel::Result as Met;
    use program::{Span, Storage};

    /// Another replica's part: what it says when all come together, and what was asked of the collective.
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

        fn all_reduce_sum(&mut self, _: &Device, _: &mut Storage, _: Span) -> Met<()> {
            Ok(())
        }

        fn all_reduce_in_order(&mut self, _: &Device, _: &[Storage], _: Span, _: &mut Storage) -> Met<()> {
            Ok(())
        }

        fn broadcast(&mut self, _: &Device, _: &mut Storage, _: Span, _: usize) -> Met<()> {
            Ok(())
        }

        fn all_gather(&mut self, _: &Device, _: &mut Storage, _: Span) -> Met<()> {
            Ok(())
        }

        fn barrier(&mut self) -> Met<()> {
            Ok(())
        }

        fn come_together(&mut self, well: bool) -> Met<bool> {
            self.heard += if well { "together " } else { "not well " };
            Ok(well && self.says.pop().unwrap_or(true))
        }

        fn one_by_one(&mut self, one_by_one: bool) {
            self.heard += if one_by_one { "one by one " } else { "ahead " };
        }

        fn abort(&self, _: &str) {}
    }

    fn heard(rounds: &mut Rounds<&'static str>, other: &mut Other, work: &'static str) -> String {
        let device = tensor_cpu::device(1);
        rounds
            .whole(&device, other, &work, &Turn::default(), |_| Ok::<_, Error>(device.synchronize()?))
            .unwrap();
        core::mem::take(&mut other.heard)
    }

    #[test]
    fn only_work_that_all_have_done_twice_runs_ahead() {
        let (mut rounds, mut other) = (Rounds::default(), Other::default());
        let mut turns = |work| (0..4).map(|_| heard(&mut rounds, &mut other, work)).collect::<Vec<_>>();
        assert_eq!(turns("a step"), ["", "together ", "together ahead ", ""]);
        assert_eq!(turns("a shorter one"), ["together one by one ", "together ", "together ahead ", ""]);
    }

    #[test]
    fn what_one_writes_down_later_all_write_down_later() {
        let (mut rounds, mut other) = (Rounds::default(), Other::default());
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "");
        // The other one's algorithm gives way: both try again.
        other.says = vec![true, false];
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "together together ");
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "together ");
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "together ahead ");
    }

    #[test]
    fn what_one_can_never_write_down_all_run_every_time() {
        let (mut rounds, mut other) = (Rounds::default(), Other::default());
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "");
        other.says = vec![false, false];
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "together together ");
        assert_eq!(heard(&mut rounds, &mut other, "a step"), "together ahead ");
    }
}
