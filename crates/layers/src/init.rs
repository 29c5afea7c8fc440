use towers_philox::{Philox, domain};

/// How a parameter gets its first values: Keras' initializers.
///
/// For convolutions `fan_in = kh * kw * c` and `fan_out = kh * kw * k`. The draws are a pure function of the seed and the
/// parameter's name.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Initializer {
    /// All 0.
    Zeros,
    /// All 1.
    Ones,
    /// All the same.
    Constant(f32),
    /// Uniform in +-sqrt(6 / (fan_in + fan_out)): Keras' default (Glorot and Bengio, 2010).
    GlorotUniform,
    /// Truncated normal of variance 2 / (fan_in + fan_out).
    GlorotNormal,
    /// Uniform in +-sqrt(6 / fan_in) (He et al., 2015).
    HeUniform,
    /// Truncated normal of variance 2 / fan_in.
    HeNormal,
    /// Uniform in +-sqrt(1 / fan_in): the default of PyTorch's convolutions and dense layers. (There for
    /// biases too; ours begin with 0.)
    PyTorch,
    /// As [`PyTorch`](Initializer::PyTorch)'s, but the first filters copy a channel each: PyTorch's `dirac_`
    /// on as many filters as there are channels. For convolutions whose output is as large as their input.
    Dirac,
    /// A number for each channel: channel `c` has the number `c % 3`.
    PerChannel([f32; 3]),
    /// Filters that whiten patches of the training images. The trainer computes them from the images and
    /// loads them. Until then they are [`PyTorch`](Initializer::PyTorch)'s.
    Whitening {
        /// Added to the variances.
        epsilon: f32,
    },
    /// Uniform between the two.
    Uniform(f32, f32),
    /// Normal of this mean and standard deviation.
    Normal(f32, f32),
}

/// The standard deviation of a standard normal truncated at two: Keras divides by it, to keep the variance.
const TRUNCATED_STD: f64 = 0.879_625_661_034_239_8;

/// Uniform numbers that are drawn at once.
const RUN: usize = 256;

impl Initializer {
    /// The values of a parameter called `name` under `seed`.
    ///
    /// ```
    /// use towers_layers::Initializer;
    /// let kernel = Initializer::GlorotUniform.values(1, "conv2d/kernel", &[3, 3, 3, 32]);
    /// let limit = (6.0 / f64::from(9 * 3 + 9 * 32)).sqrt() as f32;
    /// assert!(kernel.iter().all(|w| w.abs() <= limit));
    /// ```
    pub fn values(self, seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
        let len = shape.iter().product();
        let mut rng = Philox::new(seed, domain(name), [0, 0]);
        let (fan_in, fan_out) = fans(shape);
        let mut uniform = |low: f64, high: f64| -> Vec<f32> {
            let (mut all, mut units) = (vec![0.0; len], [0.0; RUN]);
            for run in all.chunks_mut(RUN) {
                let units = &mut units[..run.len()];
                rng.fill_unit_f64(units);
                run.iter_mut().zip(units).for_each(|(x, unit)| *x = (low + (high - low) * *unit) as f32);
            }
            all
        };
        match self {
            Initializer::Zeros => vec![0.0; len],
            Initializer::Ones => vec![1.0; len],
            Initializer::Constant(value) => vec![value; len],
            Initializer::PerChannel(numbers) => numbers.into_iter().cycle().take(len).collect(),
            Initializer::Uniform(low, high) => uniform(f64::from(low), f64::from(high)),
            Initializer::GlorotUniform => {
                let limit = (6.0 / (fan_in + fan_out)).sqrt();
                uniform(-limit, limit)
            }
            Initializer::HeUniform => {
                let limit = (6.0 / fan_in).sqrt();
                uniform(-limit, limit)
            }
            Initializer::PyTorch | Initializer::Dirac | Initializer::Whitening { .. } => {
                let limit = (1.0 / fan_in).sqrt();
                let mut values = uniform(-limit, limit);
                if self == Initializer::Dirac {
                    pass_channels_on(&mut values, shape);
                }
                values
            }
            Initializer::GlorotNormal => truncated(&mut rng, (2.0 / (fan_in + fan_out)).sqrt(), len),
            Initializer::HeNormal => truncated(&mut rng, (2.0 / fan_in).sqrt(), len),
            Initializer::Normal(mean, std) => {
                (0..len).map(|_| (f64::from(mean) + f64::from(std) * rng.normal()) as f32).collect()
            }
        }
    }
}

