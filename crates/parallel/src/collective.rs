use crate::Result;
use program::{Device, Span, Storage};

/// The collective operations of a group of replicas. All replicas call the same operations in the same order.
/// A call returns when all replicas have called it. If a replica fails, it returns an error within bounded
/// time.
pub trait Collective: Send {
    /// This replica's number, from 0.
    fn rank(&self) -> usize;

    /// How many replicas there are.
    fn world(&self) -> usize;

    /// Replaces the run `at` of `data` by its sum over all replicas, with the same bits on all. The sum is
    /// taken in the order of the ranks, except for [`Nccl`](crate::Nccl), which by default uses NCCL's order.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Sets the run `at` of `into` to the sum of that run of all replicas' `parts`. First those of replica 0
    /// one after the other, then those of replica 1, and so on: each is added to the sum of all before it.
    /// Replicas may have different numbers of parts.
    ///
    /// So the sum depends on the parts and their order alone, and has the same bits for any number of
    /// replicas. With one part each it is [`all_reduce_sum`](Collective::all_reduce_sum) in the order of the
    /// ranks.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn all_reduce_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        at: Span,
        into: &mut Storage,
    ) -> Result<()>;

    /// Starts an asynchronous all-reduce of the run `at` of `data`. The caller may work on other runs of
    /// `data`, but must not touch this one before [`finish_all_reduce`](Collective::finish_all_reduce).
    ///
    /// All replicas start with the same [buckets](layers::Network::buckets) of gradients, in their order. The
    /// last run, without gradients, is left to [`finish_all_reduce`](Collective::finish_all_reduce). A device
    /// may capture this call in a graph: then a replay repeats it.
    ///
    /// By default this does nothing, and [`finish_all_reduce`](Collective::finish_all_reduce) does all of the
    /// work.
    ///
    /// # Errors
    /// If another replica failed.
    fn start_all_reduce(&mut self, _device: &Device, _data: &mut Storage, _at: Span) -> Result<()> {
        Ok(())
    }

    /// Waits for the all-reduces that [`start_all_reduce`](Collective::start_all_reduce) started, and adds up
    /// the last run, which has no gradients. Then all of `data` is as after
    /// [`all_reduce_sum`](Collective::all_reduce_sum).
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn finish_all_reduce(&mut self, device: &Device, buckets: &[Span], data: &mut Storage) -> Result<()> {
        self.all_reduce_sum(device, data, whole(buckets))
    }

    /// As [`start_all_reduce`](Collective::start_all_reduce), for
    /// [`all_reduce_in_order`](Collective::all_reduce_in_order) of the run `at` of this replica's parts: the
    /// `earlier` ones, and the last.
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

    /// Waits for the all-reduces that [`start_all_reduce_in_order`](Collective::start_all_reduce_in_order)
    /// started, and adds up the last run, which has no gradients. Then all of `into` is as after
    /// [`all_reduce_in_order`](Collective::all_reduce_in_order) of these parts.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn finish_all_reduce_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        buckets: &[Span],
        into: &mut Storage,
    ) -> Result<()> {
        self.all_reduce_in_order(device, parts, whole(buckets), into)
    }

    /// Replaces the run `at` of `data` by that of replica `root`.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()>;

    /// Completes the run `at` of `data`, which has an equal part for each replica, in the order of the ranks.
    /// Each replica sends its own part and receives the others.
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
    /// If another replica failed or passed another number of elements, or if the run can't be cut into that
    /// many equal parts.
    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Waits until all replicas have called this.
    ///
    /// # Errors
    /// If another replica failed.
    fn barrier(&mut self) -> Result<()>;

    /// Waits until all replicas have called this, where the next operation depends on it. Returns whether all
    /// passed `true`.
    ///
    /// By default it does not wait: the operations of most collectives run on the host, and are never
    /// captured.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_agree(&mut self, well: bool) -> Result<bool> {
        Ok(well)
    }

    /// Whether an operation ends before the next one starts, as it does by default. Replicas need that while
    /// one of them may reserve memory, choose an algorithm or capture a step. Otherwise operations may run
    /// ahead of the host.
    ///
    /// By default this does nothing.
    fn set_blocking(&mut self, _blocking: bool) {}

    /// Reports the step of this replica. A watchdog names the last step of a lost process.
    fn at_step(&self, _step: u64) {}

    /// Makes every operation of every replica fail with this reason, now and later.
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

/// The part of the run `at` that belongs to replica `rank` of `world`, with equal parts.
pub(crate) fn equal_part(at: Span, world: usize, rank: usize) -> Result<Span> {
    if at.len.is_multiple_of(world) {
        let len = at.len / world;
        return Ok(Span::new(at.offset + rank * len, len));
    }
    let accepted = "a multiple of the number of replicas";
    let (what, value) = ("the length of the run", at.len as f64);
    Err(program::Error::Value { op: "all_gather", what, value, accepted }.into())
}
