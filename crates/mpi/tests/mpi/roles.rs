//! The roles of a job's ranks.

use crate::everything::{EDGE, everything, nodes_of};
use crate::job::{FOLDER, ROLE, mark_file};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use towers_mpi::{Mpi, MpiOptions};
use towers_parallel::{Error, Nodes, Replica, Result, SumTree};
use towers_program::Span;
use towers_rendezvous::Agreement;

/// How long ranks wait for each other in tests of hangs.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// Longer than a test may take.
const PATIENT: Duration = Duration::from_secs(600);

/// Lengths of runs: none, fewer than ranks, uneven parts, more than MPI's eager messages.
pub const LENGTHS: [usize; 6] = [0, 1, 2, 10, 1001, 100_003];

/// Runs the role that the environment names, and ends the process if that fails.
pub fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let played = match role.as_str() {
        "sums" => run(|replica, folder| sums(replica, &folder)),
        "sums-beside" => run_with(overlapping(), |replica, folder| sums(replica, &folder)),
        "several" => run_on(|rank| 3 - rank, options(), |replica, folder| sums(replica, &folder)),
        "one-of-several-fails" => run_on(
            |_| 2,
            MpiOptions { timeout: PATIENT, ..options() },
            |replica, _| match replica.rank() {
                // While the first replica of its process waits for the other process.
                1 => {
                    std::thread::sleep(TIMEOUT / 4);
                    Err(Error::Transport { name: "MPI", what: "this replica fails on purpose".into() })
                }
                0 => steps(replica),
                _ => {
                    std::thread::sleep(TIMEOUT);
                    steps(replica)
                }
            },
        ),
        "agreement" => agreement(),
        "counts" => counts(),
        "world" => Mpi::start(MpiOptions { world: Some(5), ..options() }).map(|_| ()),
        "late" => run(late),
        "fails" => run(|replica, _| match replica.rank() {
            1 => Err(Error::Transport { name: "MPI", what: "this rank fails on purpose".into() }),
            _ => steps(replica),
        }),
        "panics" => run(|replica, _| match replica.rank() {
            1 => panic!("this rank panics on purpose"),
            _ => steps(replica),
        }),
        "breaks-off" => run_with(overlapping(), breaks_off),
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
        towers_mpi::end_failed_job();
        std::process::exit(1);
    }
}

fn options() -> MpiOptions {
    MpiOptions { timeout: TIMEOUT, ..MpiOptions::default() }
}

/// All-reduces overlap with computation.
fn overlapping() -> MpiOptions {
    MpiOptions { overlap: Some(true), ..options() }
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
    let devices = vec![towers_tensor_cpu::device(1); count(mpi.rank())];
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
    let (first_rank, devices) = (mpi.rank(), vec![towers_tensor_cpu::device(1)]);
    mark("started", first_rank);
    let done = AtomicUsize::new(0);
    loop {
        let ran = mpi.run(&devices, |mut replica| {
            let device = replica.device.clone();
            let all = replica.collective.gather_numbers(&device, &[done.load(Relaxed) as f64])?;
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
        return Err(Error::Transport { name: "MPI", what: "this rank breaks off on purpose".into() });
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

/// One sum of eight parts, and the numbers that each rank sends for it.
fn counts() -> Result<()> {
    const LENGTH: usize = 1200;
    let mpi = Mpi::start(options())?;
    mark("started", mpi.rank());
    let sent = mpi.numbers_sent();
    let count = |mut replica: Replica| {
        let (device, rank, world) = (replica.device.clone(), replica.rank(), replica.world());
        let shards = towers_parallel::Shards::new(8, world, rank);
        let tree = SumTree::new(shards.counts());
        let (earlier, mut data) = nodes_of(&device, &tree, rank, shards.own(), LENGTH)?;
        let before = sent();
        let nodes = Nodes { tree: &tree, earlier: &earlier };
        replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(EDGE, LENGTH))?;
        let count = sent() - before;
        std::fs::write(folder().join(format!("sent-{rank}")), count.to_string()).unwrap();
        Ok(())
    };
    mpi.run(&[towers_tensor_cpu::device(1)], count).map(drop)
}

fn sums(replica: Replica, folder: &std::path::Path) -> Result<()> {
    let path = folder.join(format!("sums-{}", replica.rank()));
    let bytes: Vec<u8> = everything(replica, &LENGTHS)?.into_iter().flat_map(u32::to_le_bytes).collect();
    std::fs::write(path, bytes).unwrap();
    Ok(())
}
