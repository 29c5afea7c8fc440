use crate::Buffer;
use crate::element::{Element, typed};
use crate::operand::{run, write};
use crate::rows::RowsMut;
use crate::threads::Threads;
use program::{ImageDraw, ImageSet, LoadImages, Result, Span, Tap, ViewMut};

/// A batch out of a set of images, an image a task.
pub(crate) fn load(
    pool: &Threads,
    load: &LoadImages,
    set: ImageSet<Vec<u8>, Vec<u32>, Buffer>,
    draws: &[u32],
    first: usize,
    x: ViewMut<Buffer>,
    to: &mut [u32],
) -> Result<()> {
    let (op, shape, len) = ("load_images", x.layout.shape, load.image_len());
    let ImageSet { images, labels, means } = set;
    load.check_set(op, images.len(), labels.len(), means.len())?;
    load.check_batch(op, draws.len(), first, shape, to.len())?;
    ImageDraw::check(op, draws, first, shape.n, labels.len())?;
    let means = run(op, "the means", means, Span::new(0, 2 * len))?.split_at(len);
    typed!(x.data, |E| {
        let x = write::<E>(op, "the batch", x)?;
        fill(pool, load, images, draws, first, means, x);
    });
    copy_labels(labels, draws, first, &mut to[..shape.n]);
    Ok(())
}

/// The images themselves; what is subtracted before they are resampled, and after.
fn fill<E: Element>(
    pool: &Threads,
    load: &LoadImages,
    images: &[u8],
    draws: &[u32],
    first: usize,
    (before, after): (&[f32], &[f32]),
    x: ViewMut<[E]>,
) {
    let (samples, len) = (x.layout.shape.n, load.image_len());
    let x = RowsMut::new(x);
    pool.run(samples, &|sample| {
        let draw = ImageDraw::at(draws, first + sample);
        let image = Image { load, bytes: &images[draw.image as usize * len..][..len], before };
        for row in 0..load.height {
            let tap = draw.rows.tap(row, load.height, load.fill);
            let blanked = draw.rows.blank.contains(&(row as u32));
            for column in 0..load.width {
                let pixel = row * load.width + column;
                // SAFETY: an image belongs to one task, which lends one pixel at a time.
                let x = unsafe { x.row(sample * load.height * load.width + pixel) };
                if blanked && draw.columns.blank.contains(&(column as u32)) {
                    x.fill(E::of(0.0));
                    continue;
                }
                let value = image.pixel(tap, draw.columns.tap(column, load.width, load.fill));
                let after = &after[pixel * load.channels..];
                for (channel, (x, after)) in x.iter_mut().zip(after).enumerate() {
                    *x = E::of(value(channel) * load.scale - after);
                }
            }
        }
    });
}

/// The labels of the images from row `first` of the table on.
pub(crate) fn copy_labels(labels: &[u32], draws: &[u32], first: usize, to: &mut [u32]) {
    for (k, to) in to.iter_mut().enumerate() {
        *to = labels[ImageDraw::at(draws, first + k).image as usize];
    }
}

/// An image of the set, and what is subtracted from it.
struct Image<'a> {
    load: &'a LoadImages,
    bytes: &'a [u8],
    before: &'a [f32],
}

impl Image<'_> {
    /// What lies at a position, between pixels or outside, in each channel.
    fn pixel(&self, row: Option<Tap>, column: Option<Tap>) -> impl Fn(usize) -> f32 {
        let inside = row.zip(column).map(|(row, column)| {
            let corners = [
                self.corner(row.low, column.low),
                self.corner(row.high, column.low),
                self.corner(row.low, column.high),
                self.corner(row.high, column.high),
            ];
            (corners, row.weight, column.weight)
        });
        move |channel| {
            let Some((corners, down, right)) = inside else { return self.load.fill.constant() };
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
