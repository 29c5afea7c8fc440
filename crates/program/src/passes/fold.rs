use crate::ops::{BatchNormInfer, Conv2dForward, Conv2dNormalized, DepthwiseForward, DepthwiseNormalized};
use crate::{Activation, Op, Program};

/// In inference a batch normalization is a factor and an addend for each channel: a convolution applies them to its sums, if nothing
/// else reads these.
pub fn fold(mut program: Program) -> Program {
    let mut k = 0;
    while k < program.steps.len() {
        let Some((writer, op)) = folds(&program, k) else {
            k += 1;
            continue;
        };
        let norm = program.steps.remove(k);
        let before = &mut program.steps[writer];
        before.op = op;
        // Behind the weights, before the bias.
        before.operands.splice(2..2, norm.operands[1..].iter().copied());
        before.results = norm.results;
        before.pass = "fold";
    }
    program
}

/// The convolution that absorbs the normalization of step `k`, and its new op.
fn folds(program: &Program, k: usize) -> Option<(usize, Op)> {
    let step = &program.steps[k];
    let Op::BatchNormInfer(BatchNormInfer { bn }) = step.op else { return None };
    let x = step.operands[0];
    let writer = program.writer(x).filter(|_| program.is_read_once(x))?;
    match program.steps[writer].op {
        Op::Conv2dForward(Conv2dForward { conv, act: Activation::None }) => {
            Some((writer, Conv2dNormalized { conv, bn }.into()))
        }
        Op::DepthwiseForward(DepthwiseForward { conv, act: Activation::None }) => {
            Some((writer, DepthwiseNormalized { conv, bn }.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Layers;

    #[test]
    fn a_convolution_does_the_normalization_behind_it() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_with_bias("a", 2, net.input());
        let x = net.batch_norm_infer("b", x);
        assert_eq!(
            fold(net.finish(x)).to_string(),
            "\
a:
  %12 (4, 4, 2) = conv2d_batch_norm 1x1 %0, @a/kernel, @b/gamma, @b/beta, ~b/moving_mean, ~b/moving_variance, @a/bias
"
        );
    }

    #[test]
    fn so_does_a_depthwise_convolution() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.depthwise_with_bias("a", net.input());
        let x = net.batch_norm_infer("b", x);
        let text = fold(net.finish(x)).to_string();
        assert!(text.contains("depthwise_conv2d_batch_norm 1x1 %0, @a/depthwise_kernel, @b/gamma"), "{text}");
        assert!(text.contains("@a/bias"), "{text}");
    }

    #[test]
    fn an_output_that_is_read_twice_stays() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv("a", 2, net.input());
        let y = net.batch_norm_infer("b", x);
        let sum = net.add(x, y);
        let program = net.finish(sum);
        assert_eq!(fold(program.clone()), program);
    }
}
