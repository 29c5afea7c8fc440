//! The report of a self-test, to be attached to an issue: versions and results, and no paths.

use crate::gpus;
use core::fmt::Write as _;
use towers_options::Message;
use towers_program::{Device, Precision};

/// What a self-test found.
#[derive(Clone, Debug)]
pub struct SelfTestReport {
    /// The device, without its number.
    pub device: String,
    /// Versions, options and algorithms, a line each.
    pub facts: Vec<String>,
    /// A row for each test.
    pub rows: Vec<TestRow>,
    /// The time that all tests took.
    pub seconds: f64,
}

/// A test of a [`SelfTest`](crate::SelfTest).
#[derive(Clone, Debug)]
pub struct TestRow {
    /// The number format.
    pub precision: Precision,
    /// A topic of the suite `conformance`, a network, a network's replayed graph, or `sums`.
    pub name: String,
    /// The number of results that were compared.
    pub results: usize,
    /// The largest difference, as a part of the tolerance.
    pub worst: f32,
    /// The time that it took.
    pub seconds: f64,
    /// If a result is wrong: the op, both values, the tolerance, and what to try.
    pub failure: Option<Message>,
}

/// The machine, the software and the options.
pub(crate) fn facts(device: &Device) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let bf16 = towers_tensor_cpu::bf16_level().map_or(String::new(), |level| format!(", bf16 by {level}"));
    let (os, arch, simd) = (std::env::consts::OS, std::env::consts::ARCH, towers_tensor_cpu::simd_level());
    let machine = format!("towers {}, {os} {arch}, {cores} cores, {simd}{bf16}", env!("CARGO_PKG_VERSION"));
    [vec![machine], gpus::facts(device)].concat()
}

/// The engine of a GPU with its algorithms so far.
pub(crate) fn algorithms(device: &Device) -> Vec<String> {
    let lines = gpus::algorithms(device).into_iter();
    lines.map(|line| format!("{}: {}", device.precision(), without_paths(&line))).collect()
}

/// The text with a word in place of each path.
fn without_paths(text: &str) -> String {
    let is_path = |word: &str| {
        let word = word.trim_start_matches(['`', '"', '\'', '(']);
        let drive = word.as_bytes().get(1) == Some(&b':')
            && word.as_bytes().first().is_some_and(u8::is_ascii_alphabetic);
        (word.starts_with(['/', '~', '\\']) || drive) && word.len() > 2
    };
    let words: Vec<&str> = text.split(' ').map(|word| if is_path(word) { "PATH" } else { word }).collect();
    words.join(" ")
}

impl TestRow {
    /// Whether it passed, in a word.
    pub fn word(&self) -> &'static str {
        if self.failure.is_none() { "ok" } else { "FAILED" }
    }

    /// The largest difference in percent of the tolerance.
    pub fn percent(&self) -> String {
        if self.worst.is_finite() { format!("{:.0}%", 100.0 * self.worst) } else { "none".into() }
    }
}

impl SelfTestReport {
    /// The tests that failed, each with the reason.
    pub fn failures(&self) -> impl Iterator<Item = (&TestRow, &Message)> {
        self.rows.iter().filter_map(|row| Some((row, row.failure.as_ref()?)))
    }

    /// A page in Markdown with all of it.
    pub fn markdown(&self) -> String {
        let SelfTestReport { device, facts, rows, seconds } = self;
        let mut page = format!("# `towers selftest` on {device}\n\n");
        let failed = self.failures().count();
        let _ = writeln!(page, "{} tests in {seconds:.0} s, {failed} failed.\n", rows.len());
        facts.iter().for_each(|fact| page += &format!("- {fact}\n"));
        page +=
            "\n| precision | test | results | largest difference, of the tolerance | seconds | outcome |\n";
        page += "| --- | --- | --- | --- | --- | --- |\n";
        for row in rows {
            let TestRow { precision, name, results, seconds, .. } = row;
            let (percent, word) = (row.percent(), row.word());
            let _ =
                writeln!(page, "| {precision} | {name} | {results} | {percent} | {seconds:.1} | {word} |");
        }
        for (row, why) in self.failures() {
            let _ =
                writeln!(page, "\n**{}, {}**: {}", row.name, row.precision, without_paths(&why.to_string()));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_failed_and_no_path() {
        let row = |name: &str, worst, failure| TestRow {
            precision: Precision::Bf16,
            name: name.into(),
            results: 7,
            worst,
            seconds: 0.25,
            failure,
        };
        let why =
            "libcudnn.so.9 in /elsewhere/lib: conv2d of conv2d_1: element 3 is 1e0, not 2e0; 5 images/s";
        let failed = Some(why.into());
        let rows = vec![row("pooling", 0.125, None), row("small_cnn", f32::INFINITY, failed)];
        let report =
            SelfTestReport { device: "a GPU".into(), facts: vec!["driver 13.0".into()], rows, seconds: 1.6 };
        let page = report.markdown();
        assert!(
            page.starts_with("# `towers selftest` on a GPU\n\n2 tests in 2 s, 1 failed.\n\n- driver 13.0\n")
        );
        assert!(page.contains("\n| bf16 | pooling | 7 | 12% | 0.2 | ok |\n"), "{page}");
        assert!(page.contains("\n| bf16 | small_cnn | 7 | none | 0.2 | FAILED |\n"), "{page}");
        let end = "\n**small_cnn, bf16**: libcudnn.so.9 in PATH conv2d of conv2d_1: element 3 is 1e0, not 2e0; 5 images/s\n";
        assert!(page.ends_with(end), "{page}");
    }
}
