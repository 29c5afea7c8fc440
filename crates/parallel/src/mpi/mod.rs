//! One replica per process, over MPI: what `mpirun -n 3 towers train` runs on.
//!
//! The sums are those of [`Local`](crate::Local), bit for bit. `MPI_Allreduce` adds in an order of its own, which depends on the
//! number of ranks, the length and the library; here every rank gets its stretch of the numbers from all others, adds in the
//! order of the ranks, and sends its sums to all. Each rank sends and receives `2 (n - 1) / n` of the numbers, as the best
//! algorithms for long messages do; a short message costs two exchanges and an arrival instead of `log2 n` hops.
//!
//! Sums go on while the process computes: [`Collective::begin_sum`] hands a run to that thread and returns, and what was begun is
//! added up in its turn.
//!
//! **Nobody waits for ever.** All MPI calls are made by one thread of the process, with operations that return at once and are
//! polled; see [`endpoint`]. A rank that waits longer than [`MpiOptions::timeout`] asks who else is waiting, and names those
//! who are not. After a failure there is no way back: the thread keeps the buffers that MPI may still write to, answers every
//! later call with the reason, and ends the job if the process doesn't end by itself.

mod control;
mod endpoint;
mod exchange;
mod options;
mod process;
mod thread;
mod wait;

pub use options::MpiOptions;

use crate::collective::equal_part;
use crate::in_order::add_in_order;
use crate::{Buckets, Collective, Facts, Result};
use std::sync::Arc;
use tensor::{Backend, Device, Span, Storage};
use thread::{Command, Line};

/// The collective of the processes of an MPI job, through host memory.
///
/// ```no_run
/// use parallel::{Facts, Mpi, MpiOptions};
/// use tensor::{Backend, Device, Span};
///
/// let mpi = Mpi::start(MpiOptions::default())?;
/// mpi.agree(&Facts::new().with("the batch size", 64))?;
/// let sum = mpi.run(Device::cpu(1), |mut replica| {
///     let device = replica.device.clone();
///     let mut data = device.alloc(1)?;
///     device.upload(&[1.0 + replica.rank() as f32], &mut data, 0)?;
///     replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 1))?;
///     Ok::<_, parallel::Error>(data.to_vec(&device, 0, 1)?[0])
/// })?;
/// println!("{sum}");
/// # Ok::<(), parallel::Error>(())
/// ```
pub struct Mpi {
    rank: usize,
    world: usize,
    line: Arc<Line>,
    /// Where the device's numbers are staged, one for each sum under way. They travel to the thread that exchanges them, and
    /// back.
    boards: Vec<Vec<f32>>,
    /// The sums under way: where they go.
    begun: Vec<Span>,
}

impl Mpi {
    /// Starts MPI in this process: once, on every process of the job.
    ///
    /// # Errors
    /// If MPI was started before, doesn't start in time, or finds another number of processes than the launcher named.
    pub fn start(options: MpiOptions) -> Result<Mpi> {
        let (line, rank, world) = Line::open(options)?;
        Ok(Mpi::at(Arc::new(line), rank, world))
    }

