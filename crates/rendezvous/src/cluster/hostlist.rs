/// More machines than any job has. A longer list is a mistake, and must not fill the memory.
const MOST: usize = 1 << 16;

/// The machines of SLURM's short notation: `node[01-03,7],gpu-a[1-2]x[0-1]` are `node01 node02 node03 node7 gpu-a1x0
/// gpu-a1x1 gpu-a2x0 gpu-a2x1`. `None` if it is malformed or absurdly long.
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for pattern in split(list)? {
        hosts.extend(expand_one(pattern)?);
        if hosts.len() > MOST {
            return None;
        }
    }
    Some(hosts)
}

/// Splits at the commas outside of brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if !inside => inside = true,
            b']' if inside => inside = false,
            b'[' | b']' => return None,
            b',' if !inside => {
                parts.push(list.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(list.get(begin..)?);
    (!inside).then_some(parts)
}

/// The machines of one name with any number of bracketed sets of numbers. The last set varies fastest.
fn expand_one(pattern: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    loop {
        let (literal, set) = match rest.split_once('[') {
            None => (rest, None),
            Some((literal, after)) => (literal, Some(after.split_once(']')?)),
        };
        if !literal.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return None;
        }
        names.iter_mut().for_each(|name| name.push_str(literal));
        let Some((set, after)) = set else { break };
        let numbers = numbers(set)?;
        if names.len().checked_mul(numbers.len())? > MOST {
            return None;
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{n}"))).collect();
        rest = after;
    }
    names.iter().all(|name| !name.is_empty() && name.len() <= 253).then_some(names)
}

/// `01-03,7` as `01 02 03 7`: numbers keep the width of the first.
fn numbers(set: &str) -> Option<Vec<String>> {
    let number = |text: &str| -> Option<u64> {
        let digits = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if digits { text.parse().ok() } else { None }
    };
    let mut all = Vec::new();
    for range in set.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to, width) = (number(first)?, number(last)?, first.len());
        let count = to.checked_sub(from)?;
        if count >= (MOST - all.len()) as u64 {
            return None;
        }
        all.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_written_out() {
        for (list, hosts) in [
            ("node1", "node1"),
            ("a,b.example.org", "a b.example.org"),
            ("node[01-03,7]", "node01 node02 node03 node7"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("gpu-a[1-2]x[0-1],m", "gpu-a1x0 gpu-a1x1 gpu-a2x0 gpu-a2x1 m"),
            ("r[1]-[2]s", "r1-2s"),
        ] {
            let expanded = expand(list).unwrap_or_default();
            assert_eq!(expanded.join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn nonsense_is_refused_without_filling_the_memory() {
        let nonsense = "a, a[ a] a[] a[1-] a[-1] a[3-1] a[1-2-3] a[[1]] a[x] \u{e4}[1] a[0-999999999999] \
                        a[0-9999][0-9999] a[99999999999999999999]";
        for list in nonsense.split(' ').chain(["", ",", "a b"]) {
            assert_eq!(expand(list), None, "{list}");
        }
    }
}
