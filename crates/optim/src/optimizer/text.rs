use super::Optimizer;
use crate::number::Number;
use crate::text::{NUMBER, Options, Writer, parse};
use crate::{Clip, Error, Result, UpdateRule, WeightDecay};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

impl FromStr for Optimizer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, mut options) = parse(text)?;
        let optimizer = read(name, &mut options)?;
        options.finish()?;
        optimizer.validate()?;
        Ok(optimizer)
    }
}

fn read(name: &str, options: &mut Options) -> Result<Optimizer> {
    let rule = UpdateRule::read(name, options)?;
    let rule = match read_weight_decay(options)? {
        WeightDecay::None => rule,
        given => rule.with_weight_decay(given),
    };
    Ok(Optimizer { rule, clip: read_clip(options)? })
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
        self.rule.write(&mut out)?;
        write_weight_decay(&mut out, self.rule.weight_decay())?;
        self.clip.map_or(Ok(()), |clip| out.option(clip.name(), Number(clip.limit())))
    }
}

pub(crate) fn write_weight_decay(out: &mut Writer, decay: WeightDecay) -> fmt::Result {
    match decay {
        WeightDecay::None => Ok(()),
        WeightDecay::Decoupled(w) => out.option("weight-decay", Number(w)),
        WeightDecay::Coupled(w) => out.option("l2", Number(w)),
    }
}
