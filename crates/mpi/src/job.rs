use crate::communicator::Lost;
use crate::control::Operation;
use crate::options::MpiOptions;
use crate::thread::{RankInfo, WorkerHandle};
use crate::worker::{Worker, as_buffer};
use std::sync::Arc;
use towers_parallel::{Collective, Error, Nodes, Result, SumTree, equal_part};
use towers_program::{Device, Span, Storage};
use towers_rendezvous::Agreement;
use towers_tensor_cpu::Buffer as HostBuffer;

/// The collective of the processes of an MPI job, through host memory.
///
/// ```no_run
/// use towers_mpi::{Mpi, MpiOptions};
/// use towers_program::Span;
/// use towers_rendezvous::Agreement;
///
/// let mpi = Mpi::start(MpiOptions::default())?;
/// mpi.agree(&Agreement::new().with("the batch size", 64))?;
/// let sums = mpi.run(&[towers_tensor_cpu::device(1)], |mut replica| {
///     let device = replica.device.clone();
///     let mut data = device.alloc(1)?;
///     device.upload(&[1.0 + replica.rank() as f32], &mut data, 0)?;
///     replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 1))?;
///     Ok::<_, towers_parallel::Error>(data.to_vec(&device, 0, 1)?[0])
/// })?;
/// println!("{}", sums[0]);
/// # Ok::<(), towers_parallel::Error>(())
/// ```
pub struct Mpi {
    pub(crate) place: RankInfo,
    pub(crate) worker: Arc<WorkerHandle>,
    /// Staging buffers, one for each sum under way. They travel to the worker thread and back. Numbers in
    /// host memory need none.
    buffers: Vec<HostBuffer>,
    /// The runs of the sums under way.
    pending: Vec<Span>,
    /// The processes that are left, by their ranks at the start of the job.
    left: Vec<usize>,
    /// The tree over one part each.
    one_each: SumTree,
}

impl Mpi {
    /// Starts MPI in this process: once, on every process of the job.
    ///
    /// # Errors
    /// If MPI was started before, doesn't start in time, or has another number of processes than the
    /// launcher's.
    pub fn start(options: MpiOptions) -> Result<Mpi> {
        let (worker, place) = WorkerHandle::open(options)?;
        Ok(Mpi::at(Arc::new(worker), place))
    }

    pub(crate) fn at(worker: Arc<WorkerHandle>, place: RankInfo) -> Mpi {
        let (one_each, left) = (SumTree::new(&vec![1; place.world]), (0..place.world).collect());
        Mpi { place, worker, buffers: Vec::new(), pending: Vec::new(), left, one_each }
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.place.rank
    }

    /// How many processes there are.
    pub fn world(&self) -> usize {
        self.place.world
    }

    /// A function that returns how many numbers this process has sent to the others so far, in all operations.
    pub fn numbers_sent(&self) -> impl Fn() -> u64 + Send + Sync + use<> {
        let worker = Arc::clone(&self.worker);
        move || worker.sent()
    }

    /// Tells the other processes how many replicas this one has. Returns the number of each process.
    ///
    /// # Errors
    /// If another rank failed or didn't come.
    pub fn replicas(&self, own: usize) -> Result<Vec<usize>> {
        let numbers = self.worker.ask(move |worker| {
            let all = worker.arrive(Operation::Begin, 0, own)?;
            worker.replicas = all.iter().map(|arrival| arrival.parts).collect();
            Ok(as_buffer(&worker.replicas))
        })?;
        Ok(numbers[..self.place.world].iter().map(|number| *number as usize).collect())
    }

    /// Checks that all ranks have the same agreement. To be called before any other operation.
    ///
    /// # Errors
    /// On every rank: the first entry in which a rank differs from rank 0, or that a rank failed or didn't
    /// come.
    pub fn agree(&self, agreement: &Agreement) -> Result<()> {
        let own = serde_json::to_vec(agreement).unwrap_or_default();
        let first = Mpi::at(Arc::clone(&self.worker), self.place).broadcast_bytes(&own, 0)?;
        let first: Agreement = serde_json::from_slice(&first).unwrap_or_default();
        if let Some(error) = first.difference(self.place.rank, agreement) {
            self.worker.abort(&error.to_string());
            return Err(Error::Other(error.into()));
        }
        // No rank begins before all agree.
        self.worker.barrier()
    }

    /// Whether the other processes may continue after one was lost.
    pub fn is_fault_tolerant(&self) -> bool {
        self.place.is_fault_tolerant
    }

