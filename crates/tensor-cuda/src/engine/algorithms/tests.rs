use super::*;
use tensor_backend::Pad;

const GEMM: Algorithm = Algorithm { number: 1, math: Math::TensorOp };
const FAST: Algorithm = Algorithm { number: 6, math: Math::TensorOp };
const ROUNDED: Algorithm = Algorithm { number: 2, math: Math::Default };
const EXACT: Algorithm = Algorithm { number: 2, math: Math::Fma };

/// A library that offers what a test says, and counts what it is asked.
struct Mock {
    offers: Vec<(Algorithm, bool, f32, Option<usize>)>,
    has_memory: bool,
    measured: usize,
    expected: usize,
}

impl Mock {
    fn new(offers: &[(Algorithm, bool, f32, Option<usize>)]) -> Mock {
        Mock { offers: offers.to_vec(), has_memory: true, measured: 0, expected: 0 }
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
    fn measure(&mut self, _: &Key, _: usize) -> Result<Option<Vec<Candidate>>> {
        self.measured += 1;
        Ok(self.has_memory.then(|| self.candidates()))
    }

    fn expect(&mut self, _: &Key) -> Result<Vec<Candidate>> {
        self.expected += 1;
        Ok(self.candidates())
    }

    fn workspace(&mut self, _: &Key, algorithm: Algorithm) -> Result<Option<usize>> {
        Ok(self.offers.iter().find(|offer| offer.0 == algorithm).and_then(|offer| offer.3))
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
        Choice::Own => None,
    }
}

fn fresh(deterministic: bool) -> Algorithms {
    Algorithms::new(deterministic, 1000, None)
}

#[test]
fn the_fastest_measured_one_is_taken_and_measured_once() -> Result<()> {
    let mut library = Mock::new(&[(GEMM, true, 2.0, Some(10)), (FAST, false, 1.0, Some(20))]);
    let mut algorithms = fresh(false);
    let wanted = Choice::Library { algorithm: FAST, workspace: 20, milliseconds: Some(1.0) };
    let bf16 = key(64, Precision::Bf16);
    assert_eq!(algorithms.prepare(&mut library, &bf16)?, wanted);
    assert_eq!(algorithms.prepare(&mut library, &bf16)?, wanted);
    assert_eq!(algorithms.choice(&mut library, &bf16, true)?, Some(wanted));
    assert_eq!((library.measured, library.expected), (1, 0));
    Ok(())
}

/// Two runs could measure differently, choose differently, and so add in another order.
#[test]
fn the_same_bits_every_time_means_not_to_measure() -> Result<()> {
    let mut library = Mock::new(&[(FAST, false, 1.0, Some(0)), (GEMM, true, 2.0, Some(0))]);
    let choice = fresh(true).prepare(&mut library, &key(64, Precision::Bf16))?;
    assert_eq!(choice, Choice::Library { algorithm: GEMM, workspace: 0, milliseconds: None });
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
    assert_eq!(fresh(false).prepare(&mut library, &key(64, Precision::Fp16))?, Choice::Own);
    assert_eq!(fresh(true).prepare(&mut Mock::new(&[]), &key(64, Precision::Fp16))?, Choice::Own);
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
    assert_eq!(algorithms.choice(&mut library, &ragged, false)?, Some(Choice::Own));
    assert_eq!(algorithms.choices(), [(ragged, Choice::Own)]);
    Ok(())
}

#[test]
fn without_memory_to_measure_the_expectation_does() -> Result<()> {
    let mut library = Mock::new(&[(GEMM, true, -1.0, Some(10))]);
    library.has_memory = false;
    let choice = fresh(false).prepare(&mut library, &key(64, Precision::Bf16))?;
    assert_eq!(choice, Choice::Library { algorithm: GEMM, workspace: 10, milliseconds: None });
    Ok(())
}

#[test]
fn another_run_finds_what_was_measured() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let store = || Store::new(folder.path(), "L", "D");
    let with_store = || Algorithms::new(false, 1000, Some(store()));
    let bf16 = key(64, Precision::Bf16);

    let mut library = Mock::new(&[(FAST, false, 0.25, Some(20))]);
    let first = with_store().prepare(&mut library, &bf16)?;
    assert_eq!(with_store().prepare(&mut library, &bf16)?, first, "the time is read back too");
    assert_eq!(library.measured, 1);

    // Another shape or format is another line.
    with_store().prepare(&mut library, &key(65, Precision::Bf16))?;
    with_store().prepare(&mut library, &key(64, Precision::Fp16))?;
    assert_eq!((library.measured, store().load().len()), (3, 3));

    // That nothing can do it is worth remembering too.
    let mut none = Mock::new(&[]);
    with_store().prepare(&mut none, &key(1, Precision::Bf16))?;
    assert_eq!(with_store().prepare(&mut none, &key(1, Precision::Bf16))?, Choice::Own);
    assert_eq!(none.measured, 1);
    Ok(())
}

#[test]
fn what_does_not_hold_any_more_is_measured_again() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let store = || Store::new(folder.path(), "L", "D");
    let bf16 = key(64, Precision::Bf16);
    for damaged in ["", "6", "6 1", "6 9 1.0", "6 2 1.0", "x 1 1.0", "6 1 1.0 more", "99 1 1.0", "-1 1 1.0"] {
        store().save(&bf16.to_string(), damaged);
        let mut library = Mock::new(&[(GEMM, true, 2.0, Some(10))]);
        let choice = Algorithms::new(false, 1000, Some(store())).prepare(&mut library, &bf16)?;
        assert_eq!((algorithm_of(choice), library.measured), (Some(GEMM), 1), "kept: `{damaged}`");
    }
    // Half precision may multiply as f32; f32 may not multiply as TF32, whoever wrote that into the file.
    let fp32 = key(64, Precision::Fp32);
    store().save(&fp32.to_string(), "2 0 1.0");
    let mut library = Mock::new(&[(ROUNDED, true, 1.0, Some(0)), (EXACT, true, 2.0, Some(0))]);
    let choice = Algorithms::new(false, 1000, Some(store())).prepare(&mut library, &fp32)?;
    assert_eq!(algorithm_of(choice), Some(EXACT));
    Ok(())
}
