//! `towers bench profile`: a table of the layers.

use crate::args::ProfileArgs;
use crate::print;
use std::process::ExitCode;
use towers_bench::{BenchMode, LayerProfile, Profile, Roof, Setup};

const HEAD: [&str; 13] = [
    "layer",
    "type",
    "input",
    "output",
    "Mmadd",
    "params",
    "forward ms",
    "GFLOP/s",
    "of peak",
    "backward ms",
    "GFLOP/s",
    "of peak",
    "share",
];

/// The first columns are words; the others are numbers.
const WORDS: usize = 4;

pub fn run(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    let (config, options) = args.step.read(args.mode, args.seconds)?;
    let profile = towers_bench::profile(&config, &options)?;
    if args.step.json {
        return print::json(&profile);
    }
    print::text(&table(&profile, !config.training.arithmetic.no_winograd))
}

/// Why a convolution may pass the peak. The transforms are those of the CPU's f32 kernels.
const WINOGRAD: &str = "GFLOP/s and `of peak` count the multiplications of direct sums. Winograd's transforms do up to 4 times fewer of \
                        them, so 3x3 convolutions may pass 100%; --no-winograd takes the direct sums.\n";

fn table(profile: &Profile, winograd: bool) -> String {
    let Setup { model, mode, batch, device, threads, precision, .. } = &profile.setup;
    let train = *mode == BenchMode::Train;
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(profile.layers.iter().map(|layer| row(layer, profile.roof.as_ref(), train)));
    let part = |name: &str, ms: f64| {
        let mut row = [const { String::new() }; HEAD.len()];
        (row[0], row[6], row[12]) = (name.to_owned(), format!("{ms:.3}"), share(ms / profile.parts_ms));
        row
    };
    rows.push(part("loss", profile.loss_ms));
    if train {
        rows.push(part("gradients, at the end", profile.gradients_ms));
        rows.push(part("averages and optimizer", profile.update_ms));
    }
    let roof = profile.roof.as_ref().map_or(String::new(), |roof| {
        format!(", peak {:.0} GFLOP/s, {:.1} GB/s", roof.gflops, roof.gigabytes_per_s)
    });
    let what = if train { "training step" } else { "inference pass" };
    let transforms = winograd && device == "cpu" && *precision == "fp32";
    let note = if transforms { WINOGRAD } else { "" };
    format!(
        "{}\n{model} {what}, batch {batch}, on the {device} ({}, {precision}{roof}), medians of {} steps: {:.2} ms; its parts, one waited for after \
         the other, {:.2} ms; set_input {:.2} ms beside\n{note}",
        print::aligned(&rows, WORDS),
        print::threads(*threads),
        profile.steps,
        profile.step_ms,
        profile.parts_ms,
        profile.set_input_ms,
    )
}

fn row(layer: &LayerProfile, roof: Option<&Roof>, train: bool) -> [String; HEAD.len()] {
    let shape = |[h, w, c]: [usize; 3]| format!("{h}x{w}x{c}");
    let number = |value: f64, digits: usize, there: bool| match there {
        true => format!("{value:.digits$}"),
        false => String::new(),
    };
    let multiplies = layer.multiply_adds > 0;
    let of_peak = |gflops: f64| match roof {
        Some(roof) if gflops > 0.0 => format!("{:.0}%", 100.0 * gflops / roof.gflops),
        _ => String::new(),
    };
    [
        layer.name.clone(),
        layer.kind.to_owned(),
        shape(layer.input),
        shape(layer.output),
        number(layer.multiply_adds as f64 / 1e6, 2, multiplies),
        number(layer.params as f64, 0, layer.params > 0),
        number(layer.forward_ms, 3, true),
        number(layer.forward_gflops, 1, multiplies),
        of_peak(layer.forward_gflops),
        number(layer.backward_ms, 3, train),
        number(layer.backward_gflops, 1, train && multiplies),
        of_peak(layer.backward_gflops),
        share(layer.share),
    ]
}

fn share(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_bench::BenchOptions;

    #[test]
    fn every_layer_has_a_line_and_the_shares_are_of_the_whole() {
        let mut config = towers_config::recipe("quick").unwrap();
        config.placement.devices.threads = 1;
        let options = BenchOptions { batch: Some(1), seconds: 0.0, ..BenchOptions::default() };
        let profile = towers_bench::profile(&config, &options).unwrap();
        let text = table(&profile, true);
        assert_eq!(text.lines().count(), 1 + profile.layers.len() + 3 + 3, "{text}");
        assert!(text.ends_with(WINOGRAD), "{text}");
        for layer in &profile.layers {
            assert!(text.lines().any(|line| line.starts_with(&layer.name)), "{text}");
        }
        let infer = BenchOptions { mode: BenchMode::Infer, ..options };
        let text = table(&towers_bench::profile(&config, &infer).unwrap(), false);
        assert!(!text.contains(WINOGRAD), "{text}");
        assert!(text.contains("inference pass") && !text.contains("optimizer"), "{text}");
    }
}
