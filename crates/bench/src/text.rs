//! The results of measurements in words.

use crate::{BenchMode, BenchResult, FirstStep, LayerProfile, Profile, ReplicaBench, Roof, Roofline, Setup};
use std::fmt::{Display, Formatter, Result};
use towers_train::callbacks::aligned;

fn threads_of(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// One replica's throughput, after what computes.
impl Display for BenchResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Setup { model, mode, batch, device, threads, precision, .. } = &self.setup;
        self.engine.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let mode = if *mode == BenchMode::Train { "train" } else { "infer" };
        let (per_s, threads) = (self.images_per_s, threads_of(*threads));
        write!(
            f,
            "{model} {mode}, batch {batch}: {per_s:.1} images/s on the {device} ({threads}, {precision}"
        )?;
        self.peak_rss_mb.map_or(Ok(()), |mb| write!(f, ", {mb:.0} MB at most"))?;
        f.write_str(")")?;
        let why = self.not_recorded.as_ref();
        why.map_or(Ok(()), |why| write!(f, " (steps could not be recorded: {why})"))
    }
}

/// The throughput of replicas that train together, and the parts of a step's time.
impl Display for ReplicaBench {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let ReplicaBench { setup, replicas, images_per_s, .. } = self;
        let Setup { model, batch, device, threads, precision, .. } = setup;
        let threads = threads_of(*threads);
        write!(
            f,
            "{model} train, {replicas} replicas, batch {batch} each: {images_per_s:.1} images/s on the {device} \
             ({threads} each, {precision})"
        )?;
        let milliseconds = |seconds: f64| format!("{:.2}", 1e3 * seconds);
        if let (Some(slowest), Some(exchange)) = (self.slowest_s, self.exchange_s) {
            let each: Vec<_> = self.computing_s.iter().copied().map(milliseconds).collect();
            write!(
                f,
                "\nstep {} ms: the slowest replica computes {} ms (on average they do {} ms), adding up takes {} ms",
                milliseconds(self.step_s),
                milliseconds(slowest),
                each.join(", "),
                milliseconds(exchange),
            )?;
        }
        let why = self.not_recorded.as_ref();
        why.map_or(Ok(()), |why| write!(f, "\nsteps could not be recorded: {why}"))
    }
}

/// The seconds until each part of the start was done.
impl Display for FirstStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Setup { model, batch, device, threads, .. } = &self.setup;
        let threads = threads_of(*threads);
        writeln!(f, "{model}, batch {batch}, on the {device} ({threads}): seconds since the process began")?;
        for (seconds, what) in [
            (self.started_s, "the program runs"),
            (self.opened_s, "the device is open"),
            (self.built_s, "all memory is allocated"),
            (self.initialized_s, "all parameters are initialized"),
            (self.began_s, "the first training step begins"),
            (self.ended_s, "it ends"),
        ] {
            writeln!(f, "  {seconds:6.3}  {what}")?;
        }
        write!(f, "A second step took {:.3} s.", self.second_step_s)
    }
}

/// A line for each number of threads.
impl Display for Roofline {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let line = |roof: &Roof| {
            format!(
                "{}: {:.0} GFLOP/s of multiply-adds ({}), {:.1} GB/s read and written by a copy",
                threads_of(roof.threads),
                roof.gflops,
                self.simd,
                roof.gigabytes_per_s,
            )
        };
        f.write_str(&self.roofs.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

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

/// A table of the layers.
impl Display for Profile {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Setup { model, mode, batch, device, threads, precision, .. } = &self.setup;
        let train = *mode == BenchMode::Train;
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.layers.iter().map(|layer| row(layer, self.roof.as_ref(), train)));
        let part = |name: &str, ms: f64| {
            let mut row = [const { String::new() }; HEAD.len()];
            (row[0], row[6], row[12]) = (name.to_owned(), format!("{ms:.3}"), share(ms / self.parts_ms));
            row
        };
        rows.push(part("loss", self.loss_ms));
        if train {
            rows.push(part("gradients, at the end", self.gradients_ms));
            rows.push(part("averages and optimizer", self.update_ms));
        }
        let roof = self.roof.as_ref().map_or(String::new(), |roof| {
            format!(", peak {:.0} GFLOP/s, {:.1} GB/s", roof.gflops, roof.gigabytes_per_s)
        });
        let what = if train { "training step" } else { "inference pass" };
        write!(
            f,
            "{}\n{model} {what}, batch {batch}, on the {device} ({}, {precision}{roof}), medians of {} steps: {:.2} ms; its parts, one waited for after \
             the other, {:.2} ms; set_input {:.2} ms beside",
            aligned(&rows, WORDS),
            threads_of(*threads),
            self.steps,
            self.step_ms,
            self.parts_ms,
            self.set_input_ms,
        )
    }
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
    use crate::BenchOptions;

    #[test]
    fn every_layer_has_a_line_and_the_shares_are_of_the_whole() {
        let mut config = towers_config::recipe("quick").unwrap();
        config.placement.devices.threads = 1;
        let options = BenchOptions { batch: Some(1), seconds: 0.0, ..BenchOptions::default() };
        let profile = crate::profile(&config, &options).unwrap();
        let text = profile.to_string();
        assert_eq!(text.lines().count(), 1 + profile.layers.len() + 3 + 2, "{text}");
        for layer in &profile.layers {
            assert!(text.lines().any(|line| line.starts_with(&layer.name)), "{text}");
        }
        let infer = BenchOptions { mode: BenchMode::Infer, ..options };
        let text = crate::profile(&config, &infer).unwrap().to_string();
        assert!(text.contains("inference pass") && !text.contains("optimizer"), "{text}");
    }
}
