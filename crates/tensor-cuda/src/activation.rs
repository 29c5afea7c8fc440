//! The numbers by which kernels know activations.

use towers_program::Activation;

/// The number by which kernels know an activation, as `enum Kind` in `towers.cuh` has it.
const fn kind(act: Activation) -> (u32, &'static str) {
    match act {
        Activation::None => (0, "ACT_NONE"),
        Activation::Relu => (1, "ACT_RELU"),
        Activation::BoundedRelu(_) => (2, "ACT_BOUNDED_RELU"),
        Activation::LeakyRelu(_) => (3, "ACT_LEAKY_RELU"),
        Activation::HardSigmoid(_) => (4, "ACT_HARD_SIGMOID"),
        Activation::HardSwish => (5, "ACT_HARD_SWISH"),
        Activation::Gelu => (6, "ACT_GELU"),
        Activation::Silu => (7, "ACT_SILU"),
        Activation::Elu => (8, "ACT_ELU"),
        Activation::Sigmoid => (9, "ACT_SIGMOID"),
        Activation::Tanh => (10, "ACT_TANH"),
        Activation::Softplus => (11, "ACT_SOFTPLUS"),
        Activation::Mish => (12, "ACT_MISH"),
    }
}

/// An activation as kernels get it: its kind, and its own number in the upper half.
pub(crate) const fn packed(act: Activation) -> u64 {
    let number = match act.number() {
        Some(number) => number.to_bits() as u64,
        None => 0,
    };
    kind(act).0 as u64 | number << 32
}

#[cfg(test)]
mod tests {
    use super::kind;
    use crate::source::PRELUDE;
    use towers_program::Activation;

    #[test]
    fn kernels_list_the_same_activations() {
        let mut kinds = Activation::ALL.map(kind);
        kinds.sort_unstable();
        assert!(kinds.iter().enumerate().all(|(number, kind)| kind.0 as usize == number), "{kinds:?}");
        let list = kinds.map(|(_, name)| name).join(", ");
        assert!(PRELUDE.1.contains(&format!("enum Kind : u32 {{ {list} }};")), "{list}");
    }
}
