use crate::operand::{Operand, Placement, numbers};
use crate::output::{Output, Source};
use crate::shown::cut;
use towers_program::{
    Arena, Backend, Ints, Op, Precision, Result, Shape, Span, StepArgs, Storage, TensorId, Trial, TrialRun,
    Write,
};

/// A device with a case's operands on it.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The device.
    pub device: &'a dyn Backend,
    /// The factor that it puts on the gradient of the logits.
    pub loss_scale: f32,
    precision: Precision,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(device: &'a dyn Backend, precision: Precision, loss_scale: f32) -> Self {
        Bench { device, loss_scale, precision }
    }

    /// The number in the format of activations that lies nearest.
    pub fn round(&self, x: f32) -> f32 {
        let (digits, least, largest) = match self.precision {
            Precision::Fp32 => return x,
            Precision::Tf32 => (10, -126, f64::MAX),
            Precision::Bf16 => (7, -126, f64::MAX),
            Precision::Fp16 => (10, -14, 65504.0),
        };
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
        let exponent = (f64::from(x.abs()).to_bits() >> 52) as i32 - 1023;
        let unit = power(exponent.max(least) - digits);
        let rounded = (f64::from(x) / unit).round_ties_even() * unit;
        if rounded.abs() > largest { f32::INFINITY.copysign(x) } else { rounded as f32 }
    }

    /// Ops to run on batches of `n` samples, with all that they read and write placed so.
    pub fn ops(&self, n: usize, place: Placement) -> Ops<'_> {
        Ops { bench: self, trial: Trial::new(n).shifted(place.before), place, n }
    }

    /// A buffer of random numbers.
    pub fn buffer(&self, name: &str, len: usize) -> Result<Buffer> {
        self.buffer_of(numbers(name, len))
    }

    /// A buffer of these numbers.
    pub fn buffer_of(&self, before: Vec<f32>) -> Result<Buffer> {
        let mut data = self.device.alloc(before.len())?;
        self.device.upload(&before, &mut data, 0)?;
        Ok(Buffer { data, before })
    }

    /// Labels.
    pub fn labels(&self, labels: &[u32]) -> Result<Ints> {
        let mut ints = self.device.alloc_ints(labels.len())?;
        self.device.upload_ints(labels, &mut ints)?;
        Ok(ints)
    }

    /// A run of numbers that the device holds.
    pub fn download(&self, data: &Storage, at: Span) -> Result<Vec<f32>> {
        let mut values = vec![0.0; at.len];
        self.device.download(data, at.offset, &mut values)?;
        Ok(values)
    }
}

/// Some ops with their operands.
#[derive(Debug)]
pub struct Ops<'a> {
    bench: &'a Bench<'a>,
    trial: Trial,
    place: Placement,
    n: usize,
}

impl<'a> Ops<'a> {
    /// A batch of random activations, and random numbers around it.
    pub fn draw(&mut self, name: &str, shape: Shape) -> TensorId {
        self.tensor(&Operand::draw(name, shape, self.place))
    }

    /// A batch of activations, rounded to the device's format.
    pub fn tensor(&mut self, operand: &Operand) -> TensorId {
        let values: Vec<f32> = operand.values.iter().map(|&x| self.bench.round(x)).collect();
        self.trial.activations(operand.layout, &values)
    }

    /// Random weights that the format of activations holds exactly.
    pub fn weights(&mut self, name: &str, len: usize) -> TensorId {
        let values: Vec<f32> = numbers(name, len).into_iter().map(|x| self.bench.round(x)).collect();
        self.trial.run(Arena::Parameters, &values)
    }

    /// Random numbers, in f32.
    pub fn numbers(&mut self, arena: Arena, name: &str, len: usize) -> TensorId {
        self.trial.run(arena, &numbers(name, len))
    }

    /// These numbers, in f32.
    pub fn run_of(&mut self, arena: Arena, values: &[f32]) -> TensorId {
        self.trial.run(arena, values)
    }

    /// The batch's labels.
    pub fn labels(&mut self, labels: &[u32]) -> TensorId {
        self.trial.labels(labels)
    }

    /// The batch's labels, each with up to this number of words.
    pub fn labels_of(&mut self, labels: &[u32], words: usize) -> TensorId {
        self.trial.labels_of(labels, words)
    }

    /// A result in the memory of a tensor.
    pub fn in_place_of(&mut self, id: TensorId) -> TensorId {
        self.trial.in_place_of(id)
    }

