//! One replica per process, over MPI: what `mpirun -n 3 towers train` runs on.
//!
//! The sums are those of [`Local`](crate::Local), bit for bit. `MPI_Allreduce` adds in an order of its own, which depends on the
//! number of ranks, the length and the library; here every rank gets its stretch of the numbers from all others, adds in the
//! order of the ranks, and sends its sums to all. Each rank sends and receives `2 (n - 1) / n` of the numbers, as the best
//! algorithms for long messages do; a short message costs two exchanges and an arrival instead of `log2 n` hops.
//!
//! **Nobody waits for ever.** All MPI calls are made by one thread of the process, with operations that return at once and are
//! polled; see [`endpoint`]. A rank that waits longer than [`MpiOptions::timeout`] asks who else is waiting, and names those
//! who are not. After a failure there is no way back: the thread keeps the buffers that MPI may still write to, answers every
//! later call with the reason, and ends the job if the process doesn't end by itself.

mod control;
mod endpoint;
mod exchange;
mod facts;
mod options;
mod process;
mod thread;
mod wait;

pub use facts::Facts;
pub use options::MpiOptions;

use crate::collective::equal_part;
use crate::in_order::add_in_order;
use crate::{Collective, Result};
use core::slice;
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
    /// Where the device's numbers are staged. It travels to the thread that exchanges them, and back.
    board: Vec<f32>,
}

impl Mpi {
    /// Starts MPI in this process: once, on every process of the job.
    ///
    /// # Errors
    /// If MPI was started before, doesn't start in time, or finds another number of processes than the launcher named.
    pub fn start(options: MpiOptions) -> Result<Mpi> {
        let (line, rank, world) = Line::open(options)?;
        Ok(Mpi { rank, world, line: Arc::new(line), board: Vec::new() })
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

    /// Writes the run `at` of each part on the board, one behind the other.
    fn bring(&mut self, device: &Device, parts: &[Storage], at: Span) -> Result<()> {
        self.board.resize(parts.len() * at.len, 0.0);
        for (part, board) in parts.iter().zip(self.board.chunks_exact_mut(at.len.max(1))) {
            at.check("collective", "the run", part.len())?;
            device.download(part, at.offset, board)?;
        }
        Ok(())
    }

    /// Adds up what all ranks have on their boards, and copies the sums to `into`.
    fn add_up(&mut self, device: &Device, parts: usize, at: Span, into: &mut Storage) -> Result<()> {
        let board = core::mem::take(&mut self.board);
        self.board = self.line.ask(Command::Reduce { board, parts, len: at.len })?;
        Ok(device.upload(&self.board[..at.len], into, at.offset)?)
    }

    fn try_broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.rank == root {
            self.bring(device, slice::from_ref(data), at)?;
        } else {
            at.check("collective", "the run", data.len())?;
            self.board.resize(at.len, 0.0);
        }
        let board = core::mem::take(&mut self.board);
        self.board = self.line.ask(Command::Broadcast { board, root })?;
        match self.rank == root {
            true => Ok(()),
            false => Ok(device.upload(&self.board, data, at.offset)?),
        }
    }

    fn try_all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        equal_part(at, self.world, self.rank)?;
        // The others' parts travel to the board and are overwritten there.
        self.bring(device, slice::from_ref(data), at)?;
        let board = core::mem::take(&mut self.board);
        self.board = self.line.ask(Command::Gather { board })?;
        Ok(device.upload(&self.board, data, at.offset)?)
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
        let brought = self.bring(device, slice::from_ref(data), at);
        let added = brought.and_then(|()| self.add_up(device, 1, at, data));
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
        let brought = self.bring(device, parts, at);
        let added = brought.and_then(|()| self.add_up(device, parts.len(), at, into));
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
