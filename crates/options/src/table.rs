use crate::Message;
use crate::kind::{Kind, Refused};
use crate::spelling::hint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;

/// One option: a field of a struct that [`options!`](crate::options!) declares.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// The field, and the last part of its key.
    pub name: &'static str,
    /// Its kind of value.
    pub kind: Kind,
    /// Its group in a list of flags; may be empty.
    pub heading: &'static str,
    /// Another name of its flag, without dashes.
    pub alias: Option<&'static str>,
    /// The letter of its flag.
    pub short: Option<char>,
    /// The environment variable that stands for its flag.
    pub env: Option<&'static str>,
    /// The key of an option whose flag excludes this one.
    pub conflict: Option<&'static str>,
    /// The least number that its flag takes, where the default is less.
    pub least: Option<u64>,
    /// Its help on a page of the most important flags, if it is among them.
    pub brief: Option<&'static str>,
    flag: &'static str,
    doc: &'static str,
}

impl Opt {
    /// An option without a flag.
    pub const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        let (alias, short, env, conflict, least, brief) = (None, None, None, None, None, None);
        Opt { name, kind, heading: "", alias, short, env, conflict, least, brief, flag: "", doc }
    }

    /// Adds a flag and the name of its value, as in `--epochs N`.
    #[must_use]
    pub const fn with_flag(self, flag: &'static str) -> Self {
        Opt { flag, ..self }
    }

    /// Puts it into a group of flags.
    #[must_use]
    pub const fn under(self, heading: &'static str) -> Self {
        Opt { heading, ..self }
    }

    /// Gives the flag another name, without dashes.
    #[must_use]
    pub const fn alias(self, alias: &'static str) -> Self {
        Opt { alias: Some(alias), ..self }
    }

    /// Gives the flag a letter.
    #[must_use]
    pub const fn short(self, letter: char) -> Self {
        Opt { short: Some(letter), ..self }
    }

    /// Lets an environment variable stand for the flag.
    #[must_use]
    pub const fn env(self, variable: &'static str) -> Self {
        Opt { env: Some(variable), ..self }
    }

    /// Excludes the flag of another key.
    #[must_use]
    pub const fn conflict(self, key: &'static str) -> Self {
        Opt { conflict: Some(key), ..self }
    }

    /// Lets the flag take no number below this one, though the default is.
    #[must_use]
    pub const fn least(self, least: u64) -> Self {
        Opt { least: Some(least), ..self }
    }

    /// Puts the flag on the page of the most important ones, with this help.
    #[must_use]
    pub const fn brief(self, help: &'static str) -> Self {
        Opt { brief: Some(help), ..self }
    }

    /// The flag, as in `--epochs`.
    pub fn flag(&self) -> Option<&'static str> {
        self.flag.split(' ').next().filter(|flag| !flag.is_empty())
    }

    /// The name of the flag's value, as in `N`.
    pub fn value_name(&self) -> Option<&'static str> {
        self.flag.split_once(' ').map(|(_, value)| value)
    }

    /// Its help.
    pub fn help(&self) -> &'static str {
        self.doc.trim()
    }
}

/// Options under a key of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The key; empty for the top level.
    pub key: &'static str,
    /// Its options.
    pub options: &'static [Opt],
    /// For a table that may be absent: its initial value.
    pub begins: Option<fn() -> Value>,
}

impl Table {
    /// The full key of an option.
    pub fn key_of(&self, option: &Opt) -> String {
        if self.key.is_empty() { option.name.to_owned() } else { format!("{}.{}", self.key, option.name) }
    }
}

/// The reason for refusing a key or a value. Its [`message`](Error::message) has keys, which
/// [`Display`](fmt::Display) shows in backticks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum Error {
    /// The value makes no sense.
    Value {
        /// The option: its key, or in words what has the value.
        option: Message,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: Message,
    },
    /// The value can't be read.
    Unreadable {
        /// The option.
        key: String,
        /// The reason.
        reason: Message,
    },
    /// There is no such option.
    Unknown {
        /// The given key.
        key: String,
        /// The known options, separated by commas.
        known: String,
        /// `; did you mean ...?`, or nothing.
        meant: String,
    },
}

