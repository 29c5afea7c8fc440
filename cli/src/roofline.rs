//! `towers bench roofline`: the limits of the processor.

use crate::args::RooflineArgs;
use crate::print;
use std::process::ExitCode;

pub fn run(args: &RooflineArgs) -> anyhow::Result<ExitCode> {
    let config = args.devices.config()?;
    let roofline = towers_bench::roofline(&config.placement.devices, &config.training.arithmetic)?;
    if args.json {
        return print::json(&roofline);
    }
    let line = |roof: &towers_bench::Roof| {
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
