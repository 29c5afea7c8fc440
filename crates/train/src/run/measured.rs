//! The configured metrics of the validation data.

use crate::data::MultiHot;
use crate::run::run_data::RunData;
use crate::{Error, Result};
use towers_layers::Network;
use towers_metrics::{Tally, Values};
use towers_parallel::{Collective, Stage};
use towers_program::{Device, Labels, Span};

/// Counts are added up as two numbers of f32, which holds whole numbers up to 2^24 exactly.
const HALF: u64 = 1 << 12;

/// The counts of a replica, whose samples have these labels in the order of the validation data.
pub(crate) struct Measured<'a> {
    tally: Tally,
    labels: &'a [u16],
    multi_hot: Option<&'a MultiHot>,
}

/// No samples yet, for the metrics with these names.
///
/// # Errors
/// [`towers_config::Error::Option`] for a metric that is not defined for so many classes, or for several labels a sample.
pub(crate) fn tally(names: &[String], classes: usize, multi_label: bool) -> Result<Tally> {
    let tally = if multi_label { Tally::multi_label(names, classes) } else { Tally::named(names, classes) };
    tally.map_err(|error| {
        let accepted = format!("metrics that the data allow: {error}");
        Error::option("metrics", names.join(", "), accepted)
    })
}

impl<'a> Measured<'a> {
    /// No samples yet.
    pub(crate) fn new(names: &[String], data: &'a RunData) -> Result<Self> {
        let multi_hot = data.val_labelling.multi_hot();
        let tally = tally(names, data.classes.len(), multi_hot.is_some())?;
        Ok(Measured { tally, labels: data.val.labels(), multi_hot })
    }

    /// Counts the samples of the network's last pass, the first of which is the sample `first` of the data.
    pub(crate) fn add(&mut self, network: &mut Network, first: usize) -> Result<()> {
        if self.tally.is_empty() {
            return Ok(());
        }
        let scores = network.scores()?;
        for (sample, scores) in (first..).zip(scores.chunks(network.classes())) {
            match self.multi_hot.map(|rows| rows.of(sample)) {
                Some(words) => self.tally.add_multi_label(scores, |class| Labels::has(words, class)),
                None => self.tally.add(scores, usize::from(self.labels[sample])),
            }
        }
        Ok(())
    }

    /// The values over the samples of all replicas. Only the last stage of a pipeline has counts.
    pub(crate) fn values(
        mut self,
        device: &Device,
        collective: &mut dyn Collective,
        stage: &mut Stage,
    ) -> Result<Values> {
        let counts = self.tally.counts();
        if !counts.is_empty() && (collective.world() > 1 || stage.stages() > 1) {
            let halves = counts.iter().flat_map(|count| [count % HALF, count / HALF]);
            let halves = Vec::from_iter(halves.map(|half| half as f32));
            let (mut sums, all) = (device.alloc(halves.len())?, Span::new(0, halves.len()));
            device.upload(&halves, &mut sums, 0)?;
            collective.all_reduce_sum(device, &mut sums, all)?;
            if stage.stages() > 1 {
                stage.replica.all_reduce_sum(device, &mut sums, all)?;
            }
            let sums = sums.to_vec(device, 0, all.len)?;
            let whole = |[low, high]: &[f32; 2]| *low as u64 + HALF * *high as u64;
            let counts = Vec::from_iter(sums.as_chunks().0.iter().map(whole));
            self.tally.clear();
            self.tally.add_counts(&counts);
        }
        Ok(self.tally.values())
    }
}
