//! The choice of an algorithm for each convolution: one of a library's, or our own kernels. This file makes
//! no calls into CUDA: a [`Library`] answers, and its answers are compared and kept.
//!
//! - When a layer is planned, all algorithms are measured once. The fastest allowed one then runs against our
//!   own kernels, and the faster of the two is kept in a [`Store`].
//! - Algorithms that must give the same bits every time are not measured: times differ from run to run, and
//!   so would the choice and the order of sums. The library's heuristic is the same every time, and our own
//!   kernels are not tried.
//! - For a batch of an unplanned size (the last one of an epoch) the library's heuristic is used, because an
//!   epoch does not stop to measure.
//! - An algorithm that fails, alone or in a capture, is replaced by the next: during the measurement or in
//!   use. As long as failures repeat, the choice is a function of the library, the device and the
//!   convolution. A choice after a passing failure holds for this run alone, and is not kept.
//! - If no algorithm is allowed, our own kernels compute the convolution, and nothing is measured.

use super::store::Store;
use core::fmt;
use program::{Conv2d, Precision, Result, Shape};
use std::collections::HashMap;

/// One of the three computations of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    Forward,
    /// The gradient of the input.
    Data,
    /// The gradient of the weights.
    Filter,
}

/// The key of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) pass: Pass,
    pub(crate) precision: Precision,
    pub(crate) conv: Conv2d,
    /// The input's shape, or for gradients the shape of the input's gradient.
    pub(crate) x: Shape,
}

impl fmt::Display for Key {
    /// One line with every relevant number. A [`Store`] uses it as the key.
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

/// How a library may multiply. The numbers are cuDNN's. Its `ALLOW_CONVERSION`, which may round f32 to half
/// precision, is left out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Math {
    /// By the format's default: f32 may be rounded to TF32.
    Default = 0,
    /// On tensor cores, in the format of the operands.
    TensorOp = 1,
    /// f32 stays f32.
    Fma = 3,
}

impl Math {
    /// The required kind.
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

    /// Whether it is as precise as required. A library may answer with another kind than the question's.
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

/// The measured milliseconds of a convolution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    /// By the library's fastest algorithm that is allowed.
    pub(crate) library: Option<f32>,
    /// By our own kernels.
    pub(crate) own: Option<f32>,
}

/// The implementation of a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Library {
        algorithm: Algorithm,
        /// Bytes of scratch memory.
        workspace: usize,
        times: Times,
    },
    /// Our own kernels.
    Own { times: Times },
}

impl Choice {
    /// Our own kernels, because the library has no algorithm.
    const WITHOUT_LIBRARY: Choice = Choice::Own { times: Times { library: None, own: None } };
}

/// The outcome of measuring a library's algorithms.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) candidates: Vec<Candidate>,
    /// Whether all were measured that fit into the limit. Otherwise there was too little scratch memory this
    /// time.
    pub(crate) complete: bool,
}

/// A library's answers about its algorithms.
pub(crate) trait Library {
    /// Measures all that fit into `limit` bytes of scratch memory. `None` if that is impossible this time,
    /// usually for want of memory.
    fn measure(&mut self, key: &Key, limit: usize) -> Result<Option<Measured>>;

    /// The library's heuristic, the fastest first, without running any.
    fn expect(&mut self, key: &Key) -> Result<Vec<Candidate>>;

    /// Bytes of scratch memory that an algorithm needs, or `None` if it can't compute this.
    fn workspace(&mut self, key: &Key, algorithm: Algorithm) -> Result<Option<usize>>;

    /// Times an algorithm with this much scratch memory against our own kernels, alternately, on the same
    /// memory and clock.
    fn race(&mut self, key: &Key, algorithm: Algorithm, workspace: usize) -> Result<Race>;
}

