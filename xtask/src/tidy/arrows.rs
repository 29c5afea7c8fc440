//! Which crate may depend on which: the arrows of `docs/architecture.md`.
//!
//! The table lists the allowed arrows, so a new one is a decision made here and explained there. It is about
//! normal and build dependencies: tests may use any crate.

use super::violation::Violation;
use crate::workspace::Workspace;

/// What a crate may depend on, among ours.
enum Allowed {
    /// These crates.
    Only(&'static [&'static str]),
    /// Every crate: a test crate, on which no crate may depend.
    All,
}
use Allowed::{All, Only};

/// A row for each crate of the workspace.
const ARROWS: &[(&str, Allowed)] = &[
    ("towers-philox", Only(&[])),
    ("towers-dataset", Only(&[])),
    ("towers-cifar", Only(&["towers-dataset", "towers-files", "towers-philox"])),
    ("towers-pictures", Only(&["towers-dataset", "towers-files"])),
    ("towers-augment", Only(&["towers-philox"])),
    ("towers-files", Only(&[])),
    ("towers-checkpoint", Only(&["towers-files"])),
    ("towers-optim", Only(&[])),
    ("towers-program", Only(&["towers-optim", "towers-philox"])),
    ("towers-tensor-cpu", Only(&["towers-optim", "towers-program", "towers-philox"])),
    ("towers-tensor-cuda", Only(&["towers-optim", "towers-program"])),
    ("towers-conformance", Only(&["towers-optim", "towers-program", "towers-philox", "towers-tensor-cpu"])),
    ("towers-layers", Only(&["towers-program", "towers-philox"])),
    (
        "towers-interchange",
        Only(&[
            "towers-checkpoint",
            "towers-files",
            "towers-layers",
            "towers-models",
            "towers-optim",
            "towers-program",
        ]),
    ),
    ("towers-models", Only(&["towers-layers", "towers-program"])),
    (
        "towers-parallel",
        Only(&["towers-layers", "towers-program", "towers-rendezvous", "towers-tensor-cuda"]),
    ),
    ("towers-rendezvous", Only(&[])),
    ("towers-launch", Only(&["towers-rendezvous"])),
    ("towers-mpi", Only(&["towers-parallel", "towers-program", "towers-rendezvous", "towers-tensor-cpu"])),
    ("towers-options", Only(&[])),
    ("towers-plot", Only(&[])),
    ("towers-metrics", Only(&[])),
    (
        "towers-callbacks",
        Only(&["towers-checkpoint", "towers-files", "towers-metrics", "towers-options", "towers-plot"]),
    ),
    (
        "towers-trained",
        Only(&[
            "towers-augment",
            "towers-checkpoint",
            "towers-cifar",
            "towers-dataset",
            "towers-files",
            "towers-interchange",
            "towers-layers",
            "towers-metrics",
            "towers-models",
            "towers-optim",
            "towers-options",
            "towers-program",
        ]),
    ),
    (
        "towers-config",
        Only(&[
            "towers-augment",
            "towers-callbacks",
            "towers-checkpoint",
            "towers-cifar",
            "towers-dataset",
            "towers-files",
            "towers-interchange",
            "towers-layers",
            "towers-models",
            "towers-optim",
            "towers-options",
            "towers-parallel",
            "towers-pictures",
            "towers-program",
            "towers-rendezvous",
            "towers-trained",
        ]),
    ),
    (
        "towers-diagnose",
        Only(&[
            "towers-conformance",
            "towers-layers",
            "towers-models",
            "towers-optim",
            "towers-options",
            "towers-parallel",
            "towers-program",
            "towers-tensor-cpu",
            "towers-tensor-cuda",
        ]),
    ),
    (
        "towers-train",
        Only(&[
            "towers-augment",
            "towers-callbacks",
            "towers-checkpoint",
            "towers-cifar",
            "towers-config",
            "towers-dataset",
            "towers-diagnose",
            "towers-files",
            "towers-layers",
            "towers-metrics",
            "towers-models",
            "towers-mpi",
            "towers-optim",
            "towers-options",
            "towers-parallel",
            "towers-philox",
            "towers-program",
            "towers-rendezvous",
            "towers-tensor-cpu",
            "towers-tensor-cuda",
            "towers-trained",
        ]),
    ),
    (
        "towers-bench",
        Only(&[
            "towers-callbacks",
            "towers-config",
            "towers-dataset",
            "towers-layers",
            "towers-models",
            "towers-optim",
            "towers-parallel",
            "towers-plot",
            "towers-program",
            "towers-tensor-cpu",
            "towers-tensor-cuda",
            "towers-train",
        ]),
    ),
    (
        "towers-report",
        Only(&[
            "towers-callbacks",
            "towers-config",
            "towers-dataset",
            "towers-files",
            "towers-metrics",
            "towers-plot",
            "towers-trained",
        ]),
    ),
    ("towers-live", Only(&["towers-callbacks", "towers-metrics", "towers-plot", "towers-report"])),
    (
        "towers-runs",
        Only(&["towers-callbacks", "towers-config", "towers-files", "towers-options", "towers-trained"]),
    ),
    (
        "towers",
        Only(&[
            "towers-augment",
            "towers-bench",
            "towers-callbacks",
            "towers-config",
            "towers-dataset",
            "towers-diagnose",
            "towers-files",
            "towers-options",
            "towers-pictures",
            "towers-plot",
            "towers-launch",
            "towers-live",
            "towers-report",
            "towers-runs",
            "towers-train",
            "towers-trained",
        ]),
    ),
    ("xtask", Only(&[])),
    ("towers-kernels", Only(&["towers-tensor-cuda"])),
    ("towers-scaling", Only(&[])),
    ("towers-testkit", All),
    ("towers-tests", All),
];