    /// Comes together with the processes that are left, after an operation failed with [`Error::Lost`]. All of
    /// them call it; then the job has only them, with new ranks in the same order. Returns the lost ones by their
    /// ranks at the start of the job.
    ///
    /// That works in a job of Open MPI 5 started with `mpirun --with-ft ulfm`. In others the loss of a process
    /// ends the job.
    ///
    /// # Errors
    /// If they can't come together.
    pub fn regroup(&mut self) -> Result<Vec<usize>> {
        let left = self.worker.regroup()?;
        let lost = self.left.iter().copied().filter(|rank| !left.contains(rank)).collect();
        let own = self.left[self.place.rank];
        self.place.rank = left.iter().position(|rank| *rank == own).unwrap_or_default();
        self.place.world = left.len();
        self.one_each = SumTree::new(&vec![1; left.len()]);
        self.left = left;
        Ok(lost)
    }

    /// Waits for all others and ends MPI. A process that ends without it ends the whole job.
    ///
    /// # Errors
    /// If another rank failed or didn't come.
    pub fn finish(&self) -> Result<()> {
        self.worker.ask(|worker| worker.finish().map(|()| HostBuffer::default())).map(drop)
    }

    /// The numbers of process `root`. All pass as many.
    ///
    /// # Errors
    /// If another rank failed or didn't come.
    pub fn broadcast_numbers(&mut self, numbers: &[f32], root: usize) -> Result<Vec<f32>> {
        let (device, len) = (towers_tensor_cpu::device(1), numbers.len());
        let mut all = device.alloc(len)?;
        device.upload(numbers, &mut all, 0)?;
        self.broadcast(&device, &mut all, Span::new(0, len), root)?;
        Ok(all.to_vec(&device, 0, len)?)
    }

    /// The same number of values of each process, in the order of the ranks. They travel as `f32`.
    ///
    /// # Errors
    /// If another rank failed or didn't come, or passed another number.
    pub fn gather(&mut self, own: &[f64]) -> Result<Vec<f64>> {
        self.gather_numbers(&towers_tensor_cpu::device(1), own)
    }