    fn at(line: Arc<Line>, rank: usize, world: usize) -> Mpi {
        Mpi { rank, world, line, boards: Vec::new(), begun: Vec::new() }
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn world(&self) -> usize {
        self.world
    }

    /// Makes sure that all ranks have the same facts, before they do anything else together.
    ///
    /// # Errors
    /// On every rank, with the first fact in which one of them differs from rank 0; if one of them failed or didn't come.
    pub fn agree(&self, facts: &Facts) -> Result<()> {
        self.line.ask(Command::Agree(facts.clone())).map(|_| ())
    }

    /// Waits for all others and ends MPI. A process that ends without it ends the whole job.
    ///
    /// # Errors
    /// If another rank failed or didn't come.
    pub fn finish(&self) -> Result<()> {
        self.line.ask(Command::Finish).map(|_| ())
    }

    /// The board of the next sum.
    fn take_board(&mut self) -> Vec<f32> {
        self.boards.get_mut(self.begun.len()).map(core::mem::take).unwrap_or_default()
    }

    /// The same with the run `at` of `data` on it.
    fn read_board(&mut self, device: &Device, data: &Storage, at: Span) -> Result<Vec<f32>> {
        at.check("collective", "the run", data.len())?;
        let mut board = self.take_board();
        board.resize(at.len, 0.0);
        device.download(data, at.offset, &mut board)?;
        Ok(board)
    }

    /// Keeps the board of a sum for the one that has its number next time, so that nothing is allocated again.
    fn keep_board(&mut self, number: usize, board: Vec<f32>) {
        self.boards.resize_with(self.boards.len().max(number + 1), Vec::new);
        self.boards[number] = board;
    }

    /// Has the run `at` added up over all ranks' parts, of which `earlier` and `last` are this one's.
    fn begin(
        &mut self,
        device: &Device,
        earlier: &[Storage],
        last: Option<&Storage>,
        at: Span,
    ) -> Result<()> {
        let mut board = self.take_board();
        let parts = earlier.len() + usize::from(last.is_some());
        board.resize(parts * at.len, 0.0);
        for (part, board) in earlier.iter().chain(last).zip(board.chunks_exact_mut(at.len.max(1))) {
            at.check("collective", "the run", part.len())?;
            device.download(part, at.offset, board)?;
        }
        self.line.begin(Command::Reduce { board, parts, len: at.len })?;
        self.begun.push(at);
        Ok(())
    }

    /// The same in the middle of a pass. A device that runs ahead would have to be waited for, so there it is left to the end.
    fn begin_early(&mut self, device: &Device, earlier: &[Storage], last: &Storage, at: Span) -> Result<()> {
        if self.world == 1 || device.runs_ahead() {
            return Ok(());
        }
        let begun = self.begin(device, earlier, Some(last), at);
        self.telling(begun)
    }

    /// Waits for the sums under way, and copies them to `into`.
    fn end(&mut self, device: &Device, into: &mut Storage) -> Result<()> {
        for number in 0..self.begun.len() {
            let (at, board) = (self.begun[number], self.line.next()?);
            device.upload(&board[..at.len], into, at.offset)?;
            self.keep_board(number, board);
        }
        self.begun.clear();
        Ok(())
    }

    fn try_broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        let board = self.read_board(device, data, at)?;
        let board = self.line.ask(Command::Broadcast { board, root })?;
        if self.rank != root {
            device.upload(&board, data, at.offset)?;
        }
        self.keep_board(0, board);
        Ok(())
    }

    fn try_all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        equal_part(at, self.world, self.rank)?;
        // The others' parts travel to the board and are overwritten there.
        let board = self.read_board(device, data, at)?;
        let board = self.line.ask(Command::Gather { board })?;
        device.upload(&board, data, at.offset)?;
        self.keep_board(0, board);
        Ok(())
    }

    /// Has a failure of this rank in the middle of an operation stop the others, who would wait for it.
    fn telling(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.abort(&format!("rank {} failed: {error}", self.rank)))
    }
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn all_reduce_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let begun = self.begin(device, &[], Some(data), at);
        let added = begun.and_then(|()| self.end(device, data));
        self.telling(added)
    }

    fn all_reduce_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        at: Span,
        into: &mut Storage,
    ) -> Result<()> {
        if self.world == 1 {
            return add_in_order(device, parts, at, into);
        }
        let begun = self.begin(device, parts, None, at);
        let added = begun.and_then(|()| self.end(device, into));
        self.telling(added)
    }

    fn begin_sum(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        self.begin_early(device, &[], data, at)
    }

    fn finish_sum(&mut self, device: &Device, buckets: &Buckets, data: &mut Storage) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let mut rest = buckets.runs().iter().skip(self.begun.len());
        let begun = rest.try_for_each(|run| self.begin(device, &[], Some(data), *run));
        let added = begun.and_then(|()| self.end(device, data));
        self.telling(added)
    }

    fn begin_in_order(
        &mut self,
        device: &Device,
        earlier: &[Storage],
        last: &Storage,
        at: Span,
    ) -> Result<()> {
        self.begin_early(device, earlier, last, at)
    }

    fn finish_in_order(
        &mut self,
        device: &Device,
        parts: &[Storage],
        buckets: &Buckets,
        into: &mut Storage,
    ) -> Result<()> {
        if self.world == 1 {
            return add_in_order(device, parts, buckets.whole(), into);
        }
        let mut rest = buckets.runs().iter().skip(self.begun.len());
        let begun = rest.try_for_each(|run| self.begin(device, parts, None, *run));
        let added = begun.and_then(|()| self.end(device, into));
        self.telling(added)
    }

    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let sent = self.try_broadcast(device, data, at, root);
        self.telling(sent)
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        if self.world == 1 {
            return Ok(());
        }
        let gathered = self.try_all_gather(device, data, at);
        self.telling(gathered)
    }

    fn barrier(&mut self) -> Result<()> {
        self.line.ask(Command::Barrier).map(|_| ())
    }

    fn abort(&self, reason: &str) {
        self.line.abort(reason);
    }
}
