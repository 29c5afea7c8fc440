//! Copies to and from the device, fills, copies and activations.

use crate::activation;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::format::Format;
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use towers_program::{Activation, Error, Result, Shape, Span, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "elementwise.cu",
    text: include_str!("../../kernels/elementwise.cu"),
    kernels: &["fill_f32", "fill_act", "copy_f32", "copy_act", "act_bwd"],
};

/// Threads of a block.
const BLOCK: u32 = 256;
/// Packs that a thread loads at once.
const BATCH: usize = 4;

impl Cuda {
    pub(crate) fn op_upload(&self, src: &[f32], dst: &mut Buffer, offset: usize) -> Result<()> {
        Span::new(offset, src.len()).check("upload", "the target", dst.len())?;
        if src.is_empty() {
            return Ok(());
        }
        let to = dst.memory.ptr().offset(offset * dst.format.bytes());
        // SAFETY: the run lies in the buffer, as was checked, and has as many bytes in its format.
        let write = |bytes: &[u8]| unsafe { self.driver().write(bytes, to) };
        match dst.format {
            Format::F32 => write(bytes_of(src))?,
            Format::Bf16 => {
                let mut rounded = vec![bf16::ZERO; src.len()];
                rounded.convert_from_f32_slice(src);
                write(bytes_of(&rounded))?;
            }
            Format::F16 => {
                let mut rounded = vec![f16::ZERO; src.len()];
                rounded.convert_from_f32_slice(src);
                write(bytes_of(&rounded))?;
            }
        }
        self.refresh_compute_copies(dst)
    }

    pub(crate) fn op_download(&self, src: &Buffer, offset: usize, dst: &mut [f32]) -> Result<()> {
        Span::new(offset, dst.len()).check("download", "the source", src.len())?;
        if dst.is_empty() {
            return self.driver().synchronize();
        }
        let from = src.memory.ptr().offset(offset * src.format.bytes());
        // SAFETY: the run lies in the buffer, as was checked, and has as many bytes in its format.
        let read = |bytes: &mut [u8]| unsafe { self.driver().read(from, bytes) };
        match src.format {
            Format::F32 => read(bytes_of_mut(dst))?,
            Format::Bf16 => {
                let mut rounded = vec![bf16::ZERO; dst.len()];
                read(bytes_of_mut(&mut rounded))?;
                rounded.convert_to_f32_slice(dst);
            }
            Format::F16 => {
                let mut rounded = vec![f16::ZERO; dst.len()];
                read(bytes_of_mut(&mut rounded))?;
                rounded.convert_to_f32_slice(dst);
            }
        }
        Ok(())
    }

    pub(crate) fn op_fill(&self, value: f32, dst: &mut Buffer, at: Span) -> Result<()> {
        at.check("fill", "the target", dst.len())?;
        if at.len == 0 {
            return Ok(());
        }
        let size = dst.format.bytes();
        let to = dst.memory.ptr().offset(at.offset * size);
        self.capture_memory(&dst.memory);
        self.note_run(to, at.len * size);
        if value.to_bits() == 0 {
            // SAFETY: the run lies in the buffer, as was checked.
            self.work(|| unsafe { self.driver().clear(to, at.len * size) })?;
        } else {
            let kernel = if dst.format == Format::F32 { "fill_f32" } else { "fill_act" };
            let pack = 16 / size;
            let wide = at.len.is_multiple_of(pack) && to.0.is_multiple_of(16);
            let vector = if wide { pack } else { 1 };
            let packs = at.len / vector;
            let geometry = Geometry::line(self.blocks(packs.div_ceil(BATCH), BLOCK), BLOCK);
            self.launch(kernel, geometry, args![to, packs as u64, value, vector as u32])?;
        }
        self.refresh_compute_copies(dst)
    }

    pub(crate) fn op_copy(&self, factor: f32, x: View<Buffer>, y: View<Buffer>, write: Write) -> Result<()> {
        let op = "copy";
        Error::check_shape(op, "the output", y.layout.shape, x.layout.shape)?;
        if x.data.format != Format::F32 || self.format() == Format::F32 {
            self.copy_act(op, factor, Activation::None, x, y, write)?;
        } else {
            let x = self.place(op, "the input", x.data, x.layout, Format::F32, false)?;
            let to = self.place(op, "the output", y.data, y.layout, Format::F32, true)?;
            let Some(walk) = Walk::over(op, Format::F32, &[&x, &to])? else { return Ok(()) };
            let (from, beside, add) = (walk.stride(&x), walk.stride(&to), u32::from(write == Write::Add));
            let args = args![x.ptr, from, to.ptr, beside, walk.rows, walk.packs, factor, add, walk.vector];
            self.launch("copy_f32", walk.geometry(self), args)?;
        }
        self.refresh_compute_copies(y.data)
    }

