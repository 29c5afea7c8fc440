//! Compares a library's algorithm with our own kernels, by the device's clock.

use super::algorithms::{Key, Pass, Race};
use super::faults::Fault;
use super::own::Own;
use super::{product, sliding};
use crate::Cuda;
use crate::cache;
use crate::captured_graph::CapturedGraph;
use crate::cuda::Engine;
use crate::driver::Ptr;
use crate::libraries::NVRTC;
use crate::place::Place;
use crate::source::HEADERS;
use program::{Result, Shape, Write};

/// The number of timings. The shortest counts, since disturbances only add time.
const ROUNDS: usize = 5;
/// The most runs that are timed as one. Beside them the beginning and the end of a graph take little time.
const MOST_RUNS: f32 = 10.0;
/// The aimed milliseconds of the runs that are timed as one.
const LONG: f32 = 1.0;

/// Compares a library's algorithm with our own kernels. The algorithm is called with the factor of the
/// earlier output: first once with each of `also`, then with 0. A call that fails is the algorithm's failure.
/// Other errors, such as a want of memory, are not.
///
/// # Errors
/// If the device is broken, by its own report.
pub(super) fn hold(
    cuda: &Cuda,
    also: &[f32],
    library: &mut dyn FnMut(f32) -> Result<(), (Fault, String)>,
    own: &mut dyn FnMut() -> Result<()>,
) -> Result<Race> {
    let mut failed = None;
    let mut ask = |factor| {
        let Err((fault, what)) = cuda.ask_library(|| library(factor))? else { return Ok(()) };
        failed = Some(fault);
        Err(cuda.error(what))
    };
    let before = also.iter().try_for_each(|&factor| ask(factor));
    let theirs = before.and_then(|()| Runner::new(cuda, &mut || ask(0.0)));
    let Ok(theirs) = theirs else {
        // A broken device reports it here.
        cuda.driver().synchronize()?;
        return Ok(match failed {
            Some(fault @ (Fault::Refused | Fault::Begun)) => {
                Race::Failed { lasting: fault == Fault::Refused }
            }
            Some(Fault::Memory) | None => Race::NotHeld,
        });
    };
    // Without a comparison the library may still compute.
    let times = Runner::new(cuda, own).and_then(|ours| race(cuda, [theirs, ours]));
    Ok(times.map_or(Race::NotHeld, Race::Times))
}

/// Milliseconds of two computations, timed alternately. They run from graphs, as in steps. Otherwise small
/// kernels would take the time of the host's calls.
///
/// # Errors
/// The errors of the device.
fn race(cuda: &Cuda, runners: [Runner; 2]) -> Result<[f32; 2]> {
    let mut shortest = [f32::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (runner, shortest) in runners.iter().zip(&mut shortest) {
            // After one that already runs, so that the clock does not start before the host has queued
            // everything.
            runner.graph.repeat()?;
            let time = cuda.time(|| runner.graph.repeat())?;
            *shortest = shortest.min(time / runner.runs as f32);
        }
    }
    Ok(shortest)
}

/// A computation that was captured a number of times.
struct Runner {
    graph: CapturedGraph,
    runs: usize,
}

impl Runner {
    /// # Errors
    /// The errors of the computation. Nothing can be timed during a capture. A capture that fails is
    /// abandoned.
    fn new(cuda: &Cuda, work: &mut dyn FnMut() -> Result<()>) -> Result<Runner> {
        // Twice without a capture: the first run loads and reserves memory, which takes long and can't be
        // captured.
        cuda.time(&mut *work)?;
        let once = cuda.time(&mut *work)?;
        let runs = (LONG / once).clamp(1.0, MOST_RUNS) as usize;
        cuda.begin_capture()?;
        if let Err(error) = (0..runs).try_for_each(|_| work()) {
            cuda.abandon_capture();
            return Err(error);
        }
        Ok(Runner { graph: cuda.end_capture()?, runs })
    }
}

/// A pass by our own kernels, on operands without gaps. `x` and `y` also stand for their gradients.
pub(super) fn run_own(cuda: &Cuda, key: &Key, [x, w, y]: [Ptr; 3]) -> Result<()> {
    let place = |ptr, shape: Shape| Place { ptr, shape, stride: shape.c };
    let (x, y) = (place(x, key.x), place(y, key.conv.output(key.x)?));
    match key.pass {
        Pass::Forward => Own.conv_fwd(cuda, &key.conv, &x, w, &y),
        Pass::Data => Own.conv_bwd_data(cuda, &key.conv, &y, w, &x, Write::Set),
        Pass::Filter => Own.conv_bwd_filter(cuda, &key.conv, &x, &y, w),
    }
}

