use super::*;
use program::Pad;

const GEMM: Algorithm = Algorithm { number: 1, math: Math::TensorOp };
const FAST: Algorithm = Algorithm { number: 6, math: Math::TensorOp };
const ROUNDED: Algorithm = Algorithm { number: 2, math: Math::Default };
const EXACT: Algorithm = Algorithm { number: 2, math: Math::Fma };

/// The default time of our own kernels: more than any offer.
const SLOW: f32 = 100.0;

/// A library with the answers of a test, which counts its calls.
struct Mock {
    offers: Vec<(Algorithm, bool, f32, Option<usize>)>,
    has_memory: bool,
    /// Milliseconds of our own kernels, if they can be timed.
    own: Option<f32>,
    measured: usize,
    expected: usize,
    /// The algorithms that ran against our own kernels, with their scratch memory.
    raced: Vec<(Algorithm, usize)>,
    /// Algorithms that fail.
    fails: Vec<Algorithm>,
    /// Whether they would fail another time too.
    lasting: bool,
    /// Whether there is scratch memory for all measurements.
    complete: bool,
}

impl Mock {
    fn new(offers: &[(Algorithm, bool, f32, Option<usize>)]) -> Mock {
        let (offers, raced, fails) = (offers.to_vec(), Vec::new(), Vec::new());
        let own = Some(SLOW);
        let (measured, expected) = (0, 0);
        Mock {
            offers,
            has_memory: true,
            own,
            measured,
            expected,
            raced,
            fails,
            lasting: true,
            complete: true,
        }
    }

    fn against(own: Option<f32>, offers: &[(Algorithm, bool, f32, Option<usize>)]) -> Mock {
        Mock { own, ..Mock::new(offers) }
    }

    fn candidates(&self) -> Vec<Candidate> {
        let candidate = |&(algorithm, deterministic, milliseconds, _)| Candidate {
            algorithm,
            deterministic,
            milliseconds,
        };
        self.offers.iter().map(candidate).collect()
    }
}

impl Library for Mock {
    fn measure(&mut self, _: &Key, _: usize) -> Result<Option<Measured>> {
        self.measured += 1;
        let measured = || Measured { candidates: self.candidates(), complete: self.complete };
        Ok(self.has_memory.then(measured))
    }

    fn expect(&mut self, _: &Key) -> Result<Vec<Candidate>> {
        self.expected += 1;
        Ok(self.candidates())
    }

    fn workspace(&mut self, _: &Key, algorithm: Algorithm) -> Result<Option<usize>> {
        Ok(self.offers.iter().find(|offer| offer.0 == algorithm).and_then(|offer| offer.3))
    }

    /// By this clock the library takes twice as long as it says itself.
    fn race(&mut self, _: &Key, algorithm: Algorithm, workspace: usize) -> Result<Race> {
        self.raced.push((algorithm, workspace));
        let offer = self.offers.iter().find(|offer| offer.0 == algorithm);
        Ok(match (offer, self.own) {
            _ if self.fails.contains(&algorithm) => Race::Failed { lasting: self.lasting },
            (Some(offer), Some(own)) => Race::Times([2.0 * offer.2, own]),
            _ => Race::NotHeld,
        })
    }
}

fn key(n: usize, precision: Precision) -> Key {
    let pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };
    let conv = Conv2d { inputs: 3, outputs: 8, kernel: [3; 2], stride: [1; 2], pad };
    Key { pass: Pass::Forward, precision, conv, x: Shape::new(n, 32, 32, 3) }
}

fn algorithm_of(choice: Choice) -> Option<Algorithm> {
    match choice {
        Choice::Library { algorithm, .. } => Some(algorithm),
        Choice::Own { .. } => None,
    }
}

fn both(library: f32, own: f32) -> Times {
    Times { library: Some(library), own: Some(own) }
}

fn fresh(deterministic: bool) -> Algorithms {
    Algorithms::new(deterministic, 1000, None)
}

