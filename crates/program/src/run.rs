use crate::{Result, Span};

/// A run of an arena to read, or a few that belong together: a buffer, and where in it they lie.
///
/// ```
/// use program::{Run, Span, WeightSpans};
///
/// let params = vec![0.5_f32; 40];
/// let kernel = Run::new(&params, Span::new(0, 36));
/// let weights = Run::new(&params, WeightSpans { w: kernel.at, b: Some(Span::new(36, 4)) });
/// assert_eq!(weights.at.b.map(|b| b.len), Some(4));
/// ```
#[derive(Debug)]
pub struct Run<'a, B: ?Sized, At = Span> {
    /// The arena.
    pub data: &'a B,
    /// The place in it.
    pub at: At,
}

impl<B: ?Sized, At: Copy> Clone for Run<'_, B, At> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: ?Sized, At: Copy> Copy for Run<'_, B, At> {}

/// A run of an arena to write, or a few that belong together: a buffer, and where in it they lie.
#[derive(Debug)]
pub struct RunMut<'a, B: ?Sized, At = Span> {
    /// The arena.
    pub data: &'a mut B,
    /// The place in it.
    pub at: At,
}

impl<'a, B: ?Sized, At> Run<'a, B, At> {
    /// What lies `at` these places of `data`.
    pub fn new(data: &'a B, at: At) -> Self {
        Run { data, at }
    }

    /// The same in another buffer type: how a facade hands a run to the backend behind it.
    pub fn try_map<C: ?Sized, E>(
        self,
        f: impl FnOnce(&'a B) -> Result<&'a C, E>,
    ) -> Result<Run<'a, C, At>, E> {
        Ok(Run { data: f(self.data)?, at: self.at })
    }
}

impl<'a, B: ?Sized, At> RunMut<'a, B, At> {
    /// What lies `at` these places of `data`.
    pub fn new(data: &'a mut B, at: At) -> Self {
        RunMut { data, at }
    }

    /// The same in another buffer type: how a facade hands a run to the backend behind it.
    pub fn try_map<C: ?Sized, E>(
        self,
        f: impl FnOnce(&'a mut B) -> Result<&'a mut C, E>,
    ) -> Result<RunMut<'a, C, At>, E> {
        Ok(RunMut { data: f(self.data)?, at: self.at })
    }
}

impl<'a, B: ?Sized, At: Copy> RunMut<'a, B, At> {
    /// A shorter loan of the same.
    pub fn reborrow(&mut self) -> RunMut<'_, B, At> {
        RunMut { data: self.data, at: self.at }
    }

    /// The same, to read.
    pub fn as_run(&self) -> Run<'_, B, At> {
        Run { data: self.data, at: self.at }
    }
}
