use crate::Cpu;
use crate::dispatch::multiversion;
use crate::threads::Shards;
use towers_optim::{Clip, UpdateRule};
use towers_program::Span;

/// Elements a task: 64 KiB of each arena.
pub(crate) const BLOCK: usize = 16_384;

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
    let (simd, [first, second]) = (cpu.simd(), state);
    let mut squares = [0.0; 2];
    if rule.of_tensors() {
        squares = sums_of_parts(cpu, params, grads, [first, second], |params, grads, state, sums| {
            measure(simd, rule, t, params, grads, state, sums);
        });
    }
    let ratio = rule.trust_ratio(squares);
    for_parts(cpu, BLOCK, params, grads, [first, second], |_, params, grads, state| {
        step(simd, rule, lr, t, ratio, params, grads, state);
    });
}

/// Two sums over a tensor, of the sums of its parts. Those depend on its length alone.
pub(crate) fn sums_of_parts(
    cpu: &Cpu,
    params: &mut [f32],
    grads: &[f32],
    state: [&mut [f32]; 2],
    work: impl Fn(&mut [f32], &[f32], [&mut [f32]; 2], &mut [f64; 2]) + Sync,
) -> [f64; 2] {
    let mut squares = [[0.0; 2]; PARTS];
    let (part, sums) = (params.len().div_ceil(PARTS).max(BLOCK), Shards::new(&mut squares));
    for_parts(cpu, part, params, grads, state, |k, params, grads, state| {
        // SAFETY: each task has its own sum.
        let sum = unsafe { sums.part(k..k + 1) };
        work(params, grads, state, &mut sum[0]);
    });
    [0, 1].map(|k| squares.iter().map(|sums| sums[k]).sum())
}

/// Runs `work` on parts of this length of all slices, each with its number.
pub(crate) fn for_parts(
    cpu: &Cpu,
    part: usize,
    params: &mut [f32],
    grads: &[f32],
    state: [&mut [f32]; 2],
    work: impl Fn(usize, &mut [f32], &[f32], [&mut [f32]; 2]) + Sync,
) {
    let len = params.len();
    let (params, state) = (Shards::new(params), state.map(Shards::new));
    cpu.pool().run(len.div_ceil(part), &|k| {
        let range = k * part..((k + 1) * part).min(len);
        // SAFETY: each task has separate parts.
        let (params, state) = unsafe {
            let state = state.each_ref();
            let parts = state.map(|all| all.part(range.start.min(all.len())..range.end.min(all.len())));
            (params.part(range.clone()), parts)
        };
        work(k, params, &grads[range], state);
    });
}

multiversion! {
    fn step(rule: UpdateRule, lr: f32, t: u64, ratio: f32, params: &mut [f32], grads: &[f32], state: [&mut [f32]; 2]) {
        rule.scaled_step(lr, t, ratio, params, grads, state);
    }
}

multiversion! {
    fn measure(rule: UpdateRule, t: u64, params: &mut [f32], grads: &[f32], state: [&mut [f32]; 2], sums: &mut [f64; 2]) {
        *sums = rule.measure(t, params, grads, state);
    }
}

/// The parts of a tensor whose squares are summed on their own, at most.
pub(crate) const PARTS: usize = 64;

/// See `Backend::clip_grads`. The sums are of parts that depend on a gradient's length alone.
pub(crate) fn clip(cpu: &Cpu, clip: Clip, grads: &mut [f32], at: &[Span], norms: &mut [f32]) {
    if let Clip::Value(limit) = clip {
        let clamp = |block: &mut [f32]| clamp(cpu.simd(), limit, block);
        at.iter().for_each(|at| for_blocks(cpu, &mut grads[at.range()], BLOCK, &|_, block| clamp(block)));
        return;
    }
    for (norm, at) in norms.iter_mut().zip(at) {
        let mut sums = [0.0; PARTS];
        let shared = Shards::new(&mut sums);
        for_blocks(cpu, &mut grads[at.range()], at.len.div_ceil(PARTS).max(BLOCK), &|k, part| {
            // SAFETY: each task has its own sum.
            let sum = unsafe { shared.part(k..k + 1) };
            squares(cpu.simd(), part, &mut sum[0]);
        });
        *norm = sums.iter().sum::<f64>().sqrt() as f32;
    }
    let all = norms.iter().map(|&norm| f64::from(norm) * f64::from(norm)).sum::<f64>().sqrt() as f32;
    for (norm, at) in norms.iter().zip(at) {
        let factor = Clip::factor(clip.limit(), if let Clip::GlobalNorm(_) = clip { all } else { *norm });
        if factor != 1.0 {
            for_blocks(cpu, &mut grads[at.range()], BLOCK, &|_, block| scale(cpu.simd(), factor, block));
        }
    }
}

/// Runs `work` on blocks of this length, each with its number.
fn for_blocks(cpu: &Cpu, data: &mut [f32], block: usize, work: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    let len = data.len();
    let data = Shards::new(data);
    cpu.pool().run(len.div_ceil(block), &|k| {
        // SAFETY: each task has a separate part.
        let part = unsafe { data.part(k * block..((k + 1) * block).min(len)) };
        work(k, part);
    });
}

multiversion! {
    fn squares(grads: &[f32], sum: &mut f64) {
        *sum = Clip::squares(grads);
    }
}

multiversion! {
    fn scale(factor: f32, grads: &mut [f32]) {
        grads.iter_mut().for_each(|g| *g *= factor);
    }
}

multiversion! {
    fn clamp(limit: f32, grads: &mut [f32]) {
        grads.iter_mut().for_each(|g| *g = g.clamp(-limit, limit));
    }
}
