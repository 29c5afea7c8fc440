//! How much memory the machine has: what no process can go beyond, however little is free now.

use std::fs;
use std::path::Path;

/// Where Linux shows groups of processes, such as containers.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory, swap included, that this process can ever have, where the system tells: on Linux, within the limit of its container.
pub(crate) fn total() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    total_of(&read(Path::new("/proc/meminfo"))?, &own, read)
}

/// The same, of what the system's files say.
fn total_of(meminfo: &str, own: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let (memory, swap) = (field(meminfo, "MemTotal:")?, field(meminfo, "SwapTotal:").unwrap_or(0));
    let number = |path: &Path| read(path).and_then(|text| text.trim().parse::<u64>().ok());
    // Its own group and those around it, of the second version of groups. A container sees its own as the root.
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
    let groups = Path::new(group).ancestors().map(|group| Path::new(CGROUPS).join(group));
    let mut limits: Vec<(u64, u64)> = groups
        .filter_map(|group| {
            let of_swap = number(&group.join("memory.swap.max")).map_or(swap, |limit| limit.min(swap));
            Some((number(&group.join("memory.max"))?, of_swap))
        })
        .collect();
    let first_version = number(&Path::new(CGROUPS).join("memory/memory.limit_in_bytes"));
    limits.extend(first_version.map(|limit| (limit, swap)));
    limits.push((memory, swap));
    limits.into_iter().map(|(memory, swap)| memory.saturating_add(swap)).min()
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

    const MEMINFO: &str = "MemTotal:       8000 kB\nMemAvailable:    100 kB\nSwapTotal:       2000 kB\n";

    #[test]
    fn the_least_limit_counts() {
        let kib = 1024;
        for (own, files, expected) in [
            ("", &[][..], 10_000 * kib),
            ("0::/\n", &[("memory.max", "max")], 10_000 * kib),
            ("0::/\n", &[("memory.max", "1024000\n")], 3000 * kib),
            ("0::/\n", &[("memory.max", "1024000\n"), ("memory.swap.max", "0\n")], 1000 * kib),
            ("0::/a/job\n", &[("a/job/memory.max", "max"), ("a/memory.max", "2048000")], 4000 * kib),
            ("4:memory:/docker\n", &[("memory/memory.limit_in_bytes", "1024000")], 3000 * kib),
            ("4:memory:/\n", &[("memory/memory.limit_in_bytes", "9223372036854771712")], 10_000 * kib),
        ] {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| path == Path::new(CGROUPS).join(name));
                found.map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(total_of(MEMINFO, own, read), Some(expected), "{own}{files:?}");
        }
        assert_eq!(total_of("MemAvailable: 5 kB", "", |_| None), None);
    }
}
