//! The roles of a job's ranks.

use crate::job::{FOLDER, ROLE, mark_file};
use core::ops::Range;
use parallel::{Agreement, Error, Mpi, MpiOptions, Nodes, Replica, Result, SumTree, add_run, gather_numbers};
use program::{Device, Span, Storage};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long ranks wait for each other in tests of hangs.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than a test may take.
const PATIENT: Duration = Duration::from_secs(600);

/// Lengths of all-reduces: none, fewer than ranks, uneven parts, more than MPI's eager messages.
pub const LENGTHS: &[usize] = &[0, 1, 2, 3, 10, 1001, 100_003];

/// Runs the role that the environment names, and ends the process if that fails.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = match role.as_str() {
        "sums" => run(|replica, folder| sums(replica, &folder)),
        "sums-beside" => run_with(options().overlap(true), |replica, folder| sums(replica, &folder)),
        "several" => run_on(|rank| 3 - rank, options(), |replica, folder| sums(replica, &folder)),
        "one-of-several-fails" => run_on(
            |_| 2,
            options().timeout(PATIENT),
            |replica, _| match replica.rank() {
                // While the first replica of its process waits for the other process.
                1 => {
                    std::thread::sleep(TIMEOUT / 4);
                    Err(Error::Transport { what: "this replica fails on purpose".into() })
                }
                0 => steps(replica),
                _ => {
                    std::thread::sleep(TIMEOUT);
                    steps(replica)
                }
            },
        ),
        "broadcast-to-several" => run_on(|rank| 2 - rank % 2, options(), |replica, _| broadcast(replica)),
        "broadcast" => run(|replica, _| broadcast(replica)),
        "agreement" => agreement(),
        "counts" => counts(),
        "world" => Mpi::start(options().world(5)).map(|_| ()),
        "late" => run(late),
        "fails" => run(|replica, _| match replica.rank() {
            1 => Err(Error::Transport { what: "this rank fails on purpose".into() }),
            _ => steps(replica),
        }),
        "panics" => run(|replica, _| match replica.rank() {
            1 => panic!("this rank panics on purpose"),
            _ => steps(replica),
        }),
        "breaks-off" => run_with(options().overlap(true), breaks_off),
        "sizes" => run(|replica, _| {
            let length = 10 + replica.rank() / 2;
            all_reduce(replica, length)
        }),
        "operations" => run(|mut replica, _| match replica.rank() {
            1 => replica.collective.barrier(),
            _ => all_reduce(replica, 5),
        }),
        "gatherings" => run(|mut replica, _| {
            let device = replica.device.clone();
            let length = 6 + replica.rank() / 2 * 3;
            let mut data = device.alloc(length)?;
            replica.collective.all_gather(&device, &mut data, Span::new(0, length))
        }),
        "leaves" => run(|replica, _| match replica.rank() {
            1 => std::process::exit(0),
            _ => steps(replica),
        }),
        "survives" => survives(),
        "finishes" => run(|replica, _| match replica.rank() {
            1 => Ok(()),
            _ => steps(replica),
        }),
        _ => run(|replica, _| steps(replica)),
    };
    if let Err(error) = played {
        // In one piece: the ranks share this output.
        let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
        parallel::end_failed_job();
        std::process::exit(1);
    }
}

fn options() -> MpiOptions {
    MpiOptions::default().timeout(TIMEOUT)
}

/// Runs one replica, which first writes its process number.
fn run(body: impl Fn(Replica, PathBuf) -> Result<()> + Sync) -> Result<()> {
    run_with(options(), body)
}

fn run_with(options: MpiOptions, body: impl Fn(Replica, PathBuf) -> Result<()> + Sync) -> Result<()> {
    run_on(|_| 1, options, body)
}

/// Runs as many replicas as `count` says for the rank of this process.
fn run_on(
    count: impl Fn(usize) -> usize,
    options: MpiOptions,
    body: impl Fn(Replica, PathBuf) -> Result<()> + Sync,
) -> Result<()> {
    let mpi = Mpi::start(options)?;
    mark("started", mpi.rank());
    let devices = vec![tensor_cpu::device(1); count(mpi.rank())];
    mpi.run(&devices, |replica| body(replica, folder())).map(drop)
}

fn folder() -> PathBuf {
    PathBuf::from(std::env::var(FOLDER).unwrap())
}

fn mark(mark: &str, rank: usize) {
    // With a rename, since the test reads it while this runs.
    let new = folder().join(format!("new-{mark}-{rank}"));
    std::fs::write(&new, std::process::id().to_string()).unwrap();
    std::fs::rename(new, mark_file(&folder(), mark, rank)).unwrap();
}

