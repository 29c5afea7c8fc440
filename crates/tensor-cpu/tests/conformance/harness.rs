//! How a case runs on several devices and is compared.

use core::fmt::Debug;
use philox::{Philox, domain};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tensor_backend::{Backend, Layout, Result, Shape, Span, View, ViewMut, Write};
use tensor_cpu::{Cpu, Reference};

/// Tests draw the same cases every time: a failure can be repeated, and none comes by chance.
pub fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        cases: count,
        ..Default::default()
    }
}

/// What an op wrote: a name, the numbers, and the tolerance relative to their largest magnitude.
pub struct Output(pub &'static str, pub Vec<f32>, pub f32);

/// Ops with operands to run them on.
pub trait Case: Debug {
    /// Runs the ops and returns all that they wrote, with the memory around it.
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>>;
}

/// Asserts that the CPU agrees with the reference, to the bit on any number of threads.
pub fn agree(case: &impl Case) {
    let expected = case.run(&Reference).expect("the reference runs the case");
    let first = case.run(&Cpu::new(1)).expect("the CPU runs the case");
    for (Output(name, expected, tolerance), Output(_, got, _)) in expected.iter().zip(&first) {
        assert_close(&format!("{name} of {case:?}"), got, expected, *tolerance);
    }
    for threads in [2, 3] {
        let again = case.run(&Cpu::new(threads)).expect("the CPU runs the case");
        for (Output(name, a, _), Output(_, b, _)) in first.iter().zip(&again) {
            let same = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{name} of {case:?} has other bits on {threads} threads than on one");
        }
    }
}

/// Asserts that the numbers differ by at most `tolerance` of the largest expected magnitude, and that NaNs meet NaNs.
pub fn assert_close(what: &str, got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let magnitude = expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f32, x| m.max(x.abs()));
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let near = (got - expected).abs() <= tolerance * magnitude;
        let same = got == expected || got.is_nan() && expected.is_nan();
        assert!(near || same, "{what}[{k}] is {got}, not {expected} (largest {magnitude})");
    }
}

/// Where a tensor lies in its buffer: elements before and after it, and beside each pixel's channels.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub before: usize,
    pub beside: usize,
}

/// A tensor alone in its buffer.
pub const ALONE: Placement = Placement { before: 0, beside: 0 };
/// A slice of the channels of a wider tensor.
pub const SLICE: Placement = Placement { before: 5, beside: 7 };

pub fn placement() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(ALONE),
        Just(SLICE),
        (0..40_usize, 0..20_usize).prop_map(|(before, beside)| Placement { before, beside })
    ]
}

pub fn write_mode() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Set), Just(Write::Add)]
}

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

    pub fn on<B: Backend>(&self, device: &B) -> Result<Tensor<B>> {
        Ok(Tensor { data: upload(device, &self.values)?, layout: self.layout })
    }
}

/// An [`Operand`] on a device.
pub struct Tensor<B: Backend> {
    data: B::Buffer,
    layout: Layout,
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
        let mut values = vec![0.0; self.layout.end() + 3];
        device.download(&self.data, 0, &mut values)?;
        Ok(Output(name, values, tolerance))
    }
}

/// Numbers of about a normal distribution that depend on `name` alone.
pub fn numbers(name: &str, len: usize) -> Vec<f32> {
    let mut rng = Philox::new(7, domain(name), [0, 0]);
    (0..len).map(|_| rng.normal() as f32).collect()
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
