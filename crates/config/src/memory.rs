//! How much memory a process can have: on Linux, where the system tells, within the limits of its container or job.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux shows groups of processes, such as containers.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that this process may still take without anything being swapped out; `None` where the system doesn't tell.
///
/// Files that the system keeps in memory don't count as taken, since it drops them when memory is short.
///
/// ```
/// let free = towers_config::memory::available().map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
/// println!("free memory: {free}");
/// ```
pub fn available() -> Option<u64> {
    available_of(&Told::read()?, read)
}

/// Bytes of memory, swap included, that this process can ever have, however little is free now; `None` where the system doesn't tell.
pub fn total() -> Option<u64> {
    total_of(&Told::read()?, read)
}

/// Bytes of memory that this process has taken, without those of files; `None` where the system doesn't tell.
pub fn taken() -> Option<u64> {
    field(&read(Path::new("/proc/self/status"))?, "RssAnon:")
}

/// The files of the system about its memory, about the groups of this process, and about this process.
#[derive(Default)]
struct Told {
    meminfo: String,
    groups: String,
    limits: String,
    status: String,
}

impl Told {
    fn read() -> Option<Told> {
        let own = |name: &str| read(&Path::new("/proc/self").join(name)).unwrap_or_default();
        Some(Told {
            meminfo: read(Path::new("/proc/meminfo"))?,
            groups: own("cgroup"),
            limits: own("limits"),
            status: own("status"),
        })
    }
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A limit of memory, the memory that counts as taken within it, and the swap that comes on top.
#[derive(Clone, Copy, Debug)]
struct Limit {
    memory: u64,
    taken: u64,
    swap: u64,
}

fn available_of(told: &Told, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let free = field(&told.meminfo, "MemAvailable:")?;
    let limits = limits(told, 0, read).into_iter();
    limits.map(|limit| limit.memory.saturating_sub(limit.taken)).chain([free]).min()
}

fn total_of(told: &Told, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let memory = field(&told.meminfo, "MemTotal:")?;
    let swap = field(&told.meminfo, "SwapTotal:").unwrap_or(0);
    let all = limits(told, swap, read).into_iter().chain([Limit { memory, taken: 0, swap }]);
    all.map(|limit| limit.memory.saturating_add(limit.swap)).min()
}

/// The limits of this process (`ulimit -v`, `ulimit -d`), of its group and of those around it. One without a
/// limit has none here, or under the first version of groups a number beyond all memory.
fn limits(told: &Told, swap: u64, read: impl Fn(&Path) -> Option<String>) -> Vec<Limit> {
    let number = |path: PathBuf| read(&path).and_then(|text| text.trim().parse::<u64>().ok());
    // A group counts cached files as taken.
    let taken = |group: &Path, used: &str, files: [&str; 2]| {
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cached: u64 = files.into_iter().filter_map(|name| counter(&stat, name)).sum();
        number(group.join(used)).unwrap_or(0).saturating_sub(cached)
    };
    let second = group(&told.groups, |id, _| id == "0");
    let second = second.ancestors().map(|group| Path::new(CGROUPS).join(group)).filter_map(|group| {
        let of_swap = number(group.join("memory.swap.max")).map_or(swap, |limit| limit.min(swap));
        let taken = taken(&group, "memory.current", ["inactive_file", "active_file"]);
        Some(Limit { memory: number(group.join("memory.max"))?, taken, swap: of_swap })
    });
    let first = group(&told.groups, |_, controllers| controllers.split(',').any(|name| name == "memory"));
    let first = first.ancestors().filter_map(|group| {
        let group = Path::new(CGROUPS).join("memory").join(group);
        let taken = taken(&group, "memory.usage_in_bytes", ["total_inactive_file", "total_active_file"]);
        Some(Limit { memory: number(group.join("memory.limit_in_bytes"))?, taken, swap })
    });
    let of_process = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];
    let of_process = of_process.into_iter().filter_map(|(limit, used)| {
        let line = told.limits.lines().find_map(|line| line.strip_prefix(limit))?;
        let memory = line.split_whitespace().next()?.parse().ok()?;
        Some(Limit { memory, taken: field(&told.status, used).unwrap_or(0), swap: 0 })
    });
    second.chain(first).chain(of_process).collect()
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

/// A line of a group's `memory.stat`.
fn counter(stat: &str, name: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
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
            ("0::/\n", &[("memory.max", "1024000\n"), ("memory.current", "614400\n")], 3000, 400),
            (
                "0::/\n",
                &[
                    ("memory.max", "1024000\n"),
                    ("memory.current", "614400\n"),
                    ("memory.stat", "anon 5\ninactive_file 102400\nactive_file 204800\nfile 999999\n"),
                ],
                3000,
                700,
            ),
            (
                "4:memory:/\n",
                &[
                    ("memory/memory.limit_in_bytes", "1024000"),
                    ("memory/memory.usage_in_bytes", "1023000"),
                    ("memory/memory.stat", "total_inactive_file 510500\ntotal_active_file 500\n"),
                ],
                3000,
                500,
            ),
        ] {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| path == Path::new(CGROUPS).join(name));
                found.map(|(_, text)| (*text).to_owned())
            };
            let told = Told { meminfo: MEMINFO.into(), groups: groups.into(), ..Told::default() };
            assert_eq!(total_of(&told, read), Some(total * 1024), "{groups}{files:?}");
            assert_eq!(available_of(&told, read), Some(available * 1024), "{groups}{files:?}");
        }
    }

    #[test]
    fn limits_of_the_process_count() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax data size   2048000   unlimited   bytes\n\
                      Max address space   unlimited   unlimited   bytes\n";
        let status = "VmSize:   9000 kB\nVmData:\t 500 kB\n";
        let told =
            Told { meminfo: MEMINFO.into(), limits: limits.into(), status: status.into(), ..Told::default() };
        assert_eq!(total_of(&told, |_| None), Some(2000 * 1024));
        assert_eq!(available_of(&told, |_| None), Some(1500 * 1024));
    }

    #[test]
    fn without_the_lines_nothing_is_known() {
        let of = |meminfo: &str| Told { meminfo: meminfo.into(), ..Told::default() };
        assert_eq!(total_of(&of("MemAvailable: 5 kB"), |_| None), None);
        assert_eq!(available_of(&of("MemTotal: 5 kB"), |_| None), None);
        assert_eq!(available_of(&of("MemAvailable: much"), |_| None), None);
    }
}
