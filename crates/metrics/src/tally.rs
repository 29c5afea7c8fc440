use crate::{Error, Metric, Result, Values, named, names};

/// The counts of several metrics.
///
/// ```
/// use towers_metrics::Tally;
///
/// let mut halves = [Tally::named(&["recall"], 2)?, Tally::named(&["recall"], 2)?];
/// halves[0].add(&[1.0, 0.0], 0);
/// halves[1].add(&[1.0, 0.0], 1);
///
/// let [mut all, other] = halves;
/// all.add_counts(other.counts());
/// assert_eq!(all.values().get("recall"), Some(0.5));
/// # Ok::<(), towers_metrics::Error>(())
/// ```
pub struct Tally {
    /// The metrics, and how many counts each has.
    metrics: Vec<(Box<dyn Metric>, usize)>,
    counts: Vec<u64>,
    classes: usize,
}

fn with_len(metric: Box<dyn Metric>, classes: usize) -> Result<(Box<dyn Metric>, usize)> {
    metric.counts(classes).map(|len| (metric, len))
}

impl Tally {
    /// No samples yet, for metrics of so many classes.
    ///
    /// # Errors
    /// [`Error::Classes`] for a metric that is not defined for so many; [`Error::Twice`].
    pub fn new(metrics: Vec<Box<dyn Metric>>, classes: usize) -> Result<Self> {
        let metrics =
            metrics.into_iter().map(|metric| with_len(metric, classes)).collect::<Result<Vec<_>>>()?;
        let names = Vec::from_iter(metrics.iter().map(|(metric, _)| metric.name()));
        if let Some(place) = (0..names.len()).find(|&place| names[..place].contains(&names[place])) {
            return Err(Error::Twice(names[place].clone()));
        }
        Ok(Tally::empty(metrics, classes))
    }

    fn empty(metrics: Vec<(Box<dyn Metric>, usize)>, classes: usize) -> Self {
        let counts = vec![0; metrics.iter().map(|(_, len)| len).sum()];
        Tally { metrics, counts, classes }
    }

    /// No samples yet, for all metrics of the [list](names) that are defined for so many classes.
    pub fn all(classes: usize) -> Self {
        let defined = names().filter_map(named).filter_map(|metric| with_len(metric, classes).ok());
        Tally::empty(defined.collect(), classes)
    }

    /// No samples yet, for the metrics with these [names](named).
    ///
    /// # Errors
    /// [`Error::Unknown`], and as [`new`](Tally::new).
    pub fn named(wanted: &[impl AsRef<str>], classes: usize) -> Result<Self> {
        let unknown = |name: &str| {
            let known = names().collect::<Vec<_>>().join(", ");
            Error::Unknown { name: name.to_owned(), known }
        };
        let metric = |name: &str| named(name).ok_or_else(|| unknown(name));
        Tally::new(wanted.iter().map(|name| metric(name.as_ref())).collect::<Result<_>>()?, classes)
    }

    /// Whether there is no metric.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Counts a sample. `scores` has a logit or a logarithm of a probability for each class.
    ///
    /// # Panics
    /// If there are more or fewer scores than classes, or the label is not below their number.
    pub fn add(&mut self, scores: &[f32], label: usize) {
        assert!(scores.len() == self.classes && label < self.classes, "{} classes", self.classes);
        let mut rest = &mut self.counts[..];
        for (metric, len) in &self.metrics {
            let (own, after) = rest.split_at_mut(*len);
            metric.add(scores, label, own);
            rest = after;
        }
    }

    /// All counts, to be added up elsewhere.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Adds the counts of other samples.
    ///
    /// # Panics
    /// If they are more or fewer than [`counts`](Tally::counts).
    pub fn add_counts(&mut self, counts: &[u64]) {
        assert_eq!(counts.len(), self.counts.len(), "the number of counts");
        self.counts.iter_mut().zip(counts).for_each(|(own, more)| *own += more);
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// The value of each metric, by its name.
    pub fn values(&self) -> Values {
        let mut rest = &self.counts[..];
        let value = |(metric, len): &(Box<dyn Metric>, usize)| {
            let (own, after) = rest.split_at(*len);
            rest = after;
            (metric.name(), metric.value(own))
        };
        self.metrics.iter().map(value).collect()
    }
}
