use crate::{Error, Result};
use core::fmt;

/// The activation after a convolution, a dense layer or a normalization, fused into the same op, or as a
/// separate op. Some have a number of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), most)`: Keras' `ReLU(max_value=most)`. Of 6 it is `relu6`. A. Krizhevsky, "Convolutional deep belief networks on
    /// CIFAR-10", 2010.
    BoundedRelu(f32),
    /// `x`, or `slope * x` below 0: `LeakyReLU`. A. Maas, A. Hannun, A. Ng, "Rectifier nonlinearities improve neural network acoustic
    /// models", 2013.
    LeakyRelu(f32),
    /// `min(max(slope * x + 1/2, 0), 1)`. The slope of Keras 3 and PyTorch is 1/6, that of Keras 2 and ONNX 0.2. M. Courbariaux, Y. Bengio,
    /// J.-P. David, "BinaryConnect", 2015.
    HardSigmoid(f32),
    /// `x * min(max(x + 3, 0), 6) / 6`: Keras' `hard_silu`, PyTorch's `Hardswish()`. A. Howard et al., "Searching for MobileNetV3", 2019.
    HardSwish,
    /// `x` times the probability that a standard normal number lies below it, `x (1 + erf(x / sqrt(2))) / 2`: Keras' `gelu`
    /// without `approximate`, PyTorch's `GELU()`. D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.
    Gelu,
    /// `x / (1 + exp(-x))`: Keras' `silu`, PyTorch's `SiLU()`. S. Elfwing, E. Uchibe, K. Doya, "Sigmoid-weighted linear units for neural
    /// network function approximation in reinforcement learning", 2017.
    Silu,
    /// `x`, or `exp(x) - 1` below 0: Keras' `elu`, PyTorch's `ELU()`, both with an alpha of 1. D.-A. Clevert, T. Unterthiner, S.
    /// Hochreiter, "Fast and accurate deep network learning by exponential linear units", 2016.
    Elu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `(exp(2 x) - 1) / (exp(2 x) + 1)`.
    Tanh,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x tanh(ln(1 + exp(x)))`. D. Misra, "Mish: a self regularized non-monotonic activation function", 2019.
    Mish,
}

impl Activation {
    /// All of them, with the number of Keras 3 where they have one.
    pub const ALL: [Activation; 13] = [
        Activation::None,
        Activation::Relu,
        Activation::BoundedRelu(6.0),
        Activation::LeakyRelu(0.2),
        Activation::HardSigmoid(1.0 / 6.0),
        Activation::HardSwish,
        Activation::Gelu,
        Activation::Silu,
        Activation::Elu,
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Softplus,
        Activation::Mish,
    ];

    /// Whether its gradient is computed from its input. That of none and the ReLUs follows from the output as well, unless a slope
    /// is negative. GELU, SiLU and their like fall before they rise, so two inputs give the same output; the others lose digits where they
    /// are flat.
    pub const fn reads_input(self) -> bool {
        match self {
            Activation::None | Activation::Relu | Activation::BoundedRelu(_) => false,
            Activation::LeakyRelu(slope) => slope < 0.0,
            _ => true,
        }
    }

    /// The largest number of a ReLU, bounded or not. These cost nothing behind sums that are not stored yet.
    pub const fn ceiling(self) -> Option<f32> {
        match self {
            Activation::Relu => Some(f32::INFINITY),
            Activation::BoundedRelu(most) => Some(most),
            _ => None,
        }
    }

    /// Its own number.
    pub const fn number(self) -> Option<f32> {
        match self {
            Activation::BoundedRelu(number)
            | Activation::LeakyRelu(number)
            | Activation::HardSigmoid(number) => Some(number),
            _ => None,
        }
    }

    /// The same with another number, if it has one.
    pub const fn with_number(self, number: f32) -> Option<Activation> {
        match self {
            Activation::BoundedRelu(_) => Some(Activation::BoundedRelu(number)),
            Activation::LeakyRelu(_) => Some(Activation::LeakyRelu(number)),
            Activation::HardSigmoid(_) => Some(Activation::HardSigmoid(number)),
            _ => None,
        }
    }

    /// Refuses a number that is not finite, or a bound below 0, for the op of this name.
    ///
    /// # Errors
    /// See above.
    pub fn check(self, op: &'static str) -> Result<()> {
        let (what, number) = ("the number of the activation", self.number().unwrap_or_default());
        let (is_sound, accepted) = match self {
            Activation::BoundedRelu(most) => {
                (most >= 0.0 && most.is_finite(), "a finite bound of at least 0")
            }
            Activation::HardSigmoid(slope) => (slope > 0.0 && slope.is_finite(), "a finite slope above 0"),
            _ => (number.is_finite(), "a finite slope"),
        };
        if is_sound { Ok(()) } else { Err(Error::Value { op, what, value: number.into(), accepted }) }
    }

    /// Keras' name.
    ///
    /// ```
    /// # use towers_program::Activation;
    /// assert_eq!(Activation::Gelu.name(), "gelu");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Activation::None => "linear",
            Activation::Relu => "relu",
            Activation::BoundedRelu(6.0) => "relu6",
            Activation::BoundedRelu(_) => "bounded_relu",
            Activation::LeakyRelu(_) => "leaky_relu",
            Activation::HardSigmoid(_) => "hard_sigmoid",
            Activation::HardSwish => "hard_silu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
            Activation::Elu => "elu",
            Activation::Sigmoid => "sigmoid",
            Activation::Tanh => "tanh",
            Activation::Softplus => "softplus",
            Activation::Mish => "mish",
        }
    }

    /// The name in summaries: `GELU`.
    pub const fn label(self) -> &'static str {
        match self {
            Activation::None => "Linear",
            Activation::Relu => "ReLU",
            Activation::BoundedRelu(6.0) => "ReLU6",
            Activation::BoundedRelu(_) => "BoundedReLU",
            Activation::LeakyRelu(_) => "LeakyReLU",
            Activation::HardSigmoid(_) => "HardSigmoid",
            Activation::HardSwish => "HardSwish",
            Activation::Gelu => "GELU",
            Activation::Silu => "SiLU",
            Activation::Elu => "ELU",
            Activation::Sigmoid => "Sigmoid",
            Activation::Tanh => "Tanh",
            Activation::Softplus => "Softplus",
            Activation::Mish => "Mish",
        }
    }
}

