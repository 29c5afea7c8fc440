//! File names with figures in them: `w-{epoch:02d}-{val_acc:.2f}.safetensors`, as for Keras'
//! `ModelCheckpoint`.

use crate::checkpoints::MODEL_FILE;
use crate::format::Format;
use crate::{EpochRecord, Error, Result};
use std::path::PathBuf;
use towers_metrics::Values;
use towers_options::{Message, hint, message};

const OPTION: &str = "model_checkpoint.path";

/// The figures of a name after an epoch, besides the metrics that only some runs have.
const AFTER_EPOCHS: [&str; 9] =
    ["epoch", "loss", "acc", "val_loss", "val_acc", "lr", "accuracy", "val_accuracy", "learning_rate"];

/// The figures of a name in the middle of an epoch, before an evaluation.
const AFTER_BATCHES: [&str; 7] = ["epoch", "batch", "loss", "acc", "lr", "accuracy", "learning_rate"];

/// The figures that fill a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures<'a> {
    /// From 1, as in Keras.
    pub(crate) epoch: u64,
    /// The batch of the epoch, from 1.
    pub(crate) batch: u64,
    pub(crate) metrics: &'a Values,
    pub(crate) lr: f64,
}

impl<'a> From<&'a EpochRecord> for Figures<'a> {
    fn from(record: &'a EpochRecord) -> Self {
        let EpochRecord { epoch, ref metrics, lr, .. } = *record;
        Figures { epoch, batch: 0, metrics, lr }
    }
}

impl Figures<'_> {
    fn write(&self, key: &str, format: &Format) -> String {
        match key {
            "epoch" => format.whole(self.epoch),
            "batch" => format.whole(self.batch),
            "lr" | "learning_rate" => format.fraction(self.lr),
            metric => format.fraction(self.metrics.get(metric).unwrap_or(f64::NAN)),
        }
    }
}

/// The name of a file inside a run's folder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Figure(String, Format),
}

impl Pattern {
    /// Reads a pattern for files that are written after epochs, or after `batches`.
    pub(crate) fn parse(text: &str, batches: bool) -> Result<Pattern> {
        let refuse = |accepted: Message| Error::option(OPTION, format_args!("`{text}`"), accepted);
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            push(&mut pieces, before);
            // Doubled braces are braces.
            if brace.starts_with("{{") || brace.starts_with("}}") {
                push(&mut pieces, &brace[..1]);
                rest = &brace[2..];
                continue;
            }
            let field = brace.strip_prefix('{').and_then(|field| field.split_once('}'));
            let (field, after) = field
                .ok_or_else(|| refuse("written with `{{` and `}}` where it means single braces".into()))?;
            pieces.push(figure(field, batches).map_err(refuse)?);
            rest = after;
        }
        push(&mut pieces, rest);
        let pattern = Pattern(pieces);
        pattern.check().map_err(|accepted| refuse(accepted.into()))?;
        Ok(pattern)
    }

    /// The figures in it.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Figure(key, _) => Some(key.as_str()),
        })
    }

    /// The file's path inside the run's folder.
    pub(crate) fn path(&self, figures: &Figures<'_>) -> PathBuf {
        self.write(|key, format| figures.write(key, format)).into()
    }

    fn write(&self, figure: impl Fn(&str, &Format) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Figure(key, format) => figure(key, format),
        };
        self.0.iter().map(piece).collect()
    }

    /// For all figures, the path stays inside the run's folder and differs from the run's own files: a figure
    /// contains a digit or a letter, and never a slash.
    fn check(&self) -> core::result::Result<(), &'static str> {
        let path = self.write(|_, _| "0".to_owned());
        let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
        if path.contains(['\\', ':']) || path.chars().any(char::is_control) || !path.split('/').all(inside) {
            return Err("a path inside of the run's folder, without `..`");
        }
        if !path.ends_with(".safetensors") || path.ends_with("/.safetensors") || path == ".safetensors" {
            return Err("the name of a file that ends with .safetensors");
        }
        let lower = path.to_ascii_lowercase();
        if lower == MODEL_FILE || lower.starts_with("checkpoints/") {
            return Err("another name: model.safetensors and checkpoints/ are the run's own");
        }
        if path.len() > 200 {
            return Err("at most 200 bytes long");
        }
        Ok(())
    }
}

fn push(pieces: &mut Vec<Piece>, more: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.push_str(more),
        _ => pieces.push(Piece::Text(more.to_owned())),
    }
}