#[test]
fn the_fastest_measured_one_is_taken_and_measured_once() -> Result<()> {
    let mut library = Mock::new(&[(GEMM, true, 2.0, Some(10)), (FAST, false, 1.0, Some(20))]);
    let mut algorithms = fresh(false);
    let wanted = Choice::Library { algorithm: FAST, workspace: 20, times: both(2.0, SLOW) };
    let bf16 = key(64, Precision::Bf16);
    assert_eq!(algorithms.prepare(&mut library, &bf16)?, wanted);
    assert_eq!(algorithms.prepare(&mut library, &bf16)?, wanted);
    assert_eq!(algorithms.choice(&mut library, &bf16, true)?, Some(wanted));
    assert_eq!((library.measured, library.expected), (1, 0));
    assert_eq!(library.raced, [(FAST, 20)], "the fastest alone runs against our own kernels, and once");
    Ok(())
}

#[test]
fn the_faster_of_the_library_and_our_own_kernels_is_taken() -> Result<()> {
    let offers = [(GEMM, true, 2.0, Some(10)), (FAST, false, 1.0, Some(20))];
    let of = |own| fresh(false).prepare(&mut Mock::against(own, &offers), &key(64, Precision::Bf16));
    let library = |times| Choice::Library { algorithm: FAST, workspace: 20, times };
    assert_eq!(of(Some(0.5))?, Choice::Own { times: both(2.0, 0.5) });
    // By the library's clock it would have won.
    assert_eq!(of(Some(1.5))?, Choice::Own { times: both(2.0, 1.5) });
    assert_eq!(of(Some(2.5))?, library(both(2.0, 2.5)));
    assert_eq!(of(Some(2.0))?, library(both(2.0, 2.0)), "a tie");
    // Without a comparison the library's time is the only one.
    assert_eq!(of(None)?, library(Times { library: Some(1.0), own: None }));
    Ok(())
}

#[test]
fn the_library_may_be_taken_where_it_is_slower_and_that_is_not_kept() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let new = || Algorithms::new(false, 1000, Some(Store::new(folder.path(), "L", "O", "D")));
    let mut library = Mock::against(Some(0.5), &[(FAST, false, 1.0, Some(20))]);
    let bf16 = key(64, Precision::Bf16);
    assert_eq!(algorithm_of(new().never_own(true).prepare(&mut library, &bf16)?), Some(FAST));
    assert_eq!(algorithm_of(new().never_own(false).prepare(&mut library, &bf16)?), None);
    assert_eq!(algorithm_of(new().never_own(true).prepare(&mut library, &bf16)?), Some(FAST));
    Ok(())
}

#[test]
fn our_own_kernels_run_against_what_is_allowed_alone() -> Result<()> {
    let offers = [(FAST, true, 1.0, Some(1001)), (ROUNDED, true, 2.0, Some(0)), (EXACT, true, 3.0, Some(0))];
    let mut library = Mock::against(Some(5.0), &offers);
    let choice = fresh(false).prepare(&mut library, &key(64, Precision::Fp32))?;
    assert_eq!(choice, Choice::Own { times: both(6.0, 5.0) }, "ROUNDED is faster, and not allowed");
    assert_eq!(library.raced, [(EXACT, 0)]);
    Ok(())
}

/// Not for an unplanned batch, not if measuring is forbidden, and not without our own kernels.
#[test]
fn our_own_kernels_are_timed_only_where_a_library_is_measured() -> Result<()> {
    let mut library = Mock::against(Some(0.1), &[(GEMM, true, 2.0, Some(10))]);
    let bf16 = key(64, Precision::Bf16);
    assert_eq!(algorithm_of(fresh(true).prepare(&mut library, &bf16)?), Some(GEMM));
    for known_only in [true, false] {
        let choice = fresh(false).choice(&mut library, &bf16, known_only)?;
        assert_eq!(choice.and_then(algorithm_of), (!known_only).then_some(GEMM));
    }
    library.has_memory = false;
    assert_eq!(algorithm_of(fresh(false).prepare(&mut library, &bf16)?), Some(GEMM));
    assert_eq!(library.raced, []);
    let mut none = Mock::against(Some(0.1), &[(GEMM, true, 2.0, None)]);
    assert_eq!(fresh(false).prepare(&mut none, &bf16)?, Choice::WITHOUT_LIBRARY);
    assert_eq!(none.raced, []);
    Ok(())
}

