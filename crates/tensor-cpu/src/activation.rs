use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::pointwise::{Act, with_act};
use crate::rows::{Blocks, Rows, RowsMut, all_contiguous};
use core::cell::Cell;
use core::ops::Range;
use towers_program::{Activation, View, ViewMut, Write};

pub(crate) fn forward<E: Element>(cpu: &Cpu, act: Activation, x: View<[E]>, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    with_act!(cpu, act, |act| cpu.pool().run(blocks.count(), &|block| map(
        cpu.simd(),
        x,
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn map<A: Act, E: Element>(x: Rows<E>, y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            let x = &x.row(row)[..y.len()];
            act.map(y.len(), |k| x[k].get(), |k, number| y[k] = E::of(number));
        }
    }
}

/// In place, for an op that can't do it to each number as it stores it.
pub(crate) fn forward_in_place<E: Element>(cpu: &Cpu, act: Activation, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[y.layout]);
    let (blocks, y) = (Blocks::for_map(Rows::elements(y.as_view(), flat)), RowsMut::elements(y, flat));
    with_act!(cpu, act, |act| cpu.pool().run(blocks.count(), &|block| map_in_place(
        cpu.simd(),
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn map_in_place<A: Act, E: Element>(y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = Cell::from_mut(unsafe { y.row(row) }).as_slice_of_cells();
            act.map(y.len(), |k| y[k].get().get(), |k, number| y[k].set(E::of(number)));
        }
    }
}

pub(crate) fn add_forward<E: Element>(cpu: &Cpu, act: Activation, x: View<[E]>, y: ViewMut<[E]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    with_act!(cpu, act, |act| cpu.pool().run(blocks.count(), &|block| add_map(
        cpu.simd(),
        x,
        y,
        act,
        blocks.range(block)
    )));
}

multiversion! {
    fn add_map<A: Act, E: Element>(x: Rows<E>, y: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = Cell::from_mut(unsafe { y.row(row) }).as_slice_of_cells();
            let x = &x.row(row)[..y.len()];
            act.map(y.len(), |k| y[k].get().get() + x[k].get(), |k, number| y[k].set(E::of(number)));
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
    with_act!(cpu, act, |act| {
        cpu.pool()
            .run(blocks.count(), &|block| gradients(cpu.simd(), of, dy, dx, act, mode, blocks.range(block)));
    });
}

multiversion! {
    fn gradients<A: Act, E: Element>(of: Rows<E>, dy: Rows<E>, dx: RowsMut<E>, act: A, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dx = unsafe { dx.row(row) };
            let (of, dy) = (&of.row(row)[..dx.len()], &dy.row(row)[..dx.len()]);
            let (of, dy) = (|k: usize| of[k].get(), |k: usize| dy[k].get());
            match mode {
                Write::Set => act.slopes(dx.len(), of, dy, |k, gradient| dx[k] = E::of(gradient)),
                Write::Add => act.slopes(dx.len(), of, dy, |k, gradient| dx[k].add(gradient)),
            }
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
    with_act!(cpu, act, |act| {
        cpu.pool()
            .run(blocks.count(), &|block| gradients_in_place(cpu.simd(), of, dy, act, blocks.range(block)));
    });
}

multiversion! {
    fn gradients_in_place<A: Act, E: Element>(of: Rows<E>, dy: RowsMut<E>, act: A, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dy = Cell::from_mut(unsafe { dy.row(row) }).as_slice_of_cells();
            let of = &of.row(row)[..dy.len()];
            act.slopes(dy.len(), |k| of[k].get(), |k| dy[k].get().get(), |k, gradient| dy[k].set(E::of(gradient)));
        }
    }
}
