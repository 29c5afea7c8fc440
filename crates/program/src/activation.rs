/// The activation after a convolution, a dense layer or a normalization, fused into the same op, or as a
/// separate op. CUDA kernels know each by its number, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
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
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 7] = [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::Silu,
        Activation::Elu,
        Activation::Sigmoid,
        Activation::Tanh,
    ];

    /// Whether its gradient is computed from its input. That of none and ReLU follows from the output as well. GELU
    /// and SiLU fall before they rise, so two inputs give the same output; the others lose digits where they are flat.
    pub const fn reads_input(self) -> bool {
        !matches!(self, Activation::None | Activation::Relu)
    }

    /// Keras' name.
    ///
    /// ```
    /// # use program::Activation;
    /// assert_eq!(Activation::Gelu.name(), "gelu");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Activation::None => "linear",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Silu => "silu",
            Activation::Elu => "elu",
            Activation::Sigmoid => "sigmoid",
            Activation::Tanh => "tanh",
        }
    }

    /// The name in summaries: `GELU`.
    pub const fn label(self) -> &'static str {
        match self {
            Activation::None => "Linear",
            Activation::Relu => "ReLU",
            Activation::Gelu => "GELU",
            Activation::Silu => "SiLU",
            Activation::Elu => "ELU",
            Activation::Sigmoid => "Sigmoid",
            Activation::Tanh => "Tanh",
        }
    }
}
