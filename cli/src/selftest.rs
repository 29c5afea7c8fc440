//! `towers selftest`: a table of tests of a device, and a report.

use crate::args::SelfTestArgs;
use crate::device::warn_of_unused_gpu;
use crate::error::usage;
use crate::print::{self, cut};
use crate::spelling::flag_of;
use anyhow::{Context as _, bail};
use std::process::ExitCode;
use towers_config::{Arithmetic, Devices};
use towers_diagnose::{SelfTest, TestRow};
use towers_train::{count_gpus, open_device, open_devices};

/// The longest message, in characters.
const MOST: usize = 500;

pub fn run(args: SelfTestArgs) -> anyhow::Result<ExitCode> {
    let config = args.devices.config()?;
    let names = SelfTest::names();
    let mut only = args.only;
    // As everywhere, `-` and `_` are one.
    for test in &mut only {
        let same = |name: &&&str| name.replace('-', "_") == test.replace('-', "_");
        *test = names.iter().find(same).map_or_else(|| test.clone(), |name| (*name).to_owned());
    }
    if let Some(unknown) = only.iter().find(|only| !names.contains(&only.as_str())) {
        return Err(usage(format!("--only names `{unknown}`, but must name some of {}", names.join(", "))));
    }
    let (devices, arithmetic) = (&config.placement.devices, &config.training.arithmetic);
    warn_of_unused_gpu(devices);
    let device = open_device(devices, arithmetic)?;
    let replicas = of_sums(devices, device.kind());
    let mut test = SelfTest::on(&device)
        .only(only)
        .replicas(|| open_devices(&replicas, arithmetic).map_err(|error| error.message()));
    if !args.devices.has("devices.precision") {
        test = test.precisions(|precision| {
            open_device(devices, &Arithmetic { precision, ..*arithmetic }).map_err(|error| error.message())
        });
    }
    print::text(&line(["", "test", "results", "difference", "seconds", ""]))?;
    let mut printed = Ok(ExitCode::SUCCESS);
    let found = test.run(|row| {
        let TestRow { precision, name, results, seconds, .. } = row;
        // Some tests are no comparison with the reference.
        let results = if *results == 0 { "-".to_owned() } else { results.to_string() };
        let cells = [precision.name(), name, &results, &row.percent(), &format!("{seconds:.1}"), row.word()];
        printed = print::text(&line(cells));
    });
    printed?;
    std::fs::write(&args.output, found.markdown())
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
        print::text(&format!("\n{}\n", cut(&said, MOST, &format!(" ... (the rest is in {output})"))))?;
    }
    bail!("{failed} of {all} tests failed on {device}; please attach {output} to an issue")
}

/// The replicas that add up: one on each GPU, or two on the only device.
fn of_sums(devices: &Devices, kind: &str) -> Devices {
    let all =
        (kind != "cpu" && devices.gpus.is_none() && count_gpus() > 1).then(|| (0..count_gpus()).collect());
    let gpus: Option<Vec<usize>> = all.or_else(|| devices.gpus.clone());
    let each = gpus.as_ref().map_or(2, |gpus| gpus.len().max(2));
    let replicas = if devices.replicas == 0 { each } else { devices.replicas };
    Devices { gpus, replicas, ..devices.clone() }
}

/// A line of the table.
fn line([precision, name, results, difference, seconds, word]: [&str; 6]) -> String {
    format!("{precision:4}  {name:30} {results:>8} {difference:>11} {seconds:>8}  {word}\n")
}
