//! Which of a library's algorithms computes which convolution. No call into CUDA is made here: a [`Library`] answers, and
//! what it answered is weighed and remembered.
//!
//! - When a layer is planned, all algorithms are measured once, and the fastest that is allowed is kept in a [`Store`].
//! - Algorithms that must give the same bits every time are not measured: clocks differ from run to run, and with them
//!   would the choice, and with the choice the order of sums. The library's own expectation is the same every time.
//! - For a batch of another size than was planned (the last one of an epoch) the library's expectation must do as well,
//!   because nothing stops in the middle of an epoch to measure.
//! - Where no algorithm is allowed, our own kernels compute the convolution.

use super::store::Store;
use core::fmt;
use std::collections::HashMap;
use tensor_backend::{Conv2d, Precision, Result, Shape};

/// One of the three computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    Forward,
    /// The gradient of the input.
    Data,
    /// The gradient of the weights.
    Filter,
}

/// What an algorithm is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pass: Pass,
    pub(crate) precision: Precision,
    pub(crate) conv: Conv2d,
    /// The input's shape, or for gradients the shape of the input's gradient.
    pub(crate) x: Shape,
}

impl fmt::Display for Key {
    /// One line, in which every number that matters occurs: a [`Store`] knows keys by it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = match self.pass {
            Pass::Forward => "forward",
            Pass::Data => "data",
            Pass::Filter => "filter",
        };
        let Shape { n, h, w, c } = self.x;
        let Conv2d { outputs, kernel: [kh, kw], stride: [sy, sx], pad, .. } = self.conv;
        write!(f, "{pass} {} x {n}x{h}x{w}x{c} filters {outputs}x{kh}x{kw} ", self.precision)?;
        write!(f, "stride {sy}x{sx} pad {},{},{},{}", pad.top, pad.bottom, pad.left, pad.right)
    }
}

/// How a library may multiply. The numbers are cuDNN's; its `ALLOW_CONVERSION`, which may round f32 to half precision, is
/// left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Math {
    /// As the format allows; f32 may be rounded to TF32.
    Default = 0,
    /// On tensor cores, in the format of the operands.
    TensorOp = 1,
    /// f32 stays f32.
    Fma = 3,
}

impl Math {
    /// What is asked for.
    pub(crate) fn of(precision: Precision) -> Math {
        match precision {
            Precision::Fp32 => Math::Fma,
            Precision::Tf32 => Math::Default,
            Precision::Bf16 | Precision::Fp16 => Math::TensorOp,
        }
    }

    pub(crate) fn of_number(number: u32) -> Option<Math> {
        [Math::Default, Math::TensorOp, Math::Fma].into_iter().find(|&math| math as u32 == number)
    }

    /// Whether it computes no less precisely than is asked for. A library may answer with another kind than the question's.
    fn keeps(self, precision: Precision) -> bool {
        precision != Precision::Fp32 || self == Math::Fma
    }
}

/// An algorithm by the library's number for it, which differs between the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Algorithm {
    pub(crate) number: u32,
    pub(crate) math: Math,
}

/// An algorithm that a library offers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) algorithm: Algorithm,
    pub(crate) deterministic: bool,
    pub(crate) milliseconds: f32,
}

/// What computes a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Library {
        algorithm: Algorithm,
        /// Bytes of scratch memory.
        workspace: usize,
        /// Where it was measured.
        milliseconds: Option<f32>,
    },
    /// Our own kernels.
    Own,
}

/// What a library says about its algorithms.
pub(crate) trait Library {
    /// Runs all that fit into `limit` bytes of scratch memory, and takes their times. `None` if it can't, for want of memory
    /// above all.
    fn measure(&mut self, key: &Key, limit: usize) -> Result<Option<Vec<Candidate>>>;

    /// What it expects to be fast, the fastest first, without running anything.
    fn expect(&mut self, key: &Key) -> Result<Vec<Candidate>>;

    /// Bytes of scratch memory that an algorithm needs, or `None` if it can't do this.
    fn workspace(&mut self, key: &Key, algorithm: Algorithm) -> Result<Option<usize>>;
}

/// The choices that were made.
pub(crate) struct Algorithms {
    deterministic: bool,
    /// The most bytes of scratch memory that an algorithm may take.
    limit: usize,
    known: HashMap<Key, Choice>,
    /// Where measurements are kept from run to run.
    store: Option<Store>,
}

impl Algorithms {
    pub(crate) fn new(deterministic: bool, limit: usize, store: Option<Store>) -> Algorithms {
        Algorithms { deterministic, limit, known: HashMap::new(), store }
    }

