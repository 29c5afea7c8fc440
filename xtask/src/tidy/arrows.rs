//! Which crate may depend on which: the arrows of `docs/architecture.md`.
//!
//! The table lists the allowed arrows, so a new one is a decision made here and explained there. It speaks
//! of normal and build dependencies: a test may use what it likes.

use super::Violation;
use super::files::Files;
use crate::workspace::{Crate, Kind, Workspace};

/// What a crate may depend on, among ours.
enum Allowed {
    /// These crates.
    Only(&'static [&'static str]),
    /// Every crate: a test crate, on which in turn no crate may depend.
    All,
}
use Allowed::{All, Only};

/// A row for each crate of the workspace.
const ARROWS: &[(&str, Allowed)] = &[
    ("philox", Only(&[])),
    ("cifar", Only(&["philox"])),
    ("augment", Only(&["philox"])),
    ("checkpoint", Only(&[])),
    ("program", Only(&["philox"])),
    ("tensor-cpu", Only(&["program", "philox"])),
    ("tensor-cuda", Only(&["program"])),
    ("layers", Only(&["program", "philox"])),
    ("interchange", Only(&["checkpoint", "layers", "program"])),
    ("optim", Only(&["program"])),
    ("models", Only(&["layers", "program"])),
    ("parallel", Only(&["layers", "program", "tensor-cpu", "tensor-cuda"])),
    ("plot", Only(&[])),
    (
        "trained",
        Only(&["augment", "checkpoint", "cifar", "interchange", "layers", "models", "optim", "program"]),
    ),
    (
        "train",
        Only(&[
            "augment",
            "checkpoint",
            "cifar",
            "interchange",
            "layers",
            "models",
            "optim",
            "parallel",
            "philox",
            "plot",
            "program",
            "tensor-cpu",
            "tensor-cuda",
            "trained",
        ]),
    ),
    (
        "bench",
        Only(&["layers", "models", "optim", "parallel", "program", "tensor-cpu", "tensor-cuda", "train"]),
    ),
    ("report", Only(&["checkpoint", "cifar", "plot", "train", "trained"])),
    ("towers", Only(&["bench", "report", "train", "trained"])),
    ("xtask", Only(&[])),
    ("towers-kernels", Only(&["tensor-cuda"])),
    ("towers-scaling", Only(&[])),
    ("conformance", All),
    ("testkit", All),
    ("towers-tests", All),
];

const MEND: &str = "depend on a crate below this one, or change xtask/src/tidy/arrows.rs and explain the arrow \
                    in docs/architecture.md";

/// Every arrow between two crates of the workspace is in the table, and the table is about this workspace.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = compare(ARROWS, workspace, files);
    violations.extend(ARROWS.iter().filter(|(name, _)| workspace.find(name).is_none()).map(|(name, _)| {
        let what = format!("the table of arrows has a row for `{name}`, which is no crate of the workspace");
        Violation::new("xtask/src/tidy/arrows.rs", 1, what, "remove the row")
    }));
    violations
}

fn compare(table: &[(&str, Allowed)], workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let row = |name: &str| table.iter().find(|(row, _)| *row == name).map(|(_, allowed)| allowed);
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        let Some(allowed) = row(&krate.name) else {
            let what = format!("crate `{}` has no row in the table of arrows", krate.name);
            let mend = "add it to xtask/src/tidy/arrows.rs and to docs/architecture.md";
            violations.push(Violation::new(&krate.manifest, 1, what, mend));
            continue;
        };
        let arrows =
            krate.dependencies.iter().filter(|d| d.kind != Kind::Dev && workspace.find(&d.name).is_some());
        for target in arrows.map(|dependency| dependency.name.as_str()) {
            if matches!(allowed, All) || matches!(allowed, Only(targets) if targets.contains(&target)) {
                continue;
            }
            let what = format!("the arrow {} -> {target} is not allowed", krate.name);
            let mend = match row(target) {
                Some(All) => "make it a dev-dependency: it is for tests alone",
                _ => MEND,
            };
            violations.push(Violation::new(&krate.manifest, line(krate, target, files), what, mend));
        }
    }
    violations
}

/// The line of the manifest that names the dependency; the first where it can't be seen.
fn line(krate: &Crate, dependency: &str, files: &Files) -> usize {
    let manifest = files.text(&krate.manifest).unwrap_or_default();
    let names_it = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.trim_start().starts_with(['.', '=']))
    };
    manifest.lines().position(names_it).map_or(1, |k| k + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    const TABLE: &[(&str, Allowed)] = &[("low", Only(&[])), ("high", Only(&["low"])), ("kit", All)];

    fn violations(workspace: &Workspace) -> Vec<String> {
        let manifest = "[dependencies]\nlow.workspace = true\nhigh = { path = \"x\" }\n";
        let files = Files::fake(&[("crates/low/Cargo.toml", manifest)]);
        compare(TABLE, workspace, &files).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn allowed_arrows_and_dev_dependencies_pass() {
        let workspace = fake::workspace(&[
            ("low", &["serde"], &["high", "kit"]),
            ("high", &["low"], &[]),
            ("kit", &["high"], &[]),
        ]);
        assert_eq!(violations(&workspace), [""; 0]);
    }

    #[test]
    fn an_arrow_upwards_is_named_with_its_line() {
        let workspace = fake::workspace(&[("low", &["high"], &[]), ("high", &[], &[])]);
        let found = violations(&workspace);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/low/Cargo.toml:3: the arrow low -> high is not allowed - "));
        assert!(found[0].contains("docs/architecture.md"));
    }

    #[test]
    fn only_tests_depend_on_test_crates() {
        let found = violations(&fake::workspace(&[("high", &["kit"], &[]), ("kit", &[], &[])]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("dev-dependency"), "{}", found[0]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let found = violations(&fake::workspace(&[("new", &[], &[])]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("no row"), "{}", found[0]);
    }

    #[test]
    fn a_row_without_a_crate_is_found() {
        let found = check(&fake::workspace(&[]), &Files::fake(&[]));
        assert_eq!(found.len(), ARROWS.len());
    }

    /// Walking the table along any arrows comes to an end: a row can't close a circle unseen.
    #[test]
    fn the_table_has_no_circle() {
        fn depth(name: &str, steps: usize) -> usize {
            assert!(steps <= ARROWS.len(), "a circle through {name}");
            match ARROWS.iter().find(|(row, _)| *row == name) {
                Some((_, Only(targets))) => {
                    targets.iter().map(|target| 1 + depth(target, steps + 1)).max().unwrap_or(0)
                }
                _ => 0,
            }
        }
        let deepest = ARROWS.iter().map(|(name, _)| depth(name, 0)).max();
        assert!(deepest >= Some(5));
    }
}
