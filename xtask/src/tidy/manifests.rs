//! What each crate must bring along: a full manifest, documentation, and a promise about `unsafe`.

use super::Violation;
use super::files::Files;
use crate::workspace::{Crate, Kind, Workspace};

/// The crates that may contain `unsafe`: the tensor backends, for SIMD, threads and the driver's libraries.
const UNSAFE: &[&str] = &["tensor-cpu", "tensor-cuda"];
const FORBID: &str = "#![forbid(unsafe_code)]";

/// The files that a reader of the repository counts on.
const REQUIRED: &[&str] = &[
    ".ci/run",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "docs/architecture.md",
    "docs/benchmarks.md",
    "docs/keras-mapping.md",
    "docs/quickstart.md",
];

/// Checks every crate, and that the repository has its required pages.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        violations.extend(documentation(krate, files));
        violations.extend(promise(krate, files));
        if krate.published {
            violations.extend(publishing(krate, workspace));
        }
    }
    let missing = REQUIRED.iter().filter(|path| !files.has(path));
    violations.extend(missing.map(|path| Violation::new(path, 1, "the file is missing", "write it")));
    violations
}

/// A crate says in its own words what it is: in its README or at the head of its root.
fn documentation(krate: &Crate, files: &Files) -> Vec<Violation> {
    let documented = |root: &&String| {
        let text = files.text(root).unwrap_or_default();
        text.starts_with("//!") || text.contains("#![doc = include_str!")
    };
    let mut violations = Vec::new();
    if let Some(readme) = krate.readme.as_ref().filter(|readme| !files.has(readme)) {
        let what = format!("the README that the manifest names, {readme}, is missing");
        violations.push(Violation::new(&krate.manifest, 1, what, "write it, or remove the key `readme`"));
    }
    violations.extend(krate.roots.iter().filter(|root| !documented(root)).map(|root| {
        Violation::new(
            root,
            1,
            "the crate has no documentation",
            "begin the file with `//!` lines that say what it is",
        )
    }));
    violations
}

/// Crates without need of `unsafe` forbid it, so that no attribute deeper down can allow it again.
fn promise(krate: &Crate, files: &Files) -> Vec<Violation> {
    if UNSAFE.contains(&krate.name.as_str()) {
        return Vec::new();
    }
    let silent =
        |root: &&String| !files.text(root).unwrap_or_default().lines().any(|line| line.trim() == FORBID);
    let violation = |root: &String| {
        let what = "the crate does not forbid `unsafe`";
        Violation::new(root, 1, what, format!("add `{FORBID}` below its documentation"))
    };
    krate.roots.iter().filter(silent).map(violation).collect()
}

/// What the registry asks of a published crate.
fn publishing(krate: &Crate, workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    let keys =
        [("description", &krate.description), ("license", &krate.license), ("repository", &krate.repository)];
    for (key, _) in keys.iter().filter(|(_, value)| value.trim().is_empty()) {
        let what = format!("a published crate needs a {key}");
        let mend = format!("add the key `{key}`, or say `publish = false`");
        violations.push(Violation::new(&krate.manifest, 1, what, mend));
    }
    for dependency in krate.dependencies.iter().filter(|d| d.local && d.kind != Kind::Dev) {
        let name = &dependency.name;
        // A later version of that name in a registry may be another project's.
        if !dependency.requirement.starts_with('=') {
            let what = format!("the dependency on `{name}` has a path but no exact version");
            let mend = "give it one in [workspace.dependencies], as `=1.2.3`";
            violations.push(Violation::new(&krate.manifest, 1, what, mend));
        }
        if workspace.find(name).is_some_and(|target| !target.published) {
            let what = format!("the crate is published, but `{name}`, which it depends on, is not");
            violations.push(Violation::new(&krate.manifest, 1, what, "publish both or neither"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    const GOOD: &str = "//! A crate.\n\n#![forbid(unsafe_code)]\n";

    fn of_crate(workspace: &Workspace, root: &str) -> Vec<String> {
        let mut files: Vec<(&str, &str)> = REQUIRED.iter().map(|path| (*path, "")).collect();
        files.push(("crates/a/src/lib.rs", root));
        check(workspace, &Files::fake(&files)).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_good_crate_passes() {
        assert_eq!(of_crate(&fake::workspace(&[("a", &[], &[])]), GOOD), [""; 0]);
    }

    #[test]
    fn documentation_and_promise_are_asked_for() {
        let found =
            of_crate(&fake::workspace(&[("a", &[], &[])]), "pub mod x;\n// #![forbid(unsafe_code)]\n");
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|line| line.starts_with("crates/a/src/lib.rs:1: ")), "{found:?}");
    }

    #[test]
    fn a_backend_may_be_unsafe() {
        let files = Files::fake(&[("crates/tensor-cpu/src/lib.rs", "//! A crate.\n")]);
        let workspace = fake::workspace(&[("tensor-cpu", &[], &[])]);
        assert_eq!(promise(&workspace.crates[0], &files), []);
    }

    #[test]
    fn publishing_needs_keys_and_versions() {
        let mut workspace = fake::workspace(&[("a", &["b"], &[]), ("b", &[], &[])]);
        workspace.crates[0].license.clear();
        workspace.crates[0].dependencies[0].requirement = "^0.1.0".to_owned();
        workspace.crates[1].published = false;
        let found = publishing(&workspace.crates[0], &workspace);
        let found: Vec<&str> = found.iter().map(|violation| violation.what.as_str()).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].contains("license") && found[1].contains("no exact version") && found[2].contains("`b`")
        );
    }

    #[test]
    fn required_pages_and_readmes_must_exist() {
        let mut workspace = fake::workspace(&[("a", &[], &[])]);
        workspace.crates[0].readme = Some("crates/a/README.md".to_owned());
        let found = check(&workspace, &Files::fake(&[("crates/a/src/lib.rs", GOOD)]));
        assert_eq!(found.len(), REQUIRED.len() + 1);
    }
}
