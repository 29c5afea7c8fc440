use crate::printable;
use crate::status::now_in_milliseconds;
use serde_json::{Value, json};

/// The form of the lines that a run prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Sentences for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

#[derive(Clone, Copy, Debug)]
enum Level {
    Info,
    Hint,
    Warning,
    Error,
}

/// An event of a run for its log: a sentence for people, and fields for programs.
///
/// The JSON form begins with the time in UTC (RFC 3339), the level (`info`, `warning` or `error`), the event's name and
/// the sentence. Control characters are escaped in both forms. Numbers that are not finite are `null`.
///
/// ```
/// use towers_callbacks::{LogFormat, LogLine};
///
/// let line = LogLine::info("epoch", " - loss: 0.5").after("Epoch 3/70").with("epoch", 3).with("loss", 0.5);
/// assert_eq!(line.form(LogFormat::Text), " - loss: 0.5\n");
/// let json = line.form(LogFormat::Json);
/// assert!(json.starts_with("{\"time\":\"20"));
/// assert!(json.ends_with("\"event\":\"epoch\",\"message\":\"Epoch 3/70 - loss: 0.5\",\"epoch\":3,\"loss\":0.5}\n"));
/// ```
#[derive(Clone, Debug)]
pub struct LogLine {
    level: Level,
    event: &'static str,
    before: String,
    message: String,
    fields: Vec<(String, Value)>,
}

impl LogLine {
    fn new(level: Level, event: &'static str, message: impl Into<String>) -> Self {
        LogLine { level, event, before: String::new(), message: message.into(), fields: Vec::new() }
    }

    /// An event with a name.
    pub fn info(event: &'static str, message: impl Into<String>) -> Self {
        LogLine::new(Level::Info, event, message)
    }

    /// A hint after an error.
    pub fn hint(message: impl Into<String>) -> Self {
        LogLine::new(Level::Hint, "hint", message)
    }

    /// A fault that does not end the run.
    pub fn warning(message: impl Into<String>) -> Self {
        LogLine::new(Level::Warning, "warning", message)
    }

    /// The error that ends the run.
    pub fn error(message: impl Into<String>) -> Self {
        LogLine::new(Level::Error, "error", message)
    }

    /// The line that this one continues for people. In JSON it begins the message.
    pub fn after(self, before: impl Into<String>) -> Self {
        LogLine { before: before.into(), ..self }
    }

    /// Adds a field.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.fields.push((key.into(), value.into()));
        self
    }

    /// Adds numbers by their names.
    pub fn with_all<'v>(self, values: impl IntoIterator<Item = (&'v str, f64)>) -> Self {
        values.into_iter().fold(self, |line, (key, value)| line.with(key, value))
    }

    /// The line with its end.
    pub fn form(&self, format: LogFormat) -> String {
        let LogLine { level, event, before, message, fields } = self;
        let text = match (format, level) {
            (LogFormat::Text, Level::Info) => format!("{message}\n"),
            (LogFormat::Text, Level::Hint) => format!("hint: {message}\n"),
            (LogFormat::Text, Level::Warning) => format!("warning: {message}\n"),
            (LogFormat::Text, Level::Error) => format!("error: {message}\n"),
            (LogFormat::Json, level) => {
                let level = match level {
                    Level::Info | Level::Hint => "info",
                    Level::Warning => "warning",
                    Level::Error => "error",
                };
                let head = [
                    ("time", json!(now_in_milliseconds())),
                    ("level", json!(level)),
                    ("event", json!(event)),
                    ("message", json!(format!("{before}{message}"))),
                ];
                let fields = fields.iter().map(|(key, value)| (key.as_str(), value));
                let all = head.iter().map(|(key, value)| (*key, value)).chain(fields);
                let pairs: Vec<String> = all.map(|(key, value)| format!("{}:{value}", json!(key))).collect();
                format!("{{{}}}\n", pairs.join(","))
            }
        };
        printable(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let lines = [
            (LogLine::info("note", "a\u{1b}[2J"), "a\\u001b[2J\n", "info", "note", "a\u{1b}[2J"),
            (LogLine::hint("b"), "hint: b\n", "info", "hint", "b"),
            (LogLine::warning("c \"d\""), "warning: c \"d\"\n", "warning", "warning", "c \"d\""),
            (LogLine::error("e\nf"), "error: e\nf\n", "error", "error", "e\nf"),
        ];
        for (line, text, level, event, message) in lines {
            assert_eq!(line.form(LogFormat::Text), text);
            let line = line
                .with("a key\"", [0.5, 1e-7, f64::NAN].map(Value::from).to_vec())
                .with_all([("n", f64::INFINITY)]);
            let json = line.form(LogFormat::Json);
            assert_eq!(json.matches('\n').count(), 1, "{json}");
            let read: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                [&read["level"], &read["event"], &read["message"], &read["a key\""], &read["n"]],
                [&json!(level), &json!(event), &json!(message), &json!([0.5, 1e-7, null]), &Value::Null]
            );
        }
    }
}
