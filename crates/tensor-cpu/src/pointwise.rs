//! Activations of single numbers, without branches, so that the compiler vectorizes loops over them.

use crate::dispatch::multiversion;
use crate::simd::Level;
use towers_program::Activation;

/// An activation. A NaN comes through it, forward and back, so that a diverged run is seen.
trait Pointwise: Copy + Send + Sync {
    /// The activation of a number.
    fn forward(self, x: f32) -> f32;
    /// The gradient before the activation from the one after it, `of` being what its gradient
    /// [follows from](towers_program::Activation::reads_input).
    fn gradient(self, of: f32, dy: f32) -> f32;
}

/// Calls code with the [`Pointwise`] of an [`Activation`](towers_program::Activation), for which it is compiled. The names of an activation
/// without a number and of its type are the same.
macro_rules! pointwise {
    ($act:expr, |$name:ident| $code:expr) => {
        pointwise!($act, |$name| $code, [HardSwish, Gelu, Silu, Elu, Sigmoid, Tanh, Softplus, Mish])
    };
    ($act:expr, |$name:ident| $code:expr, [$($own:ident),+]) => {
        match $act {
            Activation::None | Activation::Relu | Activation::BoundedRelu(_) => {
                let $name = Cut::of($act);
                $code
            }
            Activation::LeakyRelu(slope) => {
                let $name = Leaky(slope);
                $code
            }
            Activation::HardSigmoid(slope) => {
                let $name = HardSigmoid(slope);
                $code
            }
            $(Activation::$own => {
                let $name = $own;
                $code
            })+
        }
    };
}

/// The activation of numbers, in place.
#[inline(never)]
pub(crate) fn activate(level: Level, act: Activation, x: &mut [f32]) {
    if act == Activation::None {
        return;
    }
    pointwise!(act, |act| forward(level, act, x));
}

/// The gradients before an activation from those after it, in place.
#[inline(never)]
fn differentiate(level: Level, act: Activation, of: &[f32], dy: &mut [f32]) {
    pointwise!(act, |act| gradients(level, act, of, dy));
}

multiversion! {
    fn forward<A: Pointwise>(act: A, x: &mut [f32]) {
        x.iter_mut().for_each(|x| *x = act.forward(*x));
    }
}

multiversion! {
    fn gradients<A: Pointwise>(act: A, of: &[f32], dy: &mut [f32]) {
        dy.iter_mut().zip(of).for_each(|(dy, &of)| *dy = act.gradient(of, *dy));
    }
}

/// An activation in a loop, which is compiled for each type of this trait. `x`, `of` and `dy` give number `k` of so many, and `store` takes
/// the result.
pub(crate) trait Act: Copy + Send + Sync {
    fn map(self, count: usize, x: impl Fn(usize) -> f32, store: impl FnMut(usize, f32));
    fn slopes(
        self,
        count: usize,
        of: impl Fn(usize) -> f32,
        dy: impl Fn(usize) -> f32,
        store: impl FnMut(usize, f32),
    );
}

/// Calls code with the [`Act`] of an activation: twice compiled, for what costs less than to load a number, and for all others.
macro_rules! with_act {
    ($cpu:expr, $act:expr, |$name:ident| $code:expr) => {
        if $act.ceiling().is_some() || $act == towers_program::Activation::None {
            let $name = $crate::pointwise::Cut::of($act);
            $code
        } else {
            let $name = $crate::pointwise::Curve { level: $cpu.simd(), act: $act };
            $code
        }
    };
}
pub(crate) use with_act;

impl Act for Cut {
    #[inline(always)]
    fn map(self, count: usize, x: impl Fn(usize) -> f32, mut store: impl FnMut(usize, f32)) {
        for k in 0..count {
            store(k, self.forward(x(k)));
        }
    }

    #[inline(always)]
    fn slopes(
        self,
        count: usize,
        of: impl Fn(usize) -> f32,
        dy: impl Fn(usize) -> f32,
        mut store: impl FnMut(usize, f32),
    ) {
        for k in 0..count {
            store(k, self.gradient(of(k), dy(k)));
        }
    }
}

/// Any activation, of a run of numbers at once: its code is there once, and no loop has it.
#[derive(Clone, Copy)]
pub(crate) struct Curve {
    pub(crate) level: Level,
    pub(crate) act: Activation,
}

/// Numbers of a run.
const RUN: usize = 256;

