use super::abort::Abortable;
use super::across::Across;
use super::barrier::Barrier;
use super::hangs::waiting_outside;
use crate::collective::equal_part;
use crate::sum_tree::add_up;
use crate::system::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Collective, Error, Nodes, Result, SumTree, slice_batch};
use std::sync::Arc;
use std::{mem, slice};
use towers_program::{Device, Span, Storage};

/// The collective of threads of one process: from GPU to GPU if all replicas have one, else through host
/// memory. Both give the same bits.
///
/// Through host memory, each replica publishes its numbers and waits at a barrier. It adds up one stretch of
/// all numbers, waits again, and copies all sums back. Numbers in host memory are published in place. Those of
/// a GPU, or of a replica with several nodes of a [`SumTree`], are copied first. Several replicas may share a
/// device.
///
/// The replicas of several processes add up through host memory too: first what they can within each process.
/// The first replica of each process exchanges the nodes that are left by MPI.
///
/// On GPUs the threads wait as often, but the numbers go from device to device, and the streams wait for each
/// other.
pub struct Local {
    /// Its number within the process.
    own: usize,
    group: Arc<Group>,
}

struct Group {
    barrier: Arc<Barrier>,
    /// The numbers of each replica.
    contributions: Vec<RwLock<Contribution>>,
    /// The sums that each replica has computed, of its stretch: one for each node that is left.
    sums: Vec<RwLock<Vec<f32>>>,
    /// The tree over one part each.
    one_each: SumTree,
    on_device: Option<Box<dyn OnDevice>>,
    /// The way to the replicas of other processes.
    across: Option<Arc<Across>>,
}

/// The operations of replicas whose numbers stay on their devices. `own` is the replica's number.
pub(crate) trait OnDevice: Send + Sync {
    /// Whether these numbers lie on such a device.
    fn has(&self, data: &Storage) -> bool;

    fn all_reduce(
        &self,
        own: usize,
        barrier: &Barrier,
        nodes: Nodes<'_>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()>;

    fn broadcast(
        &self,
        own: usize,
        barrier: &Barrier,
        data: &mut Storage,
        at: Span,
        root: usize,
    ) -> Result<()>;

    fn all_gather(&self, own: usize, barrier: &Barrier, data: &mut Storage, at: Span) -> Result<()>;
}

impl Group {
    fn new(
        barrier: &Arc<Barrier>,
        on_device: Option<Box<dyn OnDevice>>,
        across: Option<Arc<Across>>,
    ) -> Arc<Group> {
        let count = barrier.world();
        let contributions = (0..count).map(|_| RwLock::default()).collect();
        let sums = (0..count).map(|_| RwLock::default()).collect();
        let world = across.as_ref().map_or(count, |across| across.world());
        let one_each = SumTree::new(&vec![1; world]);
        Arc::new(Group { barrier: Arc::clone(barrier), contributions, sums, one_each, on_device, across })
    }
}

/// The numbers of a replica: some nodes of `len` numbers, one behind the other, from index `first` on.
#[derive(Default)]
struct Contribution {
    first: usize,
    len: usize,
    nodes: usize,
    copies: Vec<f32>,
    /// The replica's own numbers, in place of copies.
    lent: Option<Storage>,
}

impl Contribution {
    fn node(&self, node: usize) -> &[f32] {
        let numbers = self.lent.as_ref().and_then(Storage::host).unwrap_or(&self.copies);
        &numbers[self.first + node * self.len..][..self.len]
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Local {
    /// The members of a group of threads, by rank, through host memory: as many as meet at the barrier. With
    /// `across` they are the replicas of this process among those of all processes.
    pub(crate) fn group(barrier: &Arc<Barrier>, across: Option<&Arc<Across>>) -> Vec<Local> {
        Local::members(&Group::new(barrier, None, across.cloned()))
    }

    /// The same in one process, with numbers that may stay on its devices.
    pub(crate) fn on(on_device: Option<Box<dyn OnDevice>>, barrier: &Arc<Barrier>) -> Vec<Local> {
        Local::members(&Group::new(barrier, on_device, None))
    }

    fn members(group: &Arc<Group>) -> Vec<Local> {
        (0..group.contributions.len()).map(|own| Local { own, group: Arc::clone(group) }).collect()
    }

    /// A group of one, for a run without replicas.
    pub fn alone() -> Local {
        Local { own: 0, group: Group::new(&Arc::new(Barrier::new(1)), None, None) }
    }

    /// The number of replicas of this process.
    fn count(&self) -> usize {
        self.group.contributions.len()
    }

    /// The path from GPU to GPU, for numbers that lie on one.
    fn on_device(&self, data: &Storage) -> Option<&dyn OnDevice> {
        self.group.on_device.as_deref().filter(|on_device| on_device.has(data))
    }

    /// Copies the run `at` of each node of this replica for the others to read.
    fn bring<'a>(
        &self,
        device: &Device,
        nodes: impl IntoIterator<Item = &'a Storage>,
        at: Span,
    ) -> Result<()> {
        let mut contribution = write(&self.group.contributions[self.own]);
        (contribution.first, contribution.len, contribution.nodes) = (0, at.len, 0);
        contribution.lent = None;
        for node in nodes {
            at.check("collective", "the run", node.len())?;
            let from = contribution.nodes * at.len;
            let room = contribution.copies.len().max(from + at.len);
            contribution.copies.resize(room, 0.0);
            device.download(node, at.offset, &mut contribution.copies[from..][..at.len])?;
            contribution.nodes += 1;
        }
        Ok(())
    }

    /// Publishes the run `at` of this replica's numbers in place, during `meet`.
    ///
    /// If `meet` fails, others may still be reading. Then they keep the numbers, and this replica gets a
    /// copy.
    fn lend(
        &self,
        device: &Device,
        data: &mut Storage,
        at: Span,
        meet: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        at.check("collective", "the run", data.len())?;
        let (own, len) = (&self.group.contributions[self.own], data.len());
        {
            let mut contribution = write(own);
            (contribution.first, contribution.len, contribution.nodes) = (at.offset, at.len, 1);
            contribution.lent = Some(mem::replace(data, Storage::new((), 0)));
        }
        let met = meet();
        if met.is_ok() {
            write(own).lent.take().into_iter().for_each(|lent| *data = lent);
            return Ok(());
        }
        if let (Some(numbers), Ok(mut copy)) =
            (read(own).lent.as_ref().and_then(Storage::host), device.alloc(len))
        {
            device.upload(numbers, &mut copy, 0)?;
            *data = copy;
        }
        met
    }

    /// The numbers of replica `other`, if they are as many as this one's.
    fn contribution(&self, other: usize, len: usize) -> Result<RwLockReadGuard<'_, Contribution>> {
        let contribution = read(&self.group.contributions[other]);
        if contribution.len == len {
            return Ok(contribution);
        }
        let other = self.first() + other;
        Err(Error::Mismatch { rank: self.rank(), got: len, other, expected: contribution.len })
    }

