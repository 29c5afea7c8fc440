//! Operands as addresses, after their places were checked to lie inside their buffers.

use crate::Cuda;
use crate::buffer::{Buffer, Ints};
use crate::dependencies::Region;
use crate::driver::{Ptr, u32_of};
use crate::format::Format;
use crate::place::Place;
use towers_program::{Error, Layout, Result, Shape, Span, View};

/// A run of f32 in an arena. Kernels write through its pointer, so a `&` is enough.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// The arena.
    pub(crate) data: &'a Buffer,
    /// The place in it.
    pub(crate) at: Span,
}

impl<'a> Run<'a> {
    pub(crate) fn new(data: &'a Buffer, at: Span) -> Self {
        Run { data, at }
    }

    /// Some of its numbers.
    pub(crate) fn part(self, from: usize, len: usize) -> Self {
        Run { at: Span::new(self.at.offset + from, len), ..self }
    }

    /// The run as a tensor.
    pub(crate) fn vector(self) -> View<'a, Buffer> {
        let layout = Layout::contiguous(Shape::vectors(1, self.at.len));
        View::new(self.data, Layout { offset: self.at.offset, ..layout })
    }
}

impl Cuda {
    /// The tensor of activations, to read.
    pub(crate) fn read(&self, op: &'static str, what: &'static str, x: View<Buffer>) -> Result<Place> {
        self.place(op, what, x.data, x.layout, self.format(), false)
    }

    /// The tensor of activations, to write. Kernels write through its pointer, so a `View` is enough: in a
    /// program, ops read the same buffer at other places.
    pub(crate) fn write(&self, op: &'static str, what: &'static str, y: View<Buffer>) -> Result<Place> {
        self.place(op, what, y.data, y.layout, self.format(), true)
    }

    /// The tensor of numbers in a format, to read or to write.
    pub(crate) fn place(
        &self,
        op: &'static str,
        what: &'static str,
        data: &Buffer,
        layout: Layout,
        format: Format,
        writes: bool,
    ) -> Result<Place> {
        layout.check(op, what, data.len())?;
        self.check_format(op, what, data, format)?;
        for (size, name) in [(layout.shape.rows(), "the number of pixels"), (layout.stride, "the stride")] {
            u32_of(op, name, size)?;
        }
        self.capture_memory(&data.memory);
        let ptr = data.memory.ptr().offset(layout.offset * data.format.bytes());
        let place = Place { ptr, shape: layout.shape, stride: layout.stride };
        self.note_operand(Region::tensor(&place, data.format.bytes()), writes);
        Ok(place)
    }

    /// A run of f32 in an arena. Unless a program declares it, it counts as written.
    pub(crate) fn run(&self, op: &'static str, what: &'static str, data: &Buffer, at: Span) -> Result<Ptr> {
        at.check(op, what, data.len())?;
        self.check_format(op, what, data, Format::F32)?;
        self.capture_memory(&data.memory);
        let ptr = data.memory.ptr().offset(at.offset * Format::F32.bytes());
        self.note_operand(Region::run(ptr, at.len * Format::F32.bytes()), true);
        Ok(ptr)
    }

    /// A run of f32 that a step names.
    pub(crate) fn operand(&self, op: &'static str, what: &'static str, run: Run) -> Result<Ptr> {
        self.run(op, what, run.data, run.at)
    }

    /// The first `len` integers, which count as written too.
    pub(crate) fn ints(&self, op: &'static str, what: &'static str, data: &Ints, len: usize) -> Result<Ptr> {
        Span::new(0, len).check(op, what, data.len())?;
        self.capture_memory(&data.memory);
        self.note_operand(Region::run(data.memory.ptr(), len * size_of::<u32>()), true);
        Ok(data.memory.ptr())
    }

    fn check_format(
        &self,
        op: &'static str,
        what: &'static str,
        data: &Buffer,
        wanted: Format,
    ) -> Result<()> {
        if data.format == wanted {
            return Ok(());
        }
        let message = format!("{op}: {what} is {:?} where {wanted:?} is needed", data.format);
        Err(Error::Device { device: self.name_of(), message })
    }

    /// Elements that a kernel may handle at once: those of 16 bytes, or 1, as [`neighbours`](Cuda::neighbours).
    pub(crate) fn vector(&self, places: &[&Place]) -> u32 {
        self.neighbours(16 / self.format().bytes(), places)
    }

    /// `wide` elements at once, if every tensor's pixels start and end on a multiple of their bytes; else 1.
    pub(crate) fn neighbours(&self, wide: usize, places: &[&Place]) -> u32 {
        let bytes = (wide * self.format().bytes()) as u64;
        let fits = |p: &&Place| {
            p.shape.c.is_multiple_of(wide) && p.stride.is_multiple_of(wide) && p.ptr.0.is_multiple_of(bytes)
        };
        if places.iter().all(fits) { wide as u32 } else { 1 }
    }
}
