use tensor::{Device, Result, Run, RunMut, Span, Storage};

/// The way to the other replicas in the middle of a pass, for layers that compute with the whole batch. Whoever trains several
/// replicas implements it; this crate knows none of the ways.
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
    fn sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Completes the run `at` of `data`, which has an equal part for each replica, one behind the other: each brings its own.
    ///
    /// # Errors
    /// If replicas can't meet.
    fn gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;
}

/// What a layer meets the other replicas with, in a pass over a batch of which each has some samples.
///
/// The numbers lie on a board that the layers of a network share: what one meeting left is gone with the next.
pub struct Meeting<'a> {
    replicas: &'a mut dyn AcrossReplicas,
    board: &'a mut Storage,
    samples: usize,
}

impl Meeting<'_> {
    /// How many replicas there are.
    pub fn replicas(&self) -> usize {
        self.replicas.world()
    }

    /// Samples in the whole batch.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// Brings together what every replica has: `write` puts this one's `len` numbers into a run of the board. Gives those of all
    /// replicas, one behind the other, in their order.
    ///
    /// # Errors
    /// Those of `write` and of the way to the others.
    pub fn gather(
        &mut self,
        device: &Device,
        len: usize,
        write: impl FnOnce(RunMut<Storage>) -> Result<()>,
    ) -> Result<Run<'_, Storage>> {
        write(RunMut::new(self.board, Span::new(len * self.replicas.rank(), len)))?;
        let all = Span::new(0, len * self.replicas.world());
        self.replicas.gather(device, self.board, all)?;
        Ok(Run::new(self.board, all))
    }

    /// Adds up what the replicas have: `write` puts this one's numbers into the first `len` of the board, and there are the
    /// sums afterwards.
    ///
    /// # Errors
    /// Those of `write` and of the way to the others.
    pub fn sum(
        &mut self,
        device: &Device,
        len: usize,
        write: impl FnOnce(&mut Storage) -> Result<()>,
    ) -> Result<&Storage> {
        write(self.board)?;
        self.replicas.sum(device, self.board, Span::new(0, len))?;
        Ok(self.board)
    }
}

/// What the layers of a pass meet with.
pub(crate) struct Across<'a> {
    pub(crate) replicas: &'a mut dyn AcrossReplicas,
    /// In the whole batch.
    pub(crate) samples: usize,
}

impl Across<'_> {
    pub(crate) fn meeting<'a>(&'a mut self, board: &'a mut Storage) -> Meeting<'a> {
        Meeting { replicas: &mut *self.replicas, board, samples: self.samples }
    }
}
