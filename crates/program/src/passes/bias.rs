use crate::ops::{BatchNormTrain, Conv2dForward, DepthwiseForward};
use crate::{Activation, Op, Program};

/// A batch normalization takes each channel's mean away, and with it a bias that was added just before: so no bias is added to a
/// convolution that a batch normalization alone reads. The normalization counts it into its running mean.
pub fn leave_out_biases(mut program: Program) -> Program {
    for k in 0..program.steps.len() {
        let step = &program.steps[k];
        let (Op::BatchNormTrain(BatchNormTrain { .. }), &[x, _, _]) = (step.op, &step.operands[..]) else {
            continue;
        };
        let Some(writer) = program.writer(x).filter(|_| program.is_read_once(x)) else { continue };
        let before = &mut program.steps[writer];
        let is_plain = matches!(
            before.op,
            Op::Conv2dForward(Conv2dForward { act: Activation::None, .. })
                | Op::DepthwiseForward(DepthwiseForward { act: Activation::None, .. })
        );
        if is_plain && before.operands.len() == 3 {
            let bias = before.operands.remove(2);
            before.pass = "leave_out_biases";
            program.steps[k].operands.push(bias);
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Layers;

    #[test]
    fn a_bias_goes_to_the_normalization() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_with_bias("a", 2, net.input());
        let x = net.batch_norm("b", x);
        assert_eq!(
            leave_out_biases(net.finish(x)).to_string(),
            "\
a:
  %5 (4, 4, 2) = conv2d 1x1 %0, @a/kernel
b:
  %11 (4, 4, 2), #12 (4), &b/sums = batch_norm epsilon 0.001 %5, @b/gamma, @b/beta, @a/bias
"
        );
    }

    #[test]
    fn so_does_that_of_a_depthwise_convolution() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.depthwise_with_bias("a", net.input());
        let x = net.batch_norm("b", x);
        let text = leave_out_biases(net.finish(x)).to_string();
        assert!(text.contains("depthwise_conv2d 1x1 %0, @a/depthwise_kernel\n"), "{text}");
        assert!(text.contains("@b/beta, @a/bias"), "{text}");
    }

    #[test]
    fn a_bias_stays_where_something_else_reads_the_output() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_with_bias("a", 2, net.input());
        let y = net.batch_norm("b", x);
        let sum = net.add(x, y);
        let program = net.finish(sum);
        assert_eq!(leave_out_biases(program.clone()), program);
    }
}
