//! The parts of a library that crates.io and docs.rs show.

use super::files::Files;
use super::violation::Violation;
use crate::workspace::{Crate, Workspace};

/// The most keywords that crates.io takes.
const MOST_KEYWORDS: usize = 5;

/// Every published library names its page, its keywords and its features on docs.rs. Its README has the dependencies and the
/// whole program of a user, compiled as a test, and its features.
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
    let dependency = format!("\n{} = ", krate.name);
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
    unless(has("toml\n[dependencies]\n", &dependency), &readme, lacks("the `[dependencies]` of its program"));
    unless(has("rust", "fn main()"), &readme, lacks("a program with `fn main()`"));
    unless(unnamed.is_empty(), &readme, lacks(&format!("the features {}", unnamed.join(", "))));
    let compiled = files.text(&krate.root).contains("[doc = include_str!(\"../README.md\")]");
    unless(compiled, &krate.root, lacks("the test that compiles the README's program"));
    found
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
            ("a = \"0.1\"\n", "README.md:1: a is published, and this file lacks the `[dependencies]`"),
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
    }

    #[test]
    fn a_crate_that_stays_here_needs_none_of_them() {
        let mut workspace = fake(&[("a", &[])]);
        workspace.crates[0].published = false;
        assert_eq!(check(&workspace, &Files::fake(&[])), []);
    }
}
