//! Products and sums of two tensors, one of which may have a number for each channel or pixel.
//!
//! Memory is the floor: a number is read once and written once.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::rows::{Blocks, Rows, RowsMut, all_contiguous};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::ops::{How, Spread};
use towers_program::{Layout, View, ViewMut, Write};

/// Rows that f32 adds up without harm.
const CHUNK: usize = 512;
/// Sums beside each other in a row.
const LANES: usize = 16;

/// How numbers of two tensors become one.
trait Pair: Copy + Send + Sync {
    fn of(self, x: f32, z: f32) -> f32;
}

#[derive(Clone, Copy)]
struct Product;

#[derive(Clone, Copy)]
struct Sum;

impl Pair for Product {
    #[inline(always)]
    fn of(self, x: f32, z: f32) -> f32 {
        x * z
    }
}

impl Pair for Sum {
    #[inline(always)]
    fn of(self, x: f32, z: f32) -> f32 {
        x + z
    }
}

/// `y = x * z` or `y = x + z`. Without x it is in y already.
pub(crate) fn forward<E: Element>(
    cpu: &Cpu,
    (how, spread): (How, Spread),
    x: Option<View<[E]>>,
    z: View<[E]>,
    y: ViewMut<[E]>,
    mode: Write,
) {
    match how {
        How::Product => merge(cpu, Product, spread, x, z, y, mode),
        How::Sum => merge(cpu, Sum, spread, x, z, y, mode),
    }
}

fn merge<P: Pair, E: Element>(
    cpu: &Cpu,
    pair: P,
    spread: Spread,
    x: Option<View<[E]>>,
    z: View<[E]>,
    y: ViewMut<[E]>,
    mode: Write,
) {
    let layouts = [x.as_ref().map_or(y.layout, |x| x.layout), z.layout, y.layout];
    let flat = spread == Spread::None && all_contiguous(&layouts);
    let (pixels, blocks) =
        (y.layout.shape.h * y.layout.shape.w, Blocks::for_map(Rows::elements(y.as_view(), flat)));
    let z = Spreading { z: Rows::elements(z, flat), spread, pixels };
    let (x, y) = (x.map(|x| Rows::elements(x, flat)), RowsMut::elements(y, flat));
    cpu.pool().run(blocks.count(), &|block| match x {
        Some(x) => merge_rows(cpu.simd(), pair, x, z, y, mode, blocks.range(block)),
        None => merge_rows_in_place(cpu.simd(), pair, z, y, blocks.range(block)),
    });
}

/// The other tensor.
#[derive(Clone, Copy)]
struct Spreading<'a, E> {
    z: Rows<'a, E>,
    spread: Spread,
    pixels: usize,
}

impl<'a, E: Element> Spreading<'a, E> {
    /// The numbers that meet those of a row, or the only one.
    #[inline(always)]
    fn row(self, row: usize) -> Result<&'a [E], f32> {
        match self.spread {
            Spread::None => Ok(self.z.row(row)),
            Spread::Pixels => Ok(self.z.row(row / self.pixels)),
            Spread::Channels => Err(self.z.row(row)[0].get()),
        }
    }
}

multiversion! {
    fn merge_rows<P: Pair, E: Element>(pair: P, x: Rows<E>, z: Spreading<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            match z.row(row) {
                Ok(z) => put(y, x.row(row).iter().zip(z).map(|(x, z)| pair.of(x.get(), z.get())), mode),
                Err(z) => put(y, x.row(row).iter().map(|x| pair.of(x.get(), z)), mode),
            }
        }
    }
}

multiversion! {
    fn merge_rows_in_place<P: Pair, E: Element>(pair: P, z: Spreading<E>, y: RowsMut<E>, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            match z.row(row) {
                Ok(z) => y.iter_mut().zip(z).for_each(|(y, z)| *y = E::of(pair.of(y.get(), z.get()))),
                Err(z) => y.iter_mut().for_each(|y| *y = E::of(pair.of(y.get(), z))),
            }
        }
    }
}

/// Elements of scratch memory of [`gradient`].
pub(crate) fn gradient_len(spread: Spread, dy: Layout) -> usize {
    if spread == Spread::Pixels { 2 * dy.shape.n * dy.shape.c } else { 0 }
}

