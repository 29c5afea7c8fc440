//! `cargo xtask book-links`: a preprocessor of mdBook, which `book.toml` names.
//!
//! mdBook knows the pages of `docs` alone. Their links to other files of the repository become links to the
//! repository's own page.

use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::ExitCode;

/// Answers mdBook: whether it can work for a renderer (`supports NAME`), or the book from standard input,
/// with its links changed.
pub fn run(_: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    if arguments.first().is_none_or(|word| word != "supports") {
        println!("{}", answer(&std::io::read_to_string(std::io::stdin())?)?);
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(text: &str) -> Result<Value> {
    let [context, mut book]: [Value; 2] =
        serde_json::from_str(text).context("mdBook runs this, with [context, book] as JSON")?;
    let address = context["config"]["output"]["html"]["git-repository-url"].as_str();
    change(&mut book, address.context("book.toml names no git-repository-url")?);
    Ok(book)
}

/// All pages lie in `docs`, one step below the repository's root.
fn change(book: &mut Value, repository: &str) {
    match book {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            Value::String(text) if name == "content" => {
                *text = text.replace("](../", &format!("]({repository}/blob/main/"));
            }
            value => change(value, repository),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, repository)),
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
        let answer = answer(book).unwrap();
        let page = &answer["items"][1]["Chapter"];
        assert_eq!(page["content"], "[a](https://host/towers/blob/main/a.md), [b](b.md)");
        let below = &page["sub_items"][0]["Chapter"];
        assert_eq!(below["content"], "[x](https://host/towers/blob/main/x/y.rs#L1)");
        assert_eq!(below["name"], "](../");
    }
}