    /// Chooses while a layer is planned, when there is time to measure.
    pub(crate) fn prepare(&mut self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        if let Some(&known) = self.known.get(key) {
            return Ok(known);
        }
        let choice =
            if self.deterministic { self.expected(library, key) } else { self.measured(library, key) }?;
        self.known.insert(*key, choice);
        Ok(choice)
    }

    /// The choice for an op that runs now. With `known_only` it is `None` for what never ran nor was planned: something is
    /// being recorded, and to ask the library could disturb that.
    pub(crate) fn choice(
        &mut self,
        library: &mut dyn Library,
        key: &Key,
        known_only: bool,
    ) -> Result<Option<Choice>> {
        if let Some(&known) = self.known.get(key) {
            return Ok(Some(known));
        }
        if known_only {
            return Ok(None);
        }
        let choice = self.expected(library, key)?;
        self.known.insert(*key, choice);
        Ok(Some(choice))
    }

    /// Notes that the library refused after all to do what it had offered.
    pub(crate) fn refuse(&mut self, key: &Key) {
        self.known.insert(*key, Choice::Own);
    }

    /// Everything that was chosen, in the order of the keys' text.
    pub(crate) fn choices(&self) -> Vec<(Key, Choice)> {
        let mut all: Vec<_> = self.known.iter().map(|(&key, &choice)| (key, choice)).collect();
        all.sort_by_cached_key(|(key, _)| key.to_string());
        all
    }

    fn expected(&self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        let candidates = library.expect(key)?;
        self.first_allowed(library, key, &candidates, false)
    }

    fn measured(&self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        // Towers that plan the same layer wait here for the first, and then read what it found: they would take each
        // other's time, and on one GPU each other's turn.
        let turn = self.store.as_ref().map(|store| store.lock());
        if let Some(kept) = self.kept(library, key)? {
            return Ok(kept);
        }
        let Some(mut candidates) = library.measure(key, self.limit)? else {
            return self.expected(library, key);
        };
        candidates.sort_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let choice = self.first_allowed(library, key, &candidates, true)?;
        if let Some(store) = &self.store {
            store.save(&key.to_string(), &text_of(choice));
        }
        drop(turn);
        Ok(choice)
    }

    /// What an earlier run measured, unless the library says now that it can't be.
    fn kept(&self, library: &mut dyn Library, key: &Key) -> Result<Option<Choice>> {
        let text = self.store.as_ref().and_then(|store| store.load().remove(&key.to_string()));
        match text.as_deref().map(candidate_of) {
            Some(Kept::Own) => Ok(Some(Choice::Own)),
            Some(Kept::Library(candidate)) => {
                let choice = self.first_allowed(library, key, &[candidate], true)?;
                Ok(Some(choice).filter(|&choice| choice != Choice::Own))
            }
            Some(Kept::Damaged) | None => Ok(None),
        }
    }

    fn first_allowed(
        &self,
        library: &mut dyn Library,
        key: &Key,
        candidates: &[Candidate],
        measured: bool,
    ) -> Result<Choice> {
        for &Candidate { algorithm, deterministic, milliseconds } in candidates {
            if self.deterministic && !deterministic || !algorithm.math.keeps(key.precision) {
                continue;
            }
            match library.workspace(key, algorithm)? {
                Some(workspace) if workspace <= self.limit => {
                    let milliseconds = measured.then_some(milliseconds);
                    return Ok(Choice::Library { algorithm, workspace, milliseconds });
                }
                _ => {}
            }
        }
        Ok(Choice::Own)
    }
}

/// What a line of a [`Store`] says.
enum Kept {
    Own,
    Library(Candidate),
    Damaged,
}

fn text_of(choice: Choice) -> String {
    match choice {
        Choice::Own => "own".into(),
        // The scratch memory is not kept: the library is asked for it again, which also proves that the algorithm exists.
        Choice::Library { algorithm: Algorithm { number, math }, milliseconds, .. } => {
            format!("{number} {} {}", math as u32, milliseconds.unwrap_or(0.0))
        }
    }
}

fn candidate_of(text: &str) -> Kept {
    if text == "own" {
        return Kept::Own;
    }
    let mut words = text.split(' ');
    let mut next = || words.next();
    let candidate = (|| {
        let number = next()?.parse().ok()?;
        let math = Math::of_number(next()?.parse().ok()?)?;
        let milliseconds = next()?.parse().ok()?;
        // Nothing is measured, and so nothing kept, for those who need the same bits every time.
        Some(Candidate { algorithm: Algorithm { number, math }, deterministic: false, milliseconds })
    })();
    match candidate {
        Some(candidate) if next().is_none() => Kept::Library(candidate),
        _ => Kept::Damaged,
    }
}

#[cfg(test)]
mod tests;
