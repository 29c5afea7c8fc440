use super::is_dead_after;
use crate::ops::Add;
use crate::{Activation, Op, Program, Step};

/// Where two gradients of a tensor come together, has the op that computes the second add it to the first: `b = ..; c = a + b` becomes
/// `c = a; c += ..`. An op that can't keeps its sum.
pub fn accumulate(mut program: Program) -> Program {
    let mut k = 0;
    while k < program.steps.len() {
        match accumulated(&program, k) {
            Some((writer, step)) => {
                program.steps[writer] = step;
                program.steps.remove(k);
            }
            None => k += 1,
        }
    }
    program
}

/// What takes the place of the sum that is step `k`: a step that adds, at the place of the one that computes the second operand.
fn accumulated(program: &Program, k: usize) -> Option<(usize, Step)> {
    let step = &program.steps[k];
    let (Op::Add(Add { act: Activation::None }), &[a, b]) = (step.op, &step.operands[..]) else {
        return None;
    };
    let writer = program.writer(b)?;
    let second = &program.steps[writer];
    let adds = second.op.adds() && second.onto.is_none() && second.results.len() == 1;
    let reads_first = second.operands.iter().any(|&read| program.overlap(read, a));
    let is_known = program.writer(a).is_some_and(|of_a| of_a < writer);
    // A sum of the forward pass keeps its order of operands: nothing else may read the first one from here on.
    let is_dead =
        is_dead_after(program, a, k) && program.readers(a).all(|reader| reader <= writer || reader == k);
    let may =
        adds && !reads_first && is_known && is_dead && program.is_read_once(b) && step.phase == second.phase;
    may.then(|| {
        (writer, Step { onto: Some(a), results: step.results.clone(), pass: "accumulate", ..second.clone() })
    })
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
    fn a_gradient_that_is_read_again_is_not_added_to() {
        // The gradient of the sum is that of both operands: b reads it after a's other reader has added to it.
        let mut net = Layers::new([4, 4, 2]);
        let x = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, x);
        let c = net.conv("c", 2, x);
        let sum = net.add(b, x);
        let both = net.concat(&[sum, c]);
        let program = accumulate(differentiate(net.loss(both), false).unwrap());
        let sums = program.steps.iter().filter(|step| matches!(step.op, Op::Add(_))).count();
        assert_eq!(sums, 2, "the forward sum, and one of gradients:\n{program}");
    }
}
