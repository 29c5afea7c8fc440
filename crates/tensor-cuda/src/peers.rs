//! Sums over the replicas of one process that stay on their GPUs.
//!
//! Every replica has a thread, a device and a stream. Several may share a GPU. The threads wait for each
//! other twice a sum. Other waits are between streams:
//!
//! 1. Each replica puts a mark after its own work, and publishes the address of its numbers. All threads
//!    wait.
//! 2. Each replica's stream waits for all marks, and adds up one share of all numbers, in the order of
//!    [`Nodes`]. It puts a mark. All threads wait.
//! 3. Each replica's stream waits for these marks, and copies the sums of all shares.
//!
//! In step 3 no stream reads another replica's numbers. So a replica may use its own as soon as its stream
//! gets there: all others have read them. Sums lie in memory that stays. Their owner overwrites them in step
//! 2 of the next sum, after the marks of step 1, which come after all copies.
//!
//! The order of the sum is that of the collective through host memory, and the sum of two f32 has one result.
//! So the bits are the same.

use crate::Cuda;
use crate::driver::{Driver, Mark, Ptr};
use crate::lock::lock;
use crate::memory::Scratch;
use crate::share::share;
use crate::sum::{Nodes, Stack};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use towers_program::{Error, Result, Span, Storage};

const F32: usize = size_of::<f32>();

/// The replicas of a group.
pub struct Peers {
    members: Vec<Member>,
    /// Whether one of them failed, so that the others' numbers may be gone.
    stopped: AtomicBool,
}

/// A replica.
struct Member {
    cuda: Cuda,
    /// Held while it queues reads of the others' numbers.
    reading: Mutex<()>,
    offer: Mutex<Offer>,
    /// After its own work.
    brought: Mark,
    /// After its work on the others' numbers.
    done: Mark,
    /// The partial sums of its share. The first one becomes the sum.
    sums: Scratch,
}

/// A replica's published numbers.
#[derive(Default)]
struct Offer {
    /// Runs of `len` f32 each.
    parts: Vec<Ptr>,
    len: usize,
    sums: Option<Ptr>,
}

impl Peers {
    /// A group of these devices, one a replica. Several may be opened on one GPU.
    ///
    /// # Errors
    /// If a device is a clone of another one, and the errors of a driver.
    pub fn of(devices: &[Cuda]) -> Result<Peers> {
        Cuda::refuse_clones(devices)?;
        let member = |cuda: &Cuda| -> Result<Member> {
            devices.iter().for_each(|other| cuda.driver().reach(&**other.driver()));
            Ok(Member {
                cuda: cuda.clone(),
                reading: Mutex::default(),
                offer: Mutex::default(),
                brought: Mark::new(cuda.driver())?,
                done: Mark::new(cuda.driver())?,
                sums: Scratch::default(),
            })
        };
        let members = devices.iter().map(member).collect::<Result<_>>()?;
        Ok(Peers { members, stopped: AtomicBool::new(false) })
    }

    /// Replaces the run `at` of every replica's `data` by the sum over all, in the order of `nodes`, which
    /// are the same on all but for the storages. Each calls it with its `rank` and `meet`, a barrier of all
    /// replicas.
    ///
    /// # Errors
    /// The errors of a driver and of `meet`. After an error the group is of no use.
    pub fn all_reduce<E: From<Error>>(
        &self,
        rank: usize,
        nodes: Nodes<'_>,
        data: &mut Storage,
        at: Span,
        meet: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let brought = match nodes.brought(rank, data) {
            Some(brought) => brought.map(|node| self.run(rank, node, at)).collect(),
            None => Err(self.members[rank].cuda.error("the nodes of a sum are not those of its order")),
        };
        let summed = |runs: Vec<Ptr>| self.sum(rank, &runs, nodes.joins, at, data, &meet);
        self.unless_failed(brought.map_err(E::from).and_then(summed))
    }

