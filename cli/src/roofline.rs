//! `towers bench --roofline`: the limits of the processor.

use crate::print;
use config::Config;
use std::process::ExitCode;

pub fn run(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let roofline = bench::roofline(&config.placement.devices, &config.training.arithmetic)?;
    if json {
        return print::json(&roofline);
    }
    let line = |roof: &bench::Roof| {
        format!(
            "{}: {:.0} GFLOP/s of multiply-adds ({}), {:.1} GB/s read and written by a copy",
            print::threads(roof.threads),
            roof.gflops,
            roofline.simd,
            roof.gigabytes_per_s,
        )
    };
    print::lines(roofline.roofs.iter().map(line).collect())
}
