use super::curve::slashed;
use super::{Anneal, Curve, Per, Schedule, Warmup};
use crate::number::Number;
use crate::text::{NUMBER, Writer, parse};
use crate::{Error, Result};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

const NAMES: &str =
    "constant, poly, cosine, cosine-restarts, triangle, one-cycle, exponential, time, step, milestones";
const WHOLE: &str = "a whole number";
const SWITCH: &str = "true or false";
const PACES: &str = "step or epoch";

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A `+` may also be part of a number, as in 1e+6.
        let (curve, warmup) = match text.find("+warmup") {
            Some(at) => (&text[..at], Some(read_warmup(&text[at + 1..])?)),
            None => (text, None),
        };
        let schedule = Schedule { curve: curve.parse()?, warmup };
        schedule.validate()?;
        Ok(schedule)
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.curve.fmt(f)?;
        self.warmup.map_or(Ok(()), |warmup| {
            let mut writer = Writer::new(f, "+warmup")?;
            writer.option(if warmup.per == Per::Epoch { "epochs" } else { "steps" }, warmup.length)?;
            writer.unless_default("start", Number(warmup.start), Number(0.0))
        })
    }
}

fn read_warmup(text: &str) -> Result<Warmup> {
    let (name, mut options) = parse(text)?;
    if name != "warmup" {
        let (what, name) = ("the addition to a schedule", name.into());
        return Err(Error::UnknownName { what, name, accepted: "warmup" });
    }
    let (epochs, steps) = (options.get("epochs", WHOLE)?, options.get("steps", WHOLE)?);
    let warmup = match (epochs, steps) {
        (Some(epochs), None) => Warmup::epochs(epochs),
        (None, Some(steps)) => Warmup::steps(steps),
        _ => return Err(Error::WarmupLength),
    };
    let start = options.or("start", NUMBER, 0.0)?;
    options.finish()?;
    Ok(warmup.starting_at(start))
}

impl FromStr for Curve {
    type Err = Error;

    /// Reads the compact form without its warm-up; see [`Schedule`].
    fn from_str(text: &str) -> Result<Self> {
        let (name, mut options) = parse(text)?;
        let curve = match name {
            "constant" => Curve::Constant,
            "poly" => Curve::Poly {
                power: options.or("power", NUMBER, 1.0)?,
                alpha: options.or("alpha", NUMBER, 0.0)?,
                per: options.or("per", PACES, Per::Epoch)?,
                epochs: options.get("epochs", WHOLE)?,
            },
            "cosine" => Curve::Cosine {
                alpha: options.or("alpha", NUMBER, 0.0)?,
                per: options.or("per", PACES, Per::Step)?,
                epochs: options.get("epochs", WHOLE)?,
            },
            "triangle" => Curve::Triangle {
                start: options.or("start", NUMBER, 0.0)?,
                peak: options.or("peak", NUMBER, 0.5)?,
                end: options.or("end", NUMBER, 0.0)?,
                epochs: options.get("epochs", WHOLE)?,
            },
            "one-cycle" => Curve::OneCycle {
                pct_start: options.or("pct-start", NUMBER, 0.3)?,
                div_factor: options.or("div-factor", NUMBER, 25.0)?,
                final_div_factor: options.or("final-div-factor", NUMBER, 1e4)?,
                anneal: options.or("anneal", "cos or linear", Anneal::Cos)?,
                epochs: options.get("epochs", WHOLE)?,
            },
            "exponential" => {
                let factor = options.need("factor", NUMBER)?;
                let (every, per) = match (options.get("every", WHOLE)?, options.get("steps", WHOLE)?) {
                    (Some(_), Some(_)) => return Err(Error::Exclusive { options: "`every` and `steps`" }),
                    (None, Some(steps)) => (steps, Per::Step),
                    (every, None) => (every.unwrap_or(1), Per::Epoch),
                };
                Curve::Exponential { factor, every, per, staircase: options.or("staircase", SWITCH, false)? }
            }
            "cosine-restarts" => Curve::CosineRestarts {
                first: options.need("first", WHOLE)?,
                t_mul: options.or("t-mul", NUMBER, 2.0)?,
                m_mul: options.or("m-mul", NUMBER, 1.0)?,
                alpha: options.or("alpha", NUMBER, 0.0)?,
                per: options.or("per", PACES, Per::Step)?,
            },
            "time" => Curve::Time { decay: options.need("decay", NUMBER)? },
            "step" => Curve::Step {
                every: options.need("every", WHOLE)?,
                factor: options.or("factor", NUMBER, 0.1)?,
            },
            "milestones" => Curve::Milestones {
                at: options.need::<Epochs>("at", "rising epochs such as 30/60/80")?.0,
                factor: options.or("factor", NUMBER, 0.1)?,
            },
            _ => {
                let (what, name) = ("the schedule", name.into());
                return Err(Error::UnknownName { what, name, accepted: NAMES });
            }
        };
        options.finish()?;
        curve.validate()?;
        Ok(curve)
    }
}

