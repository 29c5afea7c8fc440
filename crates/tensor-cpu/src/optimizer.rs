use crate::dispatch::multiversion;
use crate::operand::Rules;
use crate::threads::{Shards, Threads};
use program::{AdamStep, RmspropStep, SgdStep, Velocity, WeightDecay};

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

/// The rules on blocks that threads take.
impl Rules<f32> for Threads {
    fn sgd(&self, step: &SgdStep, params: &mut [f32], grads: &[f32], velocity: [&mut [f32]; 1]) {
        sgd(self, step, params, grads, velocity);
    }

    fn rmsprop(&self, step: &RmspropStep, params: &mut [f32], grads: &[f32], mean_square: [&mut [f32]; 1]) {
        rmsprop(self, step, params, grads, mean_square);
    }

    fn adam(&self, step: &AdamStep, taken: f32, params: &mut [f32], grads: &[f32], moments: [&mut [f32]; 2]) {
        adam(self, step, taken, params, grads, moments);
    }
}

/// A weight decay as two factors, one of which does nothing: `g += penalty * p`, `p *= keep`.
#[derive(Clone, Copy)]
struct Decay {
    penalty: f32,
    keep: f32,
}

impl Decay {
    fn new(decay: WeightDecay, lr: f32) -> Self {
        match decay {
            WeightDecay::None => Decay { penalty: 0.0, keep: 1.0 },
            WeightDecay::Coupled(w) => Decay { penalty: w, keep: 1.0 },
            WeightDecay::Decoupled(w) => Decay { penalty: 0.0, keep: 1.0 - lr * w },
        }
    }
}

/// All conventions of SGD as one formula: `v = m v + into g`, then `p += out (of_v v + of_g g)`.
#[derive(Clone, Copy)]
struct Sgd {
    decay: Decay,
    momentum: f32,
    into: f32,
    out: f32,
    of_v: f32,
    of_g: f32,
}

impl Sgd {
    fn new(step: &SgdStep) -> Self {
        // The learning rate enters the velocity (Keras) or leaves with it (PyTorch).
        let (into, out) = match step.velocity {
            Velocity::Keras => (-step.lr, 1.0),
            Velocity::PyTorch => (1.0, -step.lr),
        };
        // Nesterov looks one step ahead: `m v + into g` in place of `v`.
        let (of_v, of_g) = if step.nesterov { (step.momentum, into) } else { (1.0, 0.0) };
        Sgd { decay: Decay::new(step.weight_decay, step.lr), momentum: step.momentum, into, out, of_v, of_g }
    }
}

/// `velocity` is empty where the momentum is 0.
fn sgd(threads: &Threads, step: &SgdStep, params: &mut [f32], grads: &[f32], velocity: [&mut [f32]; 1]) {
    let sgd = Sgd::new(step);
    for_blocks(threads, params, grads, velocity, &|params, grads, [velocity]| {
        if velocity.is_empty() {
            sgd_plain(sgd.decay, step.lr, params, grads);
        } else {
            sgd_momentum(sgd, params, grads, velocity);
        }
    });
}

multiversion! {
    fn sgd_plain(decay: Decay, lr: f32, params: &mut [f32], grads: &[f32]) {
        for (p, &g) in params.iter_mut().zip(grads) {
            *p = *p * decay.keep - lr * (g + decay.penalty * *p);
        }
    }
}