impl Error {
    /// The option with this key has a value other than the accepted ones.
    pub fn value(key: &'static str, value: impl fmt::Display, accepted: impl Into<Message>) -> Self {
        Error::about(Message::key(key), value, accepted)
    }

    /// Something that is no option has a value other than the accepted ones, such as the number of classes of the data.
    pub fn about(what: impl Into<Message>, value: impl fmt::Display, accepted: impl Into<Message>) -> Self {
        Error::Value { option: what.into(), value: value.to_string(), accepted: accepted.into() }
    }

    /// The sentence.
    pub fn message(&self) -> Message {
        match self {
            Error::Value { option, value, accepted } => {
                option.clone().and(format!(" is {value}, but must be ")).and(accepted.clone())
            }
            Error::Unreadable { key, reason } => Message::key(key.clone()).and(": ").and(reason.clone()),
            // The key is the user's own, and none of the table.
            Error::Unknown { key, known, meant } => {
                format!("there is no key `{key}`; there are {known}{meant}").into()
            }
        }
    }

    fn of(key: String, value: String, refused: Refused) -> Self {
        match refused {
            Refused::MustBe(accepted) => Error::Value { option: Message::key(key), value, accepted },
            Refused::Because(reason) => Error::Unreadable { key, reason },
        }
    }
}

/// The table and the option of a full key.
pub fn find<'t>(tables: &'t [Table], key: &str) -> Option<(&'t Table, &'t Opt)> {
    let of = |table: &'t Table| table.options.iter().find(|option| table.key_of(option) == key);
    tables.iter().find_map(|table| Some((table, of(table)?)))
}

/// The error for an unknown key, in the table `table`.
pub fn unknown(tables: &[Table], key: &str) -> Error {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let own = tables.iter().filter(|other| other.key == table).flat_map(|table| table.options);
    let mut known: Vec<&str> = own.map(|option| option.name).collect();
    if table.is_empty() {
        known.extend(tables.iter().map(|table| table.key).filter(|key| !key.is_empty()));
    }
    known.sort_unstable();
    known.dedup();
    Error::Unknown { key: key.to_owned(), known: known.join(", "), meant: hint(name, known.iter().copied()) }
}

/// Checks the values of a struct that was not read by this crate.
///
/// # Errors
/// [`Error::Value`] for the first option with an invalid value.
pub fn check<T: Serialize + Default>(options: &T, table: &Table) -> Result<(), Error> {
    let json = |options: &T| serde_json::to_value(options).unwrap_or(Value::Null);
    let (values, defaults) = (json(options), json(&T::default()));
    for option in table.options {
        let value = &values[option.name];
        // JSON has no NaN and no infinities.
        let refused = match value.is_null() && !defaults[option.name].is_null() {
            true => Err(Refused::MustBe(option.kind.accepted().into())),
            false => option.kind.read(value).map(|_| ()),
        };
        let shown = if value.is_null() { "no finite number".to_owned() } else { value.to_string() };
        refused.map_err(|refused| Error::of(table.key_of(option), shown, refused))?;
    }
    Ok(())
}

/// The configuration with one option set to a value of a file.
///
/// # Errors
/// [`Error`] with the key, the value, and the accepted values.
pub fn set<C: Serialize + DeserializeOwned>(
    config: &C,
    tables: &[Table],
    key: &str,
    value: &Value,
) -> Result<C, Error> {
    let (table, option) = find(tables, key).ok_or_else(|| unknown(tables, key))?;
    let refuse = |value: &Value, refused| Error::of(key.to_owned(), value.to_string(), refused);
    let read = option.kind.read(value).map_err(|refused| refuse(value, refused))?;
    insert(config, table, option, read).ok_or_else(|| {
        // Of a list the first value that is wrong by itself.
        let is_wrong =
            |value: &&Value| insert(config, table, option, Value::from_iter([(*value).clone()])).is_none();
        let values = value.as_array().filter(|_| matches!(option.kind, Kind::List(..)));
        let wrong = values.and_then(|values| values.iter().find(is_wrong));
        refuse(wrong.unwrap_or(value), Refused::MustBe(option.kind.accepted().into()))
    })
}

