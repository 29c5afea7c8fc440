use super::operand::Output;
use crate::images::copy_labels;
use crate::operand::run;
use program::{AxisDraw, Fill, ImageDraw, ImageSet, LoadImages, Result, Span, ViewMut};

pub(crate) fn load(
    load: &LoadImages,
    set: ImageSet<Vec<u8>, Vec<u32>, Vec<f64>>,
    draws: &[u32],
    first: usize,
    x: ViewMut<Vec<f64>>,
    to: &mut [u32],
) -> Result<()> {
    let (op, shape, len) = ("load_images", x.layout.shape, load.image_len());
    let ImageSet { images, labels, means } = set;
    load.check_set(op, images.len(), labels.len(), means.len())?;
    load.check_batch(op, draws.len(), first, shape, to.len())?;
    ImageDraw::check(op, draws, first, shape.n, labels.len())?;
    let (before, after) = run(op, "the means", means, Span::new(0, 2 * len))?.split_at(len);
    let mut x = Output::new(op, "the batch", x)?;
    for sample in 0..shape.n {
        let draw = ImageDraw::at(draws, first + sample);
        let bytes = &images[draw.image as usize * len..][..len];
        let image: Vec<f64> = bytes.iter().zip(before).map(|(&byte, mean)| f64::from(byte) - mean).collect();
        for (i, j) in (0..load.height).flat_map(|i| (0..load.width).map(move |j| (i, j))) {
            let blank = draw.rows.blank.contains(&(i as u32)) && draw.columns.blank.contains(&(j as u32));
            let at = [
                position(&draw.rows, i, load.height, load.fill),
                position(&draw.columns, j, load.width, load.fill),
            ];
            for (channel, x) in x.pixel(sample, i, j).iter_mut().enumerate() {
                let after = after[(i * load.width + j) * load.channels + channel];
                let value = match at {
                    [Some(row), Some(column)] => bilinear(load, &image, row, column, channel),
                    _ => f64::from(load.fill.constant()),
                };
                *x = if blank { 0.0 } else { value * f64::from(load.scale) - after };
            }
        }
    }
    copy_labels(labels, draws, first, &mut to[..shape.n]);
    Ok(())
}

/// The place between pixels that an output place shows, inside of `0..=len - 1`; `None` for the constant.
fn position(axis: &AxisDraw, out: usize, len: usize, fill: Fill) -> Option<f64> {
    // The crop moves by whole pixels, so its wrap has the period n.
    let (n, last) = (len as f64, (len - 1) as f64);
    let cropped = out as f64 + f64::from(axis.crop);
    let place = match fill {
        Fill::Wrap => cropped.rem_euclid(n),
        _ => fold(cropped, n, fill)?,
    };
    let place = if axis.flip { last - place } else { place };
    fold(place + f64::from(axis.shift) + f64::from(axis.weight), n, fill)
}

/// Brings a position into `0..=n - 1`.
fn fold(at: f64, n: f64, fill: Fill) -> Option<f64> {
    let last = n - 1.0;
    if (0.0..=last).contains(&at) {
        return Some(at);
    }
    let folded = match fill {
        Fill::Constant(_) => return None,
        Fill::Nearest => at,
        // The mirrors stand half a pixel outside of the outermost centres; between these and a mirror there is but the
        // outermost pixel.
        Fill::Reflect => n - 0.5 - ((at + 0.5).rem_euclid(2.0 * n) - n).abs(),
        Fill::Wrap | Fill::Mirror if last == 0.0 => 0.0,
        // The mirrors stand in the outermost centres.
        Fill::Mirror => last - (at.rem_euclid(2.0 * last) - last).abs(),
        Fill::Wrap if at < 0.0 && at.rem_euclid(last) == 0.0 => last,
        Fill::Wrap => at.rem_euclid(last),
    };
    Some(folded.clamp(0.0, last))
}

fn bilinear(load: &LoadImages, image: &[f64], row: f64, column: f64, channel: usize) -> f64 {
    let pixel = |y: usize, x: usize| image[(y * load.width + x) * load.channels + channel];
    let (top, left) = (row.floor() as usize, column.floor() as usize);
    let (bottom, right) = ((top + 1).min(load.height - 1), (left + 1).min(load.width - 1));
    let (v, u) = (row.fract(), column.fract());
    (1.0 - v) * ((1.0 - u) * pixel(top, left) + u * pixel(top, right))
        + v * ((1.0 - u) * pixel(bottom, left) + u * pixel(bottom, right))
}