    /// The bytes of process `root`, whatever the others pass.
    ///
    /// # Errors
    /// If another rank failed or didn't come.
    pub fn broadcast_bytes(&mut self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let len = self.broadcast_numbers(&halves(bytes.len()), root)?;
        let mut numbers: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte)).collect();
        numbers.resize(joined(&len), 0.0);
        let numbers = self.broadcast_numbers(&numbers, root)?;
        Ok(numbers.into_iter().map(|number| number as u8).collect())
    }

    /// The buffer of the next sum, with room for `len` numbers.
    pub(crate) fn take_buffer(&mut self, len: usize) -> HostBuffer {
        let mut buffer = self.buffers.get_mut(self.pending.len()).map(core::mem::take).unwrap_or_default();
        buffer.grow(len);
        buffer
    }

    /// Keeps the buffer of a sum for the sum of the same number in the next step, which then allocates
    /// nothing.
    pub(crate) fn keep_buffer(&mut self, number: usize, buffer: HostBuffer) {
        self.buffers.resize_with(self.buffers.len().max(number + 1), HostBuffer::default);
        self.buffers[number] = buffer;
    }

    /// Lets the worker thread work on the run `at` of `data`: in place in host memory, else in a staging buffer.
    fn work_on(
        &mut self,
        device: &Device,
        data: &mut Storage,
        at: Span,
        job: impl FnOnce(&mut Worker, &mut [f32]) -> Result<(), Lost> + Send + 'static,
    ) -> Result<()> {
        at.check("collective", "the run", data.len())?;
        let worker = Arc::clone(&self.worker);
        let work = |mut buffer: HostBuffer, run: Span| {
            worker.ask(move |worker| {
                job(worker, &mut buffer[run.range()])?;
                Ok(buffer)
            })
        };
        if let Some(numbers) = data.get_mut::<HostBuffer>() {
            let len = numbers.len();
            let worked = work(core::mem::take(numbers), at);
            // After a failure the worker keeps the buffer: MPI may still write to it.
            let (back, result) =
                worked.map_or_else(|e| (HostBuffer::zeros(len), Err(e)), |numbers| (numbers, Ok(())));
            *numbers = back;
            return result;
        }
        let run = Span::new(0, at.len);
        let mut buffer = self.take_buffer(at.len);
        device.download(data, at.offset, &mut buffer[run.range()])?;
        let buffer = work(buffer, run)?;
        device.upload(&buffer[run.range()], data, at.offset)?;
        self.keep_buffer(0, buffer);
        Ok(())
    }

    /// Starts an all-reduce of the run `at` of this rank's nodes.
    fn begin(&mut self, device: &Device, nodes: Option<Nodes<'_>>, data: &Storage, at: Span) -> Result<()> {
        let tree = nodes.map_or(&self.one_each, |nodes| nodes.tree).clone();
        let nodes = Nodes { tree: &tree, earlier: nodes.map_or(&[], |nodes| nodes.earlier) };
        let brought: Vec<&Storage> = nodes.brought(self.place.rank, data)?.collect();
        let mut buffer = self.take_buffer(brought.len().max(1) * at.len);
        for (node, buffer) in brought.iter().zip(buffer.chunks_exact_mut(at.len.max(1))) {
            at.check("collective", "the run", node.len())?;
            device.download(node, at.offset, &mut buffer[..at.len])?;
        }
        let (nodes, len) = (brought.len(), at.len);
        self.worker.begin(move |worker| {
            worker.reduce(&mut buffer[..nodes.max(1) * len], nodes, len, &tree)?;
            Ok(buffer)
        })?;
        self.pending.push(at);
        Ok(())
    }

    /// Waits for the sums under way, and copies them to `into`.
    fn end(&mut self, device: &Device, into: &mut Storage) -> Result<()> {
        for number in 0..self.pending.len() {
            let (at, buffer) = (self.pending[number], self.worker.next()?);
            device.upload(&buffer[..at.len], into, at.offset)?;
            self.keep_buffer(number, buffer);
        }
        self.pending.clear();
        Ok(())
    }

    /// If this rank fails during an operation, stops the others, which would wait for it.
    fn abort_on_error(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.abort(&format!("rank {} failed: {error}", self.place.rank)))
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn world(&self) -> usize {
        self.place.world
    }

    fn all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        if self.place.world == 1 {
            return Ok(());
        }
        let tree = nodes.map_or(&self.one_each, |nodes| nodes.tree).clone();
        let alone = nodes.is_none_or(|nodes| nodes.earlier.is_empty());
        let added = match alone && tree.nodes().get(self.place.rank) == Some(&1) {
            true => self
                .work_on(device, data, at, move |worker, numbers| worker.reduce(numbers, 1, at.len, &tree)),
            false => self.begin(device, nodes, data, at).and_then(|()| self.end(device, data)),
        };
        self.abort_on_error(added)
    }

    /// Starts an all-reduce in the middle of a pass, if that overlaps with the network between machines. On
    /// one machine it would take the cores that compute, and copy numbers that can be added up in place. A
    /// device that runs ahead would have to be waited for. In both cases the sum is left to the end.
    fn start_all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        if !self.place.overlaps || device.runs_ahead() {
            return Ok(());
        }
        let started = self.begin(device, nodes, data, at);
        self.abort_on_error(started)
    }

    fn finish_all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        buckets: &[Span],
        data: &mut Storage,
    ) -> Result<()> {
        if !self.place.overlaps {
            return self.all_reduce(
                device,
                nodes,
                data,
                Span::new(0, buckets.last().map_or(0, |last| last.end())),
            );
        }
        let mut rest = buckets.iter().skip(self.pending.len());
        let started = rest.try_for_each(|run| self.begin(device, nodes, data, *run));
        let added = started.and_then(|()| self.end(device, data));
        self.abort_on_error(added)
    }

    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.place.world == 1 {
            return Ok(());
        }
        let sent = self.work_on(device, data, at, move |worker, numbers| worker.broadcast(numbers, root));
        self.abort_on_error(sent)
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        if self.place.world == 1 {
            return Ok(());
        }
        let gathered = equal_part(at, self.place.world, self.place.rank)
            .and_then(|_| self.work_on(device, data, at, |worker, numbers| worker.all_gather(numbers)));
        self.abort_on_error(gathered)
    }

    fn barrier(&mut self) -> Result<()> {
        self.worker.barrier()
    }

    fn abort(&self, reason: &str) {
        self.worker.abort(reason);
    }
}

/// The bits of a length that one f32 carries exactly.
const HALF: u32 = 24;

/// A length as two numbers that f32 holds exactly.
fn halves(len: usize) -> [f32; 2] {
    [(len >> HALF) as f32, (len & ((1 << HALF) - 1)) as f32]
}

/// The length of its two numbers.
fn joined(halves: &[f32]) -> usize {
    halves.iter().fold(0, |len, &half| (len << HALF) + half as usize)
}

#[cfg(test)]
mod tests {
    use super::{halves, joined};

    /// An f32 alone holds no odd number above 2^24.
    #[test]
    fn a_length_arrives_exactly() {
        for len in [0, 1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, 20_000_001, (1 << 40) + 12_345] {
            assert_eq!(joined(&halves(len)), len);
        }
    }
}