/// The versions of our kernels for these times: sources, launch geometry and compiler.
pub(super) fn own_version() -> String {
    let compiler = NVRTC.find().map(|found| found.version.to_string()).unwrap_or_default();
    let kernels = [product::SOURCE.text, sliding::SOURCE.text];
    let geometry = [include_str!("own.rs"), include_str!("product.rs"), include_str!("sliding.rs")];
    let parts =
        HEADERS.iter().map(|header| header.1).chain(kernels).chain(geometry).chain([compiler.as_str()]);
    let digest = cache::Key::new("", parts.map(str::as_bytes)).hex();
    format!("own {}", &digest[..16])
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use core::cell::Cell;
    use program::{Conv2d, Pad, Precision};

    /// Two computations that count their calls.
    fn run(cuda: &Cuda, fails_at: usize) -> (Result<[f32; 2]>, [usize; 2]) {
        let memory = Memory::zeros(cuda.driver(), 4096).expect("there are 4 KiB");
        let counts = [Cell::new(0), Cell::new(0)];
        let work = |which: usize| {
            let (counts, memory) = (&counts, &memory);
            move || {
                counts[which].set(counts[which].get() + 1);
                if which == 1 && counts[which].get() == fails_at {
                    return Err(cuda.error("it fails"));
                }
                // SAFETY: the bytes are those of the memory.
                unsafe { cuda.driver().clear(memory.ptr(), memory.bytes()) }
            }
        };
        let runner = |which| Runner::new(cuda, &mut work(which));
        let times = runner(0).and_then(|one| race(cuda, [one, runner(1)?]));
        (times, counts.map(Cell::into_inner))
    }

    #[test]
    fn both_run_and_take_time() -> Result<()> {
        let cuda = Cuda::emulated(Precision::Fp32)?;
        let (times, counts) = run(&cuda, 0);
        assert!(times?.iter().all(|time| time.is_finite() && *time > 0.0));
        // Twice by itself, then at least once, and at most as often as a graph has it.
        assert!(counts.iter().all(|count| (3..=2 + MOST_RUNS as usize).contains(count)), "{counts:?}");
        assert!(!cuda.is_capturing());
        Ok(())
    }

    #[test]
    fn what_fails_ends_it_and_leaves_the_device_as_it_was() -> Result<()> {
        let cuda = Cuda::emulated(Precision::Fp32)?;
        // The third time is in a capture.
        for fails_at in [1, 2, 3] {
            let (times, counts) = run(&cuda, fails_at);
            assert!(times.is_err_and(|error| error.to_string().contains("it fails")), "{fails_at}");
            assert_eq!(counts[1], fails_at);
            assert!(!cuda.is_capturing());
        }
        assert!(run(&cuda, 0).0.is_ok());
        Ok(())
    }

    #[test]
    fn only_what_the_library_does_is_its_failure() -> Result<()> {
        let cuda = Cuda::emulated(Precision::Fp32)?;
        // Fails at the fourth call, in a capture.
        let of = |at_the_fourth: &dyn Fn() -> Result<(), (Fault, String)>| {
            let (mut calls, mut factors) = (0, Vec::new());
            let mut library = |factor| {
                (calls, factors) = (calls + 1, [&factors[..], &[factor]].concat());
                if calls == 4 { at_the_fourth() } else { Ok(()) }
            };
            let race = hold(&cuda, &[1.0], &mut library, &mut || Ok(()));
            assert!(!cuda.is_capturing());
            assert_eq!(factors[..4], [1.0, 0.0, 0.0, 0.0]);
            race
        };
        let fails = |fault| of(&|| Err((fault, "it fails".into())));
        assert_eq!(fails(Fault::Refused)?, Race::Failed { lasting: true });
        assert_eq!(fails(Fault::Begun)?, Race::Failed { lasting: false });
        assert_eq!(fails(Fault::Memory)?, Race::NotHeld);
        assert!(matches!(of(&|| Ok(()))?, Race::Times(_)));
        // The driver can't end the capture.
        let disturbed = of(&|| {
            cuda.abandon_capture();
            Ok(())
        });
        assert_eq!(disturbed?, Race::NotHeld);
        Ok(())
    }

    #[test]
    fn nothing_is_run_while_ops_are_written_down() -> Result<()> {
        let cuda = Cuda::emulated(Precision::Fp32)?;
        let mut work = || -> Result<()> { unreachable!("it would be written down") };
        cuda.begin_capture()?;
        assert!(Runner::new(&cuda, &mut work).is_err());
        cuda.abandon_capture();
        Ok(())
    }

    /// A convolution of one pixel: 2 channels times weights that are 1 to 6 make 3, and their gradients.
    #[test]
    fn each_pass_finds_its_operands() -> Result<()> {
        let cuda = Cuda::emulated(Precision::Fp32)?;
        let conv = Conv2d { inputs: 2, outputs: 3, kernel: [1; 2], stride: [1; 2], pad: Pad::VALID };
        let (x, w, y) = ([5.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 10.0, 100.0]);
        let memory = |values: &[f32]| -> Result<Memory> {
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            let memory = Memory::zeros(cuda.driver(), bytes.len())?;
            // SAFETY: the bytes are those of the memory.
            unsafe { cuda.driver().write(&bytes, memory.ptr())? };
            Ok(memory)
        };
        let of = |pass, which: usize| -> Result<Vec<f32>> {
            let all = [memory(&x)?, memory(&w)?, memory(&y)?];
            let key = Key { pass, precision: Precision::Fp32, conv, x: Shape::new(1, 1, 1, 2) };
            run_own(&cuda, &key, all.each_ref().map(Memory::ptr))?;
            let mut bytes = vec![0; all[which].bytes()];
            // SAFETY: the bytes are those of the memory.
            unsafe { cuda.driver().read(all[which].ptr(), &mut bytes)? };
            let (words, _) = bytes.as_chunks();
            Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
        };
        assert_eq!(of(Pass::Forward, 2)?, [5.0 + 14.0, 15.0 + 28.0, 25.0 + 42.0]);
        assert_eq!(of(Pass::Data, 0)?, [1.0 + 30.0 + 500.0, 2.0 + 40.0 + 600.0]);
        assert_eq!(of(Pass::Filter, 1)?, [5.0, 7.0, 50.0, 70.0, 500.0, 700.0]);
        Ok(())
    }
}
