use std::fs;
use towers_rendezvous::{Place, Source};

/// The default number of threads of this process.
///
/// Launchers of MPI and SLURM often assign separate cores to every process, and then there is nothing to
/// divide. Others never do, and all processes share this one's set of cores. So the share of one process is
/// that of the union of the cores of all processes on this machine, and at most its own set. The limit of a
/// container is for all its processes together, which divide it.
pub(super) fn threads(place: &Place) -> usize {
    let own = std::thread::available_parallelism().map_or(1, usize::from);
    let status = fs::read_to_string("/proc/thread-self/status").ok();
    let set = status.as_deref().and_then(allowed).unwrap_or(own).max(own);
    let limit = (own < set).then_some(own);
    share(place, set, together(place.source, |name| std::env::var(name).ok()), limit)
}

/// The size of a thread's set of cores, from Linux; limits of processor time don't count here.
fn allowed(status: &str) -> Option<usize> {
    count(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// The number of cores of all processes on this machine, if it is known and may exceed this process's.
fn together(source: Source, env: impl Fn(&str) -> Option<String>) -> Option<usize> {
    match source {
        Source::OpenMpi | Source::Mpich | Source::Slurm => {
            let of_job = env("SLURM_CPUS_ON_NODE").and_then(|count| count.parse().ok());
            of_job.or_else(|| count(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?))
        }
        _ => None,
    }
}

fn share(place: &Place, set: usize, together: Option<usize>, limit: Option<usize>) -> usize {
    let cores = set.min(together.unwrap_or(set) / place.local_world);
    limit.map_or(cores, |limit| cores.min(limit / place.local_world)).max(1)
}

/// The number of entries in a list in Linux' format: `0-3,8,10-11`.
fn count(list: &str) -> Option<usize> {
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(to.parse::<usize>().ok()?.checked_sub(from.parse().ok()?)? + 1)
    };
    list.trim().split(',').map(range).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::place;

    #[test]
    fn cores_are_divided_once() {
        for (set, together, limit, expected) in [
            (64, None, None, 16),
            (8, None, None, 2),
            // Each process has separate cores.
            (16, Some(64), None, 16),
            (1, Some(64), None, 1),
            // Two of them share a socket's cores.
            (32, Some(64), None, 16),
            // No cores are assigned.
            (64, Some(64), None, 16),
            (3, None, None, 1),
            (2, Some(2), None, 1),
            // A container may use fewer.
            (64, Some(64), Some(8), 2),
            (64, None, Some(8), 2),
            (64, None, Some(3), 1),
            (1, Some(64), Some(8), 1),
        ] {
            let threads = share(&place(1, 4), set, together, limit);
            assert_eq!(threads, expected, "{set} of {together:?}, {limit:?}");
        }
    }

    #[test]
    fn launchers_that_give_out_cores_say_how_many_there_are() {
        let slurm = |name: &str| (name == "SLURM_CPUS_ON_NODE").then(|| "48".to_owned());
        assert_eq!(together(Source::Slurm, slurm), Some(48));
        assert_eq!(together(Source::OpenMpi, slurm), Some(48));
        assert_eq!(together(Source::Torchrun, slurm), None);
        assert_eq!(together(Source::Launch, slurm), None);
        if cfg!(target_os = "linux") {
            assert!(together(Source::OpenMpi, |_| None).is_some_and(|cores| cores > 0));
        }
    }

    #[test]
    fn the_set_of_cores_is_found_in_what_linux_tells() {
        assert_eq!(
            allowed("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed:\t1\n"),
            Some(8)
        );
        assert_eq!(allowed("Cpus_allowed:\tff\n"), None);
        if cfg!(target_os = "linux") {
            let own = std::thread::available_parallelism().map_or(1, usize::from);
            let status = fs::read_to_string("/proc/thread-self/status").expect("Linux tells it");
            assert!(allowed(&status).is_some_and(|set| set >= own));
        }
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(count("0-63\n"), Some(64));
        assert_eq!(count("0,2-3,8-11"), Some(7));
        assert_eq!(count("5"), Some(1));
        for garbage in ["", "x", "3-1", "0-"] {
            assert_eq!(count(garbage), None, "{garbage}");
        }
    }
}
