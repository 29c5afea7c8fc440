//! Zeros around images, and images without their borders.

use crate::Cpu;
use crate::element::Element;
use crate::rows::{Rows, RowsMut};
use core::ops::Range;
use towers_program::ops::ZeroPad;
use towers_program::{View, ViewMut, Write};

/// A task takes a row of an image of the output.
pub(crate) fn run<E: Element>(cpu: &Cpu, pad: &ZeroPad, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    let (from, to) = (x.layout.shape, y.layout.shape);
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    if to.c == 0 {
        return;
    }
    let columns = inside(pad.left, from.w, to.w);
    cpu.pool().run(to.n * to.h, &|line| {
        let (sample, i) = (line / to.h, line % to.h);
        let row = usize::try_from(i as i64 - pad.top).ok().filter(|&row| row < from.h);
        for j in 0..to.w {
            // SAFETY: each task has separate pixels.
            let y = unsafe { y.row(line * to.w + j) };
            match row.filter(|_| columns.contains(&j)) {
                Some(row) => {
                    let column = (j as i64 - pad.left) as usize;
                    copy(x.row((sample * from.h + row) * from.w + column), y, mode);
                }
                None if mode == Write::Set => y.fill(E::of(0.0)),
                None => {}
            }
        }
    });
}

/// The places of an axis of the output that have one in the input, which begins `before` later.
fn inside(before: i64, from: usize, to: usize) -> Range<usize> {
    let end = (from as i64 + before).clamp(0, to as i64);
    before.clamp(0, end) as usize..end as usize
}

fn copy<E: Element>(x: &[E], y: &mut [E], mode: Write) {
    match mode {
        Write::Set => y.copy_from_slice(x),
        Write::Add => y.iter_mut().zip(x).for_each(|(y, x)| y.add(x.get())),
    }
}
