//! The page `docs/options.md`, made from the table of options.

use crate::table::is_training;
use crate::{Config, tables};
use serde_json::Value;
use std::path::Path;
use towers_options::{Kind, Opt, Table};

const HEAD: &str = "# Options

<!-- Made from the table of options by a test of `config`. After a change: UPDATE_DOCS=1 cargo test -p towers-config reference_page -->

Every option of a run, by topic. A key is written in [recipe files](recipes.md#recipe-files) and in a run's
`config.json`: `devices.replicas` is `replicas` in the table `[devices]`. A flag of `towers train` overrides
the recipe; an option without a flag is set by its key alone. [command-line.md](command-line.md) has the other
flags.

A default holds for a recipe file that leaves the key out and has no `like`. A blank default means that the
option is off, or computed. A callback with a table, such as `[early_stop]` or `[csv_log]`, is off by default.
The table in a recipe, or a flag such as `--early-stop` or `--csv-log`, turns it on.

Options marked with † decide the bits of a run, so [a resume](checkpoints.md#stop-and-resume) can't change
them.
";

/// The page as text.
fn page() -> String {
    let mut defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    for table in tables() {
        if let Some(begins) = table.begins {
            defaults[table.key] = begins();
        }
    }
    let all: Vec<(&Table, &Opt)> =
        tables().iter().flat_map(|table| table.options.iter().map(move |option| (table, option))).collect();
    let mut headings: Vec<&str> = Vec::new();
    for (table, option) in &all {
        if !headings.contains(&heading(table, option)) {
            headings.push(heading(table, option));
        }
    }
    let mut text = HEAD.to_owned();
    for title in headings {
        text += &format!(
            "\n## {title}\n\n| key | flag | value | default | meaning |\n| --- | --- | --- | --- | --- |\n"
        );
        for (table, option) in all.iter().filter(|(table, option)| heading(table, option) == title) {
            text += &row(table, option, &defaults);
        }
    }
    text
}

fn heading(table: &Table, option: &Opt) -> &'static str {
    match (option.heading, table.key) {
        ("", "augmentation") => "Augmentation",
        ("", _) => "Run",
        (heading, _) => heading,
    }
}

fn row(table: &Table, option: &Opt, defaults: &Value) -> String {
    let key = table.key_of(option);
    let is_table = tables().iter().any(|table| table.key == key);
    let default = match key.split('.').fold(defaults, |value, part| &value[part]) {
        _ if is_table => String::new(),
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => String::new(),
        value => value.to_string(),
    };
    let flag = match (option.flag(), option.value_name()) {
        (Some(flag), Some(value)) => format!("{flag} {value}"),
        (flag, _) => flag.unwrap_or_default().to_owned(),
    };
    let value = if matches!(option.kind, Kind::Any) { String::new() } else { option.kind.accepted() };
    let mark = if is_training(&key) { " †" } else { "" };
    let cells = [code(&key) + mark, code(&flag), prose(&value), code(&default), prose(option.help())];
    format!("| {} |\n", cells.join(" | "))
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
}

fn prose(text: &str) -> String {
    ["|", "*", "<", "["].iter().fold(text.to_owned(), |text, mark| text.replace(mark, &format!("\\{mark}")))
}

#[test]
fn the_page_of_options_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, page()).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default().replace("\r\n", "\n");
    let remedy = "docs/options.md is out of date: UPDATE_DOCS=1 cargo test -p towers-config reference_page";
    assert!(written == page(), "{remedy}");
}
