use towers_optim::{
    Adam, Adjust, Clip, Lamb, Lars, Lion, Muon, Nadam, Rmsprop, Sam, Sgd, UpdateRule, Velocity, WeightDecay,
};
use towers_program::Span;

/// The parameter and gradient after weight decay.
fn decay(decay: WeightDecay, lr: f64, p: f64, g: f64) -> (f64, f64) {
    match decay {
        WeightDecay::None => (p, g),
        WeightDecay::Coupled(w) => (p, g + f64::from(w) * p),
        WeightDecay::Decoupled(w) => (p - lr * f64::from(w) * p, g),
    }
}

pub(crate) fn ema(momentum: f64, scale: f64, sums: &[f64], running: &mut [f64]) {
    for (running, sum) in running.iter_mut().zip(sums) {
        *running = momentum * *running + (1.0 - momentum) * scale * sum;
    }
}

pub(crate) fn meter(metrics: &[f64], meter: &mut [f64]) {
    if meter[0].is_finite() {
        meter[0] += metrics[0];
        if meter[0].is_finite() {
            meter[2] += metrics[1];
            meter[3] += 1.0;
        }
    }
}

/// See `Backend::clip_grads`.
pub(crate) fn clip(clip: Clip, grads: &mut [f64], at: &[Span], norms: &mut [f64]) {
    let limit = f64::from(clip.limit());
    if let Clip::Value(_) = clip {
        at.iter().flat_map(|at| at.range()).for_each(|k| grads[k] = grads[k].clamp(-limit, limit));
        return;
    }
    for (norm, at) in norms.iter_mut().zip(at) {
        *norm = grads[at.range()].iter().map(|g| g * g).sum::<f64>().sqrt();
    }
    let all = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    for (norm, at) in norms.iter().zip(at) {
        let norm = if let Clip::GlobalNorm(_) = clip { all } else { *norm };
        if norm > limit {
            grads[at.range()].iter_mut().for_each(|g| *g *= limit / norm);
        }
    }
}

/// See `Backend::ascend`.
pub(crate) fn ascend(sam: &Sam, params: &mut [f64], grads: &[f64], at: &[Span], norms: &mut [f64]) {
    let size = |w: f64| if sam.adaptive { w.abs() } else { 1.0 };
    for (norm, at) in norms.iter_mut().zip(at) {
        *norm = at.range().map(|k| (size(params[k]) * grads[k]).powi(2)).sum::<f64>().sqrt();
    }
    let all = norms.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
    let factor = f64::from(sam.rho) / (all + f64::from(Sam::EPSILON));
    at.iter()
        .flat_map(|at| at.range())
        .for_each(|k| params[k] += factor * size(params[k]).powi(2) * grads[k]);
}

/// A step of a rule as it is written in books: see [`optimizer_step`](crate::operand::optimizer_step).
pub(crate) fn update(
    rule: UpdateRule,
    lr: f32,
    t: u64,
    shape: [usize; 2],
    params: &mut [f64],
    grads: &[f64],
    [first, second]: [&mut [f64]; 2],
) {
    let lr = f64::from(lr);
    match rule {
        UpdateRule::Sgd(rule) => sgd(rule, lr, params, grads, first),
        UpdateRule::Rmsprop(rule) => rmsprop(rule, lr, params, grads, first),
        UpdateRule::Adam(rule) => adam(rule, lr, t, params, grads, first, second),
        UpdateRule::Lars(rule) => lars(rule, lr, params, grads, first),
        UpdateRule::Lamb(rule) => lamb(rule, lr, t, params, grads, first, second),
        UpdateRule::Muon(rule) => muon(rule, lr, shape, params, grads, first),
        UpdateRule::Lion(rule) => lion(rule, lr, params, grads, first),
        UpdateRule::Nadam(rule) => nadam(rule, lr, t, params, grads, first, second),
    }
}

