use std::borrow::Cow;
use std::fmt::{self, Write};

/// A sentence in which options are keys, not text: so each reader sees them as they write them.
///
/// [`Display`](fmt::Display) shows a key as files have it, in backticks. [`spelled`](Message::spelled) shows it in
/// another way, as a command line shows its flag. The macro [`message!`](crate::message!) makes one.
///
/// ```
/// use towers_options::message;
///
/// let most = 4;
/// let message = message!("at most {most} with ", ["devices.device"], " cpu");
/// assert_eq!(message.to_string(), "at most 4 with `devices.device` cpu");
/// assert_eq!(message.spelled(|_| "--device".to_owned()), "at most 4 with --device cpu");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Cow<'static, str>),
    Key(Cow<'static, str>),
}

impl Message {
    /// A key alone.
    pub fn key(key: impl Into<Cow<'static, str>>) -> Self {
        Message(vec![Part::Key(key.into())])
    }

    /// The message, followed by another one.
    #[must_use]
    pub fn and(mut self, more: impl Into<Message>) -> Self {
        self.0.extend(more.into().0);
        self
    }

    /// The text with each key as `spell` writes it.
    pub fn spelled(&self, spell: impl Fn(&str) -> String) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Key(key) => spell(key).into(),
        };
        self.0.iter().map(part).collect()
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Key(key) => {
                f.write_char('`')?;
                f.write_str(key)?;
                f.write_char('`')
            }
        })
    }
}

impl From<&'static str> for Message {
    fn from(text: &'static str) -> Self {
        Message(vec![Part::Text(text.into())])
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Message(vec![Part::Text(text.into())])
    }
}

/// Makes a [`Message`] of texts and keys. A text is as for [`format!`]; a key stands in brackets.
///
/// ```
/// let (most, key) = (4, "epochs");
/// let message = towers_options::message!("at most {most} ", [key], ", or none of ", ["data.limit_train"]);
/// assert_eq!(message.to_string(), "at most 4 `epochs`, or none of `data.limit_train`");
/// ```
#[macro_export]
macro_rules! message {
    (@part [$key:expr]) => { $crate::Message::key($key) };
    (@part $text:literal) => { $crate::Message::from(format!($text)) };
    ($($part:tt),+ $(,)?) => {
        $crate::Message::default()$(.and($crate::message!(@part $part)))+
    };
}
