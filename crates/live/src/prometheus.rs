//! The figures of a run for Prometheus, in its text exposition format 0.0.4. [`Server`](crate::Server) serves them.

use crate::RunStatus;
use std::fmt::Write;
use towers_callbacks::metric_names;
use towers_metrics::{about, keras_name};

/// The type of the answer.
pub static CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// The figures of a run with this name. `ended` says whether it is over.
///
/// Times are in seconds, and accuracies from 0 to 1. Counters count over the whole run, with the parts before a resume. A
/// figure that isn't known yet is left out.
///
/// ```
/// use towers_live::{RunStatus, prometheus};
///
/// let figures = prometheus::figures("a first try", &RunStatus::default(), false);
/// assert!(figures.contains("\n# TYPE towers_epoch gauge\ntowers_epoch 0\n"));
/// ```
pub fn figures(name: &str, status: &RunStatus, ended: bool) -> String {
    let mut families = Families(String::new());
    let about_run =
        [("run", name), ("recipe", &status.recipe), ("model", &status.model), ("devices", &status.devices)];
    families.add("run_info", "gauge", "The run.", [(labels(&about_run), 1.0)]);
    let step = status.step.as_ref();
    let last = status.history.last();
    let done = last.map_or(0, |last| last.epoch);
    let in_epoch = step.map_or((0, 0), |step| (step.steps_done, step.samples));
    families.gauge("running", "1 until the run ends, then 0.", f64::from(u8::from(!ended)));
    families.gauge("epoch", "The current epoch, from 1.", status.epoch as f64);
    families.gauge("epochs", "Epochs of the run.", status.epochs as f64);
    families.gauge("replicas", "Replicas that train together.", status.replicas as f64);
    families.counter("steps", "Steps done.", (done * status.steps_per_epoch + in_epoch.0) as f64);
    families.counter(
        "samples",
        "Training samples seen.",
        (done * status.samples_per_epoch + in_epoch.1) as f64,
    );
    families.counter("train_seconds", "Time spent on training and validation.", status.time.elapsed());
    if let Some(left) = status.time.left().filter(|_| !ended) {
        families.gauge("left_seconds", "Time that the run still takes.", left);
    }
    for metric in metric_names(&status.history) {
        let (title, of) =
            (about(metric).title, if metric.starts_with("val_") { "validation" } else { "training" });
        let newest = step.and_then(|step| step.metrics.get(metric)).or_else(|| last?.get(metric));
        if let Some(value) = newest {
            families.gauge(&keras_name(metric), &format!("{title} of the {of} data."), value);
        }
    }
    if let Some((epoch, accuracy)) = status.best() {
        families.gauge("best_epoch", "The epoch with the best validation accuracy.", epoch as f64);
        families.gauge("best_val_accuracy", "The best validation accuracy.", accuracy);
    }
    if let Some(lr) = step.map(|step| step.lr).or(last.map(|last| last.lr)) {
        families.gauge("learning_rate", "The learning rate of the newest step.", lr);
    }
    if let Some(rate) = status.rate() {
        families.gauge("samples_per_second", "Training samples a second.", rate);
    }
    let rates = status.replica_rates.iter().enumerate();
    let rates = rates.map(|(rank, rate)| (labels(&[("replica", &rank.to_string())]), *rate));
    let help = "Training samples a second of each replica while it computes.";
    families.add("replica_samples_per_second", "gauge", help, rates);
    families.0
}

