//! Counts of two workers, added up exactly.

use towers_metrics::Tally;

/// Scores of three classes, counted by two workers.
#[cfg_attr(test, test)]
fn main() -> Result<(), towers_metrics::Error> {
    let mut workers = [Tally::named(&["f1", "top2_acc"], 3)?, Tally::named(&["f1", "top2_acc"], 3)?];
    let samples = [
        ([2.0, 1.0, 0.0], 0),
        ([0.0, 3.0, 1.0], 1),
        ([0.5, 0.2, 0.9], 2),
        ([1.0, 0.0, 2.0], 0),
        ([0.0, 1.0, 0.5], 1),
    ];
    for (number, (scores, label)) in samples.into_iter().enumerate() {
        workers[number % 2].add(&scores, label);
    }
    let [mut all, other] = workers;
    all.add_counts(other.counts());
    for (name, value) in all.values().iter() {
        println!("{name} {value:.3}");
    }
    Ok(())
}