fn sgd(rule: Sgd, lr: f64, params: &mut [f64], grads: &[f64], velocity: &mut [f64]) {
    let m = f64::from(rule.momentum);
    for (k, (param, &g)) in params.iter_mut().zip(grads).enumerate() {
        let (p, g) = decay(rule.weight_decay, lr, *param, g);
        let Some(v) = velocity.get_mut(k) else {
            *param = p - lr * g;
            continue;
        };
        *param = match rule.velocity {
            Velocity::Keras => {
                *v = m * *v - lr * g;
                p + if rule.nesterov { m * *v - lr * g } else { *v }
            }
            Velocity::PyTorch => {
                *v = m * *v + g;
                p - lr * if rule.nesterov { g + m * *v } else { *v }
            }
        };
    }
}

fn rmsprop(rule: Rmsprop, lr: f64, params: &mut [f64], grads: &[f64], mean_square: &mut [f64]) {
    let (rho, epsilon) = (f64::from(rule.rho), f64::from(rule.epsilon));
    for ((param, &g), a) in params.iter_mut().zip(grads).zip(mean_square) {
        let (p, g) = decay(rule.weight_decay, lr, *param, g);
        *a = rho * *a + (1.0 - rho) * g * g;
        let root = if rule.epsilon_inside_root { (*a + epsilon).sqrt() } else { a.sqrt() + epsilon };
        *param = p - lr * g / root;
    }
}