/// The configuration with one option set from the command line. A repeated flag has several texts.
///
/// # Errors
/// [`Error`] with the key, the value, and the accepted values.
pub fn set_text<C: Serialize + DeserializeOwned>(
    config: &C,
    tables: &[Table],
    key: &str,
    texts: &[&str],
) -> Result<C, Error> {
    let (table, option) = find(tables, key).ok_or_else(|| unknown(tables, key))?;
    let refuse = |text: &str, refused| {
        let shown = if option.kind.is_number() { text.to_owned() } else { format!("`{text}`") };
        Error::of(key.to_owned(), shown, refused)
    };
    let read = |text: &&str| option.kind.parse(text).map_err(|refused| refuse(text, refused));
    let value = match option.kind {
        Kind::List(..) => {
            let mut all = Vec::new();
            for text in texts {
                if let Value::Array(values) = read(text)? {
                    all.extend(values);
                }
            }
            Value::Array(all)
        }
        _ => texts.last().map(read).transpose()?.unwrap_or(Value::Null),
    };
    let text = texts.join(",");
    insert(config, table, option, value)
        .ok_or_else(|| refuse(&text, Refused::MustBe(option.kind.accepted().into())))
}

fn insert<C: Serialize + DeserializeOwned>(
    config: &C,
    table: &Table,
    option: &Opt,
    value: Value,
) -> Option<C> {
    let mut all = serde_json::to_value(config).ok()?;
    let place = if table.key.is_empty() {
        &mut all
    } else {
        all.as_object_mut()?.entry(table.key).or_insert(Value::Null)
    };
    if place.is_null() {
        *place = table.begins.map_or_else(|| Value::Object(Map::new()), |begins| begins());
    }
    place.as_object_mut()?.insert(option.name.to_owned(), value);
    serde_json::from_value(all).ok()
}