/// Every arrow between two crates of the workspace is in the table, and the table is about this workspace.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = compare(ARROWS, workspace);
    violations.extend(ARROWS.iter().filter(|(name, _)| !workspace.has(name)).map(|(name, _)| {
        let what = format!("the table has a row for `{name}`, which is no crate of the workspace; remove it");
        Violation::new("xtask/src/tidy/arrows.rs", 1, what)
    }));
    violations
}

fn compare(table: &[(&str, Allowed)], workspace: &Workspace) -> Vec<Violation> {
    let row = |name: &str| table.iter().find(|(row, _)| *row == name).map(|(_, allowed)| allowed);
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        let mut broken = |what: String| violations.push(Violation::new(&krate.manifest, 1, what));
        let Some(allowed) = row(&krate.name) else {
            broken(format!(
                "`{}` has no row in xtask/src/tidy/arrows.rs and docs/architecture.md",
                krate.name
            ));
            continue;
        };
        for target in krate.dependencies.iter().filter(|name| workspace.has(name)) {
            if matches!(allowed, All)
                || matches!(allowed, Only(targets) if targets.contains(&target.as_str()))
            {
                continue;
            }
            let mend = match row(target) {
                Some(All) => "make it a dev-dependency: it is for tests alone",
                _ => {
                    "use a crate below this one, or change xtask/src/tidy/arrows.rs and docs/architecture.md"
                }
            };
            broken(format!("the arrow {} -> {target} is not allowed; {mend}", krate.name));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    const TABLE: &[(&str, Allowed)] = &[("low", Only(&[])), ("high", Only(&["low"])), ("kit", All)];

    #[test]
    fn arrows_that_the_table_lacks_are_found() {
        for (crates, expected) in [
            (&[("low", &["serde"][..]), ("high", &["low"]), ("kit", &["high"])][..], None),
            (&[("low", &["high"]), ("high", &[])], Some("low -> high is not allowed")),
            (&[("high", &["kit"]), ("kit", &[])], Some("dev-dependency")),
            (&[("new", &[])], Some("no row")),
        ] {
            let found: Vec<String> = compare(TABLE, &fake(crates)).iter().map(Violation::to_string).collect();
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(expected.is_none_or(|what| found[0].contains(what)), "{found:?}");
        }
        assert_eq!(check(&fake(&[])).len(), ARROWS.len(), "rows without a crate");
    }

    /// Walking the table along any arrows comes to an end: a row can't close a cycle unseen.
    #[test]
    fn the_table_has_no_cycle() {
        fn walk(name: &str, steps: usize) {
            assert!(steps <= ARROWS.len(), "a cycle through {name}");
            if let Some((_, Only(targets))) = ARROWS.iter().find(|(row, _)| *row == name) {
                targets.iter().for_each(|target| walk(target, steps + 1));
            }
        }
        ARROWS.iter().for_each(|(name, _)| walk(name, 0));
    }
}
