use crate::Result;
use program::{Device, Span, Storage};

/// What replicas do together. Every replica of a group calls the same operations in the same order; each call returns when
/// all have come, or with an error in bounded time when one has failed.
pub trait Collective: Send {
    /// This replica's number, from 0.
    fn rank(&self) -> usize;

    /// How many replicas there are.
    fn world(&self) -> usize;

    /// Replaces the run `at` of `data` by its sum over all replicas, with the same bits on all: added in the order of the ranks,
    /// but for [`Nccl`](crate::Nccl), which has an order of its own unless it is told otherwise.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Sets the run `at` of `into` to the sum of that run of all replicas' `parts`: those of replica 0 one after the other, then
    /// those of replica 1, and so on, each added to the sum of all before it. Replicas may bring different numbers of parts.
    ///
    /// So the sum depends on the parts and their order alone, not on which replica brought which: the same bits for any number
    /// of replicas. With one part each it is that of [`all_reduce_sum`](Collective::all_reduce_sum) in the order of the ranks.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn all_reduce_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        at: Span,
        into: &mut Storage,
    ) -> Result<()>;

    /// Begins to replace the run `at` of `data` by its sum over all replicas, as [`all_reduce_sum`](Collective::all_reduce_sum)
    /// does, while the caller goes on with other runs of it. This one is left alone until
    /// [`finish_all_reduce`](Collective::finish_all_reduce).
    ///
    /// All replicas begin with the same [buckets](layers::Network::buckets) of gradients, in their order. The last run, without gradients,
    /// is left to [`finish_all_reduce`](Collective::finish_all_reduce). On a device that records its work this may be part of a recording: then a
    /// replay does it again, and nobody calls this.
    ///
    /// By default nothing is begun, for a collective that would gain nothing.
    ///
    /// # Errors
    /// If another replica failed.
    fn start_all_reduce(&mut self, _device: &Device, _data: &mut Storage, _at: Span) -> Result<()> {
        Ok(())
    }

    /// Ends what [`start_all_reduce`](Collective::start_all_reduce) began with every run of gradients, and adds up what lies behind them: then
    /// all of `data` is as after [`all_reduce_sum`](Collective::all_reduce_sum).
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn finish_all_reduce(&mut self, device: &Device, buckets: &[Span], data: &mut Storage) -> Result<()> {
        self.all_reduce_sum(device, data, whole(buckets))
    }

    /// As [`start_all_reduce`](Collective::start_all_reduce), for the run `at` of this replica's parts in order: `earlier` ones, and its last.
    ///
    /// # Errors
    /// If another replica failed.
    fn start_all_reduce_in_order(
        &mut self,
        _device: &Device,
        _earlier: &[Storage],
        _last: &Storage,
        _at: Span,
    ) -> Result<()> {
        Ok(())
    }

    /// Ends what [`start_all_reduce_in_order`](Collective::start_all_reduce_in_order) began, and adds up what lies behind the gradients: then all of
    /// `into` is as after [`all_reduce_in_order`](Collective::all_reduce_in_order) of these parts.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn finish_all_reduce_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        buckets: &[Span],
        into: &mut Storage,
    ) -> Result<()> {
        self.all_reduce_in_order(device, parts, whole(buckets), into)
    }

    /// Replaces the run `at` of `data` by what replica `root` has there.
    ///
    /// # Errors
    /// If another replica failed, or brought another number of elements.
    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()>;

    /// Completes the run `at` of `data`, which has a part for each replica, one behind the other and all as long: each replica
    /// brings its own, and has all of them afterwards.
    ///
    /// ```
    /// use parallel::{Error, run_replicas};
    /// use program::Span;
    ///
    /// let seen = run_replicas(&vec![tensor_cpu::device(1); 3], |mut replica| {
    ///     let (device, rank) = (replica.device.clone(), replica.rank());
    ///     let mut speeds = device.alloc(3)?;
    ///     device.upload(&[100.0 + rank as f32], &mut speeds, rank)?;
    ///     replica.collective.all_gather(&device, &mut speeds, Span::new(0, 3))?;
    ///     Ok::<_, Error>(speeds.to_vec(&device, 0, 3)?)
    /// })?;
    /// assert_eq!(seen, [[100.0, 101.0, 102.0]; 3]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// If another replica failed or brought another number of elements, or if the run can't be cut into as many equal parts as
    /// there are replicas.
    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Waits until all replicas have come here.
    ///
    /// # Errors
    /// If another replica failed.
    fn barrier(&mut self) -> Result<()>;

    /// Waits until all replicas have come here, where what follows depends on it. Returns whether all say that it went `well`.
    ///
    /// By default nobody is waited for: for collectives whose operations are the host's, and never recorded.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_agree(&mut self, well: bool) -> Result<bool> {
        Ok(well)
    }

    /// Whether an operation is to end before anything else is begun, as it is at first: replicas need that while one of them may
    /// reserve memory, choose an algorithm or record a step. Those that only do again what they have done may let operations run
    /// ahead of the host.
    ///
    /// By default that makes no difference.
    fn set_blocking(&mut self, _blocking: bool) {}

    /// Says which step this replica has come to. Who watches over processes tells it when one is lost.
    fn at_step(&self, _step: u64) {}

    /// Makes every operation of every replica fail, now and later, with this reason.
    fn abort(&self, reason: &str);
}

/// All [buckets](layers::Network::buckets) as one run.
pub(crate) fn whole(buckets: &[Span]) -> Span {
    Span::new(0, behind(buckets).end())
}

/// The last of the [buckets](layers::Network::buckets), which has no gradients.
pub(crate) fn behind(buckets: &[Span]) -> Span {
    buckets.last().copied().unwrap_or(Span::new(0, 0))
}

/// The part of the run `at` that is replica `rank`'s where each of `world` has an equal one.
pub(crate) fn equal_part(at: Span, world: usize, rank: usize) -> Result<Span> {
    if at.len.is_multiple_of(world) {
        let len = at.len / world;
        return Ok(Span::new(at.offset + rank * len, len));
    }
    let accepted = "a multiple of the number of replicas";
    let (what, value) = ("the length of the run", at.len as f64);
    Err(program::Error::Value { op: "all_gather", what, value, accepted }.into())
}
