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
}

impl Activation {
    /// All of them. Each gives 0 for 0.
    pub const ALL: [Activation; 4] = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu];

    /// Whether its gradient needs its input. That of the others follows from its output. But GELU and SiLU
    /// fall before they rise, so two inputs give the same output.
    pub const fn reads_input(self) -> bool {
        matches!(self, Activation::Gelu | Activation::Silu)
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
        }
    }

    /// The name in summaries: `GELU`.
    pub const fn label(self) -> &'static str {
        match self {
            Activation::None => "Linear",
            Activation::Relu => "ReLU",
            Activation::Gelu => "GELU",
            Activation::Silu => "SiLU",
        }
    }
}
