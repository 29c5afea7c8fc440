//! Two short runs with different learning rates, and the page that compares them:
//! `cargo run --release -p towers-report --example two_runs -- report.html`

use std::path::Path;
use towers_callbacks::Run;
use towers_report::{RunReport, save_report};
use towers_trained::Classifier;

/// Trains in `run`, and reads what a page needs of it.
fn train(run: &Path, lr: f64) -> Result<RunReport, Box<dyn std::error::Error>> {
    let mut config = towers_config::recipe("quick")?;
    (config.training.lr, config.training.epochs, config.placement.devices.threads) = (lr, 1, 1);
    towers_config::save_config(&config, run)?;
    let data = towers_cifar::synthetic(1, 100, 50);
    let mut observers = towers_callbacks::from_config(&config.outputs, &Run::new(run, "small_cnn"))?;
    towers_train::Training::new(&config, data.clone()).observers(&mut observers).run()?;

    let mut about = RunReport::read(run, format!("learning rate {lr}"))?;
    let mut classifier = Classifier::load(run, &towers_tensor_cpu::device(1), 50)?;
    about.test(&mut classifier, &data, None)?;
    Ok(about)
}

fn write(page: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let runs = tempfile::tempdir()?;
    let [a, b] = ["a", "b"].map(|name| runs.path().join(name));
    Ok(save_report(page, &[train(&a, 0.01)?, train(&b, 0.001)?])?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page = std::env::args().nth(1).unwrap_or_else(|| "report.html".into());
    write(page.as_ref())
}

#[test]
fn a_page_compares_both_runs() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).unwrap();
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    for text in ["learning rate 0.01", "learning rate 0.001", "Confusion matrix", "<svg", "Grad-CAM"] {
        assert!(page.contains(text), "{text}");
    }
}