    /// Adds a step that sets its results.
    pub fn set(
        &mut self,
        op: impl Into<Op>,
        operands: impl Into<Vec<TensorId>>,
        results: impl Into<Vec<TensorId>>,
    ) {
        self.write(op, operands, results, Write::Set);
    }

    /// Adds a step that sets its results, or adds to the first.
    pub fn write(
        &mut self,
        op: impl Into<Op>,
        operands: impl Into<Vec<TensorId>>,
        results: impl Into<Vec<TensorId>>,
        mode: Write,
    ) {
        self.trial.step(op, &operands.into(), &results.into(), mode);
    }

    /// Runs the steps in inference's way.
    pub fn run(self) -> Result<Started<'a>> {
        let args = StepArgs::inference(self.n);
        self.run_with(&args)
    }

    /// Runs the steps.
    ///
    /// # Panics
    /// If they write where none of their results lies.
    pub fn run_with(self, args: &StepArgs) -> Result<Started<'a>> {
        let mut started = self.start()?;
        started.run(args)?;
        Ok(started)
    }

    /// Puts all on the device.
    pub fn start(self) -> Result<Started<'a>> {
        Ok(Started { run: self.trial.on(self.bench.device)?, n: self.n })
    }
}

/// Ops on a device, and what they have left.
pub struct Started<'a> {
    /// Their program and its memory.
    pub run: TrialRun<'a>,
    /// Samples in the batch.
    pub n: usize,
}

impl Started<'_> {
    /// Runs the steps on the first samples of the batch.
    ///
    /// # Panics
    /// If they write where none of their results lies.
    pub fn run(&mut self, args: &StepArgs) -> Result<()> {
        self.n = args.n;
        self.run.run(args)?;
        let changed = self.run.changed_outside(args.n)?;
        assert_eq!(
            changed,
            None,
            "an element outside of all results was written to:\n{}",
            cut(self.run.executable.to_string())
        );
        Ok(())
    }

    /// What a tensor holds.
    pub fn output(&self, id: TensorId, name: &'static str, tolerance: f32) -> Result<Output> {
        let arena = self.run.executable.program().tensor(id).arena;
        let source = if arena == Arena::Activations { Source::Stored } else { Source::Kept };
        Ok(Output { name, values: self.run.read(id, self.n)?, tolerance, source })
    }
}

/// Parameters, gradients or state on a device, in f32.
#[derive(Debug)]
pub struct Buffer {
    /// The buffer.
    pub data: Storage,
    before: Vec<f32>,
}

impl Buffer {
    /// What the runs hold now, each with a name and a tolerance.
    ///
    /// # Panics
    /// If the memory around them has changed.
    pub fn outputs(&self, bench: &Bench, runs: &[(&'static str, Span, f32)]) -> Result<Vec<Output>> {
        let now = bench.download(&self.data, Span::new(0, self.before.len()))?;
        let written = |k| runs.iter().any(|(_, at, _)| at.range().contains(&k));
        for (k, (now, before)) in now.iter().zip(&self.before).enumerate() {
            let kept = now.to_bits() == before.to_bits();
            assert!(kept || written(k), "element {k}, outside of {runs:?}, became {now}");
        }
        let output =
            |&(name, at, tolerance): &(_, Span, f32)| Output::new(name, now[at.range()].to_vec(), tolerance);
        Ok(runs.iter().map(output).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_tensor_cpu::Reference;

    /// Values by the formats' definitions.
    #[test]
    fn rounding() {
        let round = |precision, x| Bench::new(&Reference, precision, 1.0).round(x);
        assert_eq!(round(Precision::Fp32, 0.1), 0.1);
        assert_eq!(round(Precision::Bf16, 1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(round(Precision::Bf16, 1.0 + 3.0 / 256.0), 1.0 + 4.0 / 256.0);
        assert_eq!(round(Precision::Tf32, -1.0 - 1.4 / 1024.0), -1.0 - 1.0 / 1024.0);
        assert_eq!(round(Precision::Fp16, 65519.0), 65504.0);
        assert_eq!(round(Precision::Fp16, -65520.0), f32::NEG_INFINITY);
        assert_eq!(round(Precision::Fp16, 2.6 * 2.0_f32.powi(-24)), 3.0 * 2.0_f32.powi(-24));
        assert!(round(Precision::Fp16, f32::NAN).is_nan());
    }
}
