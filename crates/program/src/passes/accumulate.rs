use super::is_dead_after;
use crate::ops::{Add, Scale};
use crate::{Activation, Home, Op, Phase, Program, Step, TensorId};

/// If two gradients of a tensor meet, the op that computes the second adds it to the first: `b = ..; c = a +
/// b` becomes `c = a; c += ..`. If the first is still needed, its copy is added to. An op that can't add
/// keeps its sum.
pub fn accumulate(mut program: Program) -> Program {
    let mut k = 0;
    while k < program.steps.len() {
        let Some((writer, mut step)) = accumulated(&program, k) else {
            k += 1;
            continue;
        };
        let mut copied = None;
        if let Some(a) = step.onto.filter(|&a| !is_dead(&program, a, writer, k)) {
            let copy = program.add_tensor(program.shape(a), program.tensor(a).arena, Home::Free);
            step.onto = Some(copy);
            let (op, operands, results) = (Scale { factor: 1.0 }.into(), vec![a], vec![copy]);
            copied = Some(Step { op, operands, results, onto: None, ..step.clone() });
        }
        program.steps.remove(k);
        program.steps.splice(writer..writer + 1, copied.into_iter().chain([step]));
    }
    program
}

/// The replacement for the sum of step `k`: a step that adds, at the place of the one that computes the
/// second operand.
fn accumulated(program: &Program, k: usize) -> Option<(usize, Step)> {
    let step = &program.steps[k];
    let (Op::Add(Add { act: Activation::None }), &[a, b]) = (step.op, &step.operands[..]) else {
        return None;
    };
    let writer = program.writer(b)?;
    let second = &program.steps[writer];
    let adds = second.op.adds() && second.onto.is_none() && second.results.len() == 1;
    let is_known = program.writer(a).is_some_and(|of_a| of_a < writer);
    let may = step.phase == Phase::Backward && adds && is_known && program.is_read_once(b) && a != b;
    let results = step.results.clone();
    may.then(|| (writer, Step { onto: Some(a), results, pass: "accumulate", ..second.clone() }))
}

/// Whether the sum that is step `k` is the last one to read its first operand, and the step `writer` does not read it either.
fn is_dead(program: &Program, a: TensorId, writer: usize, k: usize) -> bool {
    let is_read = program.steps[writer..k].iter().flat_map(Step::reads).any(|read| program.overlap(read, a));
    !is_read && is_dead_after(program, a, k)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::differentiate;
    use crate::testing::Layers;

    #[test]
    fn the_second_gradient_is_added_to_the_first() {
        let mut net = Layers::new([4, 4, 2]);
        let x = net.conv("a", 2, net.input());
        let (b, c) = (net.conv("b", 2, x), net.conv("c", 2, x));
        let y = net.concat(&[b, c]);
        let text = accumulate(differentiate(net.loss(y), false).unwrap()).to_string();
        let backward = text.split("c, backward:\n  ").nth(1).unwrap();
        assert_eq!(
            backward,
            "\
  %15 (4, 4, 4) = reshape %14
  %16 (4, 4, 2) = slice 0..2 %15
  %17 (4, 4, 2) = slice 2..4 %15
  &c/kernel = conv2d_weight_gradient 1x1 %3, %17
  %18 (4, 4, 2) = conv2d_input_gradient 1x1 %17, @c/kernel
b, backward:
  &b/kernel = conv2d_weight_gradient 1x1 %3, %16
  %20 (4, 4, 2) += conv2d_input_gradient 1x1 %16, @b/kernel
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %20
"
        );
    }

    #[test]
    fn a_gradient_that_is_read_again_is_copied() {
        // The gradient of the sum is that of both operands, and b's is read when c has added to a's.
        let mut net = Layers::new([4, 4, 2]);
        let x = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, x);
        let c = net.conv("c", 2, x);
        let sum = net.add(b, x);
        let both = net.concat(&[sum, c]);
        let text = accumulate(differentiate(net.loss(both), false).unwrap()).to_string();
        assert!(text.contains(" = scale by 1 %"), "{text}");
        assert_eq!(text.matches(" += conv2d_input_gradient").count(), 2, "{text}");
        assert_eq!(text.matches(" = add %").count(), 1, "the forward sum alone:\n{text}");
    }
}
