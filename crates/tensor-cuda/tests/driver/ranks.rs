//! Ranks that reach each other by NCCL, each with its own thread and GPU.

use std::thread;
use std::time::Duration;
use towers_program::{Backend, CapturedGraph as _, Error, ReplayArgs, Span, Storage};
use towers_tensor_cuda::nccl::{Communicator, Join, unique_id};
use towers_tensor_cuda::{Cuda, Kernels, Nodes, Options, gpus};

const LEN: usize = 1000;
const AT: Span = Span { offset: 3, len: LEN };

/// Numbers of a rank whose sums over ranks are exact.
fn numbers(rank: usize, seed: usize) -> Vec<f32> {
    (0..LEN).map(|k| ((k * 7 + seed * 5 + rank * 3) % 64) as f32).collect()
}

fn sums(world: usize, seed: usize) -> Vec<f32> {
    let all: Vec<_> = (0..world).map(|rank| numbers(rank, seed)).collect();
    (0..LEN).map(|k| all.iter().map(|numbers| numbers[k]).sum()).collect()
}

struct Rank {
    cuda: Cuda,
    to_others: Communicator,
}

impl Rank {
    fn join(join: Join) -> Result<Rank, Error> {
        let gpu = join.rank % gpus().unwrap().len();
        let cuda = Cuda::new(Options { gpu, kernels: Kernels::Own, ..Options::default() }).unwrap();
        let to_others = Communicator::join(&cuda, join)?;
        Ok(Rank { cuda, to_others })
    }

    fn put(&self, buffer: &mut Storage, seed: usize) {
        self.cuda.upload(&numbers(self.to_others.rank(), seed), buffer, AT.offset).unwrap();
    }

    fn read(&self, buffer: &Storage) -> Vec<f32> {
        let mut back = vec![0.0; LEN];
        self.cuda.download(buffer, AT.offset, &mut back).unwrap();
        back
    }

    /// Every operation, again and again, so that a rank may be ahead of the others.
    fn work(&mut self) {
        let (rank, world) = (self.to_others.rank(), self.to_others.world());
        let mut data = self.cuda.alloc(LEN + 5).unwrap();
        for seed in 0..10 {
            self.put(&mut data, seed);
            self.to_others.all_reduce_sum(&mut data, AT).unwrap();
            if seed % 3 == 0 {
                assert_eq!(self.read(&data), sums(world, seed));
            }
            self.put(&mut data, seed);
            let root = seed % world;
            self.to_others.broadcast(&mut data, AT, root).unwrap();
            assert_eq!(self.read(&data), numbers(root, seed));
            self.put(&mut data, seed);
            let joins: Vec<usize> = (0..world).map(|rank| rank.min(1)).collect();
            let one_each = Nodes { earlier: &[], counts: &vec![1; world], joins: &joins };
            self.to_others.all_reduce_in_order(one_each, &mut data, AT).unwrap();
            assert_eq!(self.read(&data), sums(world, seed));
            let mut each = vec![0.0; world];
            each[rank] = (rank + seed) as f32;
            self.cuda.upload(&each, &mut data, 0).unwrap();
            self.to_others.all_gather(&mut data, Span::new(0, world)).unwrap();
            self.cuda.download(&data, 0, &mut each).unwrap();
            assert_eq!(each, (0..world).map(|rank| (rank + seed) as f32).collect::<Vec<_>>());
        }
        // Sums of several nodes, of which each rank brings another number. All go onto the stack before they
        // are joined.
        let mut nodes: Vec<Storage> = (0..=rank)
            .map(|node| {
                let mut buffer = self.cuda.alloc(LEN + 5).unwrap();
                self.cuda.upload(&numbers(rank, node), &mut buffer, AT.offset).unwrap();
                buffer
            })
            .collect();
        let mut data = nodes.pop().unwrap();
        let counts: Vec<usize> = (1..=world).collect();
        let mut joins = vec![0; counts.iter().sum()];
        *joins.last_mut().unwrap() = joins.len() - 1;
        let order = Nodes { earlier: &nodes, counts: &counts, joins: &joins };
        self.to_others.all_reduce_in_order(order, &mut data, AT).unwrap();
        let of_all = (0..world).flat_map(|rank| (0..=rank).map(move |part| numbers(rank, part)));
        let expected = of_all.reduce(|sum, part| sum.iter().zip(part).map(|(sum, x)| sum + x).collect());
        assert_eq!(self.read(&data), expected.unwrap());
        self.to_others.barrier().unwrap();
        self.record(&mut data);
    }

    /// A step with sums beside what follows, as a training step is, written down once and replayed.
    fn record(&mut self, data: &mut Storage) {
        let world = self.to_others.world();
        let [head, tail] = [Span::new(AT.offset, LEN / 2), Span::new(AT.offset + LEN / 2, LEN - LEN / 2)];
        let mut other = self.cuda.alloc(LEN).unwrap();
        let mut step = |to_others: &mut Communicator, cuda: &Cuda, data: &mut Storage| {
            to_others.start_all_reduce(data, tail).unwrap();
            cuda.fill(1.0, &mut other, Span::new(0, LEN)).unwrap();
            to_others.finish_all_reduce(data, head).unwrap();
        };
        self.put(data, 0);
        step(&mut self.to_others, &self.cuda, data);
        assert_eq!(self.read(data), sums(world, 0));
        self.cuda.begin_capture().unwrap();
        step(&mut self.to_others, &self.cuda, data);
        let graph = self.cuda.end_capture().unwrap();
        for seed in 1..8 {
            self.put(data, seed);
            graph.replay(&ReplayArgs::default()).unwrap();
            if seed % 3 == 0 {
                assert_eq!(self.read(data), sums(world, seed));
            }
        }
        assert_eq!(self.read(data), sums(world, 7));
    }
}

/// Runs a function for each rank of a group, on separate threads.
fn each_rank(patience: Duration, act: impl Fn(Result<Rank, Error>, usize) + Sync) {
    let world = std::env::var("TOWERS_TEST_RANKS").map_or(2, |count| count.parse().unwrap());
    let id = unique_id().unwrap();
    thread::scope(|scope| {
        for rank in 0..world {
            let join = Join { id, rank, world, patience, failed: None };
            let act = &act;
            scope.spawn(move || act(Rank::join(join), rank));
        }
    });
}

pub fn all() {
    each_rank(Duration::from_secs(60), |joined, _| match joined {
        Ok(mut rank) => rank.work(),
        Err(why) => println!("refused: {why}"),
    });
}

/// One rank says nothing: the others end, and say for whom they waited. Work that was asked for behind the sum
/// may still run when its memory is dropped.
pub fn silent() {
    each_rank(Duration::from_secs(2), |joined, rank| {
        let mut joined = joined.unwrap();
        let mut data = joined.cuda.alloc(LEN + 5).unwrap();
        if rank == 1 {
            thread::sleep(Duration::from_secs(4));
            return joined.to_others.abort("it was silent");
        }
        let mut run = || {
            joined.to_others.all_reduce_sum(&mut data, AT)?;
            joined.cuda.upload(&numbers(rank, 0), &mut data, AT.offset)?;
            joined.cuda.synchronize()
        };
        println!("ended: {}", run().unwrap_err());
        assert!(joined.to_others.has_ended());
    });
    // The process must not end before its threads have aborted the group.
    thread::sleep(Duration::from_secs(1));
}
