//! Adding up what the test harness prints, while it is passed on to the reader.

use std::fmt;

/// What the tests came to.
///
/// A test that can't run on this machine (no GPU, no data) prints a line that begins with `SKIPPED` and says
/// why; the harness counts it among the passed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
    pub skipped: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads the harness's lines one by one.
///
/// The harness is told to show what passed tests printed (`--show-output`), since that is where the
/// `SKIPPED` lines are; all the rest of that section is noise, which `Reader` leaves out.
#[derive(Default)]
pub struct Reader {
    pub tally: Tally,
    in_output_of_passed: bool,
}

impl Reader {
    /// Takes one line in, without its end; says whether it is worth showing.
    pub fn line(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.in_output_of_passed = false;
            self.tally.passed += count(counts, "passed");
            self.tally.failed += count(counts, "failed");
            self.tally.ignored += count(counts, "ignored");
            return true;
        }
        match line {
            "successes:" => self.in_output_of_passed = true,
            "failures:" => self.in_output_of_passed = false,
            _ => {}
        }
        let skipped = line.starts_with("SKIPPED");
        self.tally.skipped += u64::from(skipped);
        skipped || !self.in_output_of_passed
    }
}

/// The number before `word` in a line like `ok. 3 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, word: &str) -> u64 {
    let part = counts.split([';', '.']).map(str::trim).find_map(|part| part.strip_suffix(word));
    part.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a ... ok
test b ... FAILED
test c ... ok

successes:

---- a stdout ----
some numbers
SKIPPED device matrix: no CUDA device

successes:
    a
    c

failures:

---- b stdout ----
a wrong number

failures:
    b

test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
test d ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s
";

    #[test]
    fn the_results_of_several_binaries_add_up() {
        let mut reader = Reader::default();
        OUTPUT.lines().for_each(|line| _ = reader.line(line));
        assert_eq!(reader.tally, Tally { passed: 3, failed: 1, ignored: 4, skipped: 1 });
        assert_eq!(reader.tally.to_string(), "3 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn of_passed_tests_only_the_skips_are_shown() {
        let mut reader = Reader::default();
        let shown: Vec<&str> = OUTPUT.lines().filter(|line| reader.line(line)).collect();
        assert!(shown.contains(&"SKIPPED device matrix: no CUDA device"));
        assert!(!shown.contains(&"some numbers") && !shown.contains(&"    c"));
        assert!(shown.contains(&"a wrong number") && shown.contains(&"test d ... ok"));
    }
}
