//! The scratch memory of a program's steps, which is reserved before they run: then no step can fail for it.

use crate::conv::{self, Pass};
use crate::{Cpu, elementwise, linear, normalization, pooling};
use program::{Executable, Op, Result, Shape, Step};

/// Reserves the scratch memory that the steps of a program need, for every number of samples up to its batch: a smaller
/// batch is cut up in another way and may need more.
///
/// # Errors
/// If the memory can't be had.
pub(crate) fn reserve(cpu: &Cpu, program: &Executable) -> Result<()> {
    let (mut scratch, mut channels, mut weights) = (0, 0, 0);
    for step in &program.program().steps {
        scratch = (1..=program.batch()).map(|n| len(cpu, program, step, n)).fold(scratch, usize::max);
        if let Op::Conv2dNormalized(op) = &step.op {
            channels = channels.max(2 * op.conv.outputs);
        }
        weights = weights.max(step.op.conv().map_or(0, conv::weights_len));
    }
    cpu.reserve([scratch, channels, weights])
}

/// The elements that a step needs for so many samples.
fn len(cpu: &Cpu, program: &Executable, step: &Step, n: usize) -> usize {
    let read = |k: usize| program.layout(step.operands[k], n);
    let written = || program.layout(step.results[0], n);
    let rows = |shape: Shape| (shape.rows(), shape.c);
    match &step.op {
        Op::Conv2dForward(op) => conv::scratch_len(cpu, Pass::Forward, &op.conv, read(0), written()),
        Op::Conv2dNormalized(op) => conv::scratch_len(cpu, Pass::Forward, &op.conv, read(0), written()),
        Op::Conv2dInputGradient(op) => {
            conv::scratch_len(cpu, Pass::InputGradient, &op.conv, written(), read(0))
        }
        Op::Conv2dWeightGradient(op) => {
            let of_weights = conv::scratch_len(cpu, Pass::WeightGradient, &op.conv, read(0), read(1));
            of_weights.max(elementwise::sums_len(rows(read(1).shape)))
        }
        Op::LinearForward(op) => linear::scratch_len(cpu, Pass::Forward, &op.linear, read(0), written()),
        Op::LinearInputGradient(op) => {
            linear::scratch_len(cpu, Pass::InputGradient, &op.linear, written(), read(0))
        }
        Op::LinearWeightGradient(op) => {
            let of_weights = linear::scratch_len(cpu, Pass::WeightGradient, &op.linear, read(0), read(1));
            of_weights.max(elementwise::sums_len(rows(read(1).shape)))
        }
        Op::BatchNormTrain(_) | Op::BatchNormMoments(_) | Op::SyncBatchNorm(_) => {
            normalization::statistics_len(rows(read(0).shape))
        }
        Op::BatchNormInfer(_) | Op::BatchNormRecompute(_) => read(0).shape.c,
        Op::BatchNormWeightGradient(_) | Op::BatchNormInputGradient(_) => {
            normalization::gradients_len(rows(read(0).shape))
        }
        Op::GroupNorm(_) | Op::GroupNormGradient(_) => normalization::groups_len(read(0).shape),
        Op::MaxPoolGradient(op) => pooling::sums_len(cpu, &op.pool, written().shape),
        Op::AveragePoolGradient(op) => pooling::sums_len(cpu, &op.pool, written().shape),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