/// Steps without end, as far as a test can tell.
fn steps(mut replica: Replica) -> Result<()> {
    let device = replica.device.clone();
    let mut data = device.alloc(100_000)?;
    for step in 0..100_000 {
        replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 100_000))?;
        if step == 5 {
            mark("stepping", replica.rank());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Steps to a certain one. When processes are lost, the others continue from the first step that not all have done.
fn survives() -> Result<()> {
    let mut mpi = Mpi::start(options())?;
    let (first_rank, devices) = (mpi.rank(), vec![tensor_cpu::device(1)]);
    mark("started", first_rank);
    let done = AtomicUsize::new(0);
    loop {
        let ran = mpi.run(&devices, |mut replica| {
            let device = replica.device.clone();
            let all = gather_numbers(replica.collective.as_mut(), &device, &[done.load(Relaxed) as f64])?;
            let mut data = device.alloc(100_000)?;
            for step in all.into_iter().fold(f64::INFINITY, f64::min) as usize..400 {
                device.fill(1.0, &mut data, Span::new(0, 100_000))?;
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 100_000))?;
                assert_eq!(data.to_vec(&device, 99_999, 1)?, [replica.world() as f32], "a sum is whole");
                done.store(step, Relaxed);
                if step == 5 {
                    mark("stepping", first_rank);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok::<_, Error>(())
        });
        match ran {
            Err(Error::Lost) => {
                let lost = mpi.regroup()?;
                println!("rank {first_rank}: {lost:?} lost, {} left", mpi.world());
                mark(&format!("left-{}", mpi.world()), first_rank);
            }
            ended => return ended.map(drop),
        }
    }
}

/// Rank 2 comes late, but not too late; then again, too late.
fn late(mut replica: Replica, _: PathBuf) -> Result<()> {
    for part_of_timeout in [0.6, 1e6] {
        if replica.rank() == 2 {
            std::thread::sleep(TIMEOUT.mul_f64(part_of_timeout));
        }
        replica.collective.barrier()?;
        mark(&format!("met-{part_of_timeout}"), replica.rank());
    }
    Ok(())
}

/// Rank 1 fails in the middle of a pass, after the start of its first sums.
fn breaks_off(mut replica: Replica, _: PathBuf) -> Result<()> {
    let device = replica.device.clone();
    let mut data = device.alloc(100_000)?;
    let runs = [Span::new(60_000, 40_000), Span::new(20_000, 40_000)];
    runs.iter().try_for_each(|run| replica.collective.start_all_reduce(&device, None, &mut data, *run))?;
    if replica.rank() == 1 {
        return Err(Error::Transport { what: "this rank breaks off on purpose".into() });
    }
    let buckets = [runs[0], runs[1], Span::new(0, 20_000), Span::new(100_000, 0)];
    replica.collective.finish_all_reduce(&device, None, &buckets, &mut data)
}

fn all_reduce(mut replica: Replica, length: usize) -> Result<()> {
    let device = replica.device.clone();
    let mut data = device.alloc(length)?;
    replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, length))
}

/// Ranks that were started with different options.
fn agreement() -> Result<()> {
    let mpi = Mpi::start(options())?;
    let lr = if mpi.rank() == 1 { 0.2 } else { 0.1 };
    mpi.agree(&Agreement::new().with("the model", "small_cnn").with("the learning rate", lr))?;
    mpi.finish()
}

/// Part `part` of a rank's numbers, of such different sizes that every order of adding them gives other bits.
fn part(device: &Device, rank: usize, part: usize, length: usize) -> Result<Storage> {
    let number = |k: usize| {
        let mixed = (k as u32 ^ ((rank * 7 + part + 1) as u32) << 20).wrapping_mul(0x9e37_79b9);
        (mixed as f32 / 1e9 - 2.0) * 10_f32.powi((mixed % 13) as i32 - 6)
    };
    let numbers: Vec<f32> = (0..length).map(number).collect();
    let mut storage = device.alloc(length)?;
    device.upload(&numbers, &mut storage, 0)?;
    Ok(storage)
}

/// The tree over `parts` parts, and those of a rank.
fn divided(parts: usize, world: usize, rank: usize) -> (SumTree, Range<usize>) {
    let own = |rank| parallel::slice_batch(parts, world, rank);
    (SumTree::new(&(0..world).map(|rank| own(rank).len()).collect::<Vec<_>>()), own(rank))
}

/// The nodes of the tree that a rank brings: those before the last, and that.
fn nodes_of(
    device: &Device,
    tree: &SumTree,
    rank: usize,
    own: Range<usize>,
    length: usize,
) -> Result<(Vec<Storage>, Storage)> {
    let mut nodes = Vec::new();
    for (k, joins) in own.zip(tree.joins_of(rank)) {
        nodes.push(part(device, 0, k, length)?);
        for _ in 0..joins {
            let top = nodes.pop().unwrap();
            add_run(device, &top, nodes.last_mut().unwrap(), Span::new(0, length))?;
        }
    }
    let last = nodes.pop().map_or_else(|| device.alloc(length), Ok)?;
    Ok((nodes, last))
}

