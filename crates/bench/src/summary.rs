use crate::Result;
use towers_layers::Mode;
use towers_models::Model;

/// Bytes of an f32.
const F32: usize = 4;

/// The layers of a network as Keras prints them, the arithmetic of an image, and the memory of a training step for
/// batches of `batch` images. A multiply-add counts as two operations.
///
/// ```
/// let text = towers_bench::summary(&towers_models::keras_cnn(10)?, 32)?;
/// assert!(text.contains("Total params: 1,250,858") && text.contains("FLOPs of an image: 41.5 million forward"));
/// # Ok::<(), towers_bench::Error>(())
/// ```
///
/// # Errors
/// If the output of a layer is unused.
pub fn summary(model: &Model, batch: usize) -> Result<String> {
    let work = model.graph().work();
    let forward: usize = work.iter().map(|work| work.multiply_adds).sum();
    let backward: usize = work.iter().map(|work| work.backward_multiply_adds).sum();
    let mib = |numbers: usize| numbers.saturating_mul(F32) as f64 / f64::from(1 << 20);
    let activations = |recomputes| model.activation_len(batch, Mode::Training, recomputes);
    let summary = model.summary();
    // The weights, their gradients and a momentum.
    let parameters = 3 * summary.trainable + summary.non_trainable;
    Ok(format!(
        "{summary}\n\nFLOPs of an image: {} forward, {} in training\n\
         Memory for training with batches of {batch}, in fp32: {:.1} MiB on a CPU, {:.1} MiB on a GPU, of which {:.1} MiB are \
         weights, their gradients and a momentum\n",
        flops(forward),
        flops(forward + backward),
        mib(activations(true)?.saturating_add(parameters)),
        mib(activations(false)?.saturating_add(parameters)),
        mib(parameters)
    ))
}

/// `41.5 million`, or every digit of less than a million.
fn flops(multiply_adds: usize) -> String {
    match 2 * multiply_adds {
        few @ 0..1_000_000 => few.to_string(),
        many => format!("{:.1} million", many as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::flops;

    #[test]
    fn small_networks_have_some_flops_too() {
        assert_eq!([0, 2_176, 500_000].map(flops), ["0", "4352", "1.0 million"]);
    }
}
