use crate::Result;
use parallel::Collective;
use tensor::{Device, Prepared, Recorder, Turn};

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