/// The outcome of such a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Race {
    /// Milliseconds of the library's algorithm, then of our kernels.
    Times([f32; 2]),
    /// A comparison is impossible this time, usually for want of memory.
    NotHeld,
    /// The algorithm fails, by itself or in a capture.
    Failed {
        /// Whether it would fail another time too.
        lasting: bool,
    },
}

/// The choices that were made.
pub(crate) struct Algorithms {
    deterministic: bool,
    /// Whether an algorithm of the library is taken even where our own kernels are faster.
    never_own: bool,
    /// The most bytes of scratch memory that an algorithm may take.
    limit: usize,
    known: HashMap<Key, Choice>,
    /// Algorithms that failed.
    failed: HashMap<Key, Vec<Algorithm>>,
    /// Where measurements are kept from run to run.
    store: Option<Store>,
}

impl Algorithms {
    pub(crate) fn new(deterministic: bool, limit: usize, store: Option<Store>) -> Algorithms {
        let (never_own, known, failed) = (false, HashMap::new(), HashMap::new());
        Algorithms { deterministic, never_own, limit, known, failed, store }
    }

    /// Takes an algorithm of the library even where our own kernels are faster. Choices are not kept then.
    pub(crate) fn never_own(self, never_own: bool) -> Algorithms {
        let store = self.store.filter(|_| !never_own);
        Algorithms { never_own, store, ..self }
    }

    /// The choice while a layer is planned, when there is time to measure.
    pub(crate) fn prepare(&mut self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        if let Some(&known) = self.known.get(key) {
            return Ok(known);
        }
        let choice =
            if self.deterministic { self.expected(library, key) } else { self.measured(library, key) }?;
        self.known.insert(*key, choice);
        Ok(choice)
    }

    /// The choice for an op that runs now. With `known_only` it is `None` for an unknown key: a call into the
    /// library could disturb a capture.
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

    /// Notes that an algorithm failed. The next choice is another.
    pub(crate) fn fail(&mut self, key: &Key, algorithm: Algorithm) {
        self.failed.entry(*key).or_default().push(algorithm);
        self.known.remove(key);
    }

    /// Leaves a convolution to our own kernels.
    pub(crate) fn refuse(&mut self, key: &Key) {
        self.known.insert(*key, Choice::WITHOUT_LIBRARY);
    }

    /// All choices, in the order of the keys' text.
    pub(crate) fn choices(&self) -> Vec<(Key, Choice)> {
        let mut all: Vec<_> = self.known.iter().map(|(&key, &choice)| (key, choice)).collect();
        all.sort_by_cached_key(|(key, _)| key.to_string());
        all
    }

    fn expected(&self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        let candidates = library.expect(key)?;
        let first = self.first_allowed(library, key, &candidates)?;
        Ok(first.map_or(Choice::WITHOUT_LIBRARY, |(Candidate { algorithm, .. }, workspace)| {
            Choice::Library { algorithm, workspace, times: Times::default() }
        }))
    }

    fn measured(&mut self, library: &mut dyn Library, key: &Key) -> Result<Choice> {
        // Replicas that plan the same layer wait here for the first, and then read its result. Side by side
        // they would distort each other's times.
        let args = self.store.as_ref().map(|store| store.lock());
        if let Some(kept) = self.kept(library, key)? {
            return Ok(kept);
        }
        let Some(Measured { mut candidates, complete }) = library.measure(key, self.limit)? else {
            return self.expected(library, key);
        };
        candidates.sort_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let (choice, lasting) = self.fastest(library, key, &candidates)?;
        if let Some(store) = self.store.as_ref().filter(|_| complete && lasting) {
            store.save(&key.to_string(), &text_of(choice));
        }
        drop(args);
        Ok(choice)
    }

