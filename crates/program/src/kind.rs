use crate::Arena;

/// The description of one operand or result of an op: its name in errors, and the arenas in which it may lie.
///
/// Each op lists the kinds of its operands and results in its [`Rule`](crate::Rule).
/// [`Executable::place`](crate::Executable::place) holds every step against them, so devices need not.
///
/// ```
/// use towers_program::{Activation, Arena, Op, ops::GroupNorm};
///
/// let op = Op::from(GroupNorm { groups: 2, epsilon: 1e-3, act: Activation::None });
/// let kinds: Vec<_> = op.operands().iter().map(|kind| (kind.name, kind.arenas[0])).collect();
/// assert_eq!(kinds, [
///     ("the input", Arena::Activations), ("gamma", Arena::Parameters), ("beta", Arena::Parameters),
/// ]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name in errors: `the input`, `gamma`.
    pub name: &'static str,
    /// The memory in which it lies: any of these. A result lies in the first.
    pub arenas: &'static [Arena],
    /// How many there are.
    pub times: Times,
}

/// How many operands or results of one [`Kind`] an op has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// One.
    Once,
    /// One or none. All later kinds are optional too.
    Optional,
    /// Any number. It is the last kind.
    Any,
}

impl Kind {
    const fn new(name: &'static str, arenas: &'static [Arena]) -> Self {
        Kind { name, arenas, times: Times::Once }
    }

    /// A tensor of activations, or of their gradients.
    pub(crate) const fn batch(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Activations])
    }

    /// Numbers that one op keeps for another.
    pub(crate) const fn statistic(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Statistics])
    }

    /// A parameter of the network.
    pub(crate) const fn parameter(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Parameters])
    }

    /// The gradient of a parameter, or sums over the batch.
    pub(crate) const fn gradient(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Gradients])
    }

    /// A running average. One that is frozen is a parameter.
    pub(crate) const fn average(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Averages, Arena::Parameters])
    }

    /// Sums over the batch: of this replica, or of all.
    pub(crate) const fn sum(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Gradients, Arena::Statistics])
    }

    /// The labels.
    pub(crate) const fn labels(name: &'static str) -> Self {
        Kind::new(name, &[Arena::Labels])
    }

    /// The same, which may be left out.
    pub(crate) const fn optional(self) -> Self {
        Kind { times: Times::Optional, ..self }
    }

    /// Any number of these.
    pub(crate) const fn any(self) -> Self {
        Kind { times: Times::Any, ..self }
    }

    /// The kind of number `k` of a list of operands or results.
    pub(crate) fn of(kinds: &'static [Kind], k: usize) -> Option<Kind> {
        kinds.get(k).or(kinds.last().filter(|last| last.times == Times::Any)).copied()
    }

    /// Whether a list may have this length.
    pub(crate) fn count_fits(kinds: &'static [Kind], count: usize) -> bool {
        let least = kinds.iter().filter(|kind| kind.times == Times::Once).count();
        least <= count && (count <= kinds.len() || Kind::of(kinds, count).is_some())
    }
}
