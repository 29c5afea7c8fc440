//! No circle between the modules of one crate.

use super::files::Files;
use super::uses::{Graph, graph};
use super::violation::Violation;
use crate::workspace::Workspace;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The crates that have circles today, and how many modules are in them. The numbers may only fall.
const KNOWN: &[(&str, usize)] = &[("towers-tensor-cuda", 38)];

/// Every crate has as many modules in circles as the list says; none if it is not in the list.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        let count: usize = circles(&graph(&krate.root, files)).iter().map(Vec::len).sum();
        let known = KNOWN.iter().find(|(name, _)| *name == krate.name).map_or(0, |(_, count)| *count);
        let mend = match count.cmp(&known) {
            Ordering::Equal => continue,
            Ordering::Greater => {
                "`cargo xtask tidy --circles` shows which; move what both need to a module below"
            }
            Ordering::Less => "very good: write the new number to xtask/src/tidy/circles.rs",
        };
        let what = format!("{count} modules are in circles, not {known}; {mend}");
        violations.push(Violation::new(&krate.root, 1, what));
    }
    violations
}

/// All circles, with the uses that make them.
pub fn report(workspace: &Workspace, files: &Files) -> String {
    let mut text = String::new();
    for krate in &workspace.crates {
        let graph = graph(&krate.root, files);
        for circle in circles(&graph) {
            text += &format!("{}: {}\n", krate.name, circle.join(", "));
            for module in &circle {
                let inside: Vec<&str> =
                    circle.iter().filter(|m| graph[module].contains(*m)).map(|m| &**m).collect();
                text += &format!("    {module} uses {}\n", inside.join(", "));
            }
        }
    }
    text
}

/// The sets of modules each of which reaches all others of the set.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
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
    let circle = |module: &String| -> Vec<String> {
        all[module]
            .iter()
            .filter(|other| all[**other].contains(module))
            .map(|other| (*other).clone())
            .collect()
    };
    let circles: BTreeSet<Vec<String>> = graph.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    #[test]
    fn circles_are_sets_of_modules_that_reach_each_other() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f")];
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
            graph.entry(to.to_owned()).or_default();
        }
        assert_eq!(circles(&graph), [vec!["a", "b", "c"], vec!["d", "e"]]);
    }

    #[test]
    fn more_and_fewer_modules_than_listed_are_found() {
        let files = Files::fake(&[
            ("crates/new/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/new/src/a.rs", "use crate::b::B;\n"),
            ("crates/new/src/b.rs", "use crate::a::A;\n"),
        ]);
        let found = check(&fake(&[("new", &[]), (KNOWN[0].0, &[])]), &files);
        let found: Vec<String> = found.iter().map(Violation::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(
            found[0].starts_with("crates/new/src/lib.rs:1: 2 modules are in circles, not 0"),
            "{found:?}"
        );
        assert!(found[1].contains("write the new number"), "{found:?}");
    }
}
