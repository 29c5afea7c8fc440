use crate::Message;
use crate::spelling::hint;
use serde_json::{Number, Value};

/// What kind of value an option takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number, this or more.
    Whole(u64),
    /// A whole number from the first to the second.
    Between(u64, u64),
    /// A finite number.
    Number,
    /// A finite number that satisfies a condition, and the description of the condition.
    Such(fn(f64) -> bool, &'static str),
    /// True or false; on the command line, a flag without a value means true.
    Switch,
    /// A text.
    Text,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A text that a function parses, such as `sgd:momentum=0.9`. In files, also any value that the field's
    /// type reads.
    Form {
        /// Parses the text into the value for files.
        parse: fn(&str) -> Result<Value, Refused>,
        /// The accepted texts, in words.
        accepted: &'static str,
        /// The meaning of a flag without a value, if that is allowed.
        bare: Option<&'static str>,
    },
    /// Any value that the field's type reads.
    Any,
    /// A list. The command line separates the values by this character, or repeats the flag.
    List(&'static Kind, Option<char>),
}

/// Reads a path: the kind of options that name a file or a folder.
///
/// # Errors
/// If the path is empty.
pub fn path(text: &str) -> Result<Value, Refused> {
    if text.is_empty() {
        Err(Refused::MustBe("the path of a file or folder".into()))
    } else {
        Ok(text.into())
    }
}

/// The reason for refusing a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The accepted values.
    MustBe(Message),
    /// A whole sentence.
    Because(Message),
}

impl Kind {
    /// A text that `parse` reads.
    pub const fn form(parse: fn(&str) -> Result<Value, Refused>, accepted: &'static str) -> Self {
        Kind::Form { parse, accepted, bare: None }
    }

    /// The accepted values, in words.
    pub fn accepted(&self) -> String {
        match self {
            Kind::Whole(least) => format!("a whole number, {least} or more"),
            Kind::Between(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Number => "a number".to_owned(),
            Kind::Such(_, accepted) => (*accepted).to_owned(),
            Kind::Switch => "true or false".to_owned(),
            Kind::Text => "a text in quotes".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::Form { accepted, .. } => (*accepted).to_owned(),
            Kind::Any => "another value".to_owned(),
            Kind::List(kind, _) => format!("a list, each value {}", kind.accepted()),
        }
    }

    /// The meaning of a flag without a value, if that is allowed.
    pub fn bare(&self) -> Option<&'static str> {
        match self {
            Kind::Switch => Some("true"),
            Kind::Form { bare, .. } => *bare,
            _ => None,
        }
    }

    /// Whether it takes a number.
    pub fn is_number(&self) -> bool {
        matches!(self, Kind::Whole(_) | Kind::Between(..) | Kind::Number | Kind::Such(..))
    }

    /// Parses a text of the command line.
    ///
    /// # Errors
    /// The accepted values.
    pub fn parse(&self, text: &str) -> Result<Value, Refused> {
        let refuse = || Refused::MustBe(self.accepted().into());
        match self {
            Kind::Whole(_) | Kind::Between(..) => {
                let number = text.trim().parse::<u64>().map_err(|_| refuse())?;
                self.read(&number.into())
            }
            Kind::Number | Kind::Such(..) => {
                let number = text.trim().parse().ok().and_then(Number::from_f64);
                self.read(&Value::Number(number.ok_or_else(refuse)?))
            }
            Kind::Switch => text.parse::<bool>().map(Value::Bool).map_err(|_| refuse()),
            Kind::Text | Kind::Any => Ok(text.into()),
            Kind::OneOf(words) => match words.contains(&text) {
                true => Ok(text.into()),
                false => Err(self.unknown_word(text, words)),
            },
            Kind::Form { parse, .. } => parse(text),
            Kind::List(kind, separator) => {
                let parts = match separator {
                    Some(separator) => text.split(*separator).map(str::trim).collect(),
                    None => vec![text],
                };
                parts.into_iter().map(|part| kind.parse(part)).collect::<Result<_, _>>().map(Value::Array)
            }
        }
    }

    /// Reads a value of a file: the value itself, or a text that stands for it.
    ///
    /// # Errors
    /// The accepted values.
    pub fn read(&self, value: &Value) -> Result<Value, Refused> {
        let fits = match self {
            Kind::Whole(least) => value.as_u64().is_some_and(|number| number >= *least),
            Kind::Between(least, most) => {
                value.as_u64().is_some_and(|number| (*least..=*most).contains(&number))
            }
            Kind::Number => value.is_number(),
            Kind::Such(holds, _) => value.as_f64().is_some_and(holds),
            Kind::Switch => value.is_boolean(),
            Kind::Text => value.is_string(),
            Kind::Any => true,
            Kind::OneOf(words) => match value.as_str() {
                Some(text) if !words.contains(&text) => return Err(self.unknown_word(text, words)),
                text => text.is_some(),
            },
            Kind::Form { parse, .. } => match value {
                Value::String(text) => return parse(text),
                Value::Number(number) => return parse(&number.to_string()),
                _ => true,
            },
            Kind::List(kind, _) => match value {
                Value::Array(values) => {
                    let read = values.iter().map(|value| kind.read(value)).collect::<Result<_, _>>();
                    return read.map(Value::Array).map_err(|refused| match refused {
                        Refused::MustBe(_) => Refused::MustBe(self.accepted().into()),
                        because => because,
                    });
                }
                _ => false,
            },
        };
        match fits || value.is_null() {
            true => Ok(value.clone()),
            false => Err(Refused::MustBe(self.accepted().into())),
        }
    }

    fn unknown_word(&self, text: &str, words: &[&str]) -> Refused {
        Refused::MustBe(format!("{}{}", self.accepted(), hint(text, words.iter().copied())).into())
    }
}
