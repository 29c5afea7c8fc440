use crate::number::Number;

/// The result of this crate's functions.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The errors of schedules and optimizers. Every variant names the refused value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An option is outside of its domain.
    #[error("{of}: {option} is {value}, but must be {accepted}")]
    Value {
        /// Whose option: the schedule's or optimizer's name.
        of: String,
        /// The option, spelled as on the command line.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A name that is none of the known ones.
    #[error("{what} `{name}` is unknown; there are {accepted}")]
    UnknownName {
        /// What was to be named.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// The names there are.
        accepted: &'static str,
    },
    /// An option that the schedule or optimizer does not have.
    #[error("{of}: option `{option}` is unknown; there are {accepted}")]
    UnknownOption {
        /// The schedule or optimizer.
        of: String,
        /// The option that was given.
        option: String,
        /// The options there are, or that there are none.
        accepted: String,
    },
    /// An option that was given twice.
    #[error("{of}: option `{option}` is given twice")]
    Repeated {
        /// The schedule or optimizer.
        of: String,
        /// The option that was given.
        option: String,
    },
    /// An option that has no default was not given.
    #[error("{of}: option `{option}` is missing; give {accepted}, as in `{of}:{option}=...`")]
    Missing {
        /// The schedule or optimizer.
        of: String,
        /// The option that is needed.
        option: &'static str,
        /// What would be accepted.
        accepted: &'static str,
    },
    /// A warm-up whose length is not given once: in epochs or in steps.
    #[error("warmup: give its length, as `epochs=N` or as `steps=N`")]
    WarmupLength,
    /// A rule for the rest of the parameters where the optimizer takes all, or none where it does not.
    #[error("{name} {}", match rest {
        Some(rest) => format!("steps over all parameters, and leaves none to `+{rest}`: only muon does"),
        None => "needs a rule for the rest of the parameters, as in `muon+adamw`".to_owned(),
    })]
    Rest {
        /// The optimizer's rule.
        name: &'static str,
        /// The rule of the rest.
        rest: Option<&'static str>,
    },
    /// Options that exclude each other.
    #[error("{options} exclude each other; give one")]
    Exclusive {
        /// Their names.
        options: &'static str,
    },
    /// A parameter group that takes no parameter.
    #[error("the parameter group `{pattern}` takes no parameter: of {names} none is left that matches")]
    EmptyGroup {
        /// Its pattern.
        pattern: String,
        /// Some of the parameters that there are.
        names: String,
    },
    /// The learning rate of a step is negative, infinite or not a number.
    #[error("the learning rate is {}, but must be finite and not negative", Number(*lr))]
    LearningRate {
        /// The rate that was given.
        lr: f64,
    },
}
