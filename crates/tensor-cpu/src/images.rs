use crate::Buffer;
use crate::element::{Element, typed};
use crate::operand::{run, write};
use crate::rows::RowsMut;
use crate::threads::Threads;
use towers_program::{ImageSet, Ints, LoadImages, Place, Result, Span, ViewMut};

/// A batch out of a set of images, an image a task.
pub(crate) fn load(
    pool: &Threads,
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
    let (planes, x, to) = (set.planes.on::<Buffer>(op)?, x.on::<Buffer>(op)?, to.on_mut::<Vec<u32>>(op)?);
    let count = load.check_set(op, images.len(), labels.len(), planes.len())?;
    load.check_batch(op, draws.len(), first, shape, to.len())?;
    load.check_draws(op, draws, first, shape.n, count)?;
    let planes = run(op, "the means and divisors", planes, Span::new(0, 3 * len))?;
    let planes = core::array::from_fn(|k| &planes[k * len..][..len]);
    typed!(x.data, |E| {
        let x = write::<E>(op, "the batch", x)?;
        fill(pool, load, images, draws, first, planes, x);
    });
    copy_labels(load, labels, draws, first, &mut to[..shape.n * load.label]);
    Ok(())
}

/// The images themselves. The planes are subtracted before they are resampled, and after, and divide them.
fn fill<E: Element>(
    pool: &Threads,
    load: &LoadImages,
    images: &[u8],
    draws: &[u32],
    first: usize,
    [before, after, divisor]: [&[f32]; 3],
    x: ViewMut<[E]>,
) {
    let (samples, len) = (x.layout.shape.n, load.image_len());
    let x = RowsMut::new(x);
    pool.run(samples, &|sample| {
        let draw = load.draw(draws, first + sample);
        let image = Image { load, bytes: &images[draw.image * len..][..len], before };
        for i in 0..load.height {
            let row = draw.row(i);
            for j in 0..load.width {
                let (pixel, column) = (i * load.width + j, draw.column(j));
                // SAFETY: an image belongs to one task, which lends one pixel at a time.
                let x = unsafe { x.row(sample * load.height * load.width + pixel) };
                if row.blank && column.blank {
                    x.fill(E::of(0.0));
                    continue;
                }
                let value = image.pixel(row, column);
                let at = pixel * load.channels;
                for (channel, x) in x.iter_mut().enumerate() {
                    *x = E::of((value(channel) * load.scale - after[at + channel]) / divisor[at + channel]);
                }
            }
        }
    });
}

/// The labels of the images from row `first` of the table on.
pub(crate) fn copy_labels(load: &LoadImages, labels: &[u32], draws: &[u32], first: usize, to: &mut [u32]) {
    for (k, to) in to.chunks_mut(load.label.max(1)).enumerate() {
        to.copy_from_slice(&labels[load.draw(draws, first + k).image * load.label..][..load.label]);
    }
}

/// An image of the set, and the numbers to subtract from it.
struct Image<'a> {
    load: &'a LoadImages,
    bytes: &'a [u8],
    before: &'a [f32],
}

impl Image<'_> {
    /// What a row and a column show, between pixels or beyond the edge, in each channel.
    fn pixel(&self, row: Place, column: Place) -> impl Fn(usize) -> f32 {
        let inside = row.taps().zip(column.taps()).map(|(([top, bottom], down), ([left, right], weight))| {
            let corners = [(top, left), (bottom, left), (top, right), (bottom, right)];
            (corners.map(|(row, column)| self.corner(row, column)), down, weight)
        });
        move |channel| {
            let Some((corners, down, right)) = inside else { return self.load.constant };
            let [a, b, c, d] =
                corners.map(|at| f32::from(self.bytes[at + channel]) - self.before[at + channel]);
            mix(mix(a, b, down), mix(c, d, down), right)
        }
    }

    /// Where a pixel begins.
    fn corner(&self, row: usize, column: usize) -> usize {
        (row * self.load.width + column) * self.load.channels
    }
}

fn mix(a: f32, b: f32, weight: f32) -> f32 {
    (1.0 - weight) * a + weight * b
}
