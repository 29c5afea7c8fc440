//! cuDNN's answers about convolutions, with their descriptors, and their times beside our own kernels.

use super::handle::{Failure, Handle};
use super::problem::{Operands, Problem, Scratch};
use crate::Cuda;
use crate::driver::{Driver, Ptr};
use crate::engine::algorithms::{Algorithm, Candidate, Key, Library, Measured, Pass, Race};
use crate::engine::contest;
use crate::engine::faults::Fault;
use crate::format::Format;
use crate::memory::Memory;
use core::iter;
use program::{Conv2d, Precision, Result, Shape, Write};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

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

    /// Runs a pass of a convolution that [`Problem::fits`].
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

    /// Operands to measure on, which are overwritten: x, w and y.
    fn operands(&self, key: &Key) -> Option<[Memory; 3]> {
        let bytes = Format::of_activations(self.precision).bytes();
        let y = key.conv.output(key.x).ok()?;
        let block = numbers(1 << 20);
        let operand = |elements: usize| {
            let memory = Memory::zeros(&self.driver, elements * bytes).ok()?;
            let mut done = block.len().min(memory.bytes());
            // SAFETY: the memory has as many bytes.
            unsafe { self.driver.write(&block[..done], memory.ptr()) }.ok()?;
            while done < memory.bytes() {
                let more = done.min(memory.bytes() - done);
                // SAFETY: so many are there, and as many are left.
                unsafe { self.driver.copy(&*self.driver, memory.ptr(), memory.ptr().offset(done), more) }
                    .ok()?;
                done += more;
            }
            Some(memory)
        };
        Some([operand(key.x.len())?, operand(key.conv.weights())?, operand(y.len())?])
    }

    /// As much scratch memory as is available.
    fn scratch(&self, limit: usize) -> Option<Memory> {
        let sizes = iter::successors(Some(limit), |bytes| Some(bytes / 4)).take_while(|&bytes| bytes > 0);
        sizes.filter_map(|bytes| Memory::zeros(&self.driver, bytes).ok()).next()
    }
}

/// Bytes that are finite numbers in every format, of both signs and magnitudes below 2: a GPU draws less
/// power on zeros.
fn numbers(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        // G. Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // A word is a number of 16 bits, or half of one of 32 bits. Exponents are those of the numbers around 1.
        (state as u16 & 0x83ff | 0x3c00).to_le_bytes()
    };
    iter::repeat_with(next).flatten().take(bytes).collect()
}

/// cuDNN's convolutions on a device that also has our own.
pub(super) struct Beside<'a> {
    pub(super) cuda: &'a Cuda,
    pub(super) convolutions: &'a mut Convolutions,
}

impl Library for Beside<'_> {
    fn measure(&mut self, key: &Key, limit: usize) -> Result<Option<Measured>> {
        let Some(operands) = self.convolutions.operands(key) else { return Ok(None) };
        let scratch = self.convolutions.scratch(limit);
        let [x, w, y] = operands.each_ref().map(Memory::ptr);
        let (ptr, bytes) = scratch.as_ref().map_or((Ptr::NULL, 0), |memory| (memory.ptr(), memory.bytes()));
        let measured = self.convolutions.problem(key).and_then(|(problem, handle)| {
            // SAFETY: the memory was allocated for the shapes of this problem and lives until this function
            // ends. cuDNN waits until its measurement is over.
            unsafe { problem.measure(handle, key.pass, Operands { x, w, y }, Scratch { ptr, bytes }) }
        });
        // Without a measurement (for want of memory in cuDNN, say) it may still compute.
        match measured.as_ref().map_err(Failure::fault) {
            Err(Fault::Memory) => Ok(None),
            Err(Fault::Begun) => self.answer(key, measured).map(|_| None),
            Ok(_) | Err(Fault::Refused) => {
                let candidates = self.answer(key, measured)?.unwrap_or_default();
                Ok(Some(Measured { candidates, complete: bytes == limit }))
            }
        }
    }

    fn expect(&mut self, key: &Key) -> Result<Vec<Candidate>> {
        let problem = self.convolutions.problem(key);
        let expected = problem.and_then(|(problem, handle)| problem.expect(handle, key.pass));
        Ok(self.answer(key, expected)?.unwrap_or_default())
    }

    fn workspace(&mut self, key: &Key, algorithm: Algorithm) -> Result<Option<usize>> {
        let problem = self.convolutions.problem(key);
        let bytes = problem.and_then(|(problem, handle)| problem.workspace(handle, key.pass, algorithm));
        self.answer(key, bytes)
    }

    fn race(&mut self, key: &Key, algorithm: Algorithm, workspace: usize) -> Result<Race> {
        let Beside { cuda, convolutions } = self;
        let Some(operands) = convolutions.operands(key) else { return Ok(Race::NotHeld) };
        let [x, w, y] = operands.each_ref().map(Memory::ptr);
        // Not the engine's scratch memory, which would stay reserved if our own kernels win.
        let Ok(memory) = Memory::zeros(&convolutions.driver, workspace) else { return Ok(Race::NotHeld) };
        let scratch = Scratch { ptr: memory.ptr(), bytes: workspace };
        let mut library = |beta| {
            // SAFETY: operands and scratch memory were allocated for this problem, and outlive the race, which waits for all
            // that it asks for.
            let ran = unsafe { convolutions.run(key, algorithm, Operands { x, w, y }, scratch, beta) };
            ran.map_err(|failure| (failure.fault(), format!("{failure}, for {key}")))
        };
        // Gradients of inputs are added up too. An algorithm that fails at that halfway should fail here, not
        // in a step.
        let also = if key.pass == Pass::Data { &[1.0][..] } else { &[] };
        contest::hold(cuda, also, &mut library, &mut || contest::run_own(cuda, key, [x, w, y]))
    }
}

impl Beside<'_> {
    /// `None` if cuDNN can't compute it, or fails.
    fn answer<T>(&self, key: &Key, answer: Result<T, Failure>) -> Result<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) => {
                let what = format!("{failure}, for {key}");
                self.cuda.drop_algorithm(failure.fault(), Write::Set, what).map(|()| None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::numbers;
    use half::{bf16, f16};

    #[test]
    fn operands_are_ordinary_numbers_in_every_format() {
        let bytes = numbers(1 << 16);
        let (words, wide) = (bytes.as_chunks().0, bytes.as_chunks().0);
        let all: [Vec<f32>; 3] = [
            words.iter().map(|&word| bf16::from_le_bytes(word).to_f32()).collect(),
            words.iter().map(|&word| f16::from_le_bytes(word).to_f32()).collect(),
            wide.iter().map(|&word| f32::from_le_bytes(word)).collect(),
        ];
        for values in all {
            assert!(values.iter().all(|x| (0.001..2.0).contains(&x.abs())));
            let positive = values.iter().filter(|x| **x > 0.0).count();
            assert!((values.len() / 3..values.len() * 2 / 3).contains(&positive), "{positive}");
        }
        assert_eq!(numbers(3).len(), 3);
    }
}
