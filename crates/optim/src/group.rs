use crate::number::Number;
use crate::text::{Options, Writer, check, parse};
use crate::{Error, Optimizer, Result};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;
use program::{ParamRun, Span, WeightDecay};
use serde::{Deserialize, Serialize};

/// How many names an error lists.
const SHOWN: usize = 8;

/// Parameters with other rules than the optimizer's, chosen by their names: PyTorch's `param_groups`.
///
/// A parameter belongs to the first group whose pattern matches. Without a match it follows the optimizer.
/// [`OptimizerState::grouped`](crate::OptimizerState::grouped) applies groups.
///
/// # Compact form
/// [`FromStr`] reads and [`Display`] writes `PATTERN[:OPTION=VALUE,...]`. In the pattern `*` stands for any characters, or none.
///
/// | option | meaning | default |
/// | --- | --- | --- |
/// | `lr-multiplier` | what the learning rate is multiplied with, whatever the schedule | 1 |
/// | `weight-decay` or `l2` | in place of the optimizer's, [decoupled](WeightDecay::Decoupled) or [coupled](WeightDecay::Coupled) | the optimizer's |
/// | `epochs` | trained in the first so many epochs alone; then neither gradients nor weight decay move it | all |
///
/// ```
/// use optim::{ParamGroup, WeightDecay};
///
/// let group: ParamGroup = "batch_normalization*/beta:lr-multiplier=64,l2=2e-5".parse()?;
/// assert!(group.takes("batch_normalization_3/beta") && !group.takes("dense/bias"));
/// assert_eq!((group.lr_multiplier, group.weight_decay), (64.0, Some(WeightDecay::Coupled(2e-5))));
/// # Ok::<(), optim::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ParamGroup {
    /// The pattern of its names.
    pub pattern: String,
    /// The factor of the learning rate.
    pub lr_multiplier: f32,
    /// The weight decay, or `None` for the optimizer's.
    pub weight_decay: Option<WeightDecay>,
    /// Trained only in this number of first epochs; `None` for all.
    pub epochs: Option<u64>,
}

impl ParamGroup {
    /// The parameters whose names match `pattern`, with the optimizer's rules.
    pub fn new(pattern: impl Into<String>) -> Self {
        ParamGroup { pattern: pattern.into(), lr_multiplier: 1.0, weight_decay: None, epochs: None }
    }

    /// The same at another learning rate.
    pub fn lr_multiplier(self, lr_multiplier: f32) -> Self {
        ParamGroup { lr_multiplier, ..self }
    }

    /// The same with this weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        ParamGroup { weight_decay: Some(weight_decay), ..self }
    }

    /// The same, trained only in the first `epochs` epochs.
    pub fn epochs(self, epochs: u64) -> Self {
        ParamGroup { epochs: Some(epochs), ..self }
    }

    /// Whether it takes the parameter of this name, unless an earlier group does.
    pub fn takes(&self, name: &str) -> bool {
        matches(&self.pattern, name)
    }

    /// Checks the options. Parsing does so by itself.
    ///
    /// # Errors
    /// Names the first option that is outside of its domain.
    pub fn validate(&self) -> Result<()> {
        let of = self.pattern.as_str();
        let named = !of.is_empty() && !of.contains([':', '"']) && of.trim() == of;
        check(
            "a parameter group",
            "the pattern",
            format!("`{of}`"),
            (named, "a name, in which `*` stands for anything"),
        )?;
        let multiplier = self.lr_multiplier;
        check(
            of,
            "lr-multiplier",
            multiplier,
            (multiplier.is_finite() && multiplier >= 0.0, "a number of 0 or more"),
        )?;
        self.weight_decay.map_or(Ok(()), |decay| crate::optimizer::check_weight_decay(of, decay))
    }

    /// Checks that every group takes some of the parameters with these names.
    ///
    /// # Errors
    /// [`Error::EmptyGroup`] names the first that takes none.
    pub fn check_all<'n>(groups: &[ParamGroup], names: impl Iterator<Item = &'n str> + Clone) -> Result<()> {
        let taker = |name| groups.iter().position(|group| group.takes(name));
        for (k, group) in groups.iter().enumerate() {
            if names.clone().all(|name| taker(name) != Some(k)) {
                let mut shown: Vec<&str> = names.clone().take(SHOWN).collect();
                if names.clone().count() > SHOWN {
                    shown.push("...");
                }
                return Err(Error::EmptyGroup { pattern: group.pattern.clone(), names: shown.join(", ") });
            }
        }
        Ok(())
    }
}