/// The name, with the number where it isn't the one in [`Activation::ALL`]: `leaky_relu(0.1)`.
impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) if !Activation::ALL.contains(self) => write!(f, "{}({number})", self.name()),
            _ => write!(f, "{}", self.name()),
        }
    }
}

/// From a name, as it is displayed. `bounded_relu(6)` is `relu6`.
///
/// ```
/// use towers_program::Activation;
///
/// for act in Activation::ALL.into_iter().chain([Activation::LeakyRelu(0.1), Activation::BoundedRelu(4.0)]) {
///     assert_eq!(act.to_string().parse(), Ok(act));
/// }
/// assert_eq!("bounded_relu(6)".parse(), Ok(Activation::BoundedRelu(6.0)));
/// assert!("relu(6)".parse::<Activation>().is_err());
/// ```
impl core::str::FromStr for Activation {
    type Err = UnknownActivation;

    fn from_str(text: &str) -> Result<Self, UnknownActivation> {
        let (name, number) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let is_called = |act: &Activation| {
            act.name() == name || matches!(act, Activation::BoundedRelu(_)) && name == "bounded_relu"
        };
        let known = Activation::ALL.into_iter().find(is_called).ok_or(UnknownActivation)?;
        match number {
            None if known.name() == name => Ok(known),
            None => Err(UnknownActivation),
            Some(number) => {
                let number = number.parse().ok().filter(|number: &f32| number.is_finite());
                number.and_then(|number| known.with_number(number)).ok_or(UnknownActivation)
            }
        }
    }
}

/// There is no activation of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such activation")]
pub struct UnknownActivation;