multiversion! {
    fn sgd_momentum(sgd: Sgd, params: &mut [f32], grads: &[f32], velocity: &mut [f32]) {
        for ((p, &g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = g + sgd.decay.penalty * *p;
            *v = sgd.momentum * *v + sgd.into * g;
            *p = *p * sgd.decay.keep + sgd.out * (sgd.of_v * *v + sgd.of_g * g);
        }
    }
}

#[derive(Clone, Copy)]
struct Rmsprop {
    decay: Decay,
    lr: f32,
    rho: f32,
    /// Epsilon, where it is inside of the root, and where it is outside; the other one is 0.
    epsilon: [f32; 2],
}

fn rmsprop(
    threads: &Threads,
    step: &RmspropStep,
    params: &mut [f32],
    grads: &[f32],
    mean_square: [&mut [f32]; 1],
) {
    let epsilon = if step.epsilon_inside_root { [step.epsilon, 0.0] } else { [0.0, step.epsilon] };
    let decay = Decay::new(step.weight_decay, step.lr);
    let rule = Rmsprop { decay, lr: step.lr, rho: step.rho, epsilon };
    for_blocks(threads, params, grads, mean_square, &|params, grads, [mean_square]| {
        rmsprop_block(rule, params, grads, mean_square);
    });
}

multiversion! {
    fn rmsprop_block(rule: Rmsprop, params: &mut [f32], grads: &[f32], mean_square: &mut [f32]) {
        let [inside, outside] = rule.epsilon;
        for ((p, &g), a) in params.iter_mut().zip(grads).zip(mean_square) {
            let g = g + rule.decay.penalty * *p;
            *a = rule.rho * *a + (1.0 - rule.rho) * g * g;
            *p = *p * rule.decay.keep - rule.lr * g / ((*a + inside).sqrt() + outside);
        }
    }
}

/// `p -= rate m / (sqrt(a) + epsilon)`, with the corrections in `rate` and `epsilon`.
#[derive(Clone, Copy)]
struct Adam {
    decay: Decay,
    rate: f32,
    epsilon: f32,
    /// How much of the mean and of the mean square stays, and how much comes in its place.
    keep: [f32; 2],
    take: [f32; 2],
}

/// The step after `taken` ones; `moments` are the mean and the mean square.
fn adam(
    threads: &Threads,
    step: &AdamStep,
    taken: f32,
    params: &mut [f32],
    grads: &[f32],
    moments: [&mut [f32]; 2],
) {
    let (rate, epsilon) = step.corrected(f64::from(taken) + 1.0);
    let (decay, betas) = (Decay::new(step.weight_decay, step.lr), [step.beta1, step.beta2]);
    let [rate, epsilon] = [rate as f32, epsilon as f32];
    let rule =
        Adam { decay, rate, epsilon, keep: betas.map(|b| b as f32), take: betas.map(|b| (1.0 - b) as f32) };
    for_blocks(threads, params, grads, moments, &|params, grads, [mean, mean_square]| {
        adam_block(rule, params, grads, mean, mean_square);
    });
}

multiversion! {
    fn adam_block(rule: Adam, params: &mut [f32], grads: &[f32], mean: &mut [f32], mean_square: &mut [f32]) {
        let ([keep1, keep2], [take1, take2]) = (rule.keep, rule.take);
        for (((p, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
            let g = g + rule.decay.penalty * *p;
            *m = keep1 * *m + take1 * g;
            *a = keep2 * *a + take2 * g * g;
            *p = *p * rule.decay.keep - rule.rate * *m / (a.sqrt() + rule.epsilon);
        }
    }
}

/// A step on one block of parameters, gradients and what is remembered of them.
type Step<'a, const N: usize> = &'a (dyn Fn(&mut [f32], &[f32], [&mut [f32]; N]) + Sync);

/// Runs `step` on equal blocks of all arenas; those of `memory` may be empty.
fn for_blocks<const N: usize>(
    threads: &Threads,
    params: &mut [f32],
    grads: &[f32],
    memory: [&mut [f32]; N],
    step: Step<N>,
) {
    let len = params.len();
    let (params, memory) = (Shards::new(params), memory.map(Shards::new));
    threads.run(len.div_ceil(BLOCK), &|block| {
        let range = block * BLOCK..((block + 1) * BLOCK).min(len);
        // SAFETY: each task has parts of its own.
        let (params, memory) = unsafe {
            let memory = memory.each_ref();
            let parts = memory.map(|all| all.part(range.start.min(all.len())..range.end.min(all.len())));
            (params.part(range.clone()), parts)
        };
        step(params, &grads[range], memory);
    });
}