/// All-reduces of all lengths, in both forms, and gathers. Returns the bits of the results. Called by ranks
/// here and by threads in the test.
pub fn all_sums(mut replica: Replica) -> Result<Vec<u32>> {
    let (device, rank, world) = (replica.device.clone(), replica.rank(), replica.world());
    let mut bits = Vec::new();
    for &length in LENGTHS {
        // A run in the middle. The elements around it must stay.
        let mut data = part(&device, rank, 0, length + 5)?;
        replica.collective.all_reduce_sum(&device, &mut data, Span::new(3, length))?;
        keep(&mut bits, &device, &data)?;
        // Four parts over all ranks: with three, the first two have one each, or none of only two.
        for parts in [4, 2, 8, 13] {
            let (tree, own) = divided(parts, world, rank);
            let (earlier, mut sum) = nodes_of(&device, &tree, rank, own, length + 2)?;
            let nodes = Nodes { tree: &tree, earlier: &earlier };
            replica.collective.all_reduce(&device, Some(nodes), &mut sum, Span::new(1, length))?;
            keep(&mut bits, &device, &sum)?;
        }
        let mut data = part(&device, rank, 0, length * world + 5)?;
        replica.collective.all_gather(&device, &mut data, Span::new(3, length * world))?;
        keep(&mut bits, &device, &data)?;
        bucket_sums(&mut replica, length, &mut bits)?;
    }
    replica.collective.barrier()?;
    Ok(bits)
}

/// Asynchronous sums in buckets, of one part each and along a tree.
fn bucket_sums(replica: &mut Replica, length: usize, bits: &mut Vec<u32>) -> Result<()> {
    let (device, rank, world) = (replica.device.clone(), replica.rank(), replica.world());
    let third = length / 3;
    let behind = Span::new(3 * third, length - 3 * third);
    let buckets = [Span::new(2 * third, third), Span::new(third, third), Span::new(0, third), behind];
    for (parts, in_order) in [(world, false), (4, true), (2, true), (7, true)] {
        let (tree, own) = divided(parts, world, rank);
        let has_parts = !own.is_empty();
        let (earlier, mut data) = nodes_of(&device, &tree, rank, own, length)?;
        let nodes = in_order.then_some(Nodes { tree: &tree, earlier: &earlier });
        // A rank without a part has nothing to start.
        for run in buckets[..3].iter().filter(|_| has_parts) {
            replica.collective.start_all_reduce(&device, nodes, &mut data, *run)?;
            // Meanwhile the pass continues.
            device.fill(run.offset as f32, &mut data, Span::new(0, run.offset))?;
            device.fill(rank as f32, &mut data, behind)?;
        }
        replica.collective.finish_all_reduce(&device, nodes, &buckets, &mut data)?;
        keep(bits, &device, &data)?;
    }
    Ok(())
}

fn keep(bits: &mut Vec<u32>, device: &Device, data: &Storage) -> Result<()> {
    bits.extend(data.to_vec(device, 0, data.len())?.into_iter().map(f32::to_bits));
    Ok(())
}

/// One sum of eight parts, and the numbers that each rank sends for it.
fn counts() -> Result<()> {
    const LENGTH: usize = 1200;
    let mpi = Mpi::start(options())?;
    mark("started", mpi.rank());
    let sent = mpi.numbers_sent();
    let count = |mut replica: Replica| {
        let (device, rank, world) = (replica.device.clone(), replica.rank(), replica.world());
        let shards = parallel::Shards::new(8, world, rank);
        let tree = SumTree::new(shards.counts());
        let (earlier, mut data) = nodes_of(&device, &tree, rank, shards.own(), LENGTH)?;
        let before = sent();
        let nodes = Nodes { tree: &tree, earlier: &earlier };
        replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, LENGTH))?;
        let count = sent() - before;
        std::fs::write(folder().join(format!("sent-{rank}")), count.to_string()).unwrap();
        Ok(())
    };
    mpi.run(&[tensor_cpu::device(1)], count).map(drop)
}

fn sums(replica: Replica, folder: &std::path::Path) -> Result<()> {
    let path = folder.join(format!("sums-{}", replica.rank()));
    let bytes: Vec<u8> = all_sums(replica)?.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(path, bytes).unwrap();
    Ok(())
}

fn broadcast(mut replica: Replica) -> Result<()> {
    let (device, rank) = (replica.device.clone(), replica.rank());
    for root in 0..replica.world() {
        let mut data = part(&device, rank, 0, 5000)?;
        replica.collective.broadcast(&device, &mut data, Span::new(1, 4000), root)?;
        let (before, own) = (part(&device, rank, 0, 5000)?, part(&device, root, 0, 5000)?);
        assert_eq!(data.to_vec(&device, 1, 4000)?, own.to_vec(&device, 1, 4000)?);
        assert_eq!(data.to_vec(&device, 4001, 999)?, before.to_vec(&device, 4001, 999)?);
    }
    Ok(())
}