    /// Replaces the run `at` of every replica's `data` by that of the replica `root`.
    ///
    /// # Errors
    /// As [`all_reduce`](Peers::all_reduce).
    pub fn broadcast<E: From<Error>>(
        &self,
        rank: usize,
        data: &mut Storage,
        at: Span,
        root: usize,
        meet: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let spread = || {
            let run = self.run(rank, data, at)?;
            self.offer(rank, &[run], at.len)?;
            meet()?;
            if rank != root && !self.take(rank, [(root, run)], at.len)? {
                return Err(self.stopped_by_another(rank, meet));
            }
            meet()?;
            self.withdraw(rank)?;
            Ok(self.members[rank].cuda.refresh_compute_copies(data.on("collective")?)?)
        };
        self.unless_failed(spread())
    }

    /// Completes the run `at` of every replica's `data`, which has an equal part for each, in the order of
    /// the ranks.
    ///
    /// # Errors
    /// As [`all_reduce`](Peers::all_reduce).
    pub fn all_gather<E: From<Error>>(
        &self,
        rank: usize,
        data: &mut Storage,
        at: Span,
        meet: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let gather = || {
            let run = self.run(rank, data, at)?;
            let len = at.len / self.members.len();
            let part = |replica: usize| run.offset(replica * len * F32);
            self.offer(rank, &[part(rank)], len)?;
            meet()?;
            let others = (0..self.members.len()).filter(|other| *other != rank);
            if !self.take(rank, others.map(|other| (other, part(other))), len)? {
                return Err(self.stopped_by_another(rank, meet));
            }
            meet()?;
            self.withdraw(rank)?;
            Ok(self.members[rank].cuda.refresh_compute_copies(data.on("collective")?)?)
        };
        self.unless_failed(gather())
    }

    /// The run `at` of a buffer of replica `rank`.
    fn run(&self, rank: usize, data: &Storage, at: Span) -> Result<Ptr> {
        let cuda = &self.members[rank].cuda;
        if cuda.is_capturing() {
            return Err(cuda.error("replicas wait for each other, which can't be captured in a graph"));
        }
        cuda.run("collective", "the run", data.on("collective")?, at)
    }

    fn sum<E: From<Error>>(
        &self,
        rank: usize,
        nodes: &[Ptr],
        joins: &[usize],
        at: Span,
        into: &mut Storage,
        meet: &impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let to = self.run(rank, into, at)?;
        self.offer(rank, nodes, at.len)?;
        meet()?;
        if !self.fold(rank, joins, at.len)? {
            return Err(self.stopped_by_another(rank, meet));
        }
        meet()?;
        if !self.gather(rank, to, at.len)? {
            return Err(self.stopped_by_another(rank, meet));
        }
        Ok(self.members[rank].cuda.refresh_compute_copies(into.on("collective")?)?)
    }

    /// Step 1.
    fn offer(&self, rank: usize, parts: &[Ptr], len: usize) -> Result<()> {
        let member = &self.members[rank];
        let mut offer = lock(&member.offer);
        offer.parts.clear();
        offer.parts.extend_from_slice(parts);
        offer.len = len;
        member.brought.put()
    }

    /// Step 2. False if the group has stopped.
    fn fold(&self, rank: usize, joins: &[usize], len: usize) -> Result<bool> {
        let member = &self.members[rank];
        let Some(_reading) = self.reading(rank) else { return Ok(false) };
        let (own, cuda) = (share(len, self.members.len(), rank), &member.cuda);
        if own.is_empty() {
            return member.done.put().map(|()| true);
        }
        let sums = member.sums.at_least(cuda.driver(), Stack::bytes(joins, own.len()))?;
        self.others(rank).try_for_each(|other| other.brought.hold_back(&**cuda.driver()))?;
        let (mut stack, mut joins) = (Stack::at(cuda, sums, own.len()), joins.iter());
        for (number, other) in self.members.iter().enumerate() {
            let offer = self.offered(rank, number, len)?;
            for node in offer.parts.iter().map(|node| node.offset(own.start * F32)) {
                let Some(&joins) = joins.next() else {
                    return Err(cuda.error("another replica brought other nodes to a sum"));
                };
                if number == rank {
                    stack.push(node, joins)?;
                } else {
                    self.copy(member, other, node, stack.free(), own.len())?;
                    stack.push_copied(joins)?;
                }
            }
        }
        lock(&member.offer).sums = Some(sums);
        member.done.put().map(|()| true)
    }

