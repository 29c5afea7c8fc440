//! Which module of a crate uses which.
//!
//! The reader is textual. A module uses another one if its file has a path to it that begins with `crate`,
//! `super`, `self` or the name of a child. A name that a module imports or re-exports leads to the module
//! where it comes from. A re-export from a child is no use of the child. Items under `#[cfg(test)]` do not
//! count.

use super::files::Files;
use std::collections::{BTreeMap, BTreeSet};

/// What each module of a crate uses; the root of the crate is called `crate`.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// A path in a file, and how the file imports it.
struct Path {
    words: Vec<String>,
    /// The name that a `use` gives it.
    imported: Option<String>,
    public: bool,
}

/// The paths in each file.
type Modules = BTreeMap<String, Vec<Path>>;

/// Reads the files of the crate whose root file is `root`.
pub fn graph(root: &str, files: &Files) -> Graph {
    let folder = &root[..=root.rfind('/').unwrap_or(0)];
    let mut modules = Modules::new();
    let mut of_tests = Vec::new();
    for (file, text) in files.texts(".rs").filter(|(file, _)| file.starts_with(folder)) {
        let name = match file[folder.len()..].trim_end_matches(".rs").trim_end_matches("/mod") {
            _ if file == root => "crate".to_owned(),
            inside => format!("crate::{}", inside.replace('/', "::")),
        };
        modules.insert(name.clone(), paths(&code(text, &name, &mut of_tests)));
    }
    modules.retain(|name, _| {
        of_tests.iter().all(|test| name != test && !name.starts_with(&format!("{test}::")))
    });
    let uses = |name: &String, path: &Path| {
        let target = resolve(&modules, name, &path.words, 9)?;
        let of_child = path.public && target.starts_with(&format!("{name}::"));
        (target != *name && !of_child).then_some(target)
    };
    let targets = |name: &String, paths: &[Path]| paths.iter().filter_map(|path| uses(name, path)).collect();
    modules.iter().map(|(name, paths)| (name.clone(), targets(name, paths))).collect()
}

/// The lines of a file without comments and without items under `#[cfg(test)]`, whose modules go to
/// `of_tests`. An item ends, as `cargo fmt` writes it, where a line as far in as its attribute ends in `;`,
/// `}` or `,`.
fn code(text: &str, module: &str, of_tests: &mut Vec<String>) -> String {
    let mut code = String::new();
    let mut skipped = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if skipped.is_some() {
            let name = trimmed.split_once("mod ").map(|(_, name)| name.trim_end_matches([';', '{', ' ']));
            of_tests.extend(name.map(|name| format!("{module}::{name}")));
            skipped = skipped.filter(|from| indent != *from || !line.ends_with([';', '}', ',']));
        } else if ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|start| trimmed.starts_with(start)) {
            skipped = Some(indent);
        } else if !trimmed.starts_with("//") {
            code += line.split(" // ").next().unwrap_or_default();
            code.push('\n');
        }
    }
    code
}

/// All paths of more than one word, those of `use` with their names.
fn paths(code: &str) -> Vec<Path> {
    let mut separated = String::new();
    for c in code.replace("::", " :: ").chars() {
        match c.is_alphanumeric() || c == '_' || c == ':' {
            true => separated.push(c),
            false => separated.extend([' ', c, ' ']),
        }
    }
    let tokens: Vec<&str> = separated.split_whitespace().collect();
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let is_use = tokens[at] == "use";
        let of_visibility = at > 2 && tokens[at - 3..at] == ["pub", "(", "in"];
        if is_use || (tokens.get(at + 1) == Some(&"::") && !of_visibility) {
            let public = is_use && at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
            at += usize::from(is_use);
            let mut found = Vec::new();
            tree(&tokens, &mut at, &mut Vec::new(), &mut found);
            let path = |(words, name)| Path { words, imported: Some(name).filter(|_| is_use), public };
            paths.extend(found.into_iter().map(path));
        }
        at += 1;
    }
    paths
}

