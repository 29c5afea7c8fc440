//! The numbers by which kernels know activations.

use program::Activation;

/// The kernels' names, in the order of `enum Act` in `towers.cuh`.
const NAMES: [(Activation, &str); Activation::ALL.len()] = [
    (Activation::None, "ACT_NONE"),
    (Activation::Relu, "ACT_RELU"),
    (Activation::Gelu, "ACT_GELU"),
    (Activation::Silu, "ACT_SILU"),
    (Activation::Elu, "ACT_ELU"),
    (Activation::Sigmoid, "ACT_SIGMOID"),
    (Activation::Tanh, "ACT_TANH"),
];

const _: () = {
    let mut number = 0;
    while number < NAMES.len() {
        assert!(NAMES[number].0 as usize == number, "kernels know an activation by another number");
        number += 1;
    }
};

/// The number by which kernels know an activation.
pub(crate) const fn number(act: Activation) -> u32 {
    act as u32
}

#[cfg(test)]
mod tests {
    use super::NAMES;
    use crate::source::PRELUDE;

    #[test]
    fn kernels_list_the_same_activations() {
        let list = NAMES.map(|(_, name)| name).join(", ");
        assert!(PRELUDE.1.contains(&format!("enum Act : u32 {{ {list} }};")), "{list}");
    }
}