/// The part between braces.
fn figure(field: &str, batches: bool) -> core::result::Result<Piece, Message> {
    let (key, format) = field.split_once(':').unwrap_or((field, ""));
    let known: &[&'static str] = if batches { &AFTER_BATCHES } else { &AFTER_EPOCHS };
    let is_measured =
        |key: &str| key.strip_prefix("val_").is_some_and(|name| towers_metrics::named(name).is_some());
    if !known.contains(&key) && (batches || !is_measured(key)) {
        let near = hint(key, known.iter().copied());
        let known = known.join(", ");
        let when =
            if batches { message!(" with ", ["model_checkpoint.save_freq"]) } else { Message::default() };
        return Err(message!("made with no other figures than {known}").and(when).and(near));
    }
    let whole = ["epoch", "batch"].contains(&key);
    let example = if whole { format!("{{{key}:02d}}") } else { format!("{{{key}:.2f}}") };
    let format = Format::parse(format, whole).ok_or_else(|| message!("formatted as in `{example}`"))?;
    Ok(Piece::Figure(key.to_owned(), format))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Values {
        [("loss", 1.25), ("acc", 0.5), ("val_loss", 1.0), ("val_acc", 0.456), ("val_f1", 0.25)]
            .into_iter()
            .collect()
    }

    fn figures(metrics: &Values) -> Figures<'_> {
        Figures { epoch: 3, batch: 40, metrics, lr: 1e-4 }
    }

    #[test]
    fn names_are_keras() {
        for (pattern, name) in [
            ("w-{epoch:02d}-{val_acc:.2f}.safetensors", "w-03-0.46.safetensors"),
            ("{epoch}/{val_accuracy:.1%}.safetensors", "3/45.6%.safetensors"),
            ("{{{loss}}}-{lr:.1e}.safetensors", "{1.25}-1.0e-04.safetensors"),
            ("{val_f1:.2f}.safetensors", "0.25.safetensors"),
            ("best.safetensors", "best.safetensors"),
        ] {
            let path = Pattern::parse(pattern, false).unwrap().path(&figures(&metrics()));
            assert_eq!(path.to_str(), Some(name), "{pattern}");
        }
        let pattern = Pattern::parse("{epoch}-{batch:04d}-{accuracy:g}.safetensors", true).unwrap();
        assert_eq!(pattern.path(&figures(&metrics())).to_str(), Some("3-0040-0.5.safetensors"));
        let nan = [("val_acc", f64::NAN)].into_iter().collect();
        let path = Pattern::parse("{val_acc:.2f}.safetensors", false).unwrap().path(&figures(&nan));
        assert_eq!(path.to_str(), Some("nan.safetensors"));
    }

    #[test]
    fn hostile_patterns_are_refused_in_a_sentence() {
        let inside = "must be a path inside of the run's folder, without `..`";
        for (pattern, says) in [
            ("/tmp/w.safetensors", inside),
            ("../w.safetensors", inside),
            ("a/../../w.safetensors", inside),
            ("a//w.safetensors", inside),
            ("C:\\w.safetensors", inside),
            ("a\u{0}.safetensors", inside),
            ("a\n.safetensors", inside),
            ("", inside),
            ("{epoch:/>3}.safetensors", "formatted as in `{epoch:02d}`"),
            ("{epoch:9999999999d}.safetensors", "formatted as in `{epoch:02d}`"),
            ("w.h5", "the name of a file that ends with .safetensors"),
            ("dir/.safetensors", "the name of a file that ends with .safetensors"),
            ("model.safetensors", "model.safetensors and checkpoints/ are the run's own"),
            ("checkpoints/w.safetensors", "model.safetensors and checkpoints/ are the run's own"),
            (
                "{val_ac:.2f}.safetensors",
                "epoch, loss, acc, val_loss, val_acc, lr, accuracy, val_accuracy, learning_rate; did you mean `val_acc`?",
            ),
            ("{}.safetensors", "made with no other figures"),
            ("{0}.safetensors", "made with no other figures"),
            ("{epoch.__class__}.safetensors", "made with no other figures"),
            ("{batch}.safetensors", "made with no other figures"),
            ("{epoch!r}.safetensors", "made with no other figures"),
            ("{epoch.safetensors", "written with `{{` and `}}`"),
            ("epoch}.safetensors", "written with `{{` and `}}`"),
            ("{val_acc:d}.safetensors", "formatted as in `{val_acc:.2f}`"),
        ] {
            let error = Pattern::parse(pattern, false).unwrap_err().to_string();
            assert!(
                error.starts_with("`model_checkpoint.path` is `") && error.contains(says),
                "{pattern:?}: {error}"
            );
        }
        let error = Pattern::parse("{val_acc}.safetensors", true).unwrap_err().to_string();
        assert!(error.contains("with `model_checkpoint.save_freq`"), "{error}");
        assert!(Pattern::parse(&format!("{}.safetensors", "x".repeat(300)), false).is_err());
    }
}
