use crate::{Observer, Result};

/// The observers of a process.
pub enum Watch<'o> {
    /// Those of the first process.
    Now(&'o mut [Box<dyn Observer>]),
    /// Another process has none, and makes them if it becomes the first one because those before it were lost.
    Later(&'o mut dyn FnMut() -> callbacks::Result<Vec<Box<dyn Observer>>>, Vec<Box<dyn Observer>>),
}

impl<'o> Watch<'o> {
    /// No observers until they are made.
    pub fn later(make: &'o mut dyn FnMut() -> callbacks::Result<Vec<Box<dyn Observer>>>) -> Self {
        Watch::Later(make, Vec::new())
    }

    /// The observers that are there already.
    pub(super) fn observers_now(&mut self) -> &mut [Box<dyn Observer>] {
        match self {
            Watch::Now(observers) => observers,
            Watch::Later(_, made) => made,
        }
    }

    /// The observers, now that this is the first process.
    pub(super) fn observers(&mut self) -> Result<&mut [Box<dyn Observer>]> {
        match self {
            Watch::Now(observers) => Ok(observers),
            Watch::Later(make, made) => {
                if made.is_empty() {
                    *made = make()?;
                }
                Ok(made)
            }
        }
    }
}
