//! Batches of images out of a set on the device.

use crate::Cuda;
use crate::buffer::{self, Buffer};
use crate::driver::{Geometry, args, u32_of};
use crate::source::Source;
use towers_program::{ImageSet, Ints, LoadImages, Result, Span, ViewMut};

pub(crate) const SOURCE: Source =
    Source { name: "images.cu", text: include_str!("../../kernels/images.cu"), kernels: &["load_images"] };

/// Threads of a block, each with a pixel of the same image.
const PIXELS: u32 = 256;

impl Cuda {
    pub(crate) fn op_load_images(
        &self,
        load: &LoadImages,
        set: ImageSet,
        draws: &Ints,
        first: usize,
        x: ViewMut,
        to: &mut Ints,
    ) -> Result<()> {
        let (op, shape, to_len) = ("load_images", x.layout.shape, to.len());
        let (images, labels) = (set.images.on::<buffer::Bytes>(op)?, set.labels.on::<buffer::Ints>(op)?);
        let (draws, to) = (draws.on::<buffer::Ints>(op)?, to.on_mut::<buffer::Ints>(op)?);
        let (planes, x) = (set.planes.on::<Buffer>(op)?, x.on(op)?);
        let count = load.check_set(op, images.len(), labels.len(), planes.len())?;
        load.check_batch(op, draws.len(), first, shape, to_len)?;
        let planes = self.run(op, "the means and divisors", planes, Span::new(0, 3 * load.image_len()))?;
        let x = self.write(op, "the batch", x.as_view())?;
        let size = |what, value| u32_of(op, what, value);
        let count = size("the number of images", count)?;
        let label = size("the integers of a label", load.label)?;
        let rows = size("the rows of the table of draws", draws.len() / load.words())?;
        if shape.n == 0 {
            return Ok(());
        }
        self.set_first(size("the first place", first)?)?;
        // The sizes of an image were checked to be small.
        let [h, w, c] = [shape.h, shape.w, shape.c].map(|size| size as u32);
        let blocks = size("the number of blocks", shape.n.saturating_mul((h * w).div_ceil(PIXELS) as usize))?;
        for memory in [&images.memory, &draws.memory, &labels.memory, &to.memory] {
            self.capture_memory(memory);
        }
        let (images, draws, labels, to) =
            (images.memory.ptr(), draws.memory.ptr(), labels.memory.ptr(), to.memory.ptr());
        self.note_run(to, to_len * size_of::<u32>());
        self.launch(
            "load_images",
            Geometry::line(blocks, PIXELS),
            args![
                self.step_state(),
                images,
                labels,
                label,
                draws,
                count,
                rows,
                planes,
                h,
                w,
                c,
                load.constant,
                load.scale,
                x.ptr,
                x.stride as u32,
                to,
            ],
        )
    }
}