    /// Adds `len` f32 at `from` to as many at `to`.
    pub(crate) fn add_run(&self, op: &'static str, from: Ptr, to: Ptr, len: usize) -> Result<()> {
        let run = |ptr| Place { ptr, shape: Shape::vectors(1, len), stride: len };
        let (x, y) = (run(from), run(to));
        let Some(walk) = Walk::over(op, Format::F32, &[&x, &y])? else { return Ok(()) };
        let args =
            args![from, walk.vector, to, walk.vector, walk.rows, walk.packs, 1.0_f32, 1_u32, walk.vector];
        self.launch("copy_f32", walk.geometry(self), args)
    }

    pub(crate) fn op_act_fwd(&self, act: Activation, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
        self.copy_act("act_fwd", 1.0, act, x, y, Write::Set)
    }

    pub(crate) fn op_add_act(&self, act: Activation, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
        self.copy_act("add_act", 1.0, act, x, y, Write::Add)
    }

    /// `y = act(factor * x)` or `y = act(y + factor * x)`, for tensors of one shape.
    fn copy_act(
        &self,
        op: &'static str,
        factor: f32,
        act: Activation,
        x: View<Buffer>,
        y: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let Some(walk) = Walk::over(op, self.format(), &[&x, &y])? else { return Ok(()) };
        let (from, to) = (walk.stride(&x), walk.stride(&y));
        let (act, add) = (activation::packed(act), u32::from(write == Write::Add));
        let args = args![x.ptr, from, y.ptr, to, walk.rows, walk.packs, factor, act, add, walk.vector];
        self.launch("copy_act", walk.geometry(self), args)
    }

    pub(crate) fn op_act_bwd(
        &self,
        act: Activation,
        y: View<Buffer>,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "act_bwd";
        let (y, dy, dx) = (self.read(op, "y", y)?, self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        self.gradient(op, act, [&y, &dy, &dx], write)
    }

    pub(crate) fn op_act_bwd_in_place(
        &self,
        act: Activation,
        y: View<Buffer>,
        dy: View<Buffer>,
    ) -> Result<()> {
        let op = "act_bwd_in_place";
        let (y, dy) = (self.read(op, "y", y)?, self.write(op, "dy", dy)?);
        match act {
            Activation::None => Ok(()),
            _ => self.gradient(op, act, [&y, &dy, &dy], Write::Set),
        }
    }

    fn gradient(
        &self,
        op: &'static str,
        act: Activation,
        [y, dy, dx]: [&Place; 3],
        write: Write,
    ) -> Result<()> {
        let Some(walk) = Walk::over(op, self.format(), &[y, dy, dx])? else { return Ok(()) };
        let strides = [y, dy, dx].map(|place| walk.stride(place));
        let (act, add) = (activation::packed(act), u32::from(write == Write::Add));
        let args = args![
            y.ptr,
            strides[0],
            dy.ptr,
            strides[1],
            dx.ptr,
            strides[2],
            walk.rows,
            walk.packs,
            act,
            add,
            walk.vector
        ];
        self.launch("act_bwd", walk.geometry(self), args)
    }
}

/// How a kernel walks tensors of one shape: in rows of packs. If no tensor has gaps the rows are single
/// packs, so the channels need not fill packs.
struct Walk {
    rows: u64,
    packs: u32,
    /// Elements of a pack.
    vector: u32,
    flat: bool,
}

impl Walk {
    /// `None` if the tensors are empty.
    fn over(op: &'static str, format: Format, places: &[&Place]) -> Result<Option<Walk>> {
        let Some(shape) = places.first().map(|place| place.shape).filter(|shape| !shape.is_empty()) else {
            return Ok(None);
        };
        let pack = 16 / format.bytes();
        let flat = places.iter().all(|place| place.is_contiguous());
        let run = if flat { shape.len() } else { shape.c };
        let wide = run.is_multiple_of(pack)
            && places.iter().all(|place| place.ptr.0.is_multiple_of(16))
            && (flat || places.iter().all(|place| place.stride.is_multiple_of(pack)));
        let vector = if wide { pack } else { 1 };
        let (rows, packs) = if flat { (run / vector, 1) } else { (shape.rows(), shape.c / vector) };
        let packs = u32_of(op, "the number of channels", packs)?;
        Ok(Some(Walk { rows: rows as u64, packs, vector: vector as u32, flat }))
    }

    /// Elements from a row of this tensor to the next.
    fn stride(&self, place: &Place) -> u32 {
        // A place's stride fits, as was checked when it was made.
        if self.flat { self.vector } else { place.stride as u32 }
    }

    fn geometry(&self, cuda: &Cuda) -> Geometry {
        let packs = self.rows as usize * self.packs as usize;
        Geometry::line(cuda.blocks(packs.div_ceil(BATCH), BLOCK), BLOCK)
    }
}

/// Numbers without padding inside or between them, for which every bit pattern is valid.
trait Number: Copy {}

impl Number for f32 {}
impl Number for bf16 {}
impl Number for f16 {}

/// The bytes of the numbers, which on a little-endian host are as on the device.
fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: the same bytes, all of them initialized, for as long.
    unsafe { core::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The same, to write.
fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: the same bytes, borrowed exclusively; any bytes are valid numbers.
    unsafe { core::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}
