use crate::Cpu;
use crate::dispatch::multiversion;
use crate::operand::{Rate, Rules};
use crate::threads::Shards;
use program::{Adam, Rmsprop, Sgd, Velocity, WeightDecay};

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
impl Rules<f32> for Cpu {
    /// `velocity` is empty where the momentum is 0.
    fn sgd(&self, rule: &Sgd, rate: Rate, params: &mut [f32], grads: &[f32], velocity: [&mut [f32]; 1]) {
        let sgd = SgdFactors::new(rule, rate);
        for_blocks(self, params, grads, velocity, &|params, grads, [velocity]| {
            if velocity.is_empty() {
                sgd_plain(self.simd(), sgd.decay, rate.lr, params, grads);
            } else {
                sgd_momentum(self.simd(), sgd, params, grads, velocity);
            }
        });
    }

    fn rmsprop(
        &self,
        rule: &Rmsprop,
        rate: Rate,
        params: &mut [f32],
        grads: &[f32],
        squares: [&mut [f32]; 1],
    ) {
        let epsilon = if rule.epsilon_inside_root { [rule.epsilon, 0.0] } else { [0.0, rule.epsilon] };
        let rule = RmspropFactors { decay: Decay::new(rate), lr: rate.lr, rho: rule.rho, epsilon };
        for_blocks(self, params, grads, squares, &|params, grads, [squares]| {
            rmsprop_block(self.simd(), rule, params, grads, squares);
        });
    }

    fn adam(
        &self,
        rule: &Adam,
        rate: Rate,
        taken: f32,
        params: &mut [f32],
        grads: &[f32],
        moments: [&mut [f32]; 2],
    ) {
        let (corrected, epsilon) = rule.corrected(rate.lr, f64::from(taken) + 1.0);
        let betas = [rule.beta1, rule.beta2];
        let rule = AdamFactors {
            decay: Decay::new(rate),
            rate: corrected as f32,
            epsilon: epsilon as f32,
            keep: betas.map(|b| b as f32),
            take: betas.map(|b| (1.0 - b) as f32),
        };
        for_blocks(self, params, grads, moments, &|params, grads, [mean, mean_square]| {
            adam_block(self.simd(), rule, params, grads, mean, mean_square);
        });
    }
}

/// A weight decay as two factors, one of which does nothing: `g += penalty * p`, `p *= keep`.
#[derive(Clone, Copy)]
struct Decay {
    penalty: f32,
    keep: f32,
}

impl Decay {
    fn new(Rate { lr, weight_decay }: Rate) -> Self {
        match weight_decay {
            WeightDecay::None => Decay { penalty: 0.0, keep: 1.0 },
            WeightDecay::Coupled(w) => Decay { penalty: w, keep: 1.0 },
            WeightDecay::Decoupled(w) => Decay { penalty: 0.0, keep: 1.0 - lr * w },
        }
    }
}

/// All conventions of SGD as one formula: `v = m v + into g`, then `p += out (of_v v + of_g g)`.
#[derive(Clone, Copy)]
struct SgdFactors {
    decay: Decay,
    momentum: f32,
    into: f32,
    out: f32,
    of_v: f32,
    of_g: f32,
}

impl SgdFactors {
    fn new(rule: &Sgd, rate: Rate) -> Self {
        // The learning rate enters the velocity (Keras) or leaves with it (PyTorch).
        let (into, out) = match rule.velocity {
            Velocity::Keras => (-rate.lr, 1.0),
            Velocity::PyTorch => (1.0, -rate.lr),
        };
        // Nesterov looks one step ahead: `m v + into g` in place of `v`.
        let (of_v, of_g) = if rule.nesterov { (rule.momentum, into) } else { (1.0, 0.0) };
        SgdFactors { decay: Decay::new(rate), momentum: rule.momentum, into, out, of_v, of_g }
    }
}

multiversion! {
    fn sgd_plain(decay: Decay, lr: f32, params: &mut [f32], grads: &[f32]) {
        for (p, &g) in params.iter_mut().zip(grads) {
            *p = *p * decay.keep - lr * (g + decay.penalty * *p);
        }
    }
}

multiversion! {
    fn sgd_momentum(sgd: SgdFactors, params: &mut [f32], grads: &[f32], velocity: &mut [f32]) {
        for ((p, &g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = g + sgd.decay.penalty * *p;
            *v = sgd.momentum * *v + sgd.into * g;
            *p = *p * sgd.decay.keep + sgd.out * (sgd.of_v * *v + sgd.of_g * g);
        }
    }
}

#[derive(Clone, Copy)]
struct RmspropFactors {
    decay: Decay,
    lr: f32,
    rho: f32,
    /// Epsilon, where it is inside of the root, and where it is outside; the other one is 0.
    epsilon: [f32; 2],
}

multiversion! {
    fn rmsprop_block(rule: RmspropFactors, params: &mut [f32], grads: &[f32], mean_square: &mut [f32]) {
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
struct AdamFactors {
    decay: Decay,
    rate: f32,
    epsilon: f32,
    /// How much of the mean and of the mean square stays, and how much comes in its place.
    keep: [f32; 2],
    take: [f32; 2],
}

multiversion! {
    fn adam_block(rule: AdamFactors, params: &mut [f32], grads: &[f32], mean: &mut [f32], mean_square: &mut [f32]) {
        let ([keep1, keep2], [take1, take2]) = (rule.keep, rule.take);
        for (((p, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
            let g = g + rule.decay.penalty * *p;
            *m = keep1 * *m + take1 * g;
            *a = keep2 * *a + take2 * g * g;
            *p = *p * rule.decay.keep - rule.rate * *m / (a.sqrt() + rule.epsilon);
        }
    }
}

/// A step on one block of parameters, gradients and optimizer state.
type Step<'a, const N: usize> = &'a (dyn Fn(&mut [f32], &[f32], [&mut [f32]; N]) + Sync);

/// Runs `step` on equal blocks of all arenas; those of `memory` may be empty.
fn for_blocks<const N: usize>(
    cpu: &Cpu,
    params: &mut [f32],
    grads: &[f32],
    memory: [&mut [f32]; N],
    step: Step<N>,
) {
    let len = params.len();
    let (params, memory) = (Shards::new(params), memory.map(Shards::new));
    cpu.pool().run(len.div_ceil(BLOCK), &|block| {
        let range = block * BLOCK..((block + 1) * BLOCK).min(len);
        // SAFETY: each task has separate parts.
        let (params, memory) = unsafe {
            let memory = memory.each_ref();
            let parts = memory.map(|all| all.part(range.start.min(all.len())..range.end.min(all.len())));
            (params.part(range.clone()), parts)
        };
        step(params, &grads[range], memory);
    });
}
