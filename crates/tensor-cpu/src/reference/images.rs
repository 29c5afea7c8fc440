use super::operand::Output;
use crate::images::copy_labels;
use crate::operand::run;
use towers_program::{ImageSet, Ints, LoadImages, Result, Span, ViewMut};

pub(crate) fn load(
    load: &LoadImages,
    set: ImageSet,
    draws: &Ints,
    first: usize,
    x: ViewMut,
    to: &mut Ints,
) -> Result<()> {
    let (op, shape, len) = ("load_images", x.layout.shape, load.image_len());
    let (images, labels, draws) =
        (set.images.on::<Vec<u8>>(op)?, set.labels.on::<Vec<u32>>(op)?, draws.on::<Vec<u32>>(op)?);
    let (planes, x, to) = (set.planes.on::<Vec<f64>>(op)?, x.on::<Vec<f64>>(op)?, to.on_mut::<Vec<u32>>(op)?);
    let count = load.check_set(op, images.len(), labels.len(), planes.len())?;
    load.check_batch(op, draws.len(), first, shape, to.len())?;
    load.check_draws(op, draws, first, shape.n, count)?;
    let planes = run(op, "the means and divisors", planes, Span::new(0, 3 * len))?;
    let [before, after, divisor] = core::array::from_fn(|k| &planes[k * len..][..len]);
    let mut x = Output::new(op, "the batch", x)?;
    for sample in 0..shape.n {
        let draw = load.draw(draws, first + sample);
        let bytes = &images[draw.image * len..][..len];
        let image: Vec<f64> = bytes.iter().zip(before).map(|(&byte, mean)| f64::from(byte) - mean).collect();
        for (i, j) in (0..load.height).flat_map(|i| (0..load.width).map(move |j| (i, j))) {
            let (row, column) = (draw.row(i), draw.column(j));
            for (channel, x) in x.pixel(sample, i, j).iter_mut().enumerate() {
                let at = (i * load.width + j) * load.channels + channel;
                let value = match (row.position, column.position) {
                    (Some(row), Some(column)) => bilinear(load, &image, row, column, channel),
                    _ => f64::from(load.constant),
                };
                let scaled = (value * f64::from(load.scale) - after[at]) / divisor[at];
                *x = if row.blank && column.blank { 0.0 } else { scaled };
            }
        }
    }
    copy_labels(load, labels, draws, first, &mut to[..shape.n * load.label]);
    Ok(())
}

/// A channel of the four pixels around a position, mixed. A row and a column come as a pixel and the weight of the next.
fn bilinear(load: &LoadImages, image: &[f64], row: (u32, f32), column: (u32, f32), channel: usize) -> f64 {
    let pixel = |y: usize, x: usize| image[(y * load.width + x) * load.channels + channel];
    let (top, left) = (row.0 as usize, column.0 as usize);
    let (bottom, right) = ((top + 1).min(load.height - 1), (left + 1).min(load.width - 1));
    let (v, u) = (f64::from(row.1), f64::from(column.1));
    (1.0 - v) * ((1.0 - u) * pixel(top, left) + u * pixel(top, right))
        + v * ((1.0 - u) * pixel(bottom, left) + u * pixel(bottom, right))
}