    /// The number of this process's first replica.
    fn first(&self) -> usize {
        self.group.across.as_ref().map_or(0, |across| across.first())
    }

    /// Adds up this replica's stretch of the nodes of its process. Returns how many are left: one, if there
    /// are no other processes.
    fn add_stretch(&self, tree: &SumTree, len: usize) -> Result<usize> {
        let (first, own) = (self.first(), slice_batch(len, self.count(), self.own));
        let joins = tree.joins_within(first..first + self.count());
        let contributions: Vec<_> =
            (0..self.count()).map(|other| self.contribution(other, len)).collect::<Result<_>>()?;
        let mut nodes = Vec::new();
        for (rank, contribution) in (first..).zip(&contributions) {
            let (got, expected) = (contribution.nodes, tree.nodes()[rank]);
            if got != expected {
                return Err(Error::PartialSums { rank, got, expected });
            }
            nodes.extend((0..got).map(|node| &contribution.node(node)[own.clone()]));
        }
        let left = nodes.len() - joins.iter().sum::<usize>();
        let mut sums = write(&self.group.sums[self.own]);
        sums.resize(left * own.len(), 0.0);
        add_up(&joins, &nodes, own.len(), &mut sums);
        Ok(left)
    }

    /// Waits for all contributions, adds up this replica's stretch of them, and waits for the other sums.
    fn add_up(&self, tree: &SumTree, len: usize) -> Result<()> {
        self.group.barrier.wait()?;
        let left = self.add_stretch(tree, len)?;
        self.group.barrier.wait()?;
        self.first_of_process(|across, sums| {
            across.add_up(tree, left, len, sums, |nodes| {
                for (number, sums) in self.group.sums.iter().enumerate() {
                    let (sums, stretch) = (read(sums), slice_batch(len, self.count(), number));
                    let nodes = nodes.chunks_exact_mut(len.max(1));
                    for (node, sums) in nodes.zip(sums.chunks_exact(stretch.len().max(1))) {
                        node[stretch.clone()].copy_from_slice(sums);
                    }
                }
                Ok(())
            })
        })
    }

    /// If there are other processes, the first replica of this one exchanges with them for all replicas here,
    /// which wait for it. It leaves the result in the first buffer for sums.
    fn first_of_process(&self, act: impl FnOnce(&Across, &RwLock<Vec<f32>>) -> Result<()>) -> Result<()> {
        let Some(across) = &self.group.across else { return Ok(()) };
        if self.own == 0 {
            waiting_outside(|| act(across, &self.group.sums[0]))?;
        }
        self.group.barrier.wait()
    }

