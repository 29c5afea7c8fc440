//! The predictions as text: a page for people, lines of JSON for programs.

use crate::link::{KNOWN, Protocol};
use crate::model::Model;
use crate::options::{MIB, Question};
use crate::sweep::{Row, Scaling};
use anyhow::Result;
use serde::Serialize;

/// What users of Keras measured, as the tutorials tell it. One batch a device, so this is weak scaling.
pub struct Measured {
    pub gpus: usize,
    pub speed_up: f64,
    pub what: &'static str,
}

/// Keras' `multi_gpu_model`: replicas' outputs are joined and gradients summed on one device, without overlap.
pub const MEASURED: [Measured; 2] = [
    Measured { gpus: 4, speed_up: 63.0 / 16.0, what: "4 Titan X, MiniGoogLeNet: 63 s to 16 s an epoch" },
    Measured { gpus: 3, speed_up: 23.0 / 9.0, what: "3 GTX 1080 Ti: 23 to 9 minutes for 160 epochs" },
];

/// All that was assumed, and all that was predicted.
pub fn page(model: &Model, question: &Question, rows: &[Row]) -> String {
    let work = model.at(question.batch);
    let mut page = format!(
        "PREDICTED, not measured: {} in data parallel.\nLayer times: measured on {} at batch {}; with the batch they change {}.\n",
        model.name, model.device, model.batch, model.scaling
    );
    if let Some(speed) = &model.speed {
        page += &format!("Times were {speed}.\n");
    }
    page += &format!(
        "One device computes {:.3} ms at batch {}; devices add up {:.2} MB a step, {}.\n",
        1e3 * work.compute(),
        question.batch,
        work.bytes() as f64 / 1e6,
        match question.bucket {
            Some(bytes) => format!("in buckets of {} MiB while backward goes on", bytes as f64 / MIB),
            None => "at once, after backward".to_owned(),
        }
    );
    if question.jitter > 0.0 {
        page += &format!(
            "Times scatter log-normally with sigma {}; a step takes as long as the slowest.\n",
            question.jitter
        );
    }
    page += &assumptions(question);
    for scaling in [Scaling::Weak, Scaling::Strong] {
        for fabric in &question.fabrics {
            let name = fabric.name();
            let of_table = rows.iter().filter(|row| row.scaling == scaling && row.fabric == name);
            page += &match scaling {
                Scaling::Weak => format!("\nWeak scaling, {} samples a device; {name}\n", question.batch),
                Scaling::Strong => {
                    format!("\nStrong scaling, {} samples in all; {name}\n", question.global_batch)
                }
            };
            page += "  GPUs  batch   step ms    images/s  speed-up  efficiency  communication ms  hidden\n";
            page.extend(of_table.map(line));
        }
    }
    page += "\nMeasured by others, with Keras:\n";
    for Measured { gpus, speed_up, what } in &MEASURED {
        page += &format!("  {what}: speed-up {speed_up:.2}, efficiency {:.3}\n", speed_up / *gpus as f64);
    }
    page
}

fn assumptions(question: &Question) -> String {
    let [simple, quick] = Protocol::ALL.map(|protocol| 1e6 * protocol.start());
    let mut text = format!(
        "Assumed: {simple:.1} us (or {quick:.1}, at a quarter of the bandwidth) to start a collective; of links\n"
    );
    let mut links: Vec<_> =
        question.fabrics.iter().flat_map(|fabric| [&fabric.inside, &fabric.between]).collect();
    links.sort_by(|a, b| a.name.cmp(&b.name));
    links.dedup();
    for link in links {
        let source =
            KNOWN.iter().find(|known| known.name == link.name).map_or("as given", |known| known.source);
        let (bandwidth, [hop, quick]) = (link.bandwidth / 1e9, link.hops.map(|hop| 1e6 * hop));
        text +=
            &format!("  {:8} {bandwidth:7.2} GB/s, {hop:.1} (or {quick:.1}) us a hop: {source}\n", link.name);
    }
    text
}

fn line(row: &Row) -> String {
    let hidden = row.hidden.map_or("-".to_owned(), |hidden| format!("{:.0}%", 100.0 * hidden));
    format!(
        "{:6} {:6} {:9.3} {:11.0} {:9.2} {:11.3} {:17.3} {hidden:>7}\n",
        row.gpus,
        row.batch,
        row.step_ms,
        row.images_per_s,
        row.speed_up,
        row.efficiency,
        row.communication_ms
    )
}

/// One object a prediction.
pub fn json_lines(model: &Model, rows: &[Row]) -> Result<String> {
    #[derive(Serialize)]
    struct Line<'a> {
        kind: &'static str,
        model: &'a str,
        #[serde(flatten)]
        row: &'a Row,
    }
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(&Line { kind: "predicted", model: &model.name, row })?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::fabric;
    use crate::profile::tests::profile;
    use crate::sweep::sweep;

    #[test]
    fn the_page_says_what_is_assumed_and_has_every_row() {
        let model = Model::new(&[profile(10, &[(500_000, 10.0, 20.0)])], 0.0, Some(100.0)).unwrap();
        let fabrics = vec![fabric(1e9, 1e-6, 8), fabric(2e9, 1e-6, 4)];
        let question = Question {
            gpus: vec![1, 2, 16],
            fabrics,
            bucket: None,
            batch: 10,
            global_batch: 64,
            jitter: 0.1,
        };
        let rows = sweep(&model, &question);
        let text = page(&model, &question, &rows);
        for part in ["PREDICTED", "--speed", "scatter", "after backward", "us a hop", "3.94", "2.56"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with("    ")).count(), 2 * 2 * 3);
        let lines = json_lines(&model, &rows).unwrap();
        assert_eq!(lines.lines().count(), rows.len());
        for (line, row) in lines.lines().zip(&rows) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (value["gpus"].as_u64(), value["kind"].as_str()),
                (Some(row.gpus as u64), Some("predicted"))
            );
        }
    }
}
