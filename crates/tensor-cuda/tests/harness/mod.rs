//! How ops run on the emulated GPU and on the f64 reference, and are compared.

use half::{bf16, f16};
use philox::{Philox, domain};
use program::{Backend, Layout, Precision, Result, Shape, Span, View, ViewMut};
use tensor_cpu::Reference;
use tensor_cuda::Cuda;

/// The precisions that have number formats of their own.
pub const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Bf16, Precision::Fp16];

/// What an op wrote: a name, the numbers, and the tolerance beside rounding to the format of activations.
pub struct Output(pub &'static str, pub Vec<f32>, pub f32);

/// Ops with operands to run them on.
pub trait Case: core::fmt::Debug {
    /// Runs the ops and returns all that they wrote, with the memory around it.
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>>;
}

/// The emulated GPU.
pub fn emulated(precision: Precision) -> Cuda {
    Cuda::emulated(precision).expect("a C++ compiler builds the kernels")
}

/// Asserts that the emulated GPU agrees with the reference in a format.
pub fn agree_on(cuda: &Cuda, case: &impl Case) {
    let precision = cuda.options().precision;
    let expected = case.run(&Reference, precision).expect("the reference runs the case");
    let got = case.run(cuda, precision).expect("the emulated GPU runs the case");
    assert_eq!(got.len(), expected.len());
    for (Output(name, expected, tolerance), Output(_, got, _)) in expected.iter().zip(&got) {
        assert_close(
            &format!("{name} of {case:?} in {precision}"),
            got,
            expected,
            *tolerance,
            ulp(precision),
        );
    }
}

/// Asserts that the emulated GPU agrees with the reference in every format.
pub fn agree(case: &impl Case) {
    PRECISIONS.iter().for_each(|&precision| agree_on(&emulated(precision), case));
}

/// Asserts that numbers differ by at most `tolerance` of the largest expected magnitude and `ulp` of their own, and that
/// NaNs meet NaNs.
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32, ulp: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let magnitude = expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f32, x| m.max(x.abs()));
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (got - expected).abs() <= tolerance * magnitude + ulp * expected.abs();
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(near || same, "{what}[{k}] is {got}, not {expected} (largest {magnitude})");
    }
}

/// By how much a format's neighbouring numbers differ, relatively; 0 for f32, where tolerances say all.
fn ulp(precision: Precision) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => 0.0,
        Precision::Bf16 => bf16::EPSILON.to_f32(),
        Precision::Fp16 => f16::EPSILON.to_f32(),
    }
}

/// The nearest number of the format of activations.
pub fn rounded(precision: Precision, x: f32) -> f32 {
    match precision {
        Precision::Fp32 | Precision::Tf32 => x,
        Precision::Bf16 => bf16::from_f32(x).to_f32(),
        Precision::Fp16 => f16::from_f32(x).to_f32(),
    }
}

/// Where a tensor lies in its buffer: elements before and after it, and beside each pixel's channels.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub before: usize,
    pub beside: usize,
}

/// A tensor alone in its buffer, a slice on 16 bytes, a slice that is not.
pub const PLACEMENTS: [Placement; 3] = [
    Placement { before: 0, beside: 0 },
    Placement { before: 16, beside: 8 },
    Placement { before: 5, beside: 7 },
];

/// A tensor's numbers in host memory, and its place.
#[derive(Clone)]
pub struct Operand {
    pub values: Vec<f32>,
    pub layout: Layout,
}

impl Operand {
    /// Random numbers, in and around the tensor.
    pub fn draw(name: &str, shape: Shape, placement: Placement) -> Self {
        let layout = Layout { offset: placement.before, shape, stride: shape.c + placement.beside };
        Operand { values: numbers(name, layout.end() + 3), layout }
    }

    /// The same, rounded so coarsely that many are equal.
    pub fn coarse(name: &str, shape: Shape, placement: Placement) -> Self {
        let mut operand = Operand::draw(name, shape, placement);
        operand.values.iter_mut().for_each(|x| *x = (*x * 2.0).round());
        operand
    }

    /// On a device, rounded to the format that it has for activations in this precision.
    pub fn on<B: Backend>(&self, device: &B, precision: Precision) -> Result<Tensor<B>> {
        let values: Vec<f32> = self.values.iter().map(|&x| rounded(precision, x)).collect();
        let mut data = device.alloc_activations(values.len())?;
        device.upload(&values, &mut data, 0)?;
        Ok(Tensor { data, layout: self.layout })
    }
}

/// An [`Operand`] on a device.
pub struct Tensor<B: Backend> {
    pub data: B::Buffer,
    pub layout: Layout,
}

impl<B: Backend> Tensor<B> {
    pub fn view(&self) -> View<'_, B::Buffer> {
        View::new(&self.data, self.layout)
    }

    pub fn view_mut(&mut self) -> ViewMut<'_, B::Buffer> {
        ViewMut::new(&mut self.data, self.layout)
    }

    /// The whole buffer, so that a write beside the tensor is seen too.
    pub fn output(&self, device: &B, name: &'static str, tolerance: f32) -> Result<Output> {
        Ok(Output(name, download(device, &self.data, Span::new(0, self.layout.end() + 3))?, tolerance))
    }
}

/// Numbers of about a normal distribution that depend on `name` alone.
pub fn numbers(name: &str, len: usize) -> Vec<f32> {
    let mut rng = draws(name);
    (0..len).map(|_| rng.normal() as f32).collect()
}

/// Random draws that depend on `name` alone: a failure can be repeated, and none comes by chance.
pub fn draws(name: &str) -> Philox {
    Philox::new(7, domain(name), [0, 0])
}

/// One of several.
pub fn pick<T: Copy>(rng: &mut Philox, all: &[T]) -> T {
    all[rng.below(all.len() as u32) as usize]
}

/// A number from `from` up to `to` itself.
pub fn between(rng: &mut Philox, from: usize, to: usize) -> usize {
    from + rng.below((to - from + 1) as u32) as usize
}

pub fn upload<B: Backend>(device: &B, values: &[f32]) -> Result<B::Buffer> {
    let mut buffer = device.alloc(values.len())?;
    device.upload(values, &mut buffer, 0)?;
    Ok(buffer)
}

pub fn download<B: Backend>(device: &B, buffer: &B::Buffer, at: Span) -> Result<Vec<f32>> {
    let mut values = vec![0.0; at.len];
    device.download(buffer, at.offset, &mut values)?;
    Ok(values)
}
