//! Devices that are not equally fast from step to step: everybody waits for the slowest.

/// By what factor the slowest of `n` devices is expected to take longer than the mean one, where times scatter log-normally:
/// `ln t` is normal with the standard deviation `sigma`, and the mean of `t` is 1.
///
/// It is the mean of the largest of `n` such times, `E[max] = integral of exp(sigma z - sigma^2 / 2) d(Phi(z)^n)`, by steps of
/// a two-hundredth from -10 to 10. One device is not slowed down, and no scatter slows down nobody.
pub fn slowest(n: usize, sigma: f64) -> f64 {
    if n <= 1 || sigma == 0.0 {
        return 1.0;
    }
    const STEP: f64 = 0.005;
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (mut phi, mut power, mut mean) = (0.0_f64, 0.0, 0.0);
    for k in -2000..2000 {
        let middle = (f64::from(k) + 0.5) * STEP;
        phi += density(middle) * STEP;
        let next = phi.min(1.0).powf(n as f64);
        mean += (sigma * middle - 0.5 * sigma * sigma).exp() * (next - power);
        power = next;
    }
    mean / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_or_no_scatter_is_no_straggler() {
        assert_eq!((slowest(1, 0.3), slowest(4096, 0.0)), (1.0, 1.0));
    }

    /// For two devices `E[max] = 2 Phi(sigma / sqrt 2)`: with sigma 0.1 that is 1.0563720.
    #[test]
    fn two_devices_are_as_the_formula_says() {
        assert!((slowest(2, 0.1) - 1.056_372).abs() < 1e-5, "{}", slowest(2, 0.1));
    }

    #[test]
    fn more_devices_and_more_scatter_wait_longer() {
        let factors: Vec<f64> = (1..13).map(|k| slowest(1 << k, 0.05)).collect();
        assert!(factors.windows(2).all(|pair| pair[1] > pair[0]), "{factors:?}");
        assert!(slowest(64, 0.1) > slowest(64, 0.05));
        // Three and a half standard deviations: the largest of some thousands.
        assert!((1.18..1.21).contains(&factors[11]), "{factors:?}");
    }
}
