//! Projects that are not ours use one crate each: they build, they run, and they have few dependencies. Their programs are
//! examples of the crates, or in `tests/outside`.

use std::path::Path;
use std::process::{Command, Output};

struct Project {
    /// The crates that it depends on, without their default features.
    crates: &'static [&'static str],
    /// Its features, which turn on features of the crates.
    features: &'static str,
    program: &'static str,
    prints: &'static [&'static str],
    /// The number of packages that it is built from, without itself. A larger number is a decision.
    packages: usize,
    /// The same with its features.
    with_features: usize,
}

const PROJECTS: [Project; 13] = [
    Project {
        crates: &["optim"],
        features: "",
        program: include_str!("../../crates/optim/examples/straight_line.rs"),
        prints: &["2.00 x + 1.00"],
        packages: 7,
        with_features: 7,
    },
    Project {
        crates: &["augment"],
        features: "",
        program: include_str!("../../crates/augment/examples/batches.rs"),
        prints: &["100 images"],
        packages: 15,
        with_features: 15,
    },
    Project {
        crates: &["cifar"],
        features: "download = [\"towers-cifar/download\"]",
        program: include_str!("../../crates/cifar/examples/synthetic_set.rs"),
        prints: &["100 images of [32, 32, 3]", "no usable CIFAR-10 was found", "its feature `download`"],
        packages: 40,
        with_features: 117,
    },
    Project {
        crates: &["pictures"],
        features: "",
        program: include_str!("../../crates/pictures/examples/class_folders.rs"),
        prints: &[
            "(2, 8, 8, 3) of [0, 1], streamed: false",
            "(2, 8, 8, 3) of [0, 1], streamed: true",
            "the first pixel is [255, 0, 0]",
        ],
        packages: 43,
        with_features: 43,
    },
    Project {
        crates: &["cifar", "augment"],
        features: "",
        program: include_str!("../outside/cifar-augment.rs"),
        prints: &["batches of [32, 32, 32, 4]"],
        packages: 41,
        with_features: 41,
    },
    Project {
        crates: &["metrics"],
        features: "",
        program: include_str!("../../crates/metrics/examples/two_workers.rs"),
        prints: &["f1 0.778", "top2_acc 1.000"],
        packages: 10,
        with_features: 10,
    },
    Project {
        crates: &["files"],
        features: "",
        program: include_str!("../../crates/files/examples/status_file.rs"),
        prints: &["{\"epoch\": 3}", "can't read "],
        packages: 1,
        with_features: 1,
    },
    Project {
        crates: &["checkpoint"],
        features: "",
        program: include_str!("../../crates/checkpoint/examples/save_and_resume.rs"),
        prints: &["epoch-0003: after three epochs"],
        packages: 41,
        with_features: 41,
    },
    Project {
        crates: &["interchange", "layers", "models", "tensor-cpu"],
        features: "default = [\"towers-interchange/onnx\"]\nkeras = [\"towers-interchange/keras\"]",
        program: include_str!("../../crates/interchange/examples/onnx_file.rs"),
        prints: &["small_cnn tells [\"cat\", \"dog\"] apart"],
        packages: 56,
        with_features: 80,
    },
    Project {
        crates: &["rendezvous"],
        features: "",
        program: include_str!("../../crates/rendezvous/examples/two_processes.rs"),
        prints: &["rank 0 of 2 may begin", "rank 1 (127.0.0.1) has ended unexpectedly (last step 0)"],
        packages: 28,
        with_features: 28,
    },
    Project {
        crates: &["launch"],
        features: "",
        program: include_str!("../../crates/launch/examples/two_ranks.rs"),
        prints: &["rank 0 of 2, restart 1"],
        packages: 34,
        with_features: 34,
    },
    Project {
        crates: &["parallel", "tensor-cpu"],
        features: "cuda = [\"towers-parallel/cuda\"]",
        program: include_str!("../../crates/parallel/examples/own_model.rs"),
        prints: &["2.00 x + 1.00, 2.00 x + 1.00, 2.00 x + 1.00"],
        packages: 15,
        with_features: 51,
    },
    Project {
        crates: &["tensor-cpu", "trained"],
        features: "all = [\"towers-trained/keras\", \"towers-trained/onnx\"]",
        program: include_str!("../outside/trained.rs"),
        prints: &["no/such/run", "needs the feature `keras`"],
        packages: 70,
        with_features: 89,
    },
];

