//! The observers of a run, on its first replica: who is called, and what happens when one fails.

use crate::Observer;
use crate::run::training::Spelling;
use towers_callbacks::Flow;
use towers_callbacks::{Error, Result};
use towers_options::Message;

/// The observers of the caller, then the callbacks of the configuration that may stop the run. Other replicas
/// have none.
#[derive(Default)]
pub(crate) struct ObserverGroup<'o> {
    own: &'o mut [Box<dyn Observer>],
    stopping: Vec<Box<dyn Observer>>,
    spelling: Option<Spelling>,
    /// The numbers of the observers that failed and that the run does without.
    dropped: Vec<usize>,
    /// The first error that ends the run, once it is saved.
    error: Option<Error>,
}

impl<'o> ObserverGroup<'o> {
    pub(crate) fn new(
        own: &'o mut [Box<dyn Observer>],
        stopping: Vec<Box<dyn Observer>>,
        spelling: Spelling,
    ) -> Self {
        ObserverGroup { own, stopping, spelling: Some(spelling), dropped: Vec::new(), error: None }
    }

    /// Calls all observers before the first step. There is nothing to save yet, so the first error is returned.
    pub(crate) fn begin<T>(&mut self, call: impl FnMut(&mut dyn Observer) -> Result<T>) -> Result<Vec<T>> {
        let mut call = call;
        self.own.iter_mut().chain(&mut self.stopping).map(|observer| call(observer.as_mut())).collect()
    }

    /// Calls all observers, also after one has failed, and gives the answers of the others. The first error is
    /// kept; that of an optional observer is a warning instead, and the observer is not called again.
    pub(crate) fn ask<T>(&mut self, call: impl FnMut(&mut dyn Observer) -> Result<T>) -> Vec<T> {
        let mut call = call;
        self.ask_some(|_, observer| Some(call(observer)))
    }

    /// As [`ask`](Self::ask), by the number of each observer. No answer is no error.
    pub(crate) fn ask_some<T>(
        &mut self,
        mut call: impl FnMut(usize, &mut dyn Observer) -> Option<Result<T>>,
    ) -> Vec<T> {
        let (mut answers, mut warnings) = (Vec::new(), Vec::new());
        let ObserverGroup { own, stopping, dropped, error, .. } = self;
        for (number, observer) in own.iter_mut().chain(stopping).enumerate() {
            if dropped.contains(&number) {
                continue;
            }
            match call(number, observer.as_mut()) {
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(failed)) if observer.is_optional() => {
                    dropped.push(number);
                    warnings.push(failed.message().and("; the run goes on without it"));
                }
                Some(Err(failed)) => _ = error.get_or_insert(failed),
                None => {}
            }
        }
        warnings.iter().for_each(|warning| self.warn(warning));
        answers
    }

    /// Warns the user.
    pub(crate) fn warn(&mut self, warning: &Message) {
        let warning = self.spelling.map_or_else(|| warning.to_string(), |spelling| warning.spelled(spelling));
        self.ask(|observer| observer.on_warning(&warning));
    }

    /// Why the run ends within the epoch, if an observer says so.
    pub(crate) fn over(&mut self) -> Option<String> {
        self.own.iter_mut().chain(&mut self.stopping).find_map(|observer| observer.is_over())
    }

    /// Whether an observer has failed that the run can't do without. The run then stops as if it were
    /// interrupted, so that it is saved.
    pub(crate) fn have_failed(&self) -> bool {
        self.error.is_some()
    }

    /// The first error.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

/// The reason of the first observer that stops the run.
pub(crate) fn first_reason(decisions: Vec<Flow>) -> Option<String> {
    decisions.into_iter().find_map(|flow| match flow {
        Flow::Stop(reason) => Some(reason),
        Flow::Continue => None,
    })
}
