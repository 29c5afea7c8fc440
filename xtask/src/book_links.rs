//! `cargo xtask book-links`: a preprocessor of mdBook, which `book.toml` names.
//!
//! mdBook knows the pages of `docs` alone, so in the book their links to other files of the repository lead nowhere. Here they are
//! made links to the repository's own page.

use crate::Failure;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{IsTerminal as _, Read};
use std::process::ExitCode;

/// Answers mdBook: whether it can do with a renderer (`supports NAME`), or the book that comes in, with its links mended.
pub fn run(_: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    if arguments.first().is_none_or(|word| word != "supports") {
        if std::io::stdin().is_terminal() {
            let what = "`book-links` is run by mdBook, which hands it a book on its standard input";
            return Err(Failure::Usage(what.to_owned()));
        }
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        println!("{}", answer(&text)?);
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(text: &str) -> Result<Value> {
    let [context, mut book]: [Value; 2] =
        serde_json::from_str(text).context("mdBook sends [context, book] as JSON; nobody else calls this")?;
    let address = context["config"]["output"]["html"]["git-repository-url"].as_str();
    mend(&mut book, address.context("book.toml names no git-repository-url")?);
    Ok(book)
}

/// All pages lie in `docs`, one step below the repository's root.
fn mend(book: &mut Value, repository: &str) {
    match book {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| match value {
            Value::String(text) if name == "content" => {
                *text = text.replace("](../", &format!("]({repository}/blob/main/"));
            }
            value => mend(value, repository),
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| mend(item, repository)),
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

    #[test]
    fn anything_else_is_told_what_this_is_for() {
        assert!(answer("").unwrap_err().to_string().contains("mdBook sends"));
        assert!(answer("[{}, {}]").unwrap_err().to_string().contains("git-repository-url"));
    }
}
