use super::Optimizer;
use crate::number::Number;
use crate::text::{Options, Writer, parse};
use crate::{Adam, Clip, Error, Result, Rmsprop, Sgd, UpdateRule, Velocity, WeightDecay};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

const NUMBER: &str = "a number";
const SWITCH: &str = "true or false";
const STYLES: [(&str, Rmsprop); 3] =
    [("keras2", Rmsprop::keras2()), ("keras3", Rmsprop::keras3()), ("pytorch", Rmsprop::pytorch())];

/// With AdamW's weight decay.
const ADAM_STYLES: [(&str, Adam, f32); 2] =
    [("keras", Adam::keras(), 0.004), ("pytorch", Adam::pytorch(), 0.01)];

impl FromStr for Optimizer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, mut options) = parse(text)?;
        let rule = match name {
            "sgd" => UpdateRule::Sgd(Sgd {
                momentum: options.or("momentum", NUMBER, 0.0)?,
                nesterov: options.or("nesterov", SWITCH, false)?,
                velocity: options.or("velocity", "keras or pytorch", Convention(Velocity::Keras))?.0,
                weight_decay: read_weight_decay(&mut options)?,
            }),
            "rmsprop" => {
                let style = options.or("style", "keras2, keras3 or pytorch", Style(STYLES[0].1))?.0;
                UpdateRule::Rmsprop(Rmsprop {
                    rho: options.or("rho", NUMBER, style.rho)?,
                    epsilon: options.or("epsilon", NUMBER, style.epsilon)?,
                    epsilon_inside_root: options.or(
                        "epsilon-inside-root",
                        SWITCH,
                        style.epsilon_inside_root,
                    )?,
                    weight_decay: read_weight_decay(&mut options)?,
                })
            }
            "adam" | "adamw" => {
                let style = options.or("style", "keras or pytorch", AdamStyle(ADAM_STYLES[0]))?;
                let (_, style, decay) = style.0;
                let weight_decay = match read_weight_decay(&mut options)? {
                    WeightDecay::None if name == "adamw" => WeightDecay::Decoupled(decay),
                    given => given,
                };
                UpdateRule::Adam(Adam {
                    beta1: options.or("beta1", NUMBER, style.beta1)?,
                    beta2: options.or("beta2", NUMBER, style.beta2)?,
                    epsilon: options.or("epsilon", NUMBER, style.epsilon)?,
                    epsilon_hat: options.or("epsilon-hat", SWITCH, style.epsilon_hat)?,
                    weight_decay,
                })
            }
            _ => {
                let (what, name) = ("the optimizer", name.into());
                return Err(Error::UnknownName { what, name, accepted: "sgd, rmsprop, adam, adamw" });
            }
        };
        let clip = read_clip(&mut options)?;
        options.finish()?;
        let optimizer = Optimizer { rule, clip };
        optimizer.validate()?;
        Ok(optimizer)
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
        match self.rule {
            UpdateRule::Sgd(sgd) => {
                out.unless_default("momentum", Number(sgd.momentum), Number(0.0))?;
                out.unless_default("nesterov", sgd.nesterov, false)?;
                if sgd.velocity == Velocity::PyTorch {
                    out.option("velocity", "pytorch")?;
                }
                write_weight_decay(&mut out, sgd.weight_decay)?;
            }
            UpdateRule::Rmsprop(rmsprop) => {
                let plain = rmsprop.weight_decay(WeightDecay::None);
                let known = STYLES.iter().find(|(_, style)| *style == plain);
                let (name, style) = known.unwrap_or(&STYLES[0]);
                out.unless_default("style", *name, STYLES[0].0)?;
                out.unless_default("rho", Number(rmsprop.rho), Number(style.rho))?;
                out.unless_default("epsilon", Number(rmsprop.epsilon), Number(style.epsilon))?;
                let inside = rmsprop.epsilon_inside_root;
                out.unless_default("epsilon-inside-root", inside, style.epsilon_inside_root)?;
                write_weight_decay(&mut out, rmsprop.weight_decay)?;
            }
            UpdateRule::Adam(adam) => {
                let form = |style: &Adam| (style.epsilon, style.epsilon_hat);
                let known = ADAM_STYLES.iter().find(|(_, style, _)| form(style) == form(&adam));
                let (name, style, _) = known.unwrap_or(&ADAM_STYLES[0]);
                out.unless_default("style", *name, ADAM_STYLES[0].0)?;
                out.unless_default("beta1", Number(adam.beta1), Number(style.beta1))?;
                out.unless_default("beta2", Number(adam.beta2), Number(style.beta2))?;
                out.unless_default("epsilon", Number(adam.epsilon), Number(style.epsilon))?;
                out.unless_default("epsilon-hat", adam.epsilon_hat, style.epsilon_hat)?;
                write_weight_decay(&mut out, adam.weight_decay)?;
            }
        }
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

/// Whose defaults RMSprop starts from.
struct Style(Rmsprop);

impl FromStr for Style {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        STYLES.iter().find(|(name, _)| *name == text).map(|(_, style)| Style(*style)).ok_or(())
    }
}

/// Whose defaults Adam starts from.
struct AdamStyle((&'static str, Adam, f32));

impl FromStr for AdamStyle {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        ADAM_STYLES.iter().find(|(name, ..)| *name == text).map(|style| AdamStyle(*style)).ok_or(())
    }
}

struct Convention(Velocity);

impl FromStr for Convention {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "keras" => Ok(Convention(Velocity::Keras)),
            "pytorch" => Ok(Convention(Velocity::PyTorch)),
            _ => Err(()),
        }
    }
}
