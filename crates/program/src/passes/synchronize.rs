use crate::ops::{AllGather, BatchNormMoments, BatchNormTrain, SyncBatchNorm};
use crate::{Home, Op, Program, Result, Step};

/// Batch normalization with the statistics of the whole batch, of which this replica, number `rank` of `replicas`, has a part: they exchange
/// their statistics.
///
/// # Errors
/// None where the program is sound.
pub fn synchronize(mut program: Program, rank: usize, replicas: usize) -> Result<Program> {
    let mut k = 0;
    while k < program.steps.len() {
        let step = program.steps[k].clone();
        let Op::BatchNormTrain(BatchNormTrain { bn }) = step.op else {
            k += 1;
            continue;
        };
        let mut insert = |op: Op, operand| -> Result<_> {
            let shape = op.shapes(&[program.shape(operand)])?[0];
            let result = program.add_tensor(shape, op.results()[0].arenas[0], Home::Free);
            let (operands, results) = (vec![operand], vec![result]);
            let step = Step { op, operands, results, onto: None, pass: "synchronize", ..step };
            program.steps.insert(k, step);
            k += 1;
            Ok(result)
        };
        let own = insert(BatchNormMoments.into(), step.operands[0])?;
        let all = insert(AllGather { rank, replicas }.into(), own)?;
        let joined = &mut program.steps[k];
        joined.op = SyncBatchNorm { bn }.into();
        joined.operands.insert(1, all);
        joined.pass = "synchronize";
        k += 1;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::differentiate;
    use crate::testing::Layers;

    #[test]
    fn replicas_exchange_statistics_and_gradients() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv("a", 2, net.input());
        let x = net.batch_norm("b", x);
        let program = synchronize(net.loss(x), 1, 3).unwrap();
        let text = differentiate(program, false).unwrap().to_string();
        let (_, from_norm) = text.split_once("b:\n  ").unwrap();
        assert_eq!(
            from_norm,
            "\
  #15 (5) = batch_norm_moments %3
  #16 (15) = all_gather rank 1 of 3 #15
  %9 (4, 4, 2), #10 (4), &b/sums = sync_batch_norm epsilon 0.001 %3, #16, @b/gamma, @b/beta
  %11 (32) = reshape %9
loss:
  %14 (32), &metrics = cross_entropy %11, $labels
b, backward:
  %17 (4, 4, 2) = reshape %14
  &b/gamma, &b/beta = batch_norm_weight_gradient epsilon 0.001 %3, @b/gamma, @b/beta, #10, %17
  #18 (4) = join &b/gamma, &b/beta
  #19 (4) = all_reduce #18
  %20 (4, 4, 2) = batch_norm_input_gradient epsilon 0.001 %3, @b/gamma, @b/beta, #10, %17, #19
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %20
"
        );
    }
}
