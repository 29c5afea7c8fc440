//! The meter of losses and correct answers, and how a loss that is not finite stops training.

use crate::{Bench, Buffer, Case, Output, Subject};
use towers_optim::{Sgd, WeightDecay};
use towers_program::{ParamRun, Result, Span};

/// Steps with these losses, each with its number of correct answers.
#[derive(Debug)]
struct Metered(Vec<[f32; 2]>);

impl Metered {
    /// The meter after these steps, and the metrics' arena.
    fn meter(&self, bench: &Bench, meter: &mut Buffer) -> Result<Vec<f32>> {
        for step in &self.0 {
            let sums = bench.buffer_of(vec![9.0, step[0], step[1], 9.0])?;
            bench.device.meter(&sums.data, Span::new(1, 2), &mut meter.data)?;
        }
        bench.download(&meter.data, Span::new(0, 4))
    }
}

impl Case for Metered {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let mut meter = bench.buffer_of(vec![0.0; 4])?;
        let [loss, rest, correct, steps] = self.meter(bench, &mut meter)?[..] else {
            unreachable!("four numbers were asked for");
        };
        // How the sum is split is the device's own affair.
        let sum = if loss.is_finite() { (f64::from(loss) + f64::from(rest)) as f32 } else { loss };
        bench.device.upload(&[0.0; 4], &mut meter.data, 0)?;
        Metered(vec![[1.0, 1.0]]).meter(bench, &mut meter)?;
        Ok(vec![
            Output::new("sum of losses", vec![sum], 1e-7),
            Output::new("counts", vec![correct, steps], 0.0),
        ])
    }
}

/// Losses so different in size that a sum in f32 would lose the small ones.
pub fn sums_keep_small_losses(subject: &Subject) {
    let small = (0..2000).map(|k| [1e-4, (k % 3) as f32]);
    let steps: Vec<_> = [[65536.0, 7.0]].into_iter().chain(small).chain([[0.5, 0.0]]).collect();
    for bench in subject.benches() {
        let meter = bench
            .buffer_of(vec![0.0; 4])
            .and_then(|mut meter| Metered(steps.clone()).meter(&bench, &mut meter));
        let meter = meter.expect("metered steps");
        let sum = f64::from(meter[0]) + f64::from(meter[1]);
        let expected = 65536.5 + 2000.0 * f64::from(1e-4_f32);
        // Every step rounds to 48 bits.
        let lost = 2002.0 * 65536.0 / 48_f64.exp2();
        assert!((sum - expected).abs() < lost, "{sum} is not {expected}");
        assert_eq!(meter[2..], [7.0 + 1999.0, 2002.0]);
    }
    subject.agree(&Metered(steps));
}

/// A loss that is not finite stays in the meter, and no further steps are counted.
pub fn a_loss_that_is_not_finite_stays(subject: &Subject) {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        subject.agree(&Metered(vec![[2.0, 3.0], [1.0, 1.0], [bad, 5.0], [1.0, 4.0], [2.0, 2.0]]));
        subject.agree(&Metered(vec![[bad, 0.0]]));
    }
}

/// A device that runs ahead moves nothing after such a loss, until the meter starts anew; the others never stop.
pub fn a_device_that_runs_ahead_halts(subject: &Subject) {
    for bench in subject.benches() {
        let run = || -> Result<Vec<[f32; 2]>> {
            let mut meter = bench.buffer_of(vec![0.0; 4])?;
            let mut seen = Vec::new();
            for loss in [1.0, f32::NAN, 1.0] {
                Metered(vec![[loss, 0.0]]).meter(&bench, &mut meter)?;
                seen.push(one_of_each_step(&bench)?);
            }
            bench.device.upload(&[0.0; 4], &mut meter.data, 0)?;
            Metered(vec![[1.0, 0.0]]).meter(&bench, &mut meter)?;
            seen.push(one_of_each_step(&bench)?);
            Ok(seen)
        };
        let (moved, kept) = ([0.5, 0.75], if bench.device.runs_ahead() { [1.0; 2] } else { [0.5, 0.75] });
        assert_eq!(run().expect("steps after losses"), [moved, kept, kept, moved]);
    }
}

/// A parameter and a running average, both 1 before, after a step of each.
fn one_of_each_step(bench: &Bench) -> Result<[f32; 2]> {
    let (mut param, mut average) = (bench.buffer_of(vec![1.0])?, bench.buffer_of(vec![1.0])?);
    let (grad, sum) = (bench.buffer_of(vec![bench.loss_scale])?, bench.buffer_of(vec![0.5])?);
    let (one, sgd) = (Span::new(0, 1), Sgd::keras().into());
    let run = ParamRun::new(one, WeightDecay::None);
    bench.device.optimizer_step(&sgd, 0.5, &mut param.data, &grad.data, &mut [], &[run])?;
    bench.device.ema_step(0.5, 1.0, &sum.data, one, &mut average.data, one)?;
    Ok([bench.download(&param.data, one)?[0], bench.download(&average.data, one)?[0]])
}
