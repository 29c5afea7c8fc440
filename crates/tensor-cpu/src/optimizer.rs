use crate::Cpu;
use crate::dispatch::multiversion;
use crate::threads::Shards;
use optim::UpdateRule;

/// Elements a task: 64 KiB of each arena.
const BLOCK: usize = 16_384;

pub(crate) fn ema(momentum: f32, scale: f32, sums: &[f32], running: &mut [f32]) {
    let (momentum, scale) = (f64::from(momentum), f64::from(scale));
    for (running, &sum) in running.iter_mut().zip(sums) {
        *running = (momentum * f64::from(*running) + (1.0 - momentum) * scale * f64::from(sum)) as f32;
    }
}

/// Adds a step's metrics up: see `Backend::meter`.
pub(crate) fn meter(metrics: &[f32], meter: &mut [f32]) {
    let total = f64::from(meter[0]) + f64::from(meter[1]) + f64::from(metrics[0]);
    if !meter[0].is_finite() {
        return;
    }
    meter[0] = total as f32;
    meter[1] = if meter[0].is_finite() { (total - f64::from(meter[0])) as f32 } else { 0.0 };
    if meter[0].is_finite() {
        meter[2] += metrics[1];
        meter[3] += 1.0;
    }
}

/// A step of a rule on one run: see [`optimizer_step`](crate::operand::optimizer_step). Threads take blocks.
pub(crate) fn update(
    cpu: &Cpu,
    rule: UpdateRule,
    lr: f32,
    t: u64,
    params: &mut [f32],
    grads: &[f32],
    state: [&mut [f32]; 2],
) {
    let len = params.len();
    let (params, state) = (Shards::new(params), state.map(Shards::new));
    cpu.pool().run(len.div_ceil(BLOCK), &|block| {
        let range = block * BLOCK..((block + 1) * BLOCK).min(len);
        // SAFETY: each task has separate parts.
        let (params, state) = unsafe {
            let state = state.each_ref();
            let parts = state.map(|all| all.part(range.start.min(all.len())..range.end.min(all.len())));
            (params.part(range.clone()), parts)
        };
        step(cpu.simd(), rule, lr, t, params, &grads[range], state);
    });
}

multiversion! {
    fn step(rule: UpdateRule, lr: f32, t: u64, params: &mut [f32], grads: &[f32], state: [&mut [f32]; 2]) {
        rule.step(lr, t, params, grads, state);
    }
}