/// The sums of dy, or of `dy * x`, over what each number of the other tensor met.
pub(crate) fn gradient<E: Element>(
    cpu: &Cpu,
    spread: Spread,
    dy: View<[E]>,
    x: Option<View<[E]>>,
    dz: ViewMut<[E]>,
    mode: Write,
) {
    let (shape, pixels) = (dy.layout.shape, dy.layout.shape.h * dy.layout.shape.w);
    let len = gradient_len(spread, dy.layout);
    let (dy, x, dz) = (Rows::new(dy), x.map(Rows::new), RowsMut::new(dz));
    match spread {
        Spread::None => {
            let blocks = Blocks::for_map(dy);
            let run = |block| products(cpu.simd(), dy, x, dz, mode, blocks.range(block));
            cpu.pool().run(blocks.count(), &run);
        }
        Spread::Channels => {
            let blocks = Blocks::for_map(dy);
            let run = |block| row_sums(cpu.simd(), dy, x, dz, mode, blocks.range(block));
            cpu.pool().run(blocks.count(), &run);
        }
        Spread::Pixels => {
            let (mut scratch, pitch) = (cpu.scratch(len), 2 * shape.c);
            let shards = Shards::new(&mut scratch[..len]);
            cpu.pool().run(shape.n, &|sample| {
                // SAFETY: each task has a separate part.
                let own = unsafe { shards.part(sample * pitch..(sample + 1) * pitch) };
                let (sums, part) = own.split_at_mut(shape.c);
                sums.fill(0.0);
                let end = (sample + 1) * pixels;
                for start in (sample * pixels..end).step_by(CHUNK) {
                    column_sums(cpu.simd(), dy, x, part, start..(start + CHUNK).min(end));
                    sums.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part);
                }
                // SAFETY: each task has a separate row.
                put(unsafe { dz.row(sample) }, sums.iter().copied(), mode);
            });
        }
    }
}

multiversion! {
    fn products<E: Element>(dy: Rows<E>, x: Option<Rows<E>>, dz: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dz = unsafe { dz.row(row) };
            match x {
                Some(x) => put(dz, dy.row(row).iter().zip(x.row(row)).map(|(dy, x)| dy.get() * x.get()), mode),
                None => put(dz, dy.row(row).iter().map(|dy| dy.get()), mode),
            }
        }
    }
}

multiversion! {
    fn column_sums<E: Element>(dy: Rows<E>, x: Option<Rows<E>>, sums: &mut [f32], rows: Range<usize>) {
        sums.fill(0.0);
        for row in rows {
            let all = sums.iter_mut().zip(dy.row(row));
            match x {
                Some(x) => all.zip(x.row(row)).for_each(|((sum, dy), x)| *sum += dy.get() * x.get()),
                None => all.for_each(|(sum, dy)| *sum += dy.get()),
            }
        }
    }
}

multiversion! {
    fn row_sums<E: Element>(dy: Rows<E>, x: Option<Rows<E>>, dz: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            let mut lanes = [0.0_f32; LANES];
            let dy = dy.row(row);
            match x.map(|x| x.row(row)) {
                Some(x) => {
                    let (dy, dy_rest) = dy.as_chunks::<LANES>();
                    let (x, x_rest) = x.as_chunks::<LANES>();
                    for (dy, x) in dy.iter().zip(x) {
                        (0..LANES).for_each(|k| lanes[k] += dy[k].get() * x[k].get());
                    }
                    lanes.iter_mut().zip(dy_rest.iter().zip(x_rest)).for_each(|(lane, (dy, x))| *lane += dy.get() * x.get());
                }
                None => {
                    let (dy, dy_rest) = dy.as_chunks::<LANES>();
                    for dy in dy {
                        (0..LANES).for_each(|k| lanes[k] += dy[k].get());
                    }
                    lanes.iter_mut().zip(dy_rest).for_each(|(lane, dy)| *lane += dy.get());
                }
            }
            // SAFETY: each task has separate rows.
            put(unsafe { dz.row(row) }, core::iter::once(lanes.iter().sum()), mode);
        }
    }
}
