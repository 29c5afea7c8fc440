use crate::{Error, Metric, MultiLabel, Result, Values, named, names};

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
    metrics: Vec<Counted>,
    counts: Vec<u64>,
    classes: usize,
}

/// A metric of a tally.
struct Counted {
    name: String,
    rule: Rule,
    /// How many counts it has.
    len: usize,
}

enum Rule {
    OneLabel(Box<dyn Metric>),
    Several(Box<dyn MultiLabel>),
}

fn one_label(metric: Box<dyn Metric>, classes: usize) -> Result<Counted> {
    let (name, len) = (metric.name(), metric.counts(classes)?);
    Ok(Counted { name, rule: Rule::OneLabel(metric), len })
}

fn several(metric: &dyn Metric, classes: usize) -> Result<Counted> {
    let defined = || names().filter(|name| named(name).is_some_and(|metric| metric.multi_label().is_some()));
    let name = metric.name();
    let Some(rule) = metric.multi_label() else {
        return Err(Error::SeveralLabels { name, known: defined().collect::<Vec<_>>().join(", ") });
    };
    let len = rule.counts(classes);
    Ok(Counted { name, rule: Rule::Several(rule), len })
}

/// The metrics with these names.
fn all_named(wanted: &[impl AsRef<str>]) -> Result<Vec<Box<dyn Metric>>> {
    let unknown = |name: &str| {
        let known = names().collect::<Vec<_>>().join(", ");
        Error::Unknown { name: name.to_owned(), known }
    };
    wanted.iter().map(|name| named(name.as_ref()).ok_or_else(|| unknown(name.as_ref()))).collect()
}

impl Tally {
    /// No samples yet, for metrics of so many classes.
    ///
    /// # Errors
    /// [`Error::Classes`] for a metric that is not defined for so many; [`Error::Twice`].
    pub fn new(metrics: Vec<Box<dyn Metric>>, classes: usize) -> Result<Self> {
        let metrics = metrics.into_iter().map(|metric| one_label(metric, classes));
        Tally::distinct(metrics.collect::<Result<_>>()?, classes)
    }

    fn distinct(metrics: Vec<Counted>, classes: usize) -> Result<Self> {
        let names = Vec::from_iter(metrics.iter().map(|metric| &metric.name));
        if let Some(place) = (0..names.len()).find(|&place| names[..place].contains(&names[place])) {
            return Err(Error::Twice(names[place].clone()));
        }
        Ok(Tally::empty(metrics, classes))
    }

    fn empty(metrics: Vec<Counted>, classes: usize) -> Self {
        let counts = vec![0; metrics.iter().map(|metric| metric.len).sum()];
        Tally { metrics, counts, classes }
    }

    /// No samples yet, for all metrics of the [list](names) that are defined for so many classes.
    pub fn all(classes: usize) -> Self {
        let defined = names().filter_map(named).filter_map(|metric| one_label(metric, classes).ok());
        Tally::empty(defined.collect(), classes)
    }

    /// No samples yet, for the metrics with these [names](named).
    ///
    /// # Errors
    /// [`Error::Unknown`], and as [`new`](Tally::new).
    pub fn named(wanted: &[impl AsRef<str>], classes: usize) -> Result<Self> {
        Tally::new(all_named(wanted)?, classes)
    }

    /// No samples yet, for the metrics with these [names](named) of samples with any number of classes each.
    ///
    /// ```
    /// use towers_metrics::Tally;
    ///
    /// let mut tally = Tally::multi_label(&["recall", "exact_acc"], 3)?;
    /// tally.add_multi_label(&[2.0, -1.0, 0.5], |class| class != 1);
    /// tally.add_multi_label(&[-2.0, -1.0, 0.5], |class| class == 0);
    /// let values = tally.values();
    /// assert_eq!((values["recall"], values["exact_acc"]), (0.5, 0.5));
    /// # Ok::<(), towers_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Twice`], and [`Error::SeveralLabels`] for a metric that needs one label a sample.
    pub fn multi_label(wanted: &[impl AsRef<str>], classes: usize) -> Result<Self> {
        let metrics = all_named(wanted)?.into_iter().map(|metric| several(&*metric, classes));
        Tally::distinct(metrics.collect::<Result<_>>()?, classes)
    }

    /// No samples yet, for all metrics of the [list](names) that are defined for several labels a sample.
    pub fn all_multi_label(classes: usize) -> Self {
        let defined = names().filter_map(named).filter_map(|metric| several(&*metric, classes).ok());
        Tally::empty(defined.collect(), classes)
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
        self.each(|rule, own| match rule {
            Rule::OneLabel(metric) => metric.add(scores, label, own),
            Rule::Several(_) => panic!("the samples of this tally have several labels"),
        });
    }

    /// Counts a sample with any number of classes. `scores` has a logit for each; `has` tells which the sample has.
    ///
    /// # Panics
    /// If there are more or fewer scores than classes, or metrics are those of samples with one label.
    pub fn add_multi_label(&mut self, scores: &[f32], has: impl Fn(usize) -> bool) {
        assert_eq!(scores.len(), self.classes, "the number of classes");
        self.each(|rule, own| match rule {
            Rule::Several(metric) => metric.add(scores, &has, own),
            Rule::OneLabel(_) => panic!("the samples of this tally have one label"),
        });
    }

    /// Calls `add` with each metric and its counts.
    fn each(&mut self, mut add: impl FnMut(&Rule, &mut [u64])) {
        let mut rest = &mut self.counts[..];
        for Counted { rule, len, .. } in &self.metrics {
            let (own, after) = rest.split_at_mut(*len);
            add(rule, own);
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
        let value = |Counted { name, rule, len }: &Counted| {
            let (own, after) = rest.split_at(*len);
            rest = after;
            let value = match rule {
                Rule::OneLabel(metric) => metric.value(own),
                Rule::Several(metric) => metric.value(own),
            };
            (name.clone(), value)
        };
        self.metrics.iter().map(value).collect()
    }
}
