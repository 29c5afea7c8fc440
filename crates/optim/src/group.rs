use crate::number::Number;
use crate::text::{Options, Writer, check, parse};
use crate::{Error, Result, WeightDecay};
use core::fmt::{self, Display, Formatter};
use core::ops::Range;
use core::str::FromStr;

/// How many names an error lists.
const SHOWN: usize = 8;

/// Parameters with other rules than the optimizer's, chosen by their names: PyTorch's `param_groups`.
///
/// A parameter belongs to the first group whose pattern matches. Without a match it follows the optimizer.
/// [`ParamGroup::of`] finds it.
///
/// # Compact form
/// [`FromStr`] reads and [`Display`] writes `PATTERN[:OPTION=VALUE,...]`. In the pattern `*` stands for any characters, or none.
///
/// | option | meaning | default |
/// | --- | --- | --- |
/// | `lr-multiplier` | what the learning rate is multiplied with, whatever the schedule | 1 |
/// | `weight-decay` or `l2` | in place of the optimizer's, [decoupled](WeightDecay::Decoupled) or [coupled](WeightDecay::Coupled) | the optimizer's |
/// | `freeze-epochs` | the learning rate is 0 in the first so many epochs; the optimizer's averages follow the gradients | 0 |
/// | `epochs` | trained in the first so many epochs alone; then neither gradients nor weight decay move it | all |
///
/// ```
/// use towers_optim::{ParamGroup, WeightDecay};
///
/// let group: ParamGroup = "batch_normalization*/beta:lr-multiplier=64,l2=2e-5".parse()?;
/// assert!(group.takes("batch_normalization_3/beta") && !group.takes("dense/bias"));
/// assert_eq!((group.lr_multiplier, group.weight_decay), (64.0, Some(WeightDecay::Coupled(2e-5))));
/// # Ok::<(), towers_optim::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ParamGroup {
    /// The pattern of its names.
    pub pattern: String,
    /// The factor of the learning rate.
    pub lr_multiplier: f32,
    /// The weight decay, or `None` for the optimizer's.
    pub weight_decay: Option<WeightDecay>,
    /// In this number of first epochs its learning rate is 0.
    pub freeze_epochs: u64,
    /// Trained only in this number of first epochs; `None` for all.
    pub epochs: Option<u64>,
}

impl ParamGroup {
    /// The parameters whose names match `pattern`, with the optimizer's rules.
    pub fn new(pattern: impl Into<String>) -> Self {
        let pattern = pattern.into();
        ParamGroup { pattern, lr_multiplier: 1.0, weight_decay: None, freeze_epochs: 0, epochs: None }
    }

    /// The same at another learning rate.
    pub fn lr_multiplier(self, lr_multiplier: f32) -> Self {
        ParamGroup { lr_multiplier, ..self }
    }

    /// The same with this weight decay.
    pub fn weight_decay(self, weight_decay: WeightDecay) -> Self {
        ParamGroup { weight_decay: Some(weight_decay), ..self }
    }

    /// The same, with a learning rate of 0 in the first `epochs` epochs.
    pub fn freeze_epochs(self, epochs: u64) -> Self {
        ParamGroup { freeze_epochs: epochs, ..self }
    }

    /// The epochs in which its parameters move.
    pub fn trained(&self) -> Range<u64> {
        self.freeze_epochs..self.epochs.unwrap_or(u64::MAX)
    }

    /// The same, trained only in the first `epochs` epochs.
    pub fn epochs(self, epochs: u64) -> Self {
        ParamGroup { epochs: Some(epochs), ..self }
    }

    /// Whether it takes the parameter of this name, unless an earlier group does.
    pub fn takes(&self, name: &str) -> bool {
        matches(&self.pattern, name)
    }

    /// The group that the parameter of this name belongs to.
    pub fn of<'g>(groups: &'g [ParamGroup], name: &str) -> Option<&'g ParamGroup> {
        groups.iter().find(|group| group.takes(name))
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
        self.weight_decay.map_or(Ok(()), |decay| crate::rule::check_weight_decay(of, decay))
    }

    /// Checks that every group takes some of the parameters with these names.
    ///
    /// # Errors
    /// [`Error::EmptyGroup`] names the first that takes none.
    pub fn check_all<'n>(groups: &[ParamGroup], names: impl Iterator<Item = &'n str> + Clone) -> Result<()> {
        for group in groups {
            if names
                .clone()
                .all(|name| !Self::of(groups, name).is_some_and(|taker| core::ptr::eq(taker, group)))
            {
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
            freeze_epochs: options.or("freeze-epochs", "a whole number", 0)?,
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
        out.unless_default("freeze-epochs", self.freeze_epochs, 0)?;
        self.epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
    }
}