/// Two runs could measure differently, choose differently, and so add in another order.
#[test]
fn the_same_bits_every_time_means_not_to_measure() -> Result<()> {
    let mut library = Mock::new(&[(FAST, false, 1.0, Some(0)), (GEMM, true, 2.0, Some(0))]);
    let choice = fresh(true).prepare(&mut library, &key(64, Precision::Bf16))?;
    assert_eq!(choice, Choice::Library { algorithm: GEMM, workspace: 0, times: Times::default() });
    assert_eq!((library.measured, library.expected), (0, 1));
    Ok(())
}

#[test]
fn what_takes_too_much_memory_or_can_not_be_is_passed_over() -> Result<()> {
    let mut library = Mock::new(&[
        (FAST, true, 1.0, Some(1001)),
        (ROUNDED, true, 2.0, None),
        (GEMM, true, 3.0, Some(1000)),
    ]);
    let choice = fresh(false).prepare(&mut library, &key(64, Precision::Fp16))?;
    assert_eq!(algorithm_of(choice), Some(GEMM));
    let mut library = Mock::new(&[(FAST, true, 1.0, None)]);
    assert_eq!(fresh(false).prepare(&mut library, &key(64, Precision::Fp16))?, Choice::WITHOUT_LIBRARY);
    assert_eq!(fresh(true).prepare(&mut Mock::new(&[]), &key(64, Precision::Fp16))?, Choice::WITHOUT_LIBRARY);
    Ok(())
}

#[test]
fn fp32_is_not_rounded_to_tf32() -> Result<()> {
    let offers = [(ROUNDED, true, 1.0, Some(0)), (EXACT, true, 2.0, Some(0))];
    let of = |precision| -> Result<_> {
        Ok(algorithm_of(fresh(false).prepare(&mut Mock::new(&offers), &key(64, precision))?))
    };
    assert_eq!(of(Precision::Fp32)?, Some(EXACT));
    assert_eq!(of(Precision::Tf32)?, Some(ROUNDED));
    Ok(())
}

#[test]
fn an_unplanned_batch_is_not_measured_and_in_a_recording_not_chosen() -> Result<()> {
    let mut library = Mock::new(&[(GEMM, true, 2.0, Some(10)), (FAST, true, 1.0, Some(10))]);
    let mut algorithms = fresh(false);
    let ragged = key(17, Precision::Bf16);
    assert_eq!(algorithms.choice(&mut library, &ragged, true)?, None);
    assert_eq!(
        algorithms.choice(&mut library, &ragged, false)?.and_then(algorithm_of),
        Some(GEMM),
        "the order counts"
    );
    assert_eq!(algorithms.choice(&mut library, &ragged, true)?.and_then(algorithm_of), Some(GEMM));
    assert_eq!((library.measured, library.expected), (0, 1));
    algorithms.refuse(&ragged);
    assert_eq!(algorithms.choice(&mut library, &ragged, false)?, Some(Choice::WITHOUT_LIBRARY));
    assert_eq!(algorithms.choices(), [(ragged, Choice::WITHOUT_LIBRARY)]);
    // A choice that beat our own kernels may fail too. It is not tried again.
    let planned = key(64, Precision::Bf16);
    assert_eq!(algorithm_of(algorithms.prepare(&mut library, &planned)?), Some(FAST));
    algorithms.refuse(&planned);
    assert_eq!(algorithms.prepare(&mut library, &planned)?, Choice::WITHOUT_LIBRARY);
    assert_eq!(library.raced, [(FAST, 10)]);
    Ok(())
}

