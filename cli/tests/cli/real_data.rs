//! Real CIFAR-10, where `TOWERS_DATA_DIR` names it.

use super::Place;

#[test]
fn quick_learns_something_of_real_cifar10() {
    let Some(dir) = std::env::var_os("TOWERS_DATA_DIR") else {
        println!("SKIPPED: real CIFAR-10: set TOWERS_DATA_DIR to the folder with its batch files");
        return;
    };
    let place = Place::new();
    let args = "train --recipe quick --offline --limit-train 10000 --limit-test 2000 --epochs 2 --output run";
    let output = place.command(args).env("TOWERS_DATA_DIR", &dir).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let csv = place.read("run/history.csv");
    let acc = csv.lines().last().and_then(|row| row.split(',').nth(4)?.parse::<f64>().ok()).unwrap();
    assert!(acc > 0.35, "two epochs on 10,000 images give an accuracy of {acc}; chance is 0.1");
}
