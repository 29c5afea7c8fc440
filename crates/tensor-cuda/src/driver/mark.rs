//! Places in streams that others can wait for.

use super::{Driver, Event};
use std::sync::Arc;
use towers_program::Result;

/// A movable event in a driver's stream. Before it is put anywhere it has passed.
pub(crate) struct Mark {
    driver: Arc<dyn Driver>,
    event: Option<Event>,
}

impl Mark {
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Result<Mark> {
        Ok(Mark { event: Some(driver.create_event()?), driver: Arc::clone(driver) })
    }

    /// Puts it after all work of its driver so far.
    pub(crate) fn put(&self) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), |event| self.driver.record_event(event))
    }

    /// Whether the stream has reached it.
    pub(crate) fn has_passed(&self) -> Result<bool> {
        self.event.as_ref().map_or(Ok(true), |event| self.driver.has_passed(event))
    }

    /// Makes all later work of `driver` wait for it.
    pub(crate) fn hold_back(&self, driver: &dyn Driver) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), |event| driver.wait_event(event))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.driver.free_event(event);
        }
    }
}
