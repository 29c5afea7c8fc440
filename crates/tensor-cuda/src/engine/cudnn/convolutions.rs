//! What cuDNN says about convolutions, with the descriptors of those that it was asked about.

use super::handle::{Failure, Handle};
use super::problem::{Operands, Problem, Scratch};
use crate::buffer::Format;
use crate::driver::{Driver, Ptr};
use crate::engine::algorithms::{Algorithm, Candidate, Key, Library};
use crate::memory::Memory;
use core::iter;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tensor_backend::{Conv2d, Error, Precision, Result, Shape};

pub(super) struct Convolutions {
    precision: Precision,
    driver: Arc<dyn Driver>,
    handle: Handle,
    problems: HashMap<(Conv2d, Shape), Problem>,
}

impl Convolutions {
    pub(super) fn new(precision: Precision, driver: Arc<dyn Driver>, handle: Handle) -> Convolutions {
        Convolutions { precision, driver, handle, problems: HashMap::new() }
    }

    /// Runs a pass of a convolution, which [`Problem::fits`].
    ///
    /// # Safety
    /// As for [`Problem::run`].
    pub(super) unsafe fn run(
        &mut self,
        key: &Key,
        algorithm: Algorithm,
        at: Operands,
        scratch: Scratch,
        beta: f32,
    ) -> Result<(), Failure> {
        let (problem, handle) = self.problem(key)?;
        // SAFETY: as the caller vouches.
        unsafe { problem.run(handle, key.pass, algorithm, at, scratch, beta) }
    }

    fn problem(&mut self, key: &Key) -> Result<(&Problem, &Handle), Failure> {
        let problem = match self.problems.entry((key.conv, key.x)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let unsupported = |_| Failure::unsupported("the convolution's shapes");
                let y = key.conv.output(key.x).map_err(unsupported)?;
                place.insert(Problem::new(self.precision, &key.conv, key.x, y)?)
            }
        };
        Ok((problem, &self.handle))
    }

    /// Zeros for the operands, which measuring overwrites, and as much of the scratch memory as can be had.
    fn zeros(&self, key: &Key, limit: usize) -> Option<([Memory; 3], Option<Memory>)> {
        let bytes = Format::of_activations(self.precision).bytes();
        let y = key.conv.output(key.x).ok()?;
        let zeros = |elements: usize| Memory::zeros(&self.driver, elements * bytes).ok();
        let operands = [zeros(key.x.len())?, zeros(key.conv.weights())?, zeros(y.len())?];
        let sizes = iter::successors(Some(limit), |bytes| Some(bytes / 4)).take_while(|&bytes| bytes > 0);
        let scratch = sizes.filter_map(|bytes| Memory::zeros(&self.driver, bytes).ok()).next();
        Some((operands, scratch))
    }

    /// `None` for what cuDNN has no code for.
    fn supported<T>(&self, key: &Key, answer: Result<T, Failure>) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.is_unsupported() => Ok(None),
            Err(failure) => {
                Err(Error::Device { device: self.driver.name(), message: format!("{failure}, for {key}") })
            }
        }
    }
}

impl Library for Convolutions {
    fn measure(&mut self, key: &Key, limit: usize) -> Result<Option<Vec<Candidate>>> {
        let Some((operands, scratch)) = self.zeros(key, limit) else { return Ok(None) };
        let [x, w, y] = operands.each_ref().map(Memory::ptr);
        let (ptr, bytes) = scratch.as_ref().map_or((Ptr::NULL, 0), |memory| (memory.ptr(), memory.bytes()));
        let measured = self.problem(key).and_then(|(problem, handle)| {
            // SAFETY: the memory was allocated for the shapes of this problem and lives until this function ends, and cuDNN
            // waits for what it measures.
            unsafe { problem.measure(handle, key.pass, Operands { x, w, y }, Scratch { ptr, bytes }) }
        });
        // What keeps it from measuring (memory that cuDNN takes by itself, say) need not keep it from computing. If the device
        // is broken the next call says so.
        Ok(self.supported(key, measured).ok().map(Option::unwrap_or_default))
    }

    fn expect(&mut self, key: &Key) -> Result<Vec<Candidate>> {
        let expected = self.problem(key).and_then(|(problem, handle)| problem.expect(handle, key.pass));
        Ok(self.supported(key, expected)?.unwrap_or_default())
    }

    fn workspace(&mut self, key: &Key, algorithm: Algorithm) -> Result<Option<usize>> {
        let bytes =
            self.problem(key).and_then(|(problem, handle)| problem.workspace(handle, key.pass, algorithm));
        self.supported(key, bytes)
    }
}