/// The labels of a sample.
fn labels(all: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        all.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// The families of metrics so far.
struct Families(String);

impl Families {
    /// Adds a family, if it has samples: labels and a value each.
    fn add(&mut self, name: &str, kind: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = format!("towers_{}", name.replace(|c| !is_plain(c), "_"));
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail, here and below.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = match value {
                f64::INFINITY => writeln!(self.0, "{name}{labels} +Inf"),
                f64::NEG_INFINITY => writeln!(self.0, "{name}{labels} -Inf"),
                value => writeln!(self.0, "{name}{labels} {value}"),
            };
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, "gauge", help, [(String::new(), value)]);
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.add(&format!("{name}_total"), "counter", help, [(String::new(), value)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveStatus;
    use std::collections::BTreeMap;
    use towers_callbacks::Observer;
    use towers_callbacks::testing::{Fake, means, record, run, state, step};

    /// The labels and the value of a sample.
    type Sample = (BTreeMap<String, String>, f64);

    fn is_name(text: &str) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !text.is_empty() && text.chars().all(is_part) && !text.starts_with(|c: char| c.is_ascii_digit())
    }

    /// Reads `{name="value",...}` and returns what follows.
    fn read_labels(text: &str) -> (BTreeMap<String, String>, &str) {
        let (mut labels, Some(mut rest)) = (BTreeMap::new(), text.strip_prefix('{')) else {
            return (BTreeMap::new(), text);
        };
        loop {
            let (name, behind) = rest.split_once("=\"").expect("a label has a value");
            let (mut value, mut chars) = (String::new(), behind.char_indices());
            let end = loop {
                match chars.next().expect("a value ends with a quote") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} is no escape"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            assert!(is_name(name) && labels.insert(name.to_owned(), value).is_none(), "{name}");
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return (labels, rest.strip_prefix('}').expect("labels end with a brace")),
            }
        }
    }

    /// Reads the format, and nothing else: each family once, with its help, its type and its samples in this order.
    fn read(text: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
        let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
        assert!(text.ends_with('\n'), "the last line ends too");
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) = line.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
            assert!(is_name(name) && !help.trim().is_empty(), "{line}");
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(
                ["counter", "gauge"].contains(&kind) && (kind == "counter") == name.ends_with("_total"),
                "{name}"
            );
            let mut samples = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                let rest = line.strip_prefix(name).unwrap();
                let (labels, rest) = read_labels(rest);
                let value = match rest.strip_prefix(' ').unwrap() {
                    "+Inf" => f64::INFINITY,
                    "-Inf" => f64::NEG_INFINITY,
                    "NaN" => f64::NAN,
                    number => {
                        assert!(!number.contains(|c: char| c.is_alphabetic() && c != 'e'), "{number}");
                        number.parse().unwrap()
                    }
                };
                assert!(samples.iter().all(|(other, _)| *other != labels), "{line} comes twice");
                samples.push((labels, value));
            }
            assert!(!samples.is_empty(), "{name}");
            assert!(
                families.insert(name.to_owned(), (kind.to_owned(), samples)).is_none(),
                "{name} comes twice"
            );
        }
        families
    }

    #[test]
    fn figures_follow_the_run() {
        let odd = "a \"run\" \\ of\nmine, {x=\"y\"}";
        let mut metrics = record(1, [0.75, 0.5, f64::INFINITY, 0.375]);
        metrics.metrics.set("val_top3_acc", 0.875);
        let mut start = state(vec![metrics]);
        start.global_batch = 32;
        let mut begun = run(70, &start);
        (begun.model, begun.steps_per_epoch, begun.train_samples, begun.replicas) = (odd, 10, 310, 2);
        let mut status = LiveStatus::default();
        status.on_begin(&begun).unwrap();
        status.on_epoch_begin(2).unwrap();
        let now = |status: &LiveStatus| read(&figures(odd, &status.now(), false));
        let value = |families: &BTreeMap<String, (String, Vec<Sample>)>, name: &str| families[name].1[0].1;
        let before = now(&status);
        let counted = ["towers_steps_total", "towers_samples_total"];
        assert_eq!(counted.map(|name| value(&before, name)), [10.0, 310.0]);
        assert_eq!(value(&before, "towers_loss"), 0.75);
        let mut seen = step(2, 5, 10);
        (seen.metrics, seen.lr) = (means(0.6875, f64::NAN), 1e-7);
        status.on_step(&seen).unwrap();
        status.on_replica_rates(&[3.0, 4.5]).unwrap();
        let during = now(&status);
        assert_eq!(counted.map(|name| value(&during, name)), [15.0, 310.0 + 160.0]);
        for (name, expected) in [
            ("running", 1.0),
            ("epoch", 2.0),
            ("epochs", 70.0),
            ("replicas", 2.0),
            ("loss", 0.6875),
            ("val_loss", f64::INFINITY),
            ("val_accuracy", 0.375),
            ("val_top3_acc", 0.875),
            ("best_epoch", 1.0),
            ("best_val_accuracy", 0.375),
            ("learning_rate", 1e-7),
            ("samples_per_second", 791.5),
            ("train_seconds_total", 64.2),
        ] {
            assert_eq!(value(&during, &format!("towers_{name}")), expected, "{name}");
        }
        assert!(value(&during, "towers_accuracy").is_nan() && value(&during, "towers_left_seconds") > 1.0);
        let info = &during["towers_run_info"].1[0].0;
        assert_eq!((info["run"].as_str(), info["recipe"].as_str()), (odd, "quick"));
        let rates = &during["towers_replica_samples_per_second"].1;
        assert_eq!(
            (rates[0].0["replica"].as_str(), rates[1].0["replica"].as_str(), rates[1].1),
            ("0", "1", 4.5)
        );
        status.on_epoch_end(&record(2, [0.5; 4]), &start, &Fake(0.0)).unwrap();
        let after = now(&status);
        assert_eq!(counted.map(|name| value(&after, name)), [20.0, 620.0]);
        assert!(value(&after, "towers_train_seconds_total") > 64.2);
        let ended = read(&figures(odd, &status.now(), true));
        assert_eq!(value(&ended, "towers_running"), 0.0);
        assert!(!ended.contains_key("towers_left_seconds"));
        assert_eq!(read(&figures("", &RunStatus::default(), false)).len(), 9);
    }
}