#[test]
fn an_algorithm_that_fails_gives_way_to_the_next_and_at_last_to_our_own_kernels() -> Result<()> {
    let offers = [(FAST, true, 1.0, Some(20)), (GEMM, true, 2.0, Some(10))];
    let bf16 = key(64, Precision::Bf16);
    // During the comparison.
    let mut library = Mock { fails: vec![FAST], ..Mock::new(&offers) };
    let mut algorithms = fresh(false);
    assert_eq!(algorithm_of(algorithms.prepare(&mut library, &bf16)?), Some(GEMM));
    assert_eq!(library.raced, [(FAST, 20), (GEMM, 10)]);
    // In use. An algorithm that failed before is not tried again.
    algorithms.fail(&bf16, GEMM);
    assert_eq!(algorithms.choice(&mut library, &bf16, true)?, None, "nothing is asked in a recording");
    assert_eq!(algorithms.choice(&mut library, &bf16, false)?, Some(Choice::WITHOUT_LIBRARY));
    assert_eq!(algorithms.choice(&mut library, &bf16, true)?, Some(Choice::WITHOUT_LIBRARY));
    // Other convolutions keep it.
    assert_eq!(algorithm_of(algorithms.prepare(&mut library, &key(65, Precision::Bf16))?), Some(GEMM));
    let mut algorithms = fresh(true);
    assert_eq!(algorithm_of(algorithms.prepare(&mut library, &bf16)?), Some(FAST));
    algorithms.fail(&bf16, FAST);
    assert_eq!(algorithms.choice(&mut library, &bf16, false)?.and_then(algorithm_of), Some(GEMM));
    library.fails.push(GEMM);
    assert_eq!(fresh(false).prepare(&mut library, &bf16)?, Choice::WITHOUT_LIBRARY);
    Ok(())
}

#[test]
fn without_memory_to_measure_the_expectation_does() -> Result<()> {
    let mut library = Mock::new(&[(GEMM, true, -1.0, Some(10))]);
    library.has_memory = false;
    let choice = fresh(false).prepare(&mut library, &key(64, Precision::Bf16))?;
    assert_eq!(choice, Choice::Library { algorithm: GEMM, workspace: 10, times: Times::default() });
    Ok(())
}

#[test]
fn another_run_finds_what_was_measured() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let store = || Store::new(folder.path(), "L", "O", "D");
    let with_store = || Algorithms::new(false, 1000, Some(store()));
    let bf16 = key(64, Precision::Bf16);

    let mut library = Mock::new(&[(FAST, false, 0.25, Some(20))]);
    let first = with_store().prepare(&mut library, &bf16)?;
    assert_eq!(first, Choice::Library { algorithm: FAST, workspace: 20, times: both(0.5, SLOW) });
    assert_eq!(with_store().prepare(&mut library, &bf16)?, first, "the times are read back too");
    assert_eq!((library.measured, library.raced.len()), (1, 1));

    // Another shape or format is another line.
    with_store().prepare(&mut library, &key(65, Precision::Bf16))?;
    with_store().prepare(&mut library, &key(64, Precision::Fp16))?;
    assert_eq!((library.measured, store().load().len()), (3, 3));

    // So is what our own kernels won.
    let mut library = Mock::against(Some(0.1), &[(FAST, false, 0.3, Some(20))]);
    let first = with_store().prepare(&mut library, &key(2, Precision::Bf16))?;
    assert_eq!(algorithm_of(first), None);
    assert_eq!(with_store().prepare(&mut library, &key(2, Precision::Bf16))?, first);
    assert_eq!((library.measured, library.raced.len()), (1, 1));

    // It is also kept that no algorithm can compute this.
    let mut none = Mock::new(&[]);
    with_store().prepare(&mut none, &key(1, Precision::Bf16))?;
    assert_eq!(with_store().prepare(&mut none, &key(1, Precision::Bf16))?, Choice::WITHOUT_LIBRARY);
    assert_eq!(none.measured, 1);
    Ok(())
}