    /// The fastest that does not fail, or our own kernels if they are faster, and whether that holds another
    /// time too.
    fn fastest(
        &mut self,
        library: &mut dyn Library,
        key: &Key,
        candidates: &[Candidate],
    ) -> Result<(Choice, bool)> {
        let mut all_last = true;
        while let Some((candidate, workspace)) = self.first_allowed(library, key, candidates)? {
            let Candidate { algorithm, milliseconds, .. } = candidate;
            // The library's own time is not compared with ours: it may have been taken in another way.
            let times = match library.race(key, algorithm, workspace)? {
                Race::Failed { lasting } => {
                    self.fail(key, algorithm);
                    all_last &= lasting;
                    continue;
                }
                Race::NotHeld => {
                    all_last = false;
                    Times { library: Some(milliseconds), own: None }
                }
                Race::Times([library, own]) => Times { library: Some(library), own: Some(own) },
            };
            let choice = match times {
                Times { library: Some(library), own: Some(own) } if own < library && !self.never_own => {
                    Choice::Own { times }
                }
                _ => Choice::Library { algorithm, workspace, times },
            };
            return Ok((choice, all_last));
        }
        Ok((Choice::WITHOUT_LIBRARY, all_last))
    }

    /// An earlier run's choice, unless the library now says that it can't compute it.
    fn kept(&self, library: &mut dyn Library, key: &Key) -> Result<Option<Choice>> {
        let text = self.store.as_ref().and_then(|store| store.load().remove(&key.to_string()));
        let Some((algorithm, times)) = text.as_deref().and_then(read) else { return Ok(None) };
        let Some(algorithm) = algorithm else { return Ok(Some(Choice::Own { times })) };
        // Devices that need the same bits every time measure and keep nothing.
        let candidate = Candidate { algorithm, deterministic: false, milliseconds: 0.0 };
        let allowed = self.first_allowed(library, key, &[candidate])?;
        Ok(allowed.map(|(_, workspace)| Choice::Library { algorithm, workspace, times }))
    }

    /// The first allowed one, with the bytes of scratch memory that it needs.
    fn first_allowed(
        &self,
        library: &mut dyn Library,
        key: &Key,
        candidates: &[Candidate],
    ) -> Result<Option<(Candidate, usize)>> {
        for &candidate in candidates {
            let Candidate { algorithm, deterministic, .. } = candidate;
            let has_failed = self.failed.get(key).is_some_and(|failed| failed.contains(&algorithm));
            if has_failed || self.deterministic && !deterministic || !algorithm.math.keeps(key.precision) {
                continue;
            }
            match library.workspace(key, algorithm)? {
                Some(workspace) if workspace <= self.limit => return Ok(Some((candidate, workspace))),
                _ => {}
            }
        }
        Ok(None)
    }
}

/// A choice as text for a [`Store`]: `own` or the algorithm's two numbers, then both times, with `-` for one
/// that was not measured.
fn text_of(choice: Choice) -> String {
    let (who, Times { library, own }) = match choice {
        Choice::Own { times } => ("own".into(), times),
        // The scratch memory is not kept: the library is asked for it again, which also proves that the algorithm exists.
        Choice::Library { algorithm: Algorithm { number, math }, times, .. } => {
            (format!("{number} {}", math as u32), times)
        }
    };
    let word = |time: Option<f32>| time.map_or("-".into(), |time| time.to_string());
    format!("{who} {} {}", word(library), word(own))
}

/// Reads the text of [`text_of`]: an algorithm, or none for our own kernels. `None` for any other text.
fn read(text: &str) -> Option<(Option<Algorithm>, Times)> {
    let words: Vec<&str> = text.split(' ').collect();
    let (who, &[library, own]) = words.split_last_chunk()?;
    let algorithm = match who {
        ["own"] => None,
        [number, math] => {
            let math = Math::of_number(math.parse().ok()?)?;
            Some(Algorithm { number: number.parse().ok()?, math })
        }
        _ => return None,
    };
    let time = |word: &str| match word {
        "-" => Some(None),
        word => word.parse().ok().filter(|time: &f32| time.is_finite() && *time >= 0.0).map(Some),
    };
    Some((algorithm, Times { library: time(library)?, own: time(own)? }))
}

#[cfg(test)]
mod tests;