/// Programs that train networks of other frameworks. Their first lines name the dependencies of these.
const FRAMEWORKS: [(&str, &str); 2] =
    [("candle", include_str!("../outside/candle.rs")), ("burn", include_str!("../outside/burn.rs"))];

#[test]
fn projects_that_are_not_ours_stand_on_few_crates() {
    let place = tempfile::tempdir().unwrap();
    let builds = std::env::var_os("TOWERS_ALONE").is_some();
    if !builds {
        println!("SKIPPED: the outside projects' builds: `cargo xtask test alone` builds and runs them");
    }
    for project in &PROJECTS {
        let name = project.crates.join("-");
        assert!(project.program.lines().count() <= 25, "{name} is longer than a reader wants");
        let folder = place.path().join(&name);
        let features = format!("[features]\n{}\n", project.features);
        write(&folder, project.crates, &features, project.program);
        if builds {
            let ran = cargo(&folder, &["run", "--quiet", "--offline"]);
            let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            let missing = project.prints.iter().find(|text| !out.contains(**text));
            assert!(missing.is_none(), "{name} does not print {missing:?}: {out}{err}");
        }
        let (least, most) = (packages(&folder, &[]), packages(&folder, &["--all-features"]));
        assert!(least <= project.packages, "{name} brings {least} packages with it");
        assert!(most <= project.with_features, "with its features {name} brings {most} packages with it");
    }
}

/// A guess is right for a tenth of the images. Networks reach an accuracy from 0.79 up.
#[test]
#[ignore = "compiles other frameworks: `cargo xtask test frameworks` builds and runs their programs"]
fn other_frameworks_train_on_our_batches() {
    // A place that stays: their build takes minutes.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("frameworks");
    for (name, program) in FRAMEWORKS {
        assert!(program.lines().count() <= 60, "{name} is longer than a reader wants");
        let head = program.lines().filter_map(|line| line.strip_prefix("//! "));
        let mut toml: String =
            head.filter(|line| line.contains(" = ")).map(|line| format!("{line}\n")).collect();
        toml += "[profile.dev]\nopt-level = 1\ndebug = false\n";
        write(&place.join(name), &["augment", "cifar", "optim"], &toml, program);
        let ran = cargo(&place.join(name), &["run", "--quiet"]);
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        if ["failed to download", "offline mode"].iter().any(|words| err.contains(words)) {
            let why = err.lines().last().unwrap_or_default().trim();
            println!("SKIPPED: training with {name}: no registry can be reached: {why}");
            continue;
        }
        let accuracy = out.split_whitespace().last().and_then(|number| number.parse::<f32>().ok());
        assert!(accuracy.is_some_and(|accuracy| accuracy > 0.5), "{name} does not learn: {out}{err}");
    }
}

/// Writes a project that depends on these crates, without their default features. Its manifest ends with `toml`.
fn write(folder: &Path, crates: &[&str], toml: &str, program: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let dependencies = crates.iter().map(|name| {
        let path = root.join("crates").join(name);
        format!("towers-{name} = {{ path = {path:?}, default-features = false }}\n")
    });
    let dependencies: String = dependencies.collect();
    let package = "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::create_dir_all(folder.join("src")).unwrap();
    std::fs::write(folder.join("Cargo.toml"), format!("{package}[dependencies]\n{dependencies}{toml}"))
        .unwrap();
    std::fs::write(folder.join("src/main.rs"), program).unwrap();
    // The versions that are already on this machine.
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
}

/// The number of packages that a project is built from, without itself.
fn packages(project: &Path, features: &[&str]) -> usize {
    let tree = ["tree", "--offline", "--edges", "normal", "--prefix", "none"];
    let tree = cargo(project, &[&tree, features].concat());
    let text = String::from_utf8_lossy(&tree.stdout).replace(" (*)", "");
    let lines: std::collections::BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() > 1, "{}", String::from_utf8_lossy(&tree.stderr));
    lines.len() - 1
}

fn cargo(project: &Path, arguments: &[&str]) -> Output {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    // Not the workspace's target folder, whose settings differ.
    let target = project.parent().expect("a project lies in a folder").join("target");
    command.args(arguments).current_dir(project).env("CARGO_TARGET_DIR", target);
    command.output().unwrap()
}
