//! The speed of an all-reduce, as one JSON object a line:
//!
//! ```text
//! cargo run --release -p towers-mpi --example all_reduce_bench                    # threads, and memory to compare with
//! cargo build --release -p towers-mpi --example all_reduce_bench
//! mpirun -n 2 target/release/examples/all_reduce_bench mpi                      # processes, along a fixed tree
//! ```
//!
//! `gb_per_s` is bytes of numbers over the time of one all-reduce; for memory, bytes copied over the time of the copy.
#![forbid(unsafe_code)]

use std::time::Instant;
use towers_parallel::{Replica, Result, run_replicas};
use towers_program::Span;

/// The gradients of MiniGoogLeNet: 6.6 MB.
const NUMBERS: usize = 1_652_826;
const ROUNDS: usize = 100;

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None => {
            memory();
            let fastest = run_replicas(&vec![towers_tensor_cpu::device(1); 2], measure)?;
            report("threads", 2, &fastest[0]);
        }
        Some("mpi") => {
            let mpi = towers_mpi::Mpi::start(towers_mpi::MpiOptions::default())?;
            let (rank, world) = (mpi.rank(), mpi.world());
            let times = mpi.run(&[towers_tensor_cpu::device(1)], measure)?;
            if rank == 0 {
                report("mpi", world, &times[0]);
            }
        }
        Some(other) => eprintln!("error: `{other}` is not known; there is `mpi`"),
    }
    Ok(())
}

/// Seconds of each round.
fn measure(mut replica: Replica) -> Result<Vec<f64>> {
    let device = replica.device.clone();
    let mut data = device.alloc(NUMBERS)?;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        replica.collective.barrier()?;
        let began = Instant::now();
        replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, NUMBERS))?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// Copies the same count of numbers from one place to another.
fn memory() {
    let (from, mut to) = (vec![1.0_f32; NUMBERS], vec![0.0_f32; NUMBERS]);
    let round = |_| {
        let began = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        began.elapsed().as_secs_f64()
    };
    let times: Vec<f64> = (0..ROUNDS).map(round).collect();
    report("memcpy", 1, &times);
}

/// The median, and the fastest.
fn report(what: &str, replicas: usize, times: &[f64]) {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    let (fastest, median) = (times[0], times[times.len() / 2]);
    let gb_per_s = NUMBERS as f64 * 4e-9 / median;
    println!(
        "{{\"what\": \"{what}\", \"replicas\": {replicas}, \"bytes\": {}, \"median_ms\": {:.3}, \
         \"fastest_ms\": {:.3}, \"gb_per_s\": {gb_per_s:.2}}}",
        NUMBERS * 4,
        median * 1e3,
        fastest * 1e3
    );
}
