//! A command line from one declaration, without a parser of flags:
//! `cargo run -p towers-options --example command_line -- --epochs 3 --quiet`

use towers_options::{Kind, Table, hint, options, set_text};

options! {
    /// How to train.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Training {
        ["Learning"]
        /// Passes over the training data
        epochs: u64 = 70, Kind::Whole(1), "--epochs N";
        /// Print nothing
        quiet: bool = false, Kind::Switch, "--quiet";
    }
}

const TABLES: &[Table] = &[Table { key: "", options: Training::OPTIONS, begins: None }];

/// The options of these words, or a sentence about the first wrong one.
fn parse<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Training, String> {
    let (mut training, mut words) = (Training::default(), words.into_iter());
    let flags = || Training::OPTIONS.iter().filter_map(|option| option.flag());
    while let Some(word) = words.next() {
        let option = Training::OPTIONS.iter().find(|option| option.flag() == Some(word));
        let option = option.ok_or_else(|| format!("there is no flag {word}{}", hint(word, flags())))?;
        let value = option.kind.bare().or_else(|| words.next()).unwrap_or_default();
        let set = set_text(&training, TABLES, option.name, &[value]);
        // The errors name keys; this program's users know flags.
        training = set.map_err(|error| error.message().spelled(|key| format!("--{key}")))?;
    }
    Ok(training)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match parse(words.iter().map(String::as_str)) {
        Ok(training) => println!("{training:?}"),
        Err(error) => eprintln!("error: {error}"),
    }
    for option in Training::OPTIONS {
        let flag = [option.flag().unwrap_or_default(), option.value_name().unwrap_or_default()].join(" ");
        println!("  {flag:<16} {}, {}", option.help(), option.kind.accepted());
    }
}

#[test]
fn flags_are_read_and_refused() {
    let training = Training { epochs: 3, quiet: true };
    assert_eq!(parse(["--quiet", "--epochs", "3"]), Ok(training));
    assert_eq!(parse(["--epoch", "3"]), Err("there is no flag --epoch; did you mean `--epochs`?".into()));
    assert_eq!(parse(["--epochs", "0"]), Err("--epochs is 0, but must be a whole number, 1 or more".into()));
}
