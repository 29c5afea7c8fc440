use crate::Subject;
use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

/// A function of the suite, with the same cases every time.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What it is about: a module of this crate.
    pub topic: &'static str,
    /// What it shows.
    pub name: &'static str,
    run: fn(&Subject),
}

/// What came of a [`Check`].
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The results that were compared with the reference's.
    pub results: usize,
    /// The largest difference, as a part of the tolerance.
    pub worst: f32,
    /// The case, the element, both values and the tolerance, if a result is wrong.
    pub failure: Option<String>,
}

#[doc(hidden)]
#[macro_export]
macro_rules! list {
    (() $($topic:ident: $($fixed:ident)*, $($random:ident)*;)+) => {
        &[$($($crate::Check::new(stringify!($topic), stringify!($fixed), $crate::$topic::$fixed),)*)+]
    };
}

/// All functions of the suite that need no random cases.
pub fn checks() -> &'static [Check] {
    const ALL: &[Check] = crate::topics! { list () };
    ALL
}

impl Check {
    const fn new(topic: &'static str, name: &'static str, run: fn(&Subject)) -> Check {
        Check { topic, name, run }
    }

    /// Runs it.
    ///
    /// ```
    /// use conformance::{Subject, checks};
    ///
    /// let subject = Subject::new([("the CPU".to_owned(), tensor_cpu::Cpu::new(1))]);
    /// let pooling = checks().iter().find(|check| check.topic == "pooling").unwrap();
    /// let checked = pooling.run(&subject);
    /// assert!(checked.failure.is_none() && checked.results > 10 && checked.worst <= 1.0);
    /// ```
    pub fn run(&self, subject: &Subject) -> Checked {
        subject.tally.take();
        // The message of an assertion goes into the table, and not to the terminal.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| ()));
        let ran = panic::catch_unwind(AssertUnwindSafe(|| (self.run)(subject)));
        panic::set_hook(hook);
        let (results, worst) = subject.tally.take();
        Checked { results, worst, failure: ran.err().map(|panic| message(panic.as_ref())) }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bench, Case, Output, Source};
    use program::Precision;
    use tensor_cpu::Reference;

    /// A case that a device with another loss scale gets wrong.
    #[derive(Debug)]
    struct Scaled;

    impl Case for Scaled {
        fn run(&self, bench: &Bench) -> program::Result<Vec<Output>> {
            let values = vec![bench.loss_scale];
            Ok(vec![Output { name: "y", values, tolerance: 0.5, source: Source::Kept }])
        }
    }

    #[test]
    fn a_wrong_result_is_told_and_ends_nothing() {
        let check = Check { topic: "tests", name: "scaled", run: |subject| subject.agree(&Scaled) };
        let of = |scale| {
            let device = ("a device".to_owned(), Reference);
            check.run(&Subject::new([device]).precision(Precision::Bf16).loss_scale(scale))
        };
        assert_eq!(of(1.25), Checked { results: 1, worst: 0.5, failure: None });
        let wrong = of(2.0);
        assert_eq!(wrong.worst, 2.0);
        let said = "y of Scaled on a device[0] is 2, not 1 (at most 0.5 of the largest, 1, may they differ)";
        assert_eq!(wrong.failure.as_deref(), Some(said));
    }

    #[test]
    fn each_topic_has_checks() {
        let mut topics: Vec<_> = checks().iter().map(|check| check.topic).collect();
        topics.dedup();
        assert_eq!(topics.len(), 14);
    }
}
