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

    /// Walking the table along any arrows comes to an end: a row can't close a circle unseen.
    #[test]
    fn the_table_has_no_circle() {
        fn walk(name: &str, steps: usize) {
            assert!(steps <= ARROWS.len(), "a circle through {name}");
            if let Some((_, Only(targets))) = ARROWS.iter().find(|(row, _)| *row == name) {
                targets.iter().for_each(|target| walk(target, steps + 1));
            }
        }
        ARROWS.iter().for_each(|(name, _)| walk(name, 0));
    }
}
