use super::kernels::Kernels;
use super::problem::Problem;
use super::sums::Finish;
use super::{Convolved, Pass, grads, phases, sums, winograd};
use crate::Cpu;
use towers_program::{Conv2d, Layout, View, ViewMut, Write};

impl Convolved for f32 {
    fn scratch_len(cpu: &Cpu, pass: Pass, conv: &Conv2d, x: Layout, y: Layout) -> usize {
        if let Some(size) = winograd::choose(cpu, conv, y.shape) {
            return match pass {
                Pass::Forward => winograd::Pass::forward(size, conv, x, y).scratch_len(cpu),
                Pass::InputGradient => winograd::Pass::backward(size, conv, y, x).scratch_len(cpu),
                Pass::WeightGradient => winograd::grads_scratch_len(cpu, size, conv, x, y),
            };
        }
        let kernels = Kernels::of(cpu.simd());
        let direct = |p: Problem| sums::scratch_len(&p.merged(), kernels, cpu.pool().count());
        match pass {
            Pass::Forward => direct(Problem::forward(conv, x, y)),
            Pass::InputGradient => {
                let phases = phases(conv, x.shape).map(|phase| direct(Problem::backward(conv, y, x, phase)));
                phases.max().unwrap_or(0)
            }
            Pass::WeightGradient => grads::scratch_len(conv, x, y, kernels, cpu.pool().count()),
        }
    }

    fn sums(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, w: &[f32], finish: Finish, y: ViewMut<[f32]>) {
        if let Some(size) = winograd::choose(cpu, conv, y.layout.shape) {
            let pass = winograd::Pass::forward(size, conv, x.layout, y.layout);
            return pass.run(cpu, x.data, w, finish, y.data);
        }
        direct(cpu, &Problem::forward(conv, x.layout, y.layout), x.data, w, finish, y.data);
    }

    fn backward_data(cpu: &Cpu, conv: &Conv2d, dy: View<[f32]>, w: &[f32], dx: ViewMut<[f32]>, mode: Write) {
        let finish = Finish::sums(mode);
        if let Some(size) = winograd::choose(cpu, conv, dy.layout.shape) {
            let pass = winograd::Pass::backward(size, conv, dy.layout, dx.layout);
            return pass.run(cpu, dy.data, w, finish, dx.data);
        }
        for phase in phases(conv, dx.layout.shape) {
            let problem = Problem::backward(conv, dy.layout, dx.layout, phase);
            direct(cpu, &problem, dy.data, w, finish, dx.data);
        }
    }

    fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
        match winograd::choose(cpu, conv, dy.layout.shape) {
            Some(size) => winograd::backward_filter(cpu, size, conv, x, dy, dw),
            None => grads::run(cpu, conv, x, dy, dw),
        }
    }
}

fn direct(cpu: &Cpu, p: &Problem, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
    if p.has_outputs() {
        sums::run(cpu, &p.merged(), source, w, finish, out);
    }
}
