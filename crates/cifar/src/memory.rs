//! How much memory a process can have: on Linux, where the system tells, within the limits of its container or job.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux shows groups of processes, such as containers.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process may still take without anything being swapped out; `None` where the system doesn't tell.
///
/// ```
/// use cifar::memory::{available, total};
///
/// assert!(available() <= total());
/// ```
pub fn available() -> Option<u64> {
    available_of(&Told::read()?, read)
}

/// Bytes of memory, swap included, that this process can ever have, however little is free now; `None` where the system doesn't tell.
pub fn total() -> Option<u64> {
    total_of(&Told::read()?, read)
}

/// What the system tells of itself and of the groups that this process is in.
struct Told {
    meminfo: String,
    groups: String,
}

impl Told {
    fn read() -> Option<Told> {
        let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
        Some(Told { meminfo: read(Path::new("/proc/meminfo"))?, groups })
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn available_of(told: &Told, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let free = field(&told.meminfo, "MemAvailable:")?;
    // What a group counts as taken holds cached files too, which give way: only the limits themselves are sure.
    limits(told, 0, read).into_iter().map(|[memory, _]| memory).chain([free]).min()
}

fn total_of(told: &Told, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let (memory, swap) =
        (field(&told.meminfo, "MemTotal:")?, field(&told.meminfo, "SwapTotal:").unwrap_or(0));
    let limits = limits(told, swap, read).into_iter().chain([[memory, swap]]);
    limits.map(|[memory, swap]| memory.saturating_add(swap)).min()
}

/// What the group of this process and those around it may take of memory and of the machine's `swap`. One without a limit has none
/// here, or under the first version of groups a number beyond all memory.
fn limits(told: &Told, swap: u64, read: impl Fn(&Path) -> Option<String>) -> Vec<[u64; 2]> {
    let number = |path: PathBuf| read(&path).and_then(|text| text.trim().parse::<u64>().ok());
    let second = group(&told.groups, |id, _| id == "0");
    let second = second.ancestors().map(|group| Path::new(CGROUPS).join(group)).filter_map(|group| {
        let of_swap = number(group.join("memory.swap.max")).map_or(swap, |limit| limit.min(swap));
        Some([number(group.join("memory.max"))?, of_swap])
    });
    let first = group(&told.groups, |_, controllers| controllers.split(',').any(|name| name == "memory"));
    let first = first.ancestors().filter_map(|group| {
        let group = Path::new(CGROUPS).join("memory").join(group);
        Some([number(group.join("memory.limit_in_bytes"))?, swap])
    });
    second.chain(first).collect()
}

/// The path of a group of this process, by what its line in Linux' `/proc/self/cgroup` says before; a container may see it as the
/// root, which is among the path's ancestors.
fn group(groups: &str, is: impl Fn(&str, &str) -> bool) -> &Path {
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        is(id, controllers).then_some(path)
    });
    Path::new(path.unwrap_or_default().trim_start_matches('/'))
}

/// A line of Linux' `/proc/meminfo`, in bytes.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       8000 kB\nMemAvailable:   7000 kB\nSwapTotal:       2000 kB\n";

    #[test]
    fn the_least_limit_counts() {
        let none = "9223372036854771712";
        // The content of the files, all memory with swap, and the available memory, in KiB.
        for (groups, files, total, available) in [
            ("", &[][..], 10_000, 7000),
            ("0::/\n", &[("memory.max", "max")], 10_000, 7000),
            ("0::/\n", &[("memory.max", "1024000\n")], 3000, 1000),
            ("0::/\n", &[("memory.max", "1024000\n"), ("memory.swap.max", "0\n")], 1000, 1000),
            ("0::/a/job\n", &[("a/job/memory.max", "max"), ("a/memory.max", "2048000")], 4000, 2000),
            ("4:memory:/docker\n", &[("memory/memory.limit_in_bytes", "1024000")], 3000, 1000),
            ("5:cpu:/b\n4:hugetlb,memory:/a\n", &[("memory/a/memory.limit_in_bytes", "1024000")], 3000, 1000),
            ("4:memory:/\n", &[("memory/memory.limit_in_bytes", none)], 10_000, 7000),
            ("4:memory:/a\n0::/b\n", &[("memory/a/memory.limit_in_bytes", none)], 10_000, 7000),
        ] {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| path == Path::new(CGROUPS).join(name));
                found.map(|(_, text)| (*text).to_owned())
            };
            let told = Told { meminfo: MEMINFO.into(), groups: groups.into() };
            assert_eq!(total_of(&told, read), Some(total * 1024), "{groups}{files:?}");
            assert_eq!(available_of(&told, read), Some(available * 1024), "{groups}{files:?}");
        }
    }

    #[test]
    fn without_the_lines_nothing_is_known() {
        let of = |meminfo: &str| Told { meminfo: meminfo.into(), groups: String::new() };
        assert_eq!(total_of(&of("MemAvailable: 5 kB"), |_| None), None);
        assert_eq!(available_of(&of("MemTotal: 5 kB"), |_| None), None);
        assert_eq!(available_of(&of("MemAvailable: much"), |_| None), None);
    }
}
