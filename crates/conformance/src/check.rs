use crate::Subject;
use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

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
    /// use towers_conformance::{Subject, checks};
    ///
    /// let subject = Subject::new([("the CPU".to_owned(), towers_tensor_cpu::Cpu::new(1))]);
    /// let pooling = checks().iter().find(|check| check.topic == "pooling").unwrap();
    /// let checked = pooling.run(&subject);
    /// assert!(checked.failure.is_none() && checked.results > 10 && checked.worst <= 1.0);
    /// ```
    pub fn run(&self, subject: &Subject) -> Checked {
        subject.tally.take();
        // The message of an assertion goes into the table, and not to the terminal.
        let ran = without_messages(|| panic::catch_unwind(AssertUnwindSafe(|| (self.run)(subject))));
        let (results, worst) = subject.tally.take();
        Checked { results, worst, failure: ran.err().map(|panic| message(panic.as_ref())) }
    }
}

/// Runs something without the message of a panic on this thread. Other threads, which may run checks too, have theirs:
/// the process's hook is replaced once and for all by one that asks the thread.
fn without_messages<T>(run: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    INSTALLED.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                hook(panic);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let done = run();
    IS_QUIET.set(was_quiet);
    done
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bench, Case, Output, Source};
    use std::sync::{Barrier, Mutex};
    use towers_program::Precision;
    use towers_tensor_cpu::Reference;

    /// A case that a device with another loss scale gets wrong.
    #[derive(Debug)]
    struct Scaled;

    impl Case for Scaled {
        fn run(&self, bench: &Bench) -> towers_program::Result<Vec<Output>> {
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

    /// A thread panics while two checks fail.
    #[test]
    fn a_panic_beside_checks_is_heard() {
        static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        static MEET: Barrier = Barrier::new(3);
        // The hook of tests may be at work for others meanwhile.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| match message(panic.payload()) {
            text if text.contains("a thread") => HEARD.lock().unwrap().push(text),
            _ => hook(panic),
        }));
        let run = |_: &Subject| {
            MEET.wait();
            MEET.wait();
            panic!("a check fails");
        };
        let check = Check { topic: "tests", name: "panics", run };
        std::thread::scope(|scope| {
            let checks = [(); 2].map(|()| scope.spawn(|| check.run(&Subject::absent()).failure));
            MEET.wait();
            let beside = scope.spawn(|| panic!("a thread beside checks"));
            assert!(beside.join().is_err());
            MEET.wait();
            for failure in checks.map(|check| check.join().unwrap()) {
                assert_eq!(failure.as_deref(), Some("a check fails"));
            }
        });
        assert!(std::thread::spawn(|| panic!("a thread beside nothing")).join().is_err());
        assert_eq!(*HEARD.lock().unwrap(), ["a thread beside checks", "a thread beside nothing"]);
    }

    /// Whatever a device gets wrong: here all that it rounds.
    #[test]
    fn messages_are_short() {
        let device = ("a device".to_owned(), towers_tensor_cpu::Cpu::new(1).with_portable_bf16());
        let subject = Subject::new([device]);
        let failures = checks().iter().filter(|check| check.topic != "convolution");
        let failures: Vec<_> = failures.filter_map(|check| check.run(&subject).failure).collect();
        assert!(failures.len() > 10, "{}", failures.len());
        failures.iter().for_each(|failure| assert!(failure.len() < 500, "{failure}"));
    }

    #[test]
    fn each_topic_has_checks() {
        let mut topics: Vec<_> = checks().iter().map(|check| check.topic).collect();
        topics.dedup();
        assert_eq!(topics.len(), 20);
    }
}
