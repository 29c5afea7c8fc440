use crate::case::{Output, Source};
use crate::operand::{Operand, numbers};
use core::ops::Range;
use program::{Backend, Layout, Precision, Result, Run, RunMut, Span, View, ViewMut};

/// A device with a case's operands on it.
#[derive(Debug)]
pub struct Bench<'a, B> {
    /// The device.
    pub device: &'a B,
    /// The factor that it puts on the gradient of the logits.
    pub loss_scale: f32,
    precision: Precision,
}

impl<'a, B: Backend> Bench<'a, B> {
    pub(crate) fn new(device: &'a B, precision: Precision, loss_scale: f32) -> Self {
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
        let exponent = f64::from(x.abs()).log2().floor().max(f64::from(least));
        let unit = (exponent - f64::from(digits)).exp2();
        let rounded = (f64::from(x) / unit).round_ties_even() * unit;
        if rounded.abs() > largest { f32::INFINITY.copysign(x) } else { rounded as f32 }
    }

    /// Activations on the device, rounded to its format.
    pub fn tensor(&self, operand: &Operand) -> Result<Tensor<B>> {
        let before: Vec<f32> = operand.values.iter().map(|&x| self.round(x)).collect();
        let mut data = self.device.alloc_activations(before.len())?;
        self.device.upload(&before, &mut data, 0)?;
        Ok(Tensor { data, layout: operand.layout, before })
    }

    /// An arena of random numbers.
    pub fn arena(&self, name: &str, len: usize) -> Result<Arena<B>> {
        self.arena_of(numbers(name, len))
    }

    /// An arena of random weights that the format of activations holds exactly.
    pub fn weights(&self, name: &str, len: usize) -> Result<Arena<B>> {
        self.arena_of(numbers(name, len).into_iter().map(|x| self.round(x)).collect())
    }

    /// An arena of these numbers.
    pub fn arena_of(&self, before: Vec<f32>) -> Result<Arena<B>> {
        let mut data = self.device.alloc(before.len())?;
        self.device.upload(&before, &mut data, 0)?;
        Ok(Arena { data, before })
    }

    /// Labels.
    pub fn labels(&self, labels: &[u32]) -> Result<B::Ints> {
        let mut ints = self.device.alloc_ints(labels.len())?;
        self.device.upload_ints(labels, &mut ints)?;
        Ok(ints)
    }

    /// A run of numbers that the device holds.
    pub fn download(&self, data: &B::Buffer, at: Span) -> Result<Vec<f32>> {
        let mut values = vec![0.0; at.len];
        self.device.download(data, at.offset, &mut values)?;
        Ok(values)
    }
}

/// Activations, or their gradients, on a device.
#[derive(Debug)]
pub struct Tensor<B: Backend> {
    data: B::Buffer,
    layout: Layout,
    before: Vec<f32>,
}

impl<B: Backend> Tensor<B> {
    /// To read.
    pub fn view(&self) -> View<'_, B::Buffer> {
        View::new(&self.data, self.layout)
    }

    /// To write.
    pub fn view_mut(&mut self) -> ViewMut<'_, B::Buffer> {
        ViewMut::new(&mut self.data, self.layout)
    }

    /// What the tensor holds now.
    ///
    /// # Panics
    /// If the memory around it has changed.
    pub fn output(&self, bench: &Bench<B>, name: &'static str, tolerance: f32) -> Result<Output> {
        let now = bench.download(&self.data, Span::new(0, self.before.len()))?;
        let (at, mut values) = (self.layout, Vec::with_capacity(self.layout.shape.len()));
        // The end of what was looked at.
        let mut end = 0;
        for row in 0..if at.shape.is_empty() { 0 } else { at.shape.rows() } {
            let start = at.offset + row * at.stride;
            assert_untouched(name, at, &now, &self.before, end..start);
            end = start + at.shape.c;
            values.extend_from_slice(&now[start..end]);
        }
        assert_untouched(name, at, &now, &self.before, end..now.len());
        Ok(Output { name, values, tolerance, source: Source::Stored })
    }
}

fn assert_untouched(name: &str, at: Layout, now: &[f32], before: &[f32], mut elements: Range<usize>) {
    let changed = elements.find(|&k| now[k].to_bits() != before[k].to_bits());
    assert!(changed.is_none(), "{name} at {at:?}: an element outside of it was written to: {changed:?}");
}

/// Parameters, gradients or state on a device, in f32.
#[derive(Debug)]
pub struct Arena<B: Backend> {
    /// The buffer.
    pub data: B::Buffer,
    before: Vec<f32>,
}

impl<B: Backend> Arena<B> {
    /// Runs of it, to read.
    pub fn run<At>(&self, at: At) -> Run<'_, B::Buffer, At> {
        Run::new(&self.data, at)
    }

    /// Runs of it, to write.
    pub fn run_mut<At>(&mut self, at: At) -> RunMut<'_, B::Buffer, At> {
        RunMut::new(&mut self.data, at)
    }

    /// What the runs hold now, each with a name and a tolerance.
    ///
    /// # Panics
    /// If the memory around them has changed.
    pub fn outputs(&self, bench: &Bench<B>, runs: &[(&'static str, Span, f32)]) -> Result<Vec<Output>> {
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
    use tensor_cpu::Reference;

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
