//! The scratch memory of a program's steps, which is reserved before they run: then no step can fail for it.

use crate::conv::{self, Pass};
use crate::{
    Cpu, depthwise, elementwise, layer_norm, linear, local_response_norm, merge, normalization, pooling,
    upsample,
};
use towers_program::{Executable, Op, Result, Step, TensorId};

/// Reserves the scratch memory that the steps of a program need, for every number of samples up to its batch: a smaller
/// batch is cut up in another way and may need more.
///
/// # Errors
/// If the memory can't be had.
pub(crate) fn reserve(cpu: &Cpu, program: &Executable) -> Result<()> {
    let (mut scratch, mut channels, mut weights) = (0, 0, 0);
    for step in &program.program().steps {
        for n in 1..=program.batch() {
            scratch = scratch.max(len(cpu, program, step, n)?);
        }
        channels = channels.max(match &step.op {
            Op::Conv2dNormalized(op) => 2 * op.conv.outputs,
            Op::DepthwiseNormalized(op) => 2 * op.conv.outputs(),
            _ => 0,
        });
        weights = weights.max(step.op.conv().map_or(0, conv::weights_len));
    }
    cpu.reserve([scratch, channels, weights])
}

/// The elements that a step needs for so many samples.
fn len(cpu: &Cpu, program: &Executable, step: &Step, n: usize) -> Result<usize> {
    let at = |id: TensorId| program.layout(id, n);
    let rows = |id: TensorId| (at(id).shape.rows(), at(id).shape.c);
    Ok(match &step.op {
        Op::Conv2dForward(op) => {
            let (of, to) = op.bind(step)?;
            conv::scratch_len(cpu, Pass::Forward, &op.conv, at(of.x), at(to.y))
        }
        Op::Conv2dNormalized(op) => {
            let (of, to) = op.bind(step)?;
            conv::scratch_len(cpu, Pass::Forward, &op.conv, at(of.x), at(to.y))
        }
        Op::Conv2dInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            conv::scratch_len(cpu, Pass::InputGradient, &op.conv, at(to.y), at(of.dy))
        }
        Op::Conv2dWeightGradient(op) => {
            let (of, _) = op.bind(step)?;
            let of_weights = conv::scratch_len(cpu, Pass::WeightGradient, &op.conv, at(of.x), at(of.dy));
            of_weights.max(elementwise::sums_len(rows(of.dy)))
        }
        Op::DepthwiseForward(op) => {
            let (of, to) = op.bind(step)?;
            depthwise::scratch_len(cpu, Pass::Forward, &op.conv, at(of.x), at(to.y))
        }
        Op::DepthwiseNormalized(op) => {
            let (of, to) = op.bind(step)?;
            depthwise::scratch_len(cpu, Pass::Forward, &op.conv, at(of.x), at(to.y))
        }
        Op::DepthwiseInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            depthwise::scratch_len(cpu, Pass::InputGradient, &op.conv, at(to.y), at(of.dy))
        }
        Op::DepthwiseWeightGradient(op) => {
            let (of, _) = op.bind(step)?;
            depthwise::scratch_len(cpu, Pass::WeightGradient, &op.conv, at(of.x), at(of.dy))
        }
        Op::LinearForward(op) => {
            let (of, to) = op.bind(step)?;
            linear::scratch_len(cpu, Pass::Forward, &op.linear, at(of.x), at(to.y))
        }
        Op::LinearInputGradient(op) => {
            let (of, to) = op.bind(step)?;
            linear::scratch_len(cpu, Pass::InputGradient, &op.linear, at(to.y), at(of.dy))
        }
        Op::LinearWeightGradient(op) => {
            let (of, _) = op.bind(step)?;
            let of_weights = linear::scratch_len(cpu, Pass::WeightGradient, &op.linear, at(of.x), at(of.dy));
            of_weights.max(elementwise::sums_len(rows(of.dy)))
        }
        Op::BatchNormTrain(op) => normalization::statistics_len(rows(op.bind(step)?.0.x)),
        Op::BatchNormMoments(op) => normalization::statistics_len(rows(op.bind(step)?.0.x)),
        Op::SyncBatchNorm(op) => normalization::statistics_len(rows(op.bind(step)?.0.x)),
        Op::BatchNormInfer(op) => at(op.bind(step)?.0.x).shape.c,
        Op::BatchNormRecompute(op) => at(op.bind(step)?.0.x).shape.c,
        Op::BatchNormWeightGradient(op) => normalization::gradients_len(rows(op.bind(step)?.0.x)),
        Op::BatchNormInputGradient(op) => normalization::gradients_len(rows(op.bind(step)?.0.x)),
        Op::GroupNorm(op) => normalization::groups_len(at(op.bind(step)?.0.x).shape),
        Op::GroupNormGradient(op) => normalization::groups_len(at(op.bind(step)?.0.x).shape),
        Op::PReluSlopeGradient(op) => elementwise::sums_len(rows(op.bind(step)?.0.x)),
        Op::MergeGradient(op) => merge::gradient_len(op.spread, at(op.bind(step)?.0.dy)),
        Op::MaxPoolGradient(op) => pooling::sums_len(cpu, &op.pool, at(op.bind(step)?.1.y).shape),
        Op::AveragePoolGradient(op) => pooling::sums_len(cpu, &op.pool, at(op.bind(step)?.1.y).shape),
        Op::LayerNormGradient(op) => layer_norm::gradients_len(rows(op.bind(step)?.0.x)),
        Op::LocalResponseNorm(op) => {
            local_response_norm::scratch_len(cpu, op, at(op.bind(step)?.0.x).shape.c)
        }
        Op::LocalResponseNormGradient(op) => {
            local_response_norm::scratch_len(cpu, &op.norm, at(op.bind(step)?.0.x).shape.c)
        }
        Op::UpsampleGradient(op) => upsample::scratch_len(cpu, at(op.bind(step)?.1.y).shape),
        _ => 0,
    })
}

#[cfg(test)]
mod tests;
