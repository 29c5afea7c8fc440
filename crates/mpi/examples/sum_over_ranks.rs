//! The sum over the processes of an MPI job, with the same bits for any order of arrival:
//! `mpirun -n 3 target/release/examples/sum_over_ranks`
#![forbid(unsafe_code)]

use towers_mpi::{Mpi, MpiOptions};
use towers_parallel::Result;
use towers_rendezvous::{discover, variable};

/// This process's part: large numbers that cancel out, so that the order of the sum matters.
fn part(rank: usize) -> [f32; 2] {
    let sign = if rank.is_multiple_of(2) { 1.0 } else { -1.0 };
    [1.0 + rank as f32, sign * 1e8 + 0.25]
}

#[cfg_attr(test, test)]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    if discover(variable)?.is_none() {
        println!("No launcher has started this process: use `mpirun -n 3`");
        return Ok(());
    }
    let job = Mpi::start(MpiOptions::default())?;
    let (rank, world) = (job.rank(), job.world());
    let sums = job.run(&[towers_tensor_cpu::device(1)], |mut replica| -> Result<_> {
        let mut numbers = part(replica.rank());
        replica.all_reduce_sum(&mut numbers)?;
        Ok(numbers)
    })?;
    println!("rank {rank} of {world}: {:?}", sums[0]);
    assert_eq!(sums[0][0], (world * (world + 1) / 2) as f32);
    Ok(())
}
