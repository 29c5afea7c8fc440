//! How much memory there is.

use std::fs;

/// Bytes of memory that a process may still take, where the system tells: on Linux, within the limit of its container.
pub(crate) fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let free = available_in(&read("/proc/meminfo")?)?;
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    // What a container counts as taken holds cached files too, which give way: only the limit itself is sure.
    Some(limit.map_or(free, |limit| free.min(limit)))
}

/// The line `MemAvailable` of Linux' `/proc/meminfo`, in bytes.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found() {
        let text = "MemTotal:       16374508 kB\nMemFree:          201160 kB\nMemAvailable:    8234020 kB\n";
        assert_eq!(available_in(text), Some(8_234_020 * 1024));
        assert_eq!(available_in("MemTotal: 5 kB"), None);
        assert_eq!(available_in("MemAvailable: much"), None);
    }
}