/// A passing shortage of memory, or a failed launch, must not decide for all later runs.
#[test]
fn what_a_passing_failure_decided_holds_for_one_run() -> Result<()> {
    let offers = [(FAST, true, 1.0, Some(20)), (GEMM, true, 2.0, Some(10))];
    let bf16 = key(64, Precision::Bf16);
    // The number of measurements by two runs one after the other.
    let measured = |mut library: Mock| -> Result<_> {
        let folder = tempfile::tempdir().unwrap();
        let run = || Algorithms::new(false, 1000, Some(Store::new(folder.path(), "L", "O", "D")));
        let mut first = run();
        let choice = first.prepare(&mut library, &bf16)?;
        assert_eq!(first.prepare(&mut library, &bf16)?, choice, "this run has decided");
        assert_eq!(run().prepare(&mut library, &bf16)?, choice);
        Ok((algorithm_of(choice), library.measured))
    };
    let failing = |fails: &[Algorithm], lasting| Mock { fails: fails.into(), lasting, ..Mock::new(&offers) };
    assert_eq!(measured(failing(&[FAST], true))?, (Some(GEMM), 1));
    assert_eq!(measured(failing(&[FAST], false))?, (Some(GEMM), 2));
    assert_eq!(measured(failing(&[FAST, GEMM], true))?, (None, 1));
    assert_eq!(measured(failing(&[FAST, GEMM], false))?, (None, 2));
    assert_eq!(measured(Mock::against(None, &offers))?, (Some(FAST), 2), "not compared");
    assert_eq!(measured(Mock { complete: false, ..Mock::new(&offers) })?, (Some(FAST), 2));
    Ok(())
}

/// Replicas of one run, each with its own times: the first decides for all.
#[test]
fn replicas_that_share_a_store_choose_alike() {
    let folder = tempfile::tempdir().unwrap();
    let choices: Vec<Choice> = std::thread::scope(|scope| {
        let replica = |own| {
            let store = Store::new(folder.path(), "L", "O", "D");
            scope.spawn(move || {
                let mut library = Mock::against(Some(own), &[(FAST, false, 1.0, Some(20))]);
                Algorithms::new(false, 1000, Some(store)).prepare(&mut library, &key(64, Precision::Bf16))
            })
        };
        let replicas: Vec<_> = [0.1, 3.0, 0.2, 4.0].map(replica).into();
        replicas.into_iter().map(|replica| replica.join().unwrap().unwrap()).collect()
    });
    assert!(choices.iter().all(|&choice| choice == choices[0]), "{choices:?}");
}

#[test]
fn what_does_not_hold_any_more_is_measured_again() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let store = || Store::new(folder.path(), "L", "O", "D");
    let bf16 = key(64, Precision::Bf16);
    let damaged = [
        "",
        "6",
        "6 1",
        "6 1 1.0",
        "6 9 1.0 2.0",
        "6 2 1.0 2.0",
        "x 1 1.0 2.0",
        "6 1 1.0 2.0 more",
        "99 1 1.0 2.0",
        "-1 1 1.0 2.0",
        "6 1 NaN 2.0",
        "6 1 1.0 inf",
        "6 1 1.0 -2.0",
        "6 1  2.0",
        "own",
        "own 1.0",
        "own 1.0 x",
        "own 1.0 2.0 more",
        "own 1 1.0 2.0",
        "Own 1.0 2.0",
        "1.0 2.0",
        "- -",
    ];
    let prepare = |kept: &str| -> Result<_> {
        store().save(&bf16.to_string(), kept);
        let mut library = Mock::new(&[(FAST, true, 2.0, Some(10))]);
        let choice = Algorithms::new(false, 1000, Some(store())).prepare(&mut library, &bf16)?;
        Ok((choice, library.measured))
    };
    let library = |times| Choice::Library { algorithm: FAST, workspace: 10, times };
    for damaged in damaged {
        assert_eq!(prepare(damaged)?, (library(both(4.0, SLOW)), 1), "kept: `{damaged}`");
    }
    assert_eq!(prepare("6 1 1.0 2.0")?, (library(both(1.0, 2.0)), 0), "what is whole is kept");
    assert_eq!(prepare("own 2.0 1.0")?, (Choice::Own { times: both(2.0, 1.0) }, 0));
    // Half precision may multiply as f32. f32 may not multiply as TF32, even if the file says so.
    let fp32 = key(64, Precision::Fp32);
    store().save(&fp32.to_string(), "2 0 1.0 2.0");
    let mut library = Mock::new(&[(ROUNDED, true, 1.0, Some(0)), (EXACT, true, 2.0, Some(0))]);
    let choice = Algorithms::new(false, 1000, Some(store())).prepare(&mut library, &fp32)?;
    assert_eq!(algorithm_of(choice), Some(EXACT));
    Ok(())
}
