use super::environment::MOST_PROCESSES;
use super::{Environment, Place, Source, hostlist};
use crate::{Error, Result};

/// Steps from this number on are SLURM's own: the batch script, the interactive shell. They have a rank, but
/// no other processes.
const FIRST_RESERVED_STEP: u64 = 0xffff_fff0;
const NODE_LISTS: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
const TASKS_PER_NODE: &[&str] = &["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];

/// The variables of a task that `srun` started. The batch script has some of them too, but is no task.
pub(super) fn read(env: &Environment<'_>) -> Result<Option<Place>> {
    let Some(step) = step(env)? else { return Ok(None) };
    let tasks = if env.has("SLURM_STEP_NUM_TASKS") { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" };
    let Some((rank, world)) = env.ranks("SLURM_PROCID", tasks)? else { return Ok(None) };
    let hosts = hosts(env)?;
    let (local_rank, local_world) = local(env, world, hosts.len())?;
    let job = env.number("SLURM_JOB_ID", 0..=u64::from(u32::MAX))?;
    let first = hosts.into_iter().next().map(|host| (host, port(job.unwrap_or(0), step)));
    let master = env.master(first)?;
    let restart = env.restarts("SLURM_RESTART_COUNT")?;
    let job = job.map(|job| format!("{job}.{step}"));
    let (one_device, place) = (local_world > 1, Place::new(Source::Slurm, rank, world));
    Ok(Some(Place { local_rank, local_world, one_device, master, job, restart, ..place }))
}

/// The number of the job step, if `srun` started it.
fn step(env: &Environment<'_>) -> Result<Option<u64>> {
    let name = if env.has("SLURM_STEP_ID") { "SLURM_STEP_ID" } else { "SLURM_STEPID" };
    if env.text(name).is_some_and(|step| ["batch", "interactive", "extern"].contains(&step.as_str())) {
        return Ok(None);
    }
    Ok(env.number(name, 0..=u64::from(u32::MAX))?.filter(|step| *step < FIRST_RESERVED_STEP))
}

fn hosts(env: &Environment<'_>) -> Result<Vec<String>> {
    let Some((name, list)) = env.first(NODE_LISTS) else { return Ok(Vec::new()) };
    let accepted = "a list of machines, such as node[01-03,7]";
    hostlist::expand(&list).ok_or_else(|| Error::variable(name, &list, accepted))
}

/// This process's rank on its machine, and the number of processes there.
fn local(env: &Environment<'_>, world: usize, machines: usize) -> Result<(usize, usize)> {
    let Some(rank) = env.number("SLURM_LOCALID", 0..=MOST_PROCESSES - 1)? else {
        return Err(Error::missing("SLURM_LOCALID", "set, since SLURM_PROCID is"));
    };
    let here = match env.first(TASKS_PER_NODE) {
        Some((name, counts)) => {
            let node = env.number("SLURM_NODEID", 0..=MOST_PROCESSES)?.unwrap_or(0) as usize;
            let accepted = || format!("tasks of each machine, such as 4(x2),3, with a machine {node}");
            Some(tasks_of(&counts, node).ok_or_else(|| Error::variable(name, &counts, accepted()))?)
        }
        None => env.number("SLURM_NTASKS_PER_NODE", 1..=MOST_PROCESSES)?.map(|tasks| tasks as usize),
    };
    let here = here.or((machines <= 1).then_some(world)).unwrap_or(rank as usize + 1).min(world);
    if rank as usize >= here {
        let accepted = format!("below the number of tasks on this machine, which is {here}");
        return Err(Error::variable("SLURM_LOCALID", &rank.to_string(), accepted));
    }
    Ok((rank as usize, here))
}

/// The entry of a machine in `4(x2),3`, which stands for 4, 4, 3.
fn tasks_of(counts: &str, node: usize) -> Option<usize> {
    let mut first = 0usize;
    for part in counts.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        first = first.checked_add(times)?;
        if node < first {
            return tasks.parse().ok().filter(|tasks| (1..=MOST_PROCESSES as usize).contains(tasks));
        }
    }
    None
}

/// A port that differs between steps, below the system's ephemeral ports.
fn port(job: u64, step: u64) -> u16 {
    20_000 + (job.wrapping_add(step) % 10_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_each_machine() {
        let all: Vec<_> = (0..5).map(|node| tasks_of("4(x2),3,1", node)).collect();
        assert_eq!(all, [Some(4), Some(4), Some(3), Some(1), None]);
        for bad in ["", "x", "4(x", "4(x2", "0", "4(x99999999999999999999999)", "-1"] {
            assert_eq!(tasks_of(bad, 0), None, "{bad}");
        }
    }
}
