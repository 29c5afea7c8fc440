//! The parts of a library that crates.io and docs.rs show.

use super::files::Files;
use super::violation::Violation;
use crate::workspace::{Crate, Workspace};

/// The most keywords that crates.io takes.
const MOST_KEYWORDS: usize = 5;

/// Every published library names its page, its keywords and its features on docs.rs. It has an example that is run as a test. Its
/// README has the whole program of a user, compiled as a test, with all dependencies of ours, and its features.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let libraries =
        workspace.crates.iter().filter(|krate| krate.published && krate.root.ends_with("src/lib.rs"));
    libraries.flat_map(|krate| missing(krate, files)).collect()
}

fn missing(krate: &Crate, files: &Files) -> Vec<Violation> {
    let readme = krate.manifest.replace("Cargo.toml", "README.md");
    let page = files.text(&readme);
    let code: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let has = |kind: &str, text: &str| code.iter().any(|code| code.starts_with(kind) && code.contains(text));
    let manifest = files.text(&krate.manifest);
    let value = |key: &str| manifest.lines().find_map(|line| line.strip_prefix(key));
    let keywords = value("keywords = [").map_or(0, |list| list.split(',').count());
    let table = |name: &str| manifest.split(name).nth(1).map(|rest| rest.split("\n[").next().unwrap_or(rest));
    let on_docs = table("[package.metadata.docs.rs]");
    let emulates = krate.features.iter().any(|feature| feature == "emulation");
    let unnamed = krate.features.iter().filter(|feature| *feature != "default").map(String::as_str);
    let unnamed = unnamed.filter(|feature| !page.contains(&format!("`{feature}`"))).collect::<Vec<_>>();
    let named = code.iter().filter(|code| code.starts_with("rust")).flat_map(|code| used(code));
    let dependencies = code.iter().find(|code| code.starts_with("toml\n[dependencies]\n")).unwrap_or(&"");
    let lacking = |name: &String| !dependencies.contains(&format!("\n{name} = "));
    let mut undeclared: Vec<String> = named.chain([krate.name.clone()]).filter(lacking).collect();
    undeclared.sort();
    undeclared.dedup();
    let mut found = Vec::new();
    let mut unless = |sound: bool, path: &str, what: String| {
        if !sound {
            found.push(Violation::new(path, 1, what));
        }
    };
    let lacks = |what: &str| format!("{} is published, and this file lacks {what}", krate.name);
    unless(value("readme = \"README.md\"").is_some(), &krate.manifest, lacks("`readme = \"README.md\"`"));
    let named = (1..=MOST_KEYWORDS).contains(&keywords);
    unless(named, &krate.manifest, lacks(&format!("keywords of its own, {MOST_KEYWORDS} at most")));
    unless(on_docs.is_some(), &krate.manifest, lacks("`[package.metadata.docs.rs]`"));
    let all = on_docs.is_some_and(|table| table.contains("all-features = true"));
    unless(!all || !emulates, &krate.manifest, "docs.rs must not have the feature `emulation`".to_owned());
    let undeclared = undeclared.join(", ");
    unless(
        undeclared.is_empty(),
        &readme,
        lacks(&format!("the `[dependencies]` of its program: {undeclared}")),
    );
    unless(has("rust", "fn main()"), &readme, lacks("a program with `fn main()`"));
    unless(unnamed.is_empty(), &readme, lacks(&format!("the features {}", unnamed.join(", "))));
    let tested = !krate.examples.is_empty();
    unless(tested, &krate.manifest, lacks("an `[[example]]` with `test = true`"));
    let compiled = files.text(&krate.root).contains("[doc = include_str!(\"../README.md\")]");
    unless(compiled, &krate.root, lacks("the test that compiles the README's program"));
    found
}

/// The packages of ours that code uses, by the paths in it.
fn used(code: &str) -> impl Iterator<Item = String> {
    let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("towers_")).map(|word| word.replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    const MANIFEST: &str = "readme = \"README.md\"\nkeywords = [\"a\", \"b\"]\n\n[package.metadata.docs.rs]\nall-features = true\n\n[lib]\n";
    const README: &str = "# a\n\n```toml\n[dependencies]\na = \"0.1\"\n```\n\n```rust\nfn main() {}\n```\n\n`serde`, `emulation`\n";
    const ROOT: &str = "#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n";

    fn found(manifest: &str, readme: &str, root: &str, features: &[&str]) -> Vec<String> {
        let mut workspace = fake(&[("a", &[])]);
        workspace.crates[0].features = features.iter().map(|feature| feature.to_string()).collect();
        let files = [
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/README.md", readme),
            ("crates/a/src/lib.rs", root),
        ];
        check(&workspace, &Files::fake(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_library_with_all_parts_is_fit_to_publish() {
        assert_eq!(found(MANIFEST, README, ROOT, &["default", "serde"]), [""; 0]);
    }

    #[test]
    fn each_missing_part_is_named() {
        let without = |text: &str| {
            let cut = |file: &str| file.replace(text, "");
            found(&cut(MANIFEST), &cut(README), &cut(ROOT), &["serde"])
        };
        for (text, says) in [
            ("readme = \"README.md\"\n", "Cargo.toml:1: a is published, and this file lacks `readme"),
            ("keywords = [", "lacks keywords of its own"),
            ("[package.metadata.docs.rs]", "lacks `[package.metadata.docs.rs]`"),
            (
                "a = \"0.1\"\n",
                "README.md:1: a is published, and this file lacks the `[dependencies]` of its program: a",
            ),
            ("fn main() {}", "lacks a program with `fn main()`"),
            ("`serde`", "lacks the features serde"),
            ("#[doc", "lib.rs:1: a is published, and this file lacks the test"),
        ] {
            let found = without(text);
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
        let six = MANIFEST.replace("\"b\"", "\"b\", \"c\", \"d\", \"e\", \"f\"");
        assert!(found(&six, README, ROOT, &[])[0].contains("5 at most"));
        assert!(found(MANIFEST, README, ROOT, &["emulation"])[0].contains("`emulation`"));
        let uses = README.replace("{}", "{ towers_b_c::run() }");
        assert!(found(MANIFEST, &uses, ROOT, &[])[0].ends_with("of its program: towers-b-c"));
    }

    #[test]
    fn a_library_without_an_example_is_named() {
        let mut workspace = fake(&[("a", &[])]);
        workspace.crates[0].examples.clear();
        let files = [
            ("crates/a/Cargo.toml", MANIFEST),
            ("crates/a/README.md", README),
            ("crates/a/src/lib.rs", ROOT),
        ];
        let found = check(&workspace, &Files::fake(&files));
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().ends_with("lacks an `[[example]]` with `test = true`"), "{}", found[0]);
    }

    #[test]
    fn a_crate_that_stays_here_needs_none_of_them() {
        let mut workspace = fake(&[("a", &[])]);
        workspace.crates[0].published = false;
        assert_eq!(check(&workspace, &Files::fake(&[])), []);
    }
}
