use crate::{Error, Result, SumTree};
use towers_program::{Device, Span, Storage};

/// The nodes of a tree that a replica brings to a sum.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// The same on all replicas.
    pub tree: &'a SumTree,
    /// The nodes before the last one, which is in the `data` of the operation. A replica without parts brings
    /// none, and only gets the sum there.
    pub earlier: &'a [Storage],
}

impl<'a> Nodes<'a> {
    /// The storages of the nodes that replica `rank` brings, in order.
    ///
    /// # Errors
    /// If these are not as many as the tree says.
    pub fn brought(self, rank: usize, data: &'a Storage) -> Result<impl Iterator<Item = &'a Storage>> {
        let Nodes { tree, earlier } = self;
        let expected = tree.nodes().get(rank).copied().unwrap_or(0);
        let last = (expected > 0).then_some(data);
        let got = earlier.len() + usize::from(last.is_some());
        match got == expected {
            true => Ok(earlier.iter().chain(last)),
            false => Err(Error::PartialSums { rank, got, expected }),
        }
    }
}

/// The collective operations of a group of replicas. All replicas call the same operations in the same order.
/// A call returns when all replicas have called it. If a replica fails, it returns an error within bounded
/// time.
pub trait Collective: Send {
    /// This replica's number, from 0.
    fn rank(&self) -> usize;

    /// How many replicas there are.
    fn world(&self) -> usize;

    /// Replaces the run `at` of `data` by its sum over all replicas, with the same bits on all.
    ///
    /// With `nodes` it is the sum along their tree, so it has the same bits for any number of replicas.
    /// Without, `data` is the only part of each replica. Then the sum is that of the tree over these parts,
    /// except for `Nccl`, which by default uses NCCL's order.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements or another tree.
    fn all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()>;

    /// [`all_reduce`](Collective::all_reduce) of one part each.
    ///
    /// # Errors
    /// As [`all_reduce`](Collective::all_reduce).
    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        self.all_reduce(device, None, data, at)
    }

    /// Starts an asynchronous [`all_reduce`](Collective::all_reduce) of the run `at` of `data`. The caller
    /// may work on other runs of `data`, but must not touch this one before
    /// [`finish_all_reduce`](Collective::finish_all_reduce).
    ///
    /// All replicas start with the same [buckets](towers_layers::Network::buckets) of gradients, in their order. The
    /// last run, without gradients, is left to [`finish_all_reduce`](Collective::finish_all_reduce). A device
    /// may capture this call in a graph: then a replay repeats it.
    ///
    /// By default this does nothing, and [`finish_all_reduce`](Collective::finish_all_reduce) does all of the
    /// work.
    ///
    /// # Errors
    /// If another replica failed.
    fn start_all_reduce(
        &mut self,
        _device: &Device,
        _nodes: Option<Nodes<'_>>,
        _data: &mut Storage,
        _at: Span,
    ) -> Result<()> {
        Ok(())
    }

    /// Waits for the all-reduces that [`start_all_reduce`](Collective::start_all_reduce) started with the
    /// same nodes, and adds up the last run, which has no gradients. Then all of `data` is as after
    /// [`all_reduce`](Collective::all_reduce).
    ///
    /// # Errors
    /// As [`all_reduce`](Collective::all_reduce).
    fn finish_all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        buckets: &[Span],
        data: &mut Storage,
    ) -> Result<()> {
        self.all_reduce(device, nodes, data, whole(buckets))
    }

    /// Replaces the run `at` of `data` by that of replica `root`.
    ///
    /// # Errors
    /// If another replica failed, or passed another number of elements.
    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()>;

    /// Completes the run `at` of `data`, which has an equal part for each replica, in the order of the ranks.
    /// Each replica sends its own part and receives the others.
    ///
    /// # Errors
    /// If another replica failed or passed another number of elements, or if the run can't be cut into that
    /// many equal parts.
    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()>;

    /// Gathers the same number of values from each replica, in the order of the ranks. They travel as `f32`.
    ///
    /// ```
    /// use towers_parallel::run_replicas;
    ///
    /// let gathered = run_replicas(&vec![towers_tensor_cpu::device(1); 2], |mut replica| {
    ///     let own = [replica.rank() as f64, 0.5];
    ///     replica.collective.gather_numbers(&replica.device, &own)
    /// })?;
    /// assert_eq!(gathered, vec![vec![0.0, 0.5, 1.0, 0.5]; 2]);
    /// # Ok::<(), towers_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`all_gather`](Collective::all_gather), and those of the device.
    fn gather_numbers(&mut self, device: &Device, own: &[f64]) -> Result<Vec<f64>> {
        let all = Span::new(0, own.len() * self.world());
        let mut numbers = device.alloc(all.len)?;
        let own: Vec<f32> = own.iter().map(|number| *number as f32).collect();
        device.upload(&own, &mut numbers, self.rank() * own.len())?;
        self.all_gather(device, &mut numbers, all)?;
        Ok(numbers.to_vec(device, 0, all.len)?.into_iter().map(f64::from).collect())
    }

    /// Waits until all replicas have called this.
    ///
    /// # Errors
    /// If another replica failed.
    fn barrier(&mut self) -> Result<()>;

    /// The rest of its interface, if its operations are queued on the streams of devices.
    fn queued(&mut self) -> Option<&mut dyn Queued> {
        None
    }

    /// Makes every operation of every replica fail with this reason, now and later.
    fn abort(&self, reason: &str);
}

/// A collective whose operations are queued on the streams of devices, where the host doesn't wait for them and
/// graphs capture them: `Nccl`.
pub trait Queued {
    /// Waits until all replicas have called this, where the next operation depends on it. Returns whether all
    /// passed `true`.
    ///
    /// # Errors
    /// If another replica failed.
    fn all_agree(&mut self, well: bool) -> Result<bool>;

    /// Whether an operation ends before the next one starts, as it does by default. Replicas need that while
    /// one of them may reserve memory, choose an algorithm or capture a step. Otherwise operations may run
    /// ahead of the host.
    fn set_blocking(&mut self, blocking: bool);

    /// Reports the step of this replica. A watchdog names the last step of a lost process.
    fn at_step(&self, step: u64);
}

/// All [buckets](towers_layers::Network::buckets) as one run.
pub(crate) fn whole(buckets: &[Span]) -> Span {
    Span::new(0, behind(buckets).end())
}

/// The last of the [buckets](towers_layers::Network::buckets), which has no gradients.
pub(crate) fn behind(buckets: &[Span]) -> Span {
    buckets.last().copied().unwrap_or(Span::new(0, 0))
}

/// The part of the run `at` that belongs to replica `rank` of `world`, with equal parts.
///
/// # Errors
/// If the run can't be cut into that many equal parts.
pub fn equal_part(at: Span, world: usize, rank: usize) -> Result<Span> {
    if at.len.is_multiple_of(world) {
        let len = at.len / world;
        return Ok(Span::new(at.offset + rank * len, len));
    }
    let accepted = "a multiple of the number of replicas";
    let (what, value) = ("the length of the run", at.len as f64);
    Err(towers_program::Error::Value { op: "all_gather", what, value, accepted }.into())
}
