//! `cargo xtask book-links`: a preprocessor of mdBook, which `book.toml` names.
//!
//! mdBook has only the pages of `docs`. This turns their links to other files into links to the repository's
//! web page.

use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::ExitCode;

/// Reads a book from standard input and prints it with its links changed. With the arguments `supports NAME`
/// it tells mdBook, by its exit status, that it works for every renderer.
pub fn run(_: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    if arguments.first().is_none_or(|word| word != "supports") {
        println!("{}", with_links(&std::io::read_to_string(std::io::stdin())?)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// The book in mdBook's JSON, with its links changed.
fn with_links(text: &str) -> Result<Value> {
    let [context, mut book]: [Value; 2] =
        serde_json::from_str(text).context("mdBook runs this, with [context, book] as JSON")?;
    let address = context["config"]["output"]["html"]["git-repository-url"].as_str();
    change_links(&mut book, address.context("book.toml names no git-repository-url")?);
    Ok(book)
}

/// All pages are directly in `docs`, so `../` is the repository's root.
fn change_links(book: &mut Value, repository: &str) {
    match book {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            Value::String(text) if name == "content" => {
                *text = text.replace("](../", &format!("]({repository}/blob/main/"));
            }
            value => change_links(value, repository),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| change_links(item, repository)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let book = r#"[{"config": {"output": {"html": {"git-repository-url": "https://host/towers"}}}},
            {"items": ["Separator", {"Chapter": {"name": "A", "content": "[a](../a.md), [b](b.md)", "sub_items":
            [{"Chapter": {"name": "](../", "content": "[x](../x/y.rs#L1)", "sub_items": []}}]}}]}]"#;
        let book = with_links(book).unwrap();
        let page = &book["items"][1]["Chapter"];
        assert_eq!(page["content"], "[a](https://host/towers/blob/main/a.md), [b](b.md)");
        let below = &page["sub_items"][0]["Chapter"];
        assert_eq!(below["content"], "[x](https://host/towers/blob/main/x/y.rs#L1)");
        assert_eq!(below["name"], "](../");
    }
}
