//! The layers that take most of a training step, with their part of what the processor can do:
//! `cargo run --release -p towers-bench --example slowest_layers`

use towers_bench::{BenchOptions, profile};

#[cfg_attr(test, test)]
fn main() -> towers_bench::Result<()> {
    let mut config = towers_config::recipe("quick")?;
    config.placement.devices.threads = 1;
    // A test does not measure.
    let seconds = if cfg!(test) { 0.0 } else { 3.0 };
    let options = BenchOptions { batch: Some(8), seconds, ..BenchOptions::default() };
    let profile = profile(&config, &options)?;

    let mut layers = profile.layers;
    layers.sort_by(|a, b| b.share.total_cmp(&a.share));
    let peak = profile.roof.map_or(f64::INFINITY, |roof| roof.gflops);
    println!("{:.2} ms a step of {} images", profile.step_ms, profile.setup.batch);
    for layer in &layers[..3] {
        let (share, forward) = (100.0 * layer.share, 100.0 * layer.forward_gflops / peak);
        println!(
            "{:<24} {share:>3.0}% of the time, {forward:.0}% of the peak in the forward pass",
            layer.name
        );
    }
    assert!(layers[0].share > layers[2].share && layers.iter().any(|layer| layer.forward_gflops > 0.0));
    Ok(())
}
