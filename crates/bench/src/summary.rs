use crate::Result;
use layers::Mode;
use models::Model;

/// Bytes of an f32.
const F32: usize = 4;

/// The layers of a network as Keras prints them, the arithmetic of an image, and the memory of a training step for
/// batches of `batch` images. A multiply-add counts as two operations.
///
/// ```
/// let text = bench::summary(&models::keras_cnn(10)?, 32)?;
/// assert!(text.contains("Total params: 1,250,858") && text.contains("FLOPs of an image: 41.5 million forward"));
/// # Ok::<(), bench::Error>(())
/// ```
///
/// # Errors
/// If the output of a layer is unused.
pub fn summary(model: &Model, batch: usize) -> Result<String> {
    let work = model.graph().work();
    let forward: usize = work.iter().map(|work| work.multiply_adds).sum();
    let backward: usize = work.iter().map(|work| work.backward_multiply_adds).sum();
    let mega = |multiply_adds: usize| 2.0 * multiply_adds as f64 / 1e6;
    let mib = |numbers: usize| numbers.saturating_mul(F32) as f64 / f64::from(1 << 20);
    let activations = |recomputes| model.activation_len(batch, Mode::Training, recomputes);
    let summary = model.summary();
    // The weights, their gradients and a momentum.
    let parameters = 3 * summary.trainable + summary.non_trainable;
    Ok(format!(
        "{summary}\n\nFLOPs of an image: {:.1} million forward, {:.1} million in training\n\
         Memory for training with batches of {batch}, in fp32: {:.1} MiB on a CPU, {:.1} MiB on a GPU, of which {:.1} MiB are \
         weights, their gradients and a momentum\n",
        mega(forward),
        mega(forward + backward),
        mib(activations(true)?.saturating_add(parameters)),
        mib(activations(false)?.saturating_add(parameters)),
        mib(parameters)
    ))
}