impl Display for Curve {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let mut out = Writer::new(f, self.name())?;
        match *self {
            Curve::Constant => Ok(()),
            Curve::Poly { power, alpha, per, epochs } => {
                out.unless_default("power", Number(power), Number(1.0))?;
                out.unless_default("alpha", Number(alpha), Number(0.0))?;
                out.unless_default("per", per, Per::Epoch)?;
                epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
            }
            Curve::Cosine { alpha, per, epochs } => {
                out.unless_default("alpha", Number(alpha), Number(0.0))?;
                out.unless_default("per", per, Per::Step)?;
                epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
            }
            Curve::Triangle { start, peak, end, epochs } => {
                out.unless_default("start", Number(start), Number(0.0))?;
                out.unless_default("peak", Number(peak), Number(0.5))?;
                out.unless_default("end", Number(end), Number(0.0))?;
                epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
            }
            Curve::OneCycle { pct_start, div_factor, final_div_factor, anneal, epochs } => {
                out.unless_default("pct-start", Number(pct_start), Number(0.3))?;
                out.unless_default("div-factor", Number(div_factor), Number(25.0))?;
                out.unless_default("final-div-factor", Number(final_div_factor), Number(1e4))?;
                out.unless_default("anneal", anneal, Anneal::Cos)?;
                epochs.map_or(Ok(()), |epochs| out.option("epochs", epochs))
            }
            Curve::Exponential { factor, every, per, staircase } => {
                out.option("factor", Number(factor))?;
                match per {
                    Per::Epoch => out.unless_default("every", every, 1)?,
                    Per::Step => out.option("steps", every)?,
                }
                out.unless_default("staircase", staircase, false)
            }
            Curve::CosineRestarts { first, t_mul, m_mul, alpha, per } => {
                out.option("first", first)?;
                out.unless_default("t-mul", Number(t_mul), Number(2.0))?;
                out.unless_default("m-mul", Number(m_mul), Number(1.0))?;
                out.unless_default("alpha", Number(alpha), Number(0.0))?;
                out.unless_default("per", per, Per::Step)
            }
            Curve::Time { decay } => out.option("decay", Number(decay)),
            Curve::Step { every, factor } => {
                out.option("every", every)?;
                out.unless_default("factor", Number(factor), Number(0.1))
            }
            Curve::Milestones { ref at, factor } => {
                out.option("at", slashed(at))?;
                out.unless_default("factor", Number(factor), Number(0.1))
            }
        }
    }
}

struct Epochs(Vec<u64>);

impl FromStr for Epochs {
    type Err = core::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split('/').map(str::parse).collect::<Result<_, _>>().map(Epochs)
    }
}

impl FromStr for Per {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "step" => Ok(Per::Step),
            "epoch" => Ok(Per::Epoch),
            name => Err(Error::UnknownName { what: "the pace", name: name.into(), accepted: "step, epoch" }),
        }
    }
}

impl Display for Per {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(if *self == Per::Step { "step" } else { "epoch" })
    }
}

impl FromStr for Anneal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cos" => Ok(Anneal::Cos),
            "linear" => Ok(Anneal::Linear),
            name => {
                Err(Error::UnknownName { what: "the annealing", name: name.into(), accepted: "cos, linear" })
            }
        }
    }
}

impl Display for Anneal {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(if *self == Anneal::Cos { "cos" } else { "linear" })
    }
}
