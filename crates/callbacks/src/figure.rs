/// Numbers of this size have an exponent instead of four decimals.
const LARGE: f64 = 1e5;

/// A loss, an accuracy or a rate in Keras' format: four decimals, and an exponent if it is small. Very large numbers have an
/// exponent too, which Keras' have not.
///
/// ```
/// use towers_callbacks::figure;
///
/// assert_eq!([0.98765, 12.5, 2e-5, 7.6e18].map(figure), ["0.9877", "12.5000", "2.0000e-05", "7.60e+18"]);
/// ```
pub fn figure(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let size = value.abs();
    let text = match size {
        0.0 | f64::INFINITY => return format!("{value:.4}"),
        LARGE.. => format!("{value:.2e}"),
        _ if size > 1e-3 => return format!("{value:.4}"),
        _ => format!("{value:.4e}"),
    };
    match text.split_once('e') {
        Some((digits, power)) => match power.strip_prefix('-') {
            Some(power) => format!("{digits}e-{power:0>2}"),
            None => format!("{digits}e+{power:0>2}"),
        },
        None => text,
    }
}