fn adam(
    rule: Adam,
    lr: f64,
    t: u64,
    params: &mut [f64],
    grads: &[f64],
    mean: &mut [f64],
    mean_square: &mut [f64],
) {
    let (epsilon, beta1, beta2) = (f64::from(rule.epsilon), rule.beta1, rule.beta2);
    let (c1, c2) = (1.0 - beta1.powf(t as f64), 1.0 - beta2.powf(t as f64));
    for (((param, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
        let (p, g) = decay(rule.weight_decay, lr, *param, g);
        *m = beta1 * *m + (1.0 - beta1) * g;
        *a = beta2 * *a + (1.0 - beta2) * g * g;
        let root =
            if rule.epsilon_hat { (a.sqrt() + epsilon) / c2.sqrt() } else { (*a / c2).sqrt() + epsilon };
        *param = p - lr * (*m / c1) / root;
    }
}

fn nadam(
    rule: Nadam,
    lr: f64,
    t: u64,
    params: &mut [f64],
    grads: &[f64],
    mean: &mut [f64],
    mean_square: &mut [f64],
) {
    let (epsilon, beta1, beta2) = (f64::from(rule.epsilon), rule.beta1, rule.beta2);
    let momentum = |t: u64| beta1 * (1.0 - 0.5 * 0.96_f64.powf(rule.momentum_decay * t as f64));
    let product: f64 = (1..=t).map(momentum).product();
    let (now, next) = (momentum(t), momentum(t + 1));
    for (((param, &g), m), a) in params.iter_mut().zip(grads).zip(mean).zip(mean_square) {
        let (p, g) = decay(rule.weight_decay, lr, *param, g);
        *m = beta1 * *m + (1.0 - beta1) * g;
        *a = beta2 * *a + (1.0 - beta2) * g * g;
        let step = next * *m / (1.0 - product * next) + (1.0 - now) * g / (1.0 - product);
        *param = p - lr * step / ((*a / (1.0 - beta2.powf(t as f64))).sqrt() + epsilon);
    }
}

fn lion(rule: Lion, lr: f64, params: &mut [f64], grads: &[f64], mean: &mut [f64]) {
    let Lion { beta1, beta2, weight_decay } = rule;
    for ((param, &g), m) in params.iter_mut().zip(grads).zip(mean) {
        let (p, g) = decay(weight_decay, lr, *param, g);
        let direction = beta1 * *m + (1.0 - beta1) * g;
        *param = p - lr * if direction == 0.0 { 0.0 } else { direction.signum() };
        *m = beta2 * *m + (1.0 - beta2) * g;
    }
}

/// The norms of a tensor and of what it moves by, and their quotient; 1 if one is 0, and without weight decay.
fn trust(decay: f32, tensor: &[f64], step: &[f64], quotient: impl Fn(f64, f64) -> f64) -> f64 {
    let [p, u] = [tensor, step].map(|x| x.iter().map(|x| x * x).sum::<f64>().sqrt());
    if decay != 0.0 && p > 0.0 && u > 0.0 { quotient(p, u) } else { 1.0 }
}

fn lars(rule: Lars, lr: f64, params: &mut [f64], grads: &[f64], velocity: &mut [f64]) {
    let (m, decay) = (f64::from(rule.momentum), rule.weight_decay.strength());
    let (w, epsilon) = (f64::from(decay), f64::from(rule.epsilon));
    let ratio = trust(decay, params, grads, |p, g| f64::from(rule.trust) * p / (g + w * p + epsilon));
    for (k, (param, &g)) in params.iter_mut().zip(grads).enumerate() {
        let g = ratio * (g + w * *param);
        let Some(v) = velocity.get_mut(k) else {
            *param -= lr * g;
            continue;
        };
        *v = m * *v + g;
        *param -= lr * if rule.nesterov { g + m * *v } else { *v };
    }
}

fn lamb(
    rule: Lamb,
    lr: f64,
    t: u64,
    params: &mut [f64],
    grads: &[f64],
    mean: &mut [f64],
    mean_square: &mut [f64],
) {
    let [c1, c2] = [rule.beta1, rule.beta2].map(|beta| 1.0 - beta.powf(t as f64));
    let decay = rule.weight_decay.strength();
    let mut directions = Vec::with_capacity(params.len());
    for (((p, &g), m), a) in params.iter().zip(grads).zip(mean).zip(mean_square) {
        *m = rule.beta1 * *m + (1.0 - rule.beta1) * g;
        *a = rule.beta2 * *a + (1.0 - rule.beta2) * g * g;
        directions.push(*m / c1 / ((*a / c2).sqrt() + f64::from(rule.epsilon)) + f64::from(decay) * p);
    }
    let ratio = trust(decay, params, &directions, |p, u| p / u);
    params.iter_mut().zip(directions).for_each(|(p, u)| *p -= lr * ratio * u);
}

fn muon(
    rule: Muon,
    lr: f64,
    shape @ [rows, columns]: [usize; 2],
    params: &mut [f64],
    grads: &[f64],
    velocity: &mut [f64],
) {
    let m = f64::from(rule.momentum);
    let mut direction = Vec::with_capacity(params.len());
    for (k, (&p, &g)) in params.iter().zip(grads).enumerate() {
        let (_, g) = decay(rule.weight_decay, lr, p, g);
        direction.push(velocity.get_mut(k).map_or(g, |v| {
            *v = m * *v + (1.0 - m) * g;
            if rule.nesterov { m * *v + (1.0 - m) * g } else { *v }
        }));
    }
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let length = norm(&direction).max(f64::from(rule.epsilon));
    let mut x: Vec<f64> = direction.iter().map(|u| u / length).collect();
    for _ in 0..rule.steps {
        // x (a + b xᵀx + c (xᵀx)²), which is as well (a + b xxᵀ + c (xxᵀ)²) x.
        let gram = product(&transposed(&x, shape), &x, [columns, rows, columns]);
        let of_gram = product(&x, &gram, [rows, columns, columns]);
        let of_square = product(&of_gram, &gram, [rows, columns, columns]);
        let terms = x.iter().zip(of_gram).zip(of_square);
        x = terms.map(|((x, x3), x5)| 3.4445 * x - 4.775 * x3 + 2.0315 * x5).collect();
    }
    let (size, [inputs, outputs]) = (norm(params), shape.map(|n| n as f64));
    let rate = lr
        * match rule.adjust {
            Adjust::Original => (outputs / inputs).max(1.0).sqrt(),
            Adjust::MatchRmsAdamw => 0.2 * inputs.max(outputs).sqrt(),
            Adjust::SpectralUnclamped => (outputs / inputs).sqrt(),
            Adjust::None => 1.0,
        };
    let scale = if rule.normalize && lr != 0.0 && size > 0.0 { outputs.sqrt() / size } else { 1.0 };
    for (param, x) in params.iter_mut().zip(x) {
        let (p, _) = decay(rule.weight_decay, lr, *param, 0.0);
        *param = scale * p - rate * x;
    }
}

fn transposed(x: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..rows * columns).map(|k| x[k % rows * columns + k / rows]).collect()
}

fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for (at, &a) in a.iter().enumerate().take(m * k) {
        let (row, i) = (at / k, at % k);
        out[row * n..][..n].iter_mut().zip(&b[i * n..]).for_each(|(out, b)| *out += a * b);
    }
    out
}
