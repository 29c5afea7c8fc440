//! Links from Markdown pages to files of the repository.

use super::Violation;
use super::files::Files;

/// Every link to a local file leads to a file or folder of the repository.
pub fn check(files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (page, text) in files.texts(".md") {
        for (line, target) in links(text) {
            let found = resolve(page, &target);
            if !found.as_ref().is_some_and(|path| files.has(path)) {
                let what = format!("the link leads to `{target}`, which is no file of the repository");
                violations.push(Violation::new(page, line, what, "correct or remove the link"));
            }
        }
    }
    violations
}

/// The local targets of a page's links with their lines: inline links and images, and reference definitions,
/// outside of code. Links with a scheme and links within the page are left out.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fence: Option<&str> = None;
    for (k, line) in text.lines().enumerate() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => {
                let line = without_code(line);
                let inline = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
                let definition = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
                let targets = inline.chain(definition.map(|(_, rest)| rest)).map(target);
                links.extend(
                    targets.filter(|target| is_local(target)).map(|target| (k + 1, target.to_owned())),
                );
            }
            _ => {}
        }
    }
    links
}

/// The line without its `code` spans. A backtick without a partner opens nothing.
fn without_code(line: &str) -> String {
    let mut rest = line;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once('`') {
        let Some((_, behind)) = after.split_once('`') else { break };
        text += before;
        rest = behind;
    }
    text + rest
}

/// The target at the start of `rest`: up to its bracket, or to the white space before a title.
fn target(rest: &str) -> &str {
    match rest.trim_start().strip_prefix('<') {
        Some(rest) => rest.split('>').next().unwrap_or_default(),
        None => rest.split([')', ' ', '\t']).next().unwrap_or_default(),
    }
}

fn is_local(target: &str) -> bool {
    let scheme = target.split_once(':').is_some_and(|(head, _)| !head.contains(['/', '.', '#']));
    !(target.is_empty() || target.starts_with('#') || scheme)
}

/// The path from the repository's root that `target` means on `page`; none if it leads out of it.
fn resolve(page: &str, target: &str) -> Option<String> {
    let target = target.split('#').next().unwrap_or_default();
    let (folder, _) = page.rsplit_once('/').unwrap_or_default();
    // A leading slash means the root of the repository, as on its web pages.
    let mut parts: Vec<&str> = if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.retain(|part| !part.is_empty());
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let page = "See [a](a.md) and ![b](img/b.png \"title\"), `[c](c.md)`.\n\
                    ```\n[d](d.md)\n~~~\n```\n[e]: <e f.md>\n[web](https://example.org/x), [here](#top)\n\
                    [`code`](g.md#part) and a lone ` [h](h.md)\n";
        let found = links(page);
        let found: Vec<(usize, &str)> = found.iter().map(|(line, target)| (*line, target.as_str())).collect();
        assert_eq!(found, [(1, "a.md"), (1, "img/b.png"), (6, "e f.md"), (8, "g.md#part"), (8, "h.md")]);
    }

    #[test]
    fn targets_resolve_against_their_page() {
        let resolved = |page, target| resolve(page, target);
        assert_eq!(resolved("README.md", "docs/a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolved("docs/a.md", "../README.md#x").as_deref(), Some("README.md"));
        assert_eq!(resolved("docs/a.md", "./b/../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolved("docs/a.md", "/LICENSE").as_deref(), Some("LICENSE"));
        assert_eq!(resolved("docs/a.md", "..").as_deref(), Some(""));
        assert_eq!(resolved("docs/a.md", "../../x"), None);
        assert_eq!(resolved("README.md", "../x"), None);
    }

    #[test]
    fn dead_links_are_violations() {
        let page = "[ok](b.md) [folder](../crates/)\n\n[dead](c.md)\n[out](../../x.md)\n";
        let files = Files::fake(&[("docs/a.md", page), ("docs/b.md", ""), ("crates/x.rs", "")]);
        let found: Vec<usize> = check(&files).into_iter().map(|violation| violation.line).collect();
        assert_eq!(found, [3, 4]);
    }
}