    /// Copies the sums of all replicas to the run `at` of `into`.
    fn copy_sums(&self, device: &Device, at: Span, into: &mut Storage) -> Result<()> {
        let count = if self.group.across.is_some() { 1 } else { self.count() };
        for own in 0..count {
            let stretch = slice_batch(at.len, count, own);
            device.upload(&read(&self.group.sums[own]), into, at.offset + stretch.start)?;
        }
        Ok(())
    }

    fn try_broadcast(&self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        let within = self.group.across.as_ref().map_or(Some(root), |across| across.within(root));
        if within == Some(self.own) {
            self.bring(device, slice::from_ref(data), at)?;
        }
        self.group.barrier.wait()?;
        self.first_of_process(|across, sums| {
            across.broadcast(at.len, root, sums, |numbers| {
                if let Some(root) = within {
                    numbers.copy_from_slice(self.contribution(root, at.len)?.node(0));
                }
                Ok(())
            })
        })?;
        match within {
            Some(root) if root == self.own => {}
            Some(root) => device.upload(self.contribution(root, at.len)?.node(0), data, at.offset)?,
            None => self.copy_sums(device, at, data)?,
        }
        self.group.barrier.wait()
    }

    fn try_all_gather(&self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        let (world, first) = (self.world(), self.first());
        let own = equal_part(at, world, self.rank())?;
        self.bring(device, slice::from_ref(data), own)?;
        self.group.barrier.wait()?;
        self.first_of_process(|across, sums| {
            across.all_gather(at.len, sums, |numbers| {
                for k in 0..self.count() {
                    let contribution = self.contribution(k, own.len)?;
                    numbers[(first + k) * own.len..][..own.len].copy_from_slice(contribution.node(0));
                }
                Ok(())
            })
        })?;
        if self.group.across.is_some() {
            self.copy_sums(device, at, data)?;
        } else {
            for other in (0..world).filter(|other| *other != self.own) {
                let theirs = equal_part(at, world, other)?;
                device.upload(self.contribution(other, own.len)?.node(0), data, theirs.offset)?;
            }
        }
        self.group.barrier.wait()
    }

    /// If this replica fails during an operation, aborts it for the others, which would wait for it.
    fn telling(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| self.abort(&format!("replica {} failed: {error}", self.rank())))
    }
}

impl Collective for Local {
    fn rank(&self) -> usize {
        self.first() + self.own
    }

    fn world(&self) -> usize {
        self.group.across.as_ref().map_or_else(|| self.count(), |across| across.world())
    }

    fn all_reduce(
        &mut self,
        device: &Device,
        nodes: Option<Nodes<'_>>,
        data: &mut Storage,
        at: Span,
    ) -> Result<()> {
        let (rank, world) = (self.rank(), self.world());
        if world == 1 {
            return Ok(());
        }
        let nodes = nodes.unwrap_or(Nodes { tree: &self.group.one_each, earlier: &[] });
        let tree = nodes.tree;
        if let Some(on_device) = self.on_device(data) {
            return self.telling(on_device.all_reduce(self.own, &self.group.barrier, nodes, data, at));
        }
        let brought = nodes.brought(rank, data).map(|nodes| nodes.collect::<Vec<_>>());
        let added = match brought {
            Ok(brought) if brought.len() != 1 => {
                self.bring(device, brought, at).and_then(|()| self.add_up(tree, at.len))
            }
            Ok(_) => match data.host() {
                Some(_) => self.lend(device, data, at, || self.add_up(tree, at.len)),
                None => {
                    self.bring(device, slice::from_ref(data), at).and_then(|()| self.add_up(tree, at.len))
                }
            },
            Err(error) => Err(error),
        };
        self.telling(added)?;
        self.telling(self.copy_sums(device, at, data))
    }

    fn broadcast(&mut self, device: &Device, data: &mut Storage, at: Span, root: usize) -> Result<()> {
        if self.world() == 1 {
            return Ok(());
        }
        if let Some(on_device) = self.on_device(data) {
            return self.telling(on_device.broadcast(self.own, &self.group.barrier, data, at, root));
        }
        self.telling(self.try_broadcast(device, data, at, root))
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> Result<()> {
        if self.world() == 1 {
            return Ok(());
        }
        if let Some(on_device) = self.on_device(data) {
            return self.telling(on_device.all_gather(self.own, &self.group.barrier, data, at));
        }
        self.telling(self.try_all_gather(device, data, at))
    }

    fn barrier(&mut self) -> Result<()> {
        self.group.barrier.wait()?;
        self.telling(self.first_of_process(|across, _| across.barrier()))
    }

    fn abort(&self, reason: &str) {
        self.group.barrier.abort(self.rank(), reason);
        if let Some(across) = &self.group.across {
            across.abort(self.rank(), reason);
        }
    }
}
