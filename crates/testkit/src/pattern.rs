/// Numbers in [-scale, scale) that look random and are the same in any language: element `k` of tensor `tensor` is
/// `scale * (h / 2^15 - 1)`, where `h` is the upper half of murmur3's 32-bit finalizer of `k + tensor * 0x9E3779B9`.
///
/// With a power of two for `scale` every number is exact in f32. `tests/golden/networks.py` has the same in Python.
pub fn pattern(tensor: u32, len: usize, scale: f64) -> Vec<f64> {
    let start = tensor.wrapping_mul(0x9E37_79B9);
    (0..len as u32).map(|k| scale * (f64::from(mix(k.wrapping_add(start)) >> 16) / 32_768.0 - 1.0)).collect()
}

/// The finalizer of MurmurHash3 (A. Appleby, public domain).
fn mix(mut h: u32) -> u32 {
    h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
    h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
    h ^ (h >> 16)
}

/// A tensor in a few numbers: its product with [`pattern`] number 0, its Euclidean norm, and up to 16 of its elements,
/// evenly spread.
///
/// The product tells tensors apart that hold the same numbers in another order, which a norm does not.
pub fn fingerprint(values: &[f64]) -> Vec<f64> {
    let product = values.iter().zip(pattern(0, values.len(), 1.0)).map(|(x, p)| x * p).sum();
    let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let picked = values.len().min(16);
    let samples = (0..picked).map(|k| values[k * values.len() / picked]);
    [product, norm].into_iter().chain(samples).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_exact_in_f32_and_spread_evenly() {
        let values = pattern(3, 10_000, 0.25);
        assert!(values.iter().all(|&x| f64::from(x as f32) == x && (-0.25..0.25).contains(&x)));
        let mean = values.iter().sum::<f64>() / 1e4;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / 1e4;
        assert!(
            mean.abs() < 0.006 && (variance / (0.25 * 0.25 / 3.0) - 1.0).abs() < 0.03,
            "{mean} {variance}"
        );
        assert_ne!(pattern(4, 8, 1.0), pattern(3, 8, 1.0));
    }

    #[test]
    fn a_fingerprint_sees_the_order() {
        let (a, b) = (fingerprint(&[3.0, 4.0]), fingerprint(&[4.0, 3.0]));
        assert_eq!((a[1], a[1], &a[2..]), (5.0, b[1], &[3.0, 4.0][..]));
        assert_ne!(a[0], b[0]);
        assert_eq!(fingerprint(&vec![1.0; 100]).len(), 18);
    }
}