/// Finds the path at `at`, or all paths of a group in braces, behind `prefix`: each with the name that `use`
/// gives it.
fn tree(tokens: &[&str], at: &mut usize, prefix: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    let length = prefix.len();
    while let Some(&token) = tokens.get(*at) {
        *at += 1;
        if token == "{" {
            while tokens.get(*at).is_some_and(|token| *token != "}") {
                tree(tokens, at, prefix, found);
                *at += usize::from(tokens.get(*at) == Some(&","));
            }
            *at += 1;
            break;
        }
        if token != "*" && (token != "self" || length == 0) {
            prefix.push(token.to_owned());
        }
        let next = |k: usize| tokens.get(*at + k).copied().unwrap_or_default();
        if next(0) == "::" && next(1) != "<" {
            *at += 1;
            continue;
        }
        let name = match (token, next(0)) {
            ("*", _) => token,
            (_, "as") => next(1),
            _ => prefix.last().map_or(token, String::as_str),
        };
        found.push((prefix.clone(), name.to_owned()));
        *at += if next(0) == "as" { 2 } else { 0 };
        break;
    }
    prefix.truncate(length);
}

/// The module to which a path in the file of `module` leads.
fn resolve(modules: &Modules, module: &str, words: &[String], depth: usize) -> Option<String> {
    let child = |of: &str, word: &str| Some(format!("{of}::{word}")).filter(|m| modules.contains_key(m));
    let mut at = module.to_owned();
    if !["crate", "self", "super"].contains(&words.first()?.as_str()) {
        child(&at, &words[0])?;
    }
    for word in words {
        at = match word.as_str() {
            "crate" => "crate".to_owned(),
            "self" => at,
            "super" => at.rsplit_once("::")?.0.to_owned(),
            word => match child(&at, word) {
                Some(child) => child,
                None => {
                    let import = modules.get(&at)?.iter().find(|path| path.imported.as_deref() == Some(word));
                    let Some(import) = import else { return Some(at) };
                    return resolve(modules, &at, &import.words, depth.checked_sub(1)?);
                }
            },
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph("a/src/lib.rs", &Files::fake(files));
        let edges = graph.iter().flat_map(|(from, to)| to.iter().map(move |to| format!("{from} {to}")));
        edges.map(|edge| edge.replace("crate::", "")).collect()
    }

    #[test]
    fn paths_lead_to_the_module_where_a_name_comes_from() {
        let root = "//! use crate::c;\nmod b;\npub use b::{Name, inner::{self, Other as Renamed}};\n";
        let parent = "pub mod inner;\npub(in crate::c) use std::fmt;\npub use self::inner::Deep;\n";
        let user =
            "use crate::Renamed; // crate::e\nfn f() -> super::d::T<u8> { crate::b::Deep::<u8>::g() }\n";
        let found = uses(&[
            ("a/src/lib.rs", root),
            ("a/src/b/mod.rs", parent),
            ("a/src/b/inner.rs", "use crate::{Name, fmt::*};\n"),
            ("a/src/c.rs", user),
            ("a/src/d.rs", "use super::*;\nuse anyhow::c;\n"),
            ("b/src/lib.rs", "mod x;\n"),
        ]);
        assert_eq!(found, ["b::inner crate", "b::inner b", "c b::inner", "c d", "d crate"]);
    }

    #[test]
    fn a_parent_that_calls_its_child_uses_it_and_tests_do_not_count() {
        let tests =
            "#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n#[cfg(test)]\nmod checks;\nuse crate::c;\n";
        let found = uses(&[
            ("a/src/lib.rs", "mod b;\nmod c;\nfn f() {\n    b::run();\n}\n"),
            ("a/src/b.rs", tests),
            ("a/src/b/checks.rs", "use crate::c::X;\n"),
            ("a/src/c.rs", ""),
        ]);
        assert_eq!(found, ["crate b", "b c"]);
    }
}
