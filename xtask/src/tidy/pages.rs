//! The Markdown pages: their links lead to files of the repository, and the book has every page of `docs`.

use super::files::Files;
use super::violation::Violation;

/// Every link to a local file leads to a file or folder, and every page of `docs` is in `docs/SUMMARY.md`.
pub fn check(files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    let summary = files.text("docs/SUMMARY.md");
    for (page, text) in files.texts(".md") {
        let name = page.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md" && !name.contains('/'));
        if name.is_some_and(|name| !summary.contains(&format!("]({name})"))) {
            violations.push(Violation::new(page, 1, "the page is not in docs/SUMMARY.md"));
        }
        for (line, target) in links(text) {
            if !resolve(page, &target).is_some_and(|path| files.has(&path)) {
                let what = format!("the link leads to `{target}`, which is no file of the repository");
                violations.push(Violation::new(page, line, what));
            }
        }
    }
    violations
}

/// The local targets of a page's inline links and images with their lines, outside of code. Links with a
/// scheme and links within the page are left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        // Every other part between backticks is code.
        let prose: String = line.split('`').step_by(2).collect();
        let targets = prose.split("](").skip(1).map(|rest| rest.split([')', ' ']).next().unwrap_or_default());
        let local = targets.filter(|target| !target.starts_with('#') && !target.contains(':'));
        links.extend(local.map(|target| (number, target.to_owned())));
    }
    links
}

/// The path from the repository's root that `target` means on `page`; none if it leads out of it.
fn resolve(page: &str, target: &str) -> Option<String> {
    let (folder, _) = page.rsplit_once('/').unwrap_or_default();
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('#').next().unwrap_or_default().split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "See [a](a.md) and ![b](img/b.png \"title\"), `[c](c.md)`.\n```\n[d](d.md)\n```\n\
                    [web](https://example.org/x), [here](#top)\n[`code`](g.md#part)\n";
        let found = links(page);
        let found: Vec<(usize, &str)> = found.iter().map(|(line, target)| (*line, target.as_str())).collect();
        assert_eq!(found, [(1, "a.md"), (1, "img/b.png"), (6, "g.md#part")]);
    }

    #[test]
    fn targets_resolve_against_their_page() {
        assert_eq!(resolve("README.md", "docs/a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("docs/a.md", "../README.md#x").as_deref(), Some("README.md"));
        assert_eq!(resolve("docs/a.md", "./b/../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("docs/a.md", "..").as_deref(), Some(""));
        assert_eq!(resolve("docs/a.md", "../../x"), None);
    }

    #[test]
    fn dead_links_and_pages_outside_of_the_book_are_found() {
        let page = "[ok](b.md) [folder](../crates/)\n\n[dead](c.md)\n[out](../../x.md)\n";
        let files = Files::fake(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n"),
            ("docs/a.md", page),
            ("docs/b.md", ""),
            ("docs/benchmarks/c.md", ""),
            ("crates/x.rs", ""),
        ]);
        let found = check(&files);
        let found: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line)).collect();
        assert_eq!(found, [("docs/a.md", 3), ("docs/a.md", 4), ("docs/b.md", 1)]);
    }
}