    /// Step 3. False if the group has stopped.
    fn gather(&self, rank: usize, to: Ptr, len: usize) -> Result<bool> {
        let member = &self.members[rank];
        let Some(_reading) = self.reading(rank) else { return Ok(false) };
        lock(&member.offer).parts.clear();
        self.others(rank).try_for_each(|other| other.done.hold_back(&**member.cuda.driver()))?;
        for (number, other) in self.members.iter().enumerate() {
            let share = share(len, self.members.len(), number);
            let sums = lock(&other.offer).sums;
            match sums {
                Some(sums) if !share.is_empty() => {
                    self.copy(member, other, sums, to.offset(share.start * F32), share.len())?;
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// Copies the others' numbers, each to its own place. False if the group has stopped.
    fn take(&self, rank: usize, others: impl IntoIterator<Item = (usize, Ptr)>, len: usize) -> Result<bool> {
        let member = &self.members[rank];
        let Some(_reading) = self.reading(rank) else { return Ok(false) };
        for (number, to) in others {
            let (other, offer) = (&self.members[number], self.offered(rank, number, len)?);
            other.brought.hold_back(&**member.cuda.driver())?;
            if let Some(&from) = offer.parts.first() {
                self.copy(member, other, from, to, len)?;
            }
        }
        member.done.put().map(|()| true)
    }

    /// Ends a broadcast or an all-gather: later work of this replica's stream waits until the others have
    /// read.
    fn withdraw(&self, rank: usize) -> Result<()> {
        let member = &self.members[rank];
        lock(&member.offer).parts.clear();
        self.others(rank).try_for_each(|other| other.done.hold_back(&**member.cuda.driver()))
    }

    fn others(&self, rank: usize) -> impl Iterator<Item = &Member> {
        self.members.iter().enumerate().filter(move |(number, _)| *number != rank).map(|(_, other)| other)
    }

    /// The published numbers of replica `number`, if they are as long as this one's.
    fn offered(&self, rank: usize, number: usize, len: usize) -> Result<MutexGuard<'_, Offer>> {
        let offer = lock(&self.members[number].offer);
        if offer.len == len {
            return Ok(offer);
        }
        let message =
            format!("replica {rank} brought {len} numbers to a sum, and replica {number} {}", offer.len);
        Err(self.members[rank].cuda.error(message))
    }

    fn copy(&self, member: &Member, from: &Member, src: Ptr, dst: Ptr, len: usize) -> Result<()> {
        let source: &Arc<dyn Driver> = from.cuda.driver();
        // SAFETY: the target is scratch memory or a run of a buffer that were found as large. The source was found so by its
        // owner, who keeps it until all have read: it is borrowed until its collective returns, which its stream reaches
        // after everybody's reads, or after `stop` waited for them.
        unsafe { member.cuda.driver().copy(&**source, src, dst, len * F32) }
    }

    /// Permission to read the others' numbers, unless one of them failed.
    fn reading(&self, rank: usize) -> Option<MutexGuard<'_, ()>> {
        let leave = lock(&self.members[rank].reading);
        (!self.stopped.load(Ordering::SeqCst)).then_some(leave)
    }

    /// The error of a replica whose sum another one ended. The failed one aborts the barrier, so waiting
    /// there returns the cause.
    fn stopped_by_another<E: From<Error>>(&self, rank: usize, meet: impl Fn() -> Result<(), E>) -> E {
        let otherwise = || self.members[rank].cuda.error("another replica failed in the middle of a sum");
        meet().err().unwrap_or_else(|| otherwise().into())
    }

    /// After an error the caller may free its memory at once. So no stream begins to read any more, and reads
    /// under way are waited for.
    fn unless_failed<E>(&self, result: Result<(), E>) -> Result<(), E> {
        if result.is_err() {
            self.stopped.store(true, Ordering::SeqCst);
            for member in &self.members {
                let _reading = lock(&member.reading);
                // A failed device reads nothing any more.
                let _ = member.cuda.driver().synchronize();
            }
        }
        result
    }
}

impl core::fmt::Debug for Peers {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| &member.cuda)).finish()
    }
}

impl Drop for Peers {
    /// Other replicas use the marks and the scratch memory of a replica.
    fn drop(&mut self) {
        for member in &self.members {
            let _ = member.cuda.driver().synchronize();
        }
    }
}
