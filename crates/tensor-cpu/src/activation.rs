use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::pointwise::{Pointwise, pointwise};
use crate::rows::{Blocks, Rows, RowsMut, all_contiguous};
use core::ops::Range;
use program::{Activation, View, ViewMut, Write};

pub(crate) fn forward<E: Element>(cpu: &Cpu, act: Activation, x: View<[E]>, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    pointwise!(act, |act| cpu.pool().run(blocks.count(), &|block| map(
        cpu.simd(),
        x,
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn map<A: Pointwise, E: Element>(x: Rows<E>, y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = E::of(act.forward(x.get())));
        }
    }
}

/// In place, for an op that can't do it to each number as it stores it.
pub(crate) fn forward_in_place<E: Element>(cpu: &Cpu, act: Activation, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[y.layout]);
    let (blocks, y) = (Blocks::for_map(Rows::elements(y.as_view(), flat)), RowsMut::elements(y, flat));
    pointwise!(act, |act| cpu.pool().run(blocks.count(), &|block| map_in_place(
        cpu.simd(),
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn map_in_place<A: Pointwise, E: Element>(y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            unsafe { y.row(row) }.iter_mut().for_each(|y| *y = E::of(act.forward(y.get())));
        }
    }
}

pub(crate) fn add_forward<E: Element>(cpu: &Cpu, act: Activation, x: View<[E]>, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    pointwise!(act, |act| cpu.pool().run(blocks.count(), &|block| add_map(
        cpu.simd(),
        x,
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn add_map<A: Pointwise, E: Element>(x: Rows<E>, y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = E::of(act.forward(y.get() + x.get())));
        }
    }
}

pub(crate) fn backward<E: Element>(
    cpu: &Cpu,
    act: Activation,
    of: View<[E]>,
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let flat = all_contiguous(&[of.layout, dy.layout, dx.layout]);
    let (of, dy, dx) = (Rows::elements(of, flat), Rows::elements(dy, flat), RowsMut::elements(dx, flat));
    let blocks = Blocks::for_map(of);
    pointwise!(act, |act| {
        cpu.pool()
            .run(blocks.count(), &|block| gradients(cpu.simd(), of, dy, dx, act, mode, blocks.range(block)));
    });
}

multiversion! {
    fn gradients<A: Pointwise, E: Element>(of: Rows<E>, dy: Rows<E>, dx: RowsMut<E>, act: A, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dx = unsafe { dx.row(row) };
            let gradient = of.row(row).iter().zip(dy.row(row)).map(|(&of, &dy)| act.gradient(of.get(), dy.get()));
            put(dx, gradient, mode);
        }
    }
}

pub(crate) fn backward_in_place<E: Element>(cpu: &Cpu, act: Activation, of: View<[E]>, dy: ViewMut<[E]>) {
    if act == Activation::None {
        return;
    }
    let flat = all_contiguous(&[of.layout, dy.layout]);
    let (of, dy) = (Rows::elements(of, flat), RowsMut::elements(dy, flat));
    let blocks = Blocks::for_map(of);
    pointwise!(act, |act| {
        cpu.pool()
            .run(blocks.count(), &|block| gradients_in_place(cpu.simd(), of, dy, act, blocks.range(block)));
    });
}

multiversion! {
    fn gradients_in_place<A: Pointwise, E: Element>(of: Rows<E>, dy: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dy = unsafe { dy.row(row) };
            dy.iter_mut().zip(of.row(row)).for_each(|(dy, &of)| *dy = E::of(act.gradient(of.get(), dy.get())));
        }
    }
}