/// Whether `name` matches `pattern`, with any characters in place of each `*`, in linear time. Each part
/// takes the first place where it fits, since a later one would leave less room for the next parts.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(last) = parts.next_back() else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    parts.all(|part| {
        let found = rest.find(part);
        rest = found.map_or("", |at| &rest[at + part.len()..]);
        found.is_some()
    })
}

impl FromStr for ParamGroup {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (pattern, mut options) = parse(text)?;
        let group = ParamGroup {
            pattern: pattern.to_owned(),
            lr_multiplier: options.or("lr-multiplier", "a number", 1.0)?,
            weight_decay: read_weight_decay(&mut options)?,
            epochs: options.get("epochs", "a whole number")?,
        };
        options.finish()?;
        group.validate()?;
        Ok(group)
    }
}

fn read_weight_decay(options: &mut Options) -> Result<Option<WeightDecay>> {
    match crate::optimizer::read_weight_decay(options)? {
        WeightDecay::None => Ok(None),
        decay => Ok(Some(decay)),
    }
}

impl Display for ParamGroup {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::new(f, &self.pattern)?;
        out.unless_default("lr-multiplier", Number(self.lr_multiplier), Number(1.0))?;
        match self.weight_decay {
            None => {}
            // Any form of nothing.
            Some(WeightDecay::None) => out.option("weight-decay", 0)?,
            Some(decay) => crate::optimizer::write_weight_decay(&mut out, decay)?,
        }
        self.epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
    }
}

/// Runs of an arena, each of parameters of one group, and until which epoch they are trained.
#[derive(Clone, Debug)]
pub(crate) struct Grouped(Vec<(ParamRun, u64)>);

impl Grouped {
    /// Neighbours of one group make one run if nothing lies between them.
    pub(crate) fn new<'n>(
        optimizer: &Optimizer,
        groups: &[ParamGroup],
        params: impl Iterator<Item = (&'n str, Span)>,
    ) -> Self {
        let mut params: Vec<(Option<usize>, Span)> =
            params.map(|(name, at)| (groups.iter().position(|group| group.takes(name)), at)).collect();
        params.sort_by_key(|(_, at)| at.offset);
        params.dedup_by(|(group, at), (last, run)| {
            let same = group == last && at.offset == run.end();
            if same {
                run.len += at.len;
            }
            same
        });
        let run = |(group, at): (Option<usize>, Span)| {
            let group = group.map(|k| &groups[k]);
            let weight_decay = group.and_then(|group| group.weight_decay).unwrap_or(optimizer.weight_decay());
            let lr_multiplier = group.map_or(1.0, |group| group.lr_multiplier);
            let epochs = group.and_then(|group| group.epochs).unwrap_or(u64::MAX);
            (ParamRun { at, lr_multiplier, weight_decay }, epochs)
        };
        Grouped(params.into_iter().map(run).collect())
    }

    /// How many runs there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What of `at` is trained in `epoch`.
    pub(crate) fn runs(&self, epoch: u64, at: Span) -> impl Iterator<Item = ParamRun> {
        self.0.iter().filter(move |(_, epochs)| epoch < *epochs).filter_map(move |(run, _)| {
            let (from, to) = (run.at.offset.max(at.offset), run.at.end().min(at.end()));
            (from < to).then(|| ParamRun { at: Span::new(from, to - from), ..*run })
        })
    }
}
