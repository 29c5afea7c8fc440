//! A separate project uses only `cifar` and `augment`: it builds, it runs, and it has few dependencies.

use std::path::Path;
use std::process::{Command, Output};

/// The program of the page on the crates.
const MAIN: &str = r#"
use augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = cifar::synthetic(1, 100, 10).train;
    let samples = Samples::new(data.images, data.labels.to_vec())?;
    let pipeline = ImageDataGenerator::new().rotation_range(15.0).horizontal_flip(true).build(samples.shape())?;
    let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(32).workers(2))?;
    let mut images = 0;
    for batch in loader.epoch(0, 0)? {
        images += batch?.len();
    }
    println!("{images} images");
    if let Err(error) = cifar::Cifar::new(cifar::Kind::Cifar10).data_dir("none").also_look_in(["none"]).load() {
        println!("{error}");
    }
    Ok(())
}
"#;

/// `download` is off by default here, so that the program is built and run without it.
const FEATURES: &str = "[features]\ndownload = [\"cifar/download\"]\n";

/// The number of packages, including `cifar`, `augment` and their dependencies. A larger number is a
/// decision.
const MOST: usize = 131;

/// The same without `cifar`'s HTTP client.
const MOST_WITHOUT_DOWNLOAD: usize = 54;

/// Only those of `augment`.
const MOST_OF_AUGMENT: usize = 25;

#[test]
fn a_project_that_is_not_ours_stands_on_few_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let place = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(place.path().join(file), text).unwrap();
    let dependency = |name: &str| {
        let path = root.join("crates").join(name);
        format!("{name} = {{ package = \"towers-{name}\", path = {path:?}, default-features = false }}\n")
    };
    std::fs::create_dir(place.path().join("src")).unwrap();
    write("src/main.rs", MAIN);
    let package = "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    write(
        "Cargo.toml",
        &format!("{package}{FEATURES}[dependencies]\n{}{}", dependency("cifar"), dependency("augment")),
    );
    // The versions that are already on this machine.
    std::fs::copy(root.join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();

    if std::env::var_os("TOWERS_ALONE").is_some() {
        let ran = cargo(place.path(), &["run", "--quiet", "--offline"]);
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(out.starts_with("100 images\nno usable CIFAR-10 was found"), "{out}{err}");
        assert!(out.contains("its feature `download`"), "{out}");
    } else {
        println!("SKIPPED: the outside project's build: `cargo xtask test alone` builds and runs it");
    }
    let all = packages(place.path(), "outside", &["--features", "download"]);
    assert!(all <= MOST + 1, "the project brings {all} packages with it, itself counted");
    let without = packages(place.path(), "outside", &[]);
    assert!(without <= MOST_WITHOUT_DOWNLOAD + 1, "without a client it brings {without} packages with it");
    let of_augment = packages(place.path(), "towers-augment", &[]);
    assert!(of_augment <= MOST_OF_AUGMENT, "augment brings {of_augment} packages with it, itself counted");
}

/// The number of packages that one is built from.
fn packages(project: &Path, of: &str, features: &[&str]) -> usize {
    let tree = ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--package", of];
    let tree = cargo(project, &[&tree, features].concat());
    let text = String::from_utf8_lossy(&tree.stdout).replace(" (*)", "");
    let lines: std::collections::BTreeSet<&str> = text.lines().collect();
    assert!(lines.len() > 1, "{}", String::from_utf8_lossy(&tree.stderr));
    lines.len()
}

fn cargo(project: &Path, arguments: &[&str]) -> Output {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    // Not the workspace's target folder, whose settings differ.
    command.args(arguments).current_dir(project).env("CARGO_TARGET_DIR", project.join("target"));
    command.output().unwrap()
}
