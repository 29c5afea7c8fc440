//! Convolutions of tensors of bf16, with sums of 32 bits, in tiles that a unit of the processor multiplies.
//!
//! Tasks lay out what they read, small enough to stay in the core's second cache: pixels such that the neighbours in a tile
//! are neighbours in memory whatever the tap is (`grid`). As for the direct sums in 32 bits, there are sums over taps and
//! channels (`sums`) and over pixels (`grads`). Sums are those of exact products, a step of 32 at a time, and the same bits
//! at every level; they are rounded when all is done to them.

#[cfg(target_arch = "x86_64")]
mod amx;
mod grads;
mod grid;
mod level;
mod patch;
mod peak;
mod portable;
mod sums;
#[cfg(test)]
mod tests;
mod tile;
mod tiles;

pub(crate) use level::Level;
pub(crate) use peak::trial;

use super::problem::Problem;
use super::sums::Finish;
use super::{Convolved, Pass, phases};
use crate::Cpu;
use crate::element::Bf16;
use towers_program::{Conv2d, Layout, View, ViewMut, Write};

impl Convolved for Bf16 {
    fn scratch_len(cpu: &Cpu, pass: Pass, conv: &Conv2d, x: Layout, y: Layout) -> usize {
        let sums = |p: Problem| sums::scratch_len(&p, cpu.pool().count());
        match pass {
            Pass::Forward => sums(Problem::forward(conv, x, y)),
            Pass::InputGradient => {
                let phases = phases(conv, x.shape).map(|phase| sums(Problem::backward(conv, y, x, phase)));
                phases.max().unwrap_or(0)
            }
            Pass::WeightGradient => grads::scratch_len(conv, x, y, cpu.pool().count()),
        }
    }

    fn sums(cpu: &Cpu, conv: &Conv2d, x: View<[Bf16]>, w: &[f32], finish: Finish, y: ViewMut<[Bf16]>) {
        sums::run(cpu, &Problem::forward(conv, x.layout, y.layout), x.data, w, finish, y.data);
    }

    fn backward_data(
        cpu: &Cpu,
        conv: &Conv2d,
        dy: View<[Bf16]>,
        w: &[f32],
        dx: ViewMut<[Bf16]>,
        mode: Write,
    ) {
        for phase in phases(conv, dx.layout.shape) {
            let problem = Problem::backward(conv, dy.layout, dx.layout, phase);
            sums::run(cpu, &problem, dy.data, w, Finish::sums(mode), dx.data);
        }
    }

    fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[Bf16]>, dy: View<[Bf16]>, dw: &mut [f32]) {
        grads::run(cpu, conv, x, dy, dw);
    }
}
