use core::f64::consts::PI;

/// The form of a rise or a fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anneal {
    /// Half a period of a cosine.
    Cos,
    /// A straight line.
    Linear,
}

/// Half a period of a cosine, from 1 to 0 for `t` from 0 to 1.
pub(super) fn wave(t: f64) -> f64 {
    0.5 * (1.0 + (PI * t).cos())
}

/// The factor of PyTorch's `OneCycleLR` at `step` of so many `steps`: it starts and ends at `ends`, with 1 between.
///
/// As there, the top is step `pct_start * steps - 1`, which need not be a whole number, and the end is the last step.
pub(super) fn one_cycle(step: f64, steps: f64, pct_start: f64, ends: [f64; 2], anneal: Anneal) -> f64 {
    let (top, last) = (pct_start * steps - 1.0, steps - 1.0);
    let [from, to, start, end] =
        if step <= top { [ends[0], 1.0, 0.0, top] } else { [1.0, ends[1], top, last] };
    let done = if end > start { ((step - start) / (end - start)).min(1.0) } else { 1.0 };
    match anneal {
        Anneal::Cos => to + (from - to) * wave(done),
        Anneal::Linear => (to - from) * done + from,
    }
}

/// How many restarts there were at time `at`, and the part of the cosine since that is done: the first one is `first`
/// long, and each next one `t_mul` times as long.
pub(super) fn restarts(at: f64, first: f64, t_mul: f64) -> (f64, f64) {
    if t_mul == 1.0 {
        let done = at / first;
        return (done.floor(), done - done.floor());
    }
    let began = |restart: f64| first * (t_mul.powf(restart) - 1.0) / (t_mul - 1.0);
    // The logarithm may be off by one where a cosine begins.
    let near = ((1.0 + at / first * (t_mul - 1.0)).ln() / t_mul.ln()).round();
    let restart = if began(near) <= at { near } else { (near - 1.0).max(0.0) };
    let part = (at - began(restart)) / (first * t_mul.powf(restart));
    (restart, part.clamp(0.0, 1.0))
}
