use crate::ops::ActivationGradient;
use crate::{Home, Op, Phase, Program, Step};

/// A largest element passes its gradient on if a ReLU before the pooling did not cut it off, and the pooled output tells that: so the
/// mask of the ReLU is applied to the gradient of the pooled output, which is smaller, before it is spread. No bit changes.
pub fn mask_pooled(mut program: Program) -> Program {
    for k in 0..program.steps.len() {
        let Some(pool) = pooled(&program, k) else { continue };
        let Step { operands, layer, .. } = &program.steps[pool];
        let (y, dy, layer) = (operands[1], operands[2], *layer);
        let masked = program.add_tensor(program.shape(dy), program.tensor(dy).arena, Home::Free);
        let relu = &mut program.steps[k];
        let results = core::mem::replace(&mut relu.results, vec![masked]);
        (relu.operands, relu.layer, relu.pass) = (vec![y, dy], layer, "mask_pooled");
        let pool_step = &mut program.steps[pool];
        (pool_step.operands[2], pool_step.results) = (masked, results);
        program.steps[pool..=k].rotate_right(1);
    }
    program
}

/// The max pooling's gradient that the gradient of a ReLU at step `k` reads, if it can be masked instead.
fn pooled(program: &Program, k: usize) -> Option<usize> {
    let Step { op: Op::ActivationGradient(ActivationGradient { act }), operands, onto: None, phase, .. } =
        &program.steps[k]
    else {
        return None;
    };
    act.ceiling().filter(|_| *phase == Phase::Backward)?;
    let (of, dy) = (operands[0], operands[1]);
    let writer = program.writer(dy).filter(|_| program.is_read_once(dy))?;
    let pool = &program.steps[writer];
    let is_pool = matches!(pool.op, Op::MaxPoolGradient(_)) && pool.onto.is_none() && pool.operands[0] == of;
    is_pool.then_some(writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Activation;
    use crate::passes::differentiate;
    use crate::testing::Layers;

    fn backward(act: Activation) -> String {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_with_activation("a", 2, act, net.input());
        let y = net.max_pool("b", x);
        mask_pooled(differentiate(net.loss(y), false).unwrap()).to_string()
    }

    #[test]
    fn the_smaller_gradient_is_masked() {
        let text = backward(Activation::Relu);
        let backward = text.split("b, backward:\n  ").nth(1).unwrap();
        assert_eq!(
            backward,
            "\
%9 (2, 2, 2) = reshape %8
  %12 (2, 2, 2) = activation_gradient relu %4, %9
  %11 (4, 4, 2) = max_pool_gradient 2x2 %3, %4, %12
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %11
"
        );
    }

    #[test]
    fn other_functions_stay_where_they_are() {
        let text = backward(Activation::LeakyRelu(0.5));
        let at = |op| text.find(op).unwrap();
        assert!(at("max_pool_gradient") < at("activation_gradient"), "{text}");
    }

    #[test]
    fn a_gradient_that_meets_another_stays() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_with_activation("a", 2, Activation::Relu, net.input());
        let y = net.max_pool("b", x);
        let z = net.max_pool("c", x);
        let sum = net.add(y, z);
        let step = differentiate(net.loss(sum), false).unwrap();
        assert_eq!(mask_pooled(step.clone()), step);
    }
}