/// Makes the first filters of a kernel copy a channel each: 1 in the middle for the filter's own channel, 0
/// elsewhere.
fn pass_channels_on(kernel: &mut [f32], shape: &[usize]) {
    let &[kh, kw, c, k] = shape else { return };
    for (row, weights) in kernel.chunks_mut(k).enumerate() {
        let (tap, channel) = (row / c, row % c);
        weights[..c.min(k)].fill(0.0);
        if tap == kh / 2 * kw + kw / 2 && channel < k {
            weights[channel] = 1.0;
        }
    }
}

/// The inputs and outputs of a weight's unit.
fn fans(shape: &[usize]) -> (f64, f64) {
    match shape {
        [] => (1.0, 1.0),
        [n] => (*n as f64, *n as f64),
        [receptive @ .., c, k] => {
            let window = receptive.iter().product::<usize>() as f64;
            (window * *c as f64, window * *k as f64)
        }
    }
}

/// Normal numbers of standard deviation `std`, truncated at two standard deviations of the untruncated
/// normal.
fn truncated(rng: &mut Philox, std: f64, len: usize) -> Vec<f32> {
    let mut draw = || {
        loop {
            let z = rng.normal();
            if z.abs() <= 2.0 {
                return (z * std / TRUNCATED_STD) as f32;
            }
        }
    };
    (0..len).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        (mean, values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n)
    }

    /// Every random initializer has the variance of its definition.
    #[test]
    fn variances() {
        let shape = [3, 3, 64, 96];
        let (fan_in, fan_out) = (9.0 * 64.0, 9.0 * 96.0);
        for (init, variance) in [
            (Initializer::GlorotUniform, 2.0 / (fan_in + fan_out)),
            (Initializer::GlorotNormal, 2.0 / (fan_in + fan_out)),
            (Initializer::HeUniform, 2.0 / fan_in),
            (Initializer::HeNormal, 2.0 / fan_in),
            (Initializer::PyTorch, 1.0 / (3.0 * fan_in)),
            (Initializer::Normal(0.0, 0.5), 0.25),
            (Initializer::Uniform(-1.0, 1.0), 1.0 / 3.0),
        ] {
            let (mean, got) = moments(&init.values(3, "kernel", &shape));
            assert!((got / variance - 1.0).abs() < 0.02, "{init:?}: {got} instead of {variance}");
            assert!(mean.abs() < 0.02 * variance.sqrt(), "{init:?}: mean {mean}");
        }
    }

    #[test]
    fn the_first_filters_pass_channels_on() {
        let kernel = Initializer::Dirac.values(3, "kernel", &[3, 2, 2, 5]);
        let torch = Initializer::PyTorch.values(3, "kernel", &[3, 2, 2, 5]);
        for (at, (value, torch)) in kernel.iter().zip(torch).enumerate() {
            let (tap, channel, filter) = (at / 10, at / 5 % 2, at % 5);
            let passed = f32::from(u8::from(tap == 3 && channel == filter));
            assert_eq!(*value, if filter < 2 { passed } else { torch }, "{tap} {channel} {filter}");
        }
    }

    #[test]
    fn values_depend_on_seed_and_name_alone() {
        let a = Initializer::GlorotUniform.values(1, "a/kernel", &[4, 4]);
        assert_eq!(a, Initializer::GlorotUniform.values(1, "a/kernel", &[4, 4]));
        assert_ne!(a, Initializer::GlorotUniform.values(2, "a/kernel", &[4, 4]));
        assert_ne!(a, Initializer::GlorotUniform.values(1, "b/kernel", &[4, 4]));
    }
}
