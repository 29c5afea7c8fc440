use crate::dispatch::multiversion;
use crate::threads::{Shards, Threads};
use tensor_backend::{RmspropStep, SgdStep, Velocity, WeightDecay};

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
pub(crate) fn sgd(
    threads: &Threads,
    step: &SgdStep,
    params: &mut [f32],
    grads: &[f32],
    velocity: &mut [f32],
) {
    let sgd = Sgd::new(step);
    for_blocks(threads, params, grads, velocity, &|params, grads, velocity| {
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

pub(crate) fn rmsprop(
    threads: &Threads,
    step: &RmspropStep,
    params: &mut [f32],
    grads: &[f32],
    mean_square: &mut [f32],
) {
    let epsilon = if step.epsilon_inside_root { [step.epsilon, 0.0] } else { [0.0, step.epsilon] };
    let decay = Decay::new(step.weight_decay, step.lr);
    let rule = Rmsprop { decay, lr: step.lr, rho: step.rho, epsilon };
    for_blocks(threads, params, grads, mean_square, &|params, grads, mean_square| {
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

/// A step on one block of parameters, gradients and state.
type Step<'a> = &'a (dyn Fn(&mut [f32], &[f32], &mut [f32]) + Sync);

/// Runs `step` on equal blocks of the three arenas; `state` may be empty.
fn for_blocks(threads: &Threads, params: &mut [f32], grads: &[f32], state: &mut [f32], step: Step) {
    let (len, states) = (params.len(), state.len());
    let (params, state) = (Shards::new(params), Shards::new(state));
    threads.run(len.div_ceil(BLOCK), &|block| {
        let range = block * BLOCK..((block + 1) * BLOCK).min(len);
        let of_state = range.start.min(states)..range.end.min(states);
        // SAFETY: each task has a part of its own.
        let (p, s) = unsafe { (params.part(range.clone()), state.part(of_state)) };
        step(p, &grads[range], s);
    });
}
