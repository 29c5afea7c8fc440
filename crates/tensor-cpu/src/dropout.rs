use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::rows::{Rows, RowsMut};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{DropoutMask, Layout, Noise, View, ViewMut, Write};

/// Elements whose random words are drawn together: a multiple of 4, as Philox gives four words a call.
const BATCH: usize = 256;

/// Elements a task.
const BLOCK: usize = 16 * BATCH;

pub(crate) fn apply<E: Element>(cpu: &Cpu, mask: &DropoutMask, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    if mask.noise != Noise::Element {
        return apply_together(cpu, mask, x, y, mode);
    }
    let per_sample = x.layout.shape.per_sample();
    let (from, to) = (pixels(x.layout), pixels(y.layout));
    let end = y.layout.end();
    let y = Shards::new(&mut y.data[..end]);
    let blocks = per_sample.div_ceil(BLOCK);
    cpu.pool().run(x.layout.shape.n * blocks, &|task| {
        let (sample, start) = (task / blocks, task % blocks * BLOCK);
        let elements = start..(start + BLOCK).min(per_sample);
        drop_elements(cpu.simd(), mask, sample, elements, x.data, from, y, to, mode);
    });
}

/// The same of channels or of samples.
fn apply_together<E: Element>(cpu: &Cpu, mask: &DropoutMask, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    let shape = x.layout.shape;
    let (pixels, most) = (shape.h * shape.w, (4 * BLOCK / shape.c.max(1)).max(1));
    let (x, y, blocks) = (Rows::new(x), RowsMut::new(y), pixels.div_ceil(most));
    cpu.pool().run(shape.n * blocks, &|task| {
        let (sample, start) = (task / blocks, task % blocks * most);
        let end = (start + most).min(pixels);
        drop_together(cpu.simd(), mask, sample, sample * pixels + start..sample * pixels + end, x, y, mode);
    });
}

multiversion! {
    /// `rows` of a sample.
    fn drop_together<E: Element>(
        mask: &DropoutMask,
        sample: usize,
        rows: Range<usize>,
        x: Rows<E>,
        y: RowsMut<E>,
        mode: Write,
    ) {
        let (threshold, scale) = (mask.threshold(), mask.scale());
        for start in (0..x.width()).step_by(BATCH) {
            let mut words = [[mask.words(sample as u32, 0)[0]; 4]; BATCH / 4];
            if mask.noise == Noise::Channel {
                for (k, words) in words.iter_mut().enumerate() {
                    *words = mask.words(sample as u32, (start / 4 + k) as u32);
                }
            }
            let words = words.as_flattened();
            let len = BATCH.min(x.width() - start);
            for row in rows.clone() {
                // SAFETY: each task has separate rows.
                let y = &mut unsafe { y.row(row) }[start..start + len];
                let (x, words) = (&x.row(row)[start..start + len], &words[..len]);
                let kept = |x: E, word: u32| if word < threshold { 0.0 } else { x.get() * scale };
                match mode {
                    Write::Set => (0..len).for_each(|k| y[k] = E::of(kept(x[k], words[k]))),
                    Write::Add => (0..len).for_each(|k| y[k].add(kept(x[k], words[k]))),
                }
            }
        }
    }
}

/// The tensor with as few pixels as can be: each run of a pixel's channels lies back to back.
fn pixels(layout: Layout) -> Layout {
    if layout.is_contiguous() { layout.flatten() } else { layout }
}

multiversion! {
    /// `elements` count within the sample. Its tensor is `from` in `x` and `to` in `y`.
    fn drop_elements<E: Element>(
        mask: &DropoutMask,
        sample: usize,
        elements: Range<usize>,
        x: &[E],
        from: Layout,
        y: Shards<E>,
        to: Layout,
        mode: Write,
    ) {
        let (threshold, scale) = (mask.threshold(), mask.scale());
        for start in elements.clone().step_by(BATCH) {
            let mut words = [[0; 4]; BATCH / 4];
            for (k, words) in words.iter_mut().enumerate() {
                *words = mask.words(sample as u32, (start / 4 + k) as u32);
            }
            let words = words.as_flattened();
            let end = (start + BATCH).min(elements.end);
            let mut at = start;
            while at < end {
                let len = run(from, at).min(run(to, at)).min(end - at);
                // SAFETY: each task has separate elements, and lends one run at a time.
                let y = unsafe { y.part(place(to, sample, at)..place(to, sample, at) + len) };
                let x = &x[place(from, sample, at)..][..len];
                let kept = |x: E, word: u32| if word < threshold { 0.0 } else { x.get() * scale };
                let words = &words[at - start..][..len];
                match mode {
                    Write::Set => (0..len).for_each(|k| y[k] = E::of(kept(x[k], words[k]))),
                    Write::Add => (0..len).for_each(|k| y[k].add(kept(x[k], words[k]))),
                }
                at += len;
            }
        }
    }
}

/// How many elements follow `element` of a sample back to back, with itself.
#[inline(always)]
fn run(layout: Layout, element: usize) -> usize {
    layout.shape.c - element % layout.shape.c
}

/// Where `element` of `sample` lies.
#[inline(always)]
fn place(layout: Layout, sample: usize, element: usize) -> usize {
    let pixel = sample * layout.shape.h * layout.shape.w + element / layout.shape.c;
    layout.offset + pixel * layout.stride + element % layout.shape.c
}