impl Act for Curve {
    #[inline(always)]
    fn map(self, count: usize, x: impl Fn(usize) -> f32, mut store: impl FnMut(usize, f32)) {
        let mut run = [0.0; RUN];
        for from in (0..count).step_by(RUN) {
            let run = &mut run[..RUN.min(count - from)];
            for (k, number) in run.iter_mut().enumerate() {
                *number = x(from + k);
            }
            activate(self.level, self.act, run);
            for (k, &number) in run.iter().enumerate() {
                store(from + k, number);
            }
        }
    }

    #[inline(always)]
    fn slopes(
        self,
        count: usize,
        of: impl Fn(usize) -> f32,
        dy: impl Fn(usize) -> f32,
        mut store: impl FnMut(usize, f32),
    ) {
        let (mut inner, mut outer) = ([0.0; RUN], [0.0; RUN]);
        for from in (0..count).step_by(RUN) {
            let len = RUN.min(count - from);
            let (inner, outer) = (&mut inner[..len], &mut outer[..len]);
            for (k, (inner, outer)) in inner.iter_mut().zip(&mut *outer).enumerate() {
                (*inner, *outer) = (of(from + k), dy(from + k));
            }
            differentiate(self.level, self.act, inner, outer);
            for (k, &number) in outer.iter().enumerate() {
                store(from + k, number);
            }
        }
    }
}

/// None, ReLU and bounded ReLU: nothing below a number passes, and nothing above another one. Where there is no limit it is NaN, which
/// nothing lies below or above.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    least: f32,
    most: f32,
}

impl Cut {
    /// As a ReLU does, or as nothing.
    pub(crate) fn of(act: Activation) -> Self {
        let least = if act.ceiling().is_some() { 0.0 } else { f32::NAN };
        Cut { least, most: act.ceiling().filter(|most| most.is_finite()).unwrap_or(f32::NAN) }
    }
}

impl Pointwise for Cut {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let x = if x < self.least { self.least } else { x };
        if x > self.most { self.most } else { x }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        if of <= self.least || of >= self.most { 0.0 } else { dy }
    }
}

/// `LeakyReLU`, with its slope.
#[derive(Clone, Copy)]
struct Leaky(f32);

impl Pointwise for Leaky {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        if x < 0.0 { self.0 * x } else { x }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        if of <= 0.0 { self.0 * dy } else { dy }
    }
}

/// The hard sigmoid, with its slope. Of the result at most 1e-7 is wrong.
#[derive(Clone, Copy)]
struct HardSigmoid(f32);

impl Pointwise for HardSigmoid {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let y = self.0 * x + 0.5;
        let y = if y < 0.0 { 0.0 } else { y };
        if y > 1.0 { 1.0 } else { y }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let y = self.0 * of + 0.5;
        if y <= 0.0 || y >= 1.0 { 0.0 } else { self.0 * dy }
    }
}

/// Hard-swish. Of the result at most 2e-7 is wrong, or as much of it as f32 rounds; of its slope 2e-7.
#[derive(Clone, Copy)]
struct HardSwish;

impl Pointwise for HardSwish {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let y = x * HardSigmoid(1.0 / 6.0).forward(x);
        // What is infinite times 0 is not 0.
        if x <= -3.0 { 0.0 } else { y }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let slope = of * (1.0 / 3.0) + 0.5;
        let slope = if of <= -3.0 { 0.0 } else { slope };
        dy * if of >= 3.0 { 1.0 } else { slope }
    }
}

/// GELU, by the tail of the normal distribution above `|x|`: the tail and `|x|` times it are small where they
/// are subtracted, so no digit is lost. The error is at most 1e-7, or f32's rounding error; that of the slope
/// is 3e-7.
#[derive(Clone, Copy)]
struct Gelu;

impl Pointwise for Gelu {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let (distance, bell) = bell(x);
        // The same as x * (1 - tail) above 0 and x * tail below.
        (if x < 0.0 { 0.0 } else { x }) - distance * tail(distance, bell)
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let (distance, bell) = bell(of);
        let below = tail(distance, bell) - distance * (DENSITY * bell);
        // The same as 1 - below above 0, and below elsewhere.
        dy * (0.5 + (0.5 - below).copysign(of))
    }
}

/// SiLU, by `exp(-|x|)`, in the form of GELU. Of the result at most 1e-7 is wrong, or as much of it as f32 rounds; of its slope 3e-7.
#[derive(Clone, Copy)]
struct Silu;

impl Pointwise for Silu {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [distance, _, rest] = logistic(x);
        (if x < 0.0 { 0.0 } else { x }) - distance * rest
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let [distance, most, rest] = logistic(of);
        let below = rest * (1.0 - distance * most);
        // The same as 1 - below above 0, and below elsewhere.
        dy * (0.5 + (0.5 - below).copysign(of))
    }
}

