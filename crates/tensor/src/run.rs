use crate::storage::{Member, buf, buf_mut, ints};
use crate::{Device, Executable, Execute, Ints, Memory, Result, StepArgs, Storage};
use core::ops::Range;

impl Execute for Device {
    fn prepare(&self, program: &Executable) -> Result<()> {
        match self {
            Device::Cpu(d) => d.prepare(program),
            Device::Reference(d) => d.prepare(program),
            Device::Cuda(d) => d.prepare(program),
        }
    }

    fn run(
        &self,
        program: &Executable,
        steps: Range<usize>,
        args: &StepArgs,
        memory: Memory<'_, Storage, Ints>,
    ) -> Result<()> {
        match self {
            Device::Cpu(d) => d.run(program, steps, args, on(d, memory)?),
            Device::Reference(d) => d.run(program, steps, args, on(d, memory)?),
            Device::Cuda(d) => Execute::run(d, program, steps, args, on(d, memory)?),
        }
    }
}

/// The memory on the device `d`.
fn on<'a, D: Member>(d: &D, memory: Memory<'a, Storage, Ints>) -> Result<Memory<'a, D::Buffer, D::Ints>> {
    let (op, Memory { activations, statistics, params, grads, averages, labels }) = ("run", memory);
    Ok(Memory {
        activations: buf_mut(d, op, activations)?,
        statistics: buf_mut(d, op, statistics)?,
        params: buf(d, op, params)?,
        grads: buf_mut(d, op, grads)?,
        averages: buf(d, op, averages)?,
        labels: ints(d, op, labels)?,
    })
}
