//! Counts tests in the output of the test harness, and passes the output on to the reader.

use crate::cargo;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// How many tests passed, failed and were skipped.
///
/// A test that can't run on this machine (no GPU, no data) prints a line that begins with `SKIPPED` and says
/// why; the harness counts it among the passed.
#[derive(Default, PartialEq, Debug)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// The reasons of the skips, as the lines say them, each with its number of lines.
    reasons: BTreeMap<String, u64>,
    /// Whether the lines now read are the output of tests that passed, which the harness shows for
    /// `--show-output`.
    in_output_of_passed: bool,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl Tally {
    /// Runs a command that tests, such as `cargo test -- --show-output`, and counts its tests. Of the output
    /// of tests that passed only the `SKIPPED` lines are shown.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_to(command, |line| println!("{line}"))
    }

    /// Runs two such commands at the same time. The output of the second follows that of the first.
    pub fn run_both(&mut self, first: &mut Command, second: &mut Command) -> Result<()> {
        let (mut other, mut lines) = (Tally::default(), Vec::new());
        let [first, second] = std::thread::scope(|scope| {
            let second = scope.spawn(|| other.run_to(second, |line| lines.push(line.to_owned())));
            [self.run(first), second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))]
        });
        lines.iter().for_each(|line| println!("{line}"));
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        for (why, count) in other.reasons {
            *self.reasons.entry(why).or_default() += count;
        }
        first.and(second)
    }

    fn run_to(&mut self, command: &mut Command, mut show: impl FnMut(&str)) -> Result<()> {
        let shown = cargo::show(command);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("`{shown}` does not start"))?;
        let output = child.stdout.take().context("the output is not piped")?;
        self.in_output_of_passed = false;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if self.count(line.trim_end()) {
                show(&line);
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{shown}` ended with {status}");
        }
        Ok(())
    }

    /// Says why something does not run here, and counts it.
    pub fn skip(&mut self, why: &str) {
        println!("SKIPPED: {why}");
        self.skipped += 1;
        self.note(why);
    }

    fn note(&mut self, why: &str) {
        *self.reasons.entry(why.to_owned()).or_default() += 1;
    }

    /// A line for each thing that was skipped, with how often that was said, the most frequent first.
    pub fn skips(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| core::cmp::Reverse(**count));
        reasons.into_iter().fold(String::new(), |mut lines, (why, count)| {
            let _ = writeln!(lines, "{count:>5} skipped: {why}");
            lines
        })
    }

    /// Counts one line; whether it is worth showing.
    fn count(&mut self, line: &str) -> bool {
        // As in `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
        let counts = line.strip_prefix("test result: ");
        for part in counts.unwrap_or_default().split([';', '.']) {
            match part.trim().split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.skipped += number,
                _ => {}
            }
        }
        if counts.is_some() || line == "failures:" {
            self.in_output_of_passed = false;
        } else if line == "successes:" {
            self.in_output_of_passed = true;
        }
        if let Some((name, _)) = line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored")) {
            self.note(&format!("{name}, which runs on request"));
        }
        let skipped = line.strip_prefix("SKIPPED");
        if let Some(why) = skipped {
            self.skipped += 1;
            self.note(why.trim_start_matches(':').trim());
        }
        skipped.is_some() || !self.in_output_of_passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up_and_of_passed_tests_only_the_skips_are_shown() {
        let output = "
running 3 tests
test a ... ok

successes:

---- a stdout ----
some numbers
SKIPPED device matrix: no CUDA device
SKIPPED: tiles of AMX: the processor has none
SKIPPED: tiles of AMX: the processor has none

failures:

---- b stdout ----
a wrong number

test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.01s
test d ... ok
test e ... ignored, takes hours
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.25s
";
        let mut tally = Tally::default();
        let shown: Vec<&str> = output.lines().filter(|line| tally.count(line)).collect();
        assert_eq!(tally.to_string(), "3 passed, 1 failed, 7 skipped");
        assert_eq!(
            tally.skips(),
            "    2 skipped: tiles of AMX: the processor has none
    1 skipped: device matrix: no CUDA device
    1 skipped: e, which runs on request
"
        );
        assert!(shown.contains(&"SKIPPED device matrix: no CUDA device") && !shown.contains(&"some numbers"));
        assert!(shown.contains(&"a wrong number") && shown.contains(&"test d ... ok"));
    }
}