/// ELU. Of the result at most 2e-7 is wrong, of its slope 3e-7.
#[derive(Clone, Copy)]
struct Elu;

impl Pointwise for Elu {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [_, power] = power(x);
        if x < 0.0 { power - 1.0 } else { x }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let [_, power] = power(of);
        dy * if of < 0.0 { power } else { 1.0 }
    }
}

/// The logistic function. Of the result at most 1e-7 is wrong, of its slope too.
#[derive(Clone, Copy)]
struct Sigmoid;

impl Pointwise for Sigmoid {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [_, most, rest] = logistic(x);
        if x < 0.0 { rest } else { most }
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let [_, most, rest] = logistic(of);
        dy * (most * rest)
    }
}

/// The hyperbolic tangent, `2 sigmoid(2 x) - 1`. Of the result at most 2e-7 is wrong, of its slope 3e-7.
#[derive(Clone, Copy)]
struct Tanh;

impl Pointwise for Tanh {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [_, most, rest] = logistic(2.0 * x);
        (most - rest).copysign(x)
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let [_, most, rest] = logistic(2.0 * of);
        dy * (4.0 * most * rest)
    }
}

/// Softplus. Of the result at most 2e-7 is wrong beside its rounding, of its slope too.
#[derive(Clone, Copy)]
struct Softplus;

impl Pointwise for Softplus {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [_, power] = power(x);
        // ln(1 + power) = 2 atanh(s).
        let s = power / (2.0 + power);
        let square = s * s;
        let high = 1.0 / 9.0 + square * (1.0 / 11.0 + square * (1.0 / 13.0));
        let low = 1.0 + square * (1.0 / 3.0 + square * (0.2 + square * (1.0 / 7.0 + square * high)));
        (if x < 0.0 { 0.0 } else { x }) + 2.0 * s * low
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        dy * Sigmoid.forward(of)
    }
}

/// Mish: `tanh(ln(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)`, by `exp(-|x|)`. Of the result at most 4e-7 is wrong, or as much of it as f32
/// rounds; of its slope 3e-7.
#[derive(Clone, Copy)]
struct Mish;

impl Mish {
    /// `x`, no farther from 0 than powers go; the hyperbolic tangent; and 1 minus its square.
    #[inline(always)]
    fn parts(x: f32) -> [f32; 3] {
        let [distance, e] = power(x);
        let [own, rest] = if x < 0.0 { [e * (e + 2.0), 2.0] } else { [1.0 + 2.0 * e, 2.0 * e * e] };
        let whole = own + rest;
        [distance.copysign(x), own / whole, rest * (2.0 * own + rest) / (whole * whole)]
    }
}

impl Pointwise for Mish {
    #[inline(always)]
    fn forward(self, x: f32) -> f32 {
        let [near, tanh, _] = Mish::parts(x);
        (if x < 0.0 { near } else { x }) * tanh
    }

    #[inline(always)]
    fn gradient(self, of: f32, dy: f32) -> f32 {
        let [near, tanh, rest] = Mish::parts(of);
        dy * (tanh + near * rest * Sigmoid.forward(of))
    }
}

/// The distance from 0, up to where the power could leave the normal numbers; `exp(-distance)`.
#[inline(always)]
fn power(x: f32) -> [f32; 2] {
    let distance = if x.abs() > 87.0 { 87.0 } else { x.abs() };
    [distance, exp2(distance * -core::f32::consts::LOG2_E)]
}

/// That distance; `1 / (1 + exp(-distance))`, and 1 minus that.
#[inline(always)]
fn logistic(x: f32) -> [f32; 3] {
    let [distance, power] = power(x);
    let most = 1.0 / (1.0 + power);
    [distance, most, power * most]
}

/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;
/// Further out than this the tail is below 1e-32, and the bell could leave the normal numbers.
const FAR: f32 = 12.0;

/// The distance from 0, up to [`FAR`], and `exp(-distance^2 / 2)`.
#[inline(always)]
fn bell(x: f32) -> (f32, f32) {
    let distance = if x.abs() > FAR { FAR } else { x.abs() };
    (distance, exp2(distance * distance * (-0.5 * core::f32::consts::LOG2_E)))
}