/// Parses a whole table from one text, `HEAD:OPTION=VALUE,...`, as in
/// `val_loss:patience=3,restore_best_weights`. The part before the colon is the option `head`. Names may be
/// written with `-` for `_`; an option without a value is a switch.
///
/// # Errors
/// The reason for refusing it.
pub fn parse_table<T: Serialize + DeserializeOwned + Default>(
    options: &'static [Opt],
    head: &str,
    text: &str,
) -> Result<T, Refused> {
    let table = [Table { key: "", options, begins: None }];
    let (first, rest) = text.split_once(':').unwrap_or((text, ""));
    // The options of one text are no keys.
    let error = |error| match error {
        Error::Value { option, value, accepted } => {
            let option = option.spelled(str::to_owned);
            Refused::Because(Message::from(format!("{option} is {value}, but must be ")).and(accepted))
        }
        Error::Unreadable { reason, .. } => Refused::Because(reason),
        Error::Unknown { key, known, meant } => {
            Refused::Because(format!("there is no option `{key}`; there are {known}{meant}").into())
        }
    };
    let mut given = vec![head.to_owned()];
    let mut read = set_text(&T::default(), &table, head, &[first.trim()]).map_err(error)?;
    for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let name = name.trim().replace('-', "_");
        if given.contains(&name) {
            return Err(Refused::MustBe(format!("given with {name} once").into()));
        }
        read = set_text(&read, &table, &name, &[value.trim()]).map_err(error)?;
        given.push(name);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::options! {
        /// When to stop.
        #[derive(Clone, Debug, PartialEq)]
        struct Stop {
            ["Callbacks"]
            /// The metric to watch
            monitor: String = "val_loss".to_owned(), Kind::OneOf(&["loss", "val_loss"]);
            /// Epochs without improvement before
            /// the run stops
            patience: u64 = 5, Kind::Whole(0), "--patience N", with short('p'), with conflict("stop.restore");
            /// Restore the best
            restore: bool = false, Kind::Switch;
        }
    }

    crate::options! {
        #[derive(Clone, Debug, PartialEq)]
        struct Config {
            [""]
            /// Passes
            epochs: u64 = 3, Kind::Whole(1), "--epochs N";
            /// Rates
            rates: Vec<f64> = vec![0.5], Kind::List(&Kind::Number, Some(',')), "--rates X,...";
            +
            /// Stop early.
            stop: Option<Stop>;
        }
    }

    const TABLES: &[Table] = &[
        Table { key: "", options: Config::OPTIONS, begins: None },
        Table { key: "stop", options: Stop::OPTIONS, begins: Some(|| serde_json::json!(Stop::default())) },
    ];

    #[test]
    fn an_option_is_its_field_its_flag_and_its_help() {
        let patience = &Stop::OPTIONS[1];
        assert_eq!((patience.flag(), patience.value_name()), (Some("--patience"), Some("N")));
        assert_eq!(
            (patience.short, patience.conflict, patience.env),
            (Some('p'), Some("stop.restore"), None)
        );
        assert_eq!(patience.help(), "Epochs without improvement before the run stops");
        assert_eq!((Stop::OPTIONS[0].flag(), Stop::OPTIONS[0].heading), (None, "Callbacks"));
    }

    #[test]
    fn options_are_set_by_their_keys() {
        let config = set(&Config::default(), TABLES, "stop.patience", &7.into()).unwrap();
        assert_eq!(config.stop, Some(Stop { patience: 7, ..Stop::default() }));
        let config = set_text(&config, TABLES, "rates", &["0.1,0.2", "3"]).unwrap();
        assert_eq!((config.rates, config.epochs), (vec![0.1, 0.2, 3.0], 3));
    }

    #[test]
    fn refusals_name_key_value_and_remedy() {
        let config = Config::default();
        for (key, value, says) in [
            ("epochs", Value::from(0), "`epochs` is 0, but must be a whole number, 1 or more"),
            ("epochs", "1".into(), "`epochs` is \"1\", but must be a whole number, 1 or more"),
            (
                "epoch",
                1.into(),
                "there is no key `epoch`; there are epochs, rates, stop; did you mean `epochs`?",
            ),
            (
                "stop.patient",
                1.into(),
                "there is no key `stop.patient`; there are monitor, patience, restore; did you mean `patience`?",
            ),
            (
                "stop.monitor",
                "val_los".into(),
                "`stop.monitor` is \"val_los\", but must be one of loss, val_loss; did you mean `val_loss`?",
            ),
            (
                "rates",
                serde_json::json!(["a"]),
                "`rates` is [\"a\"], but must be a list, each value a number",
            ),
        ] {
            assert_eq!(set(&config, TABLES, key, &value).unwrap_err().to_string(), says);
        }
        let error = set_text(&config, TABLES, "rates", &["1,b"]).unwrap_err().to_string();
        assert_eq!(error, "`rates` is `1,b`, but must be a number");
    }

    #[test]
    fn a_table_is_one_text() {
        let stop = parse_table::<Stop>(Stop::OPTIONS, "monitor", "loss:patience=2,restore").unwrap();
        assert_eq!(stop, Stop { monitor: "loss".to_owned(), patience: 2, restore: true });
        let refused = |text| parse_table::<Stop>(Stop::OPTIONS, "monitor", text).unwrap_err();
        assert_eq!(refused("loss:patience=1,patience=2"), Refused::MustBe("given with patience once".into()));
        let Refused::Because(reason) = refused("loss:patient=1") else { panic!("a sentence") };
        let reason = reason.to_string();
        assert!(reason.ends_with("did you mean `patience`?"), "{reason}");
        let Refused::Because(reason) = refused("loss:patience=x") else { panic!("a sentence") };
        assert_eq!(reason.to_string(), "patience is x, but must be a whole number, 0 or more");
    }
}
