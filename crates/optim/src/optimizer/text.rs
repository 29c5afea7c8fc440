use super::Optimizer;
use crate::number::Number;
use crate::text::{NUMBER, Options, Writer, parse};
use crate::{Clip, Error, Result, UpdateRule, WeightDecay};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

impl FromStr for Optimizer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A `+` may also be a part of a number, as in 1e+6.
        let mut joints = text.match_indices('+').map(|(at, _)| at);
        let joint = joints.find(|at| !text[at + 1..].starts_with(|next: char| next.is_ascii_digit()));
        let (own, rest) = joint.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])));
        let (name, mut options) = parse(own)?;
        let mut optimizer = read(name, &mut options)?;
        options.finish()?;
        if let Some(rest) = rest {
            optimizer.rest = Some(rest.parse()?);
        }
        optimizer.validate()?;
        Ok(optimizer)
    }
}

fn read(name: &str, options: &mut Options) -> Result<Optimizer> {
    let optimizer = Optimizer::from(read_rule(name, options)?);
    Ok(Optimizer { clip: read_clip(options)?, ..optimizer })
}

pub(super) fn read_rule(name: &str, options: &mut Options) -> Result<UpdateRule> {
    let rule = UpdateRule::read(name, options)?;
    Ok(match read_weight_decay(options)? {
        WeightDecay::None => rule,
        given => rule.with_weight_decay(given),
    })
}

impl Optimizer {
    /// The options of the compact form that this name takes.
    ///
    /// ```
    /// use towers_optim::Optimizer;
    ///
    /// assert!(Optimizer::options("sgd")?.contains(&"momentum"));
    /// # Ok::<(), towers_optim::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownName`], which has all names.
    pub fn options(name: &str) -> Result<Vec<&'static str>> {
        let mut none = Options::none(name);
        read(name, &mut none)?;
        Ok(none.asked())
    }
}

fn read_clip(options: &mut Options) -> Result<Option<Clip>> {
    let limits = [
        options.get("clipnorm", NUMBER)?.map(Clip::Norm),
        options.get("clipvalue", NUMBER)?.map(Clip::Value),
        options.get("global-clipnorm", NUMBER)?.map(Clip::GlobalNorm),
    ];
    let mut given = limits.into_iter().flatten();
    match (given.next(), given.next()) {
        (clip, None) => Ok(clip),
        (_, Some(_)) => Err(Error::Exclusive { options: "`clipnorm`, `clipvalue` and `global-clipnorm`" }),
    }
}

pub(crate) fn read_weight_decay(options: &mut Options) -> Result<WeightDecay> {
    match (options.get("weight-decay", NUMBER)?, options.get("l2", NUMBER)?) {
        (None, None) => Ok(WeightDecay::None),
        (Some(w), None) => Ok(WeightDecay::Decoupled(w)),
        (None, Some(w)) => Ok(WeightDecay::Coupled(w)),
        (Some(_), Some(_)) => {
            Err(Error::Exclusive { options: "`weight-decay` (decoupled) and `l2` (coupled)" })
        }
    }
}

impl Display for Optimizer {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::new(f, self.rule.name())?;
        write_rule(&mut out, &self.rule)?;
        self.clip.map_or(Ok(()), |clip| out.option(clip.name(), Number(clip.limit())))?;
        self.rest.map_or(Ok(()), |rest| write!(f, "+{rest}"))
    }
}

pub(super) fn write_rule(out: &mut Writer, rule: &UpdateRule) -> fmt::Result {
    rule.write(out)?;
    write_weight_decay(out, rule.weight_decay())
}

pub(crate) fn write_weight_decay(out: &mut Writer, decay: WeightDecay) -> fmt::Result {
    match decay {
        WeightDecay::None => Ok(()),
        WeightDecay::Decoupled(w) => out.option("weight-decay", Number(w)),
        WeightDecay::Coupled(w) => out.option("l2", Number(w)),
    }
}