/// What of the normal distribution lies above a distance from 0: the bell times a polynomial in `t = 1 / (1 + 0.325 distance)`, as C.
/// Hastings ("Approximations for digital computers", 1955) writes it, here the best of its degree for `distance * tail`: to 2e-9.
#[inline(always)]
fn tail(distance: f32, bell: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.325 * distance);
    let high = 0.368_921_25 + t * (-0.230_873_05 + t * 0.045_749_884);
    let low = 0.131_136_03 + t * (0.112_616_75 + t * (0.198_268_03 + t * (-0.125_818_88 + t * high)));
    bell * t * low
}

/// `2^y` for y from -126 to 0, to 2e-7 of it.
#[inline(always)]
fn exp2(y: f32) -> f32 {
    // Added to so large a number, y is rounded to a whole one, which then stands in the lowest bits.
    const ROUNDER: f32 = 12_582_912.0;
    let shifted = y + ROUNDER;
    let f = y - (shifted - ROUNDER);
    let high = 0.055_507_336 + f * (0.009_671_517 + f * 0.001_326_473_7);
    let power = 1.0 + f * (core::f32::consts::LN_2 + f * (0.240_222_42 + f * high));
    power * f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::activation::{act, act_gradient};

    #[test]
    fn activations_keep_their_promises() {
        keeps(Activation::BoundedRelu(2.5), Cut::of(Activation::BoundedRelu(2.5)), [1e-9, 1e-9]);
        keeps(Activation::LeakyRelu(0.2), Leaky(0.2), [1e-9, 1e-9]);
        keeps(Activation::LeakyRelu(-0.5), Leaky(-0.5), [1e-9, 1e-9]);
        keeps(Activation::HardSigmoid(0.2), HardSigmoid(0.2), [1e-7, 1e-9]);
        keeps(Activation::HardSwish, HardSwish, [2e-7, 2e-7]);
        keeps(Activation::Gelu, Gelu, [1e-7, 3e-7]);
        keeps(Activation::Silu, Silu, [1e-7, 3e-7]);
        keeps(Activation::Elu, Elu, [2e-7, 3e-7]);
        keeps(Activation::Sigmoid, Sigmoid, [1e-7, 1e-7]);
        keeps(Activation::Tanh, Tanh, [2e-7, 3e-7]);
        keeps(Activation::Softplus, Softplus, [2e-7, 2e-7]);
        keeps(Activation::Mish, Mish, [4e-7, 3e-7]);
    }

    /// Against f64, on a fine grid and far away.
    fn keeps(activation: Activation, own: impl Pointwise, promised: [f64; 2]) {
        let grid = (-160_000..160_000).map(|k| k as f32 / 8192.0);
        let far = [f32::MIN, -1e9, -20.0, 20.0, 1e9, f32::MAX, -f32::MIN_POSITIVE, f32::MIN_POSITIVE];
        let (mut worst, mut worst_slope) = (0.0_f64, 0.0_f64);
        for x in grid.chain(far) {
            let exact = act(activation, f64::from(x));
            let slope = act_gradient(activation, f64::from(x), 1.0);
            let rounded = f64::from(f32::EPSILON) * exact.abs() / 2.0;
            worst = worst.max((f64::from(own.forward(x)) - exact).abs() - rounded);
            worst_slope = worst_slope.max((f64::from(own.gradient(x, 1.0)) - slope).abs());
        }
        println!("{}: {worst:e} beside its rounding, slope: {worst_slope:e}", activation.label());
        assert!(worst < promised[0] && worst_slope < promised[1], "{worst:e} {worst_slope:e}");
    }

    /// ELU hands NaN's gradient on, as ReLU does.
    #[test]
    fn bounded_activations_at_their_ends() {
        assert!(Elu.forward(f32::NAN).is_nan() && Elu.gradient(-1.0, f32::NAN).is_nan());
        assert!(Sigmoid.forward(f32::NAN).is_nan() && Sigmoid.gradient(f32::NAN, 1.0).is_nan());
        assert!(Tanh.forward(f32::NAN).is_nan() && Tanh.gradient(f32::NAN, 1.0).is_nan());
        let ends = [f32::NEG_INFINITY, 0.0, f32::INFINITY];
        assert_eq!(ends.map(|x| Elu.forward(x)), [-1.0, 0.0, f32::INFINITY]);
        assert_eq!(ends.map(|x| Sigmoid.forward(x) > 0.4), [false, true, true]);
        assert_eq!((Sigmoid.forward(0.0), Sigmoid.forward(f32::INFINITY)), (0.5, 1.0));
        assert_eq!(ends.map(|x| Tanh.forward(x)), [-1.0, 0.0, 1.0]);
        assert_eq!(
            [Elu.gradient(0.0, 2.0), Sigmoid.gradient(0.0, 2.0), Tanh.gradient(0.0, 2.0)],
            [2.0, 0.5, 2.0]
        );
    }

    #[test]
    fn relus_at_their_ends() {
        let cut = Cut::of(Activation::BoundedRelu(6.0));
        let ends = [f32::NEG_INFINITY, -0.0, 6.0, f32::INFINITY];
        assert_eq!(ends.map(|x| cut.forward(x)), [0.0, 0.0, 6.0, 6.0]);
        assert_eq!([0.0, 3.0, 6.0].map(|y| cut.gradient(y, 2.0)), [0.0, 2.0, 0.0]);
        let leaky = Leaky(0.25);
        assert_eq!(ends.map(|x| leaky.forward(x)), [f32::NEG_INFINITY, 0.0, 6.0, f32::INFINITY]);
        assert_eq!([-1.0, 0.0, 3.0].map(|y| leaky.gradient(y, 2.0)), [0.5, 0.5, 2.0]);
        let hard = HardSigmoid(0.25);
        assert_eq!([f32::NEG_INFINITY, 0.0, f32::INFINITY].map(|x| hard.forward(x)), [0.0, 0.5, 1.0]);
        assert_eq!([-2.0, 1.0, 2.0].map(|x| hard.gradient(x, 2.0)), [0.0, 0.5, 0.0]);
        assert!(
            cut.forward(f32::NAN).is_nan()
                && leaky.forward(f32::NAN).is_nan()
                && hard.forward(f32::NAN).is_nan()
        );
        assert_eq!(ends.map(|x| HardSwish.forward(x)), [0.0, 0.0, 6.0, f32::INFINITY]);
        assert_eq!([-3.0, 0.0, 3.0].map(|x| HardSwish.gradient(x, 2.0)), [0.0, 1.0, 2.0]);
        assert!(HardSwish.forward(f32::NAN).is_nan() && HardSwish.gradient(f32::NAN, 1.0).is_nan());
        // As today: nothing is cut off.
        let none = Cut::of(Activation::None);
        assert_eq!((none.forward(f32::INFINITY), none.gradient(f32::INFINITY, 2.0)), (f32::INFINITY, 2.0));
        assert_eq!(Cut::of(Activation::Relu).gradient(f32::INFINITY, 2.0), 2.0);
    }

    #[test]
    fn silu_at_its_ends() {
        assert!(Silu.forward(f32::NAN).is_nan() && Silu.gradient(f32::NAN, 1.0).is_nan());
        assert_eq!((Silu.forward(0.0), Silu.gradient(0.0, 1.0)), (0.0, 0.5));
        assert_eq!((Silu.forward(f32::INFINITY), Silu.gradient(f32::INFINITY, 2.0)), (f32::INFINITY, 2.0));
        assert!(Silu.forward(f32::NEG_INFINITY).abs() < 1e-30);
    }

    #[test]
    fn softplus_and_mish_at_their_ends() {
        assert!(Softplus.forward(f32::NAN).is_nan() && Softplus.gradient(f32::NAN, 1.0).is_nan());
        assert!(Mish.forward(f32::NAN).is_nan() && Mish.gradient(f32::NAN, 1.0).is_nan());
        assert_eq!(
            (Softplus.forward(f32::INFINITY), Softplus.gradient(f32::INFINITY, 2.0)),
            (f32::INFINITY, 2.0)
        );
        assert_eq!((Mish.forward(f32::INFINITY), Mish.gradient(f32::INFINITY, 2.0)), (f32::INFINITY, 2.0));
        assert_eq!((Mish.forward(0.0), Softplus.gradient(0.0, 1.0)), (0.0, 0.5));
        assert!(
            Softplus.forward(f32::NEG_INFINITY).abs() < 1e-30
                && Mish.forward(f32::NEG_INFINITY).abs() < 1e-30
        );
    }

    #[test]
    fn gelu_at_its_ends() {
        assert!(Gelu.forward(f32::NAN).is_nan() && Gelu.gradient(f32::NAN, 1.0).is_nan());
        assert_eq!((Gelu.forward(0.0), Gelu.gradient(0.0, 1.0)), (0.0, 0.5));
        assert_eq!((Gelu.forward(f32::INFINITY), Gelu.gradient(f32::INFINITY, 2.0)), (f32::INFINITY, 2.0));
        assert!(Gelu.forward(f32::NEG_INFINITY).abs() < 1e-30);
    }
}
