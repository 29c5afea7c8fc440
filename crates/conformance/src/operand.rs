use crate::shown::Few;
use core::fmt;
use core::ops::Range;
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_philox::{Philox, domain};
#[cfg(feature = "random")]
use towers_program::{Activation, Write};
use towers_program::{Layout, Shape};

/// Which channels of a wider tensor a tensor is.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Channels of a pixel before it: at most `beside`.
    pub before: usize,
    /// Channels of a pixel that are not its own.
    pub beside: usize,
}

/// A tensor that is the whole of it.
pub const ALONE: Placement = Placement { before: 0, beside: 0 };
/// A slice of its channels.
pub const SLICE: Placement = Placement { before: 5, beside: 7 };
/// A slice that wide loads can read.
pub const WIDE_SLICE: Placement = Placement { before: 16, beside: 32 };

/// Elements behind a tensor, which no op may touch.
const BEHIND: usize = 3;

/// Any placement.
#[cfg(feature = "random")]
pub fn placement() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(ALONE),
        Just(SLICE),
        Just(WIDE_SLICE),
        (0..40_usize, 0..20_usize).prop_map(|(before, behind)| Placement { before, beside: before + behind })
    ]
}

/// Both ways to write.
#[cfg(feature = "random")]
pub fn write_mode() -> impl Strategy<Value = Write> {
    prop_oneof![Just(Write::Set), Just(Write::Add)]
}

/// Every activation.
#[cfg(feature = "random")]
pub fn activation() -> impl Strategy<Value = Activation> {
    prop::sample::select(&Activation::ALL)
}

/// Every activation of a sum of products whose results are about as large as the sums, which decide how exact they are.
#[cfg(feature = "random")]
pub fn activation_of_sums() -> impl Strategy<Value = Activation> {
    activation().prop_filter("it is not bounded", |act| {
        use Activation::{BoundedRelu, HardSigmoid, Sigmoid, Tanh};
        !matches!(act, BoundedRelu(_) | HardSigmoid(_) | Sigmoid | Tanh)
    })
}

/// A tensor's numbers in host memory, with those around it, and its place.
#[derive(Clone)]
pub struct Operand {
    /// The whole buffer's numbers.
    pub values: Vec<f32>,
    /// The place in it.
    pub layout: Layout,
}

impl fmt::Debug for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operand").field("values", &Few(&self.values)).field("layout", &self.layout).finish()
    }
}

impl Operand {
    /// Random numbers, in and around the tensor.
    pub fn draw(name: &str, shape: Shape, placement: Placement) -> Self {
        let layout = Layout { offset: placement.before, shape, stride: shape.c + placement.beside };
        Operand { values: numbers(name, layout.end() + BEHIND), layout }
    }

    /// The same, rounded so coarsely that many are equal.
    pub fn coarse(name: &str, shape: Shape, placement: Placement) -> Self {
        Operand::draw(name, shape, placement).map(|x| (x * 2.0).round())
    }

    /// One number throughout.
    pub fn constant(value: f32, shape: Shape, placement: Placement) -> Self {
        Operand::draw("constant", shape, placement).map(|_| value)
    }

    /// Every number through a function.
    pub fn map(mut self, mut f: impl FnMut(f32) -> f32) -> Self {
        self.values.iter_mut().for_each(|x| *x = f(*x));
        self
    }

    /// Sets the element at one place of the buffer.
    pub fn with(mut self, at: usize, value: f32) -> Self {
        self.values[at] = value;
        self
    }

    /// Some of its samples.
    pub fn samples(&self, samples: Range<usize>) -> Self {
        let layout = self.layout;
        let from = samples.start * layout.shape.h * layout.shape.w * layout.stride;
        let layout = Layout { shape: layout.shape.with_n(samples.len()), ..layout };
        if layout.shape.is_empty() {
            return Operand { values: Vec::new(), layout };
        }
        Operand { values: self.values[from..from + layout.end()].to_vec(), layout }
    }
}

/// Numbers around 0, with a standard deviation of 1 and a triangular distribution, that depend on `name` alone.
pub fn numbers(name: &str, len: usize) -> Vec<f32> {
    let mut uniform = vec![0.0; 2 * len];
    Philox::new(7, domain(name), [0, 0]).fill_unit_f64(&mut uniform);
    let (pairs, _) = uniform.as_chunks();
    pairs.iter().map(|[a, b]| ((a + b - 1.0) * 6_f64.sqrt()) as f32).collect()
}
