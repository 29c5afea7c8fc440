//! `towers selftest`: a table of tests of a device, and a report.

use crate::args::SelfTestArgs;
use crate::device::warn_of_unused_gpu;
use crate::error::usage;
use crate::print;
use crate::spelling::flag_of;
use anyhow::{Context as _, bail};
use bench::{SelfTestOptions, TestRow};
use std::process::ExitCode;

pub fn run(args: SelfTestArgs) -> anyhow::Result<ExitCode> {
    let config = args.devices.config()?;
    let names = SelfTestOptions::names();
    let mut only = args.only;
    // As everywhere, `-` and `_` are one.
    for test in &mut only {
        let same = |name: &&&str| name.replace('-', "_") == test.replace('-', "_");
        *test = names.iter().find(same).map_or_else(|| test.clone(), |name| (*name).to_owned());
    }
    if let Some(unknown) = only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(usage(format!("--only names `{unknown}`, but must name some of {}", names.join(", "))));
    }
    warn_of_unused_gpu(&config.placement.devices);
    let given = args.devices.has("devices.precision").then_some(config.training.arithmetic.precision);
    let options = SelfTestOptions { precisions: given.into_iter().collect(), only };
    print::text(&line(["", "test", "results", "difference", "seconds", ""]))?;
    let mut printed = Ok(ExitCode::SUCCESS);
    let found = bench::selftest(&config, &options, |row| {
        let TestRow { precision, name, results, seconds, .. } = row;
        // Some tests are no comparison with the reference.
        let results = if *results == 0 { "-".to_owned() } else { results.to_string() };
        let cells = [precision.name(), name, &results, &row.percent(), &format!("{seconds:.1}"), row.word()];
        printed = print::text(&line(cells));
    })?;
    printed?;
    std::fs::write(&args.output, found.report())
        .with_context(|| format!("can't write {}", args.output.display()))?;
    let (all, output, device) = (found.rows.len(), args.output.display(), &found.device);
    let failed = found.failures().count();
    if failed == 0 {
        return print::text(&format!(
            "All {all} tests on {device} passed, in {:.0} s. Differences are in percent of what is allowed. The report is \
             {output}.\n",
            found.seconds
        ));
    }
    for (row, why) in found.failures() {
        let said = format!("{} in {}: {}", row.name, row.precision, why.spelled(flag_of));
        print::text(&format!("\n{}\n", short(&said, &format!(" ... (the rest is in {output})"))))?;
    }
    bail!("{failed} of {all} tests failed on {device}; please attach {output} to an issue")
}

/// A message of at most 500 characters. A longer one is cut, and `end` takes the place of the rest.
fn short(message: &str, end: &str) -> String {
    const MOST: usize = 500;
    if message.chars().count() <= MOST {
        return message.to_owned();
    }
    let kept = MOST.saturating_sub(end.chars().count());
    message.chars().take(kept).chain(end.chars()).collect()
}

/// A line of the table.
fn line([precision, name, results, difference, seconds, word]: [&str; 6]) -> String {
    format!("{precision:4}  {name:30} {results:>8} {difference:>11} {seconds:>8}  {word}\n")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_long_message_ends_with_where_the_rest_is() {
        let end = " ... (the rest is in report.md)";
        assert_eq!(short("y[0] is 1, not 2", end), "y[0] is 1, not 2");
        assert_eq!(short(&"é".repeat(500), end), "é".repeat(500));
        let long = short(&"é".repeat(100_000), end);
        assert!(long.chars().count() == 500 && long.starts_with("éé") && long.ends_with(end), "{long}");
    }
}
