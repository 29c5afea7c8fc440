//! No cycle among the modules of one crate.

use super::files::Files;
use super::uses::{Graph, graph};
use super::violation::Violation;
use crate::workspace::Workspace;
use std::collections::{BTreeMap, BTreeSet};

/// Cycles that stay: the crate, the first module, and the reason.
const KNOWN: [(&str, &str, &str); 2] = [
    (
        "towers-augment",
        "compose",
        "a list of random steps is an option of a generator, which can be such a step",
    ),
    ("towers-program", "ops", "a rule makes the steps of its gradient, and steps hold ops, which have rules"),
];

/// No module reaches itself by the modules that it uses, but for the known cycles.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        for cycle in cycles(&graph(&krate.root, files)) {
            if KNOWN.iter().any(|(name, first, _)| {
                *name == krate.name && cycle[0].split_once("::").is_some_and(|(_, path)| path == *first)
            }) {
                continue;
            }
            let what = format!(
                "{} use each other; `cargo xtask tidy --cycles` shows how; move what they share to a module below",
                cycle.join(", ")
            );
            violations.push(Violation::new(&krate.root, 1, what));
        }
    }
    violations
}

/// All cycles, with the uses that make them.
pub fn report(workspace: &Workspace, files: &Files) -> String {
    let mut text = String::new();
    for krate in &workspace.crates {
        let graph = graph(&krate.root, files);
        for cycle in cycles(&graph) {
            text += &format!("{}: {}\n", krate.name, cycle.join(", "));
            for module in &cycle {
                let inside: Vec<&str> =
                    cycle.iter().filter(|m| graph[module].contains(*m)).map(|m| &**m).collect();
                text += &format!("    {module} uses {}\n", inside.join(", "));
            }
        }
    }
    text
}

/// The sets of modules each of which reaches all others of the set.
fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reached = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = graph[start].iter().collect();
        while let Some(module) = open.pop() {
            if seen.insert(module) {
                open.extend(&graph[module]);
            }
        }
        seen
    };
    let all: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|module| (module, reached(module))).collect();
    let cycle = |module: &String| -> Vec<String> {
        all[module]
            .iter()
            .filter(|other| all[**other].contains(module))
            .map(|other| (*other).clone())
            .collect()
    };
    let cycles: BTreeSet<Vec<String>> = graph.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect();
    cycles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    #[test]
    fn cycles_are_sets_of_modules_that_reach_each_other() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f")];
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
            graph.entry(to.to_owned()).or_default();
        }
        assert_eq!(cycles(&graph), [vec!["a", "b", "c"], vec!["d", "e"]]);
    }

    #[test]
    fn modules_that_use_each_other_are_found() {
        let files = Files::fake(&[
            ("crates/new/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/new/src/a.rs", "use crate::b::B;\n"),
            ("crates/new/src/b.rs", "use crate::a::A;\n"),
        ]);
        let found = check(&fake(&[("new", &[]), ("other", &[])]), &files);
        let found: Vec<String> = found.iter().map(Violation::to_string).collect();
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/new/src/lib.rs:1: crate::a, crate::b use each other;"),
            "{found:?}"
        );
    }
}
