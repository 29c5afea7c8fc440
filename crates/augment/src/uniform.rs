use towers_philox::Philox;

/// A uniform random number from `low` to `high`.
pub(crate) fn between([low, high]: [f64; 2], rng: &mut Philox) -> f64 {
    low + (high - low) * rng.unit_f64()
}
