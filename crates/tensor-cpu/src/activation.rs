use crate::Cpu;
use crate::dispatch::multiversion;
use crate::rows::{Blocks, Rows, RowsMut, all_contiguous};
use core::ops::Range;
use tensor_backend::{Activation, View, ViewMut, Write};

/// The number below which an activation cuts off: NaN, which nothing lies below, for none.
///
/// So an activation is a comparison without branches, `if x < floor { floor } else { x }`, and a NaN stays NaN.
pub(crate) fn floor(act: Activation) -> f32 {
    match act {
        Activation::None => f32::NAN,
        Activation::Relu => 0.0,
    }
}

pub(crate) fn forward(cpu: &Cpu, act: Activation, x: View<[f32]>, y: ViewMut<[f32]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| cut(x, y, floor(act), blocks.range(block)));
}

multiversion! {
    fn cut(x: Rows, y: RowsMut, floor: f32, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has rows of its own.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = if x < floor { floor } else { x });
        }
    }
}

pub(crate) fn add_forward(cpu: &Cpu, act: Activation, x: View<[f32]>, y: ViewMut<[f32]>) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| add_cut(x, y, floor(act), blocks.range(block)));
}

multiversion! {
    fn add_cut(x: Rows, y: RowsMut, floor: f32, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has rows of its own.
            let y = unsafe { y.row(row) };
            y.iter_mut().zip(x.row(row)).for_each(|(y, &x)| {
                let sum = *y + x;
                *y = if sum < floor { floor } else { sum };
            });
        }
    }
}

pub(crate) fn backward(
    cpu: &Cpu,
    act: Activation,
    y: View<[f32]>,
    dy: View<[f32]>,
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let flat = all_contiguous(&[y.layout, dy.layout, dx.layout]);
    let (y, dy, dx) = (Rows::elements(y, flat), Rows::elements(dy, flat), RowsMut::elements(dx, flat));
    let blocks = Blocks::for_map(y);
    cpu.pool().run(blocks.count(), &|block| mask(y, dy, dx, floor(act), mode, blocks.range(block)));
}

multiversion! {
    fn mask(y: Rows, dy: Rows, dx: RowsMut, floor: f32, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has rows of its own.
            let dx = unsafe { dx.row(row) }.iter_mut();
            let gradient = y.row(row).iter().zip(dy.row(row)).map(|(&y, &dy)| if y <= floor { 0.0 } else { dy });
            match mode {
                Write::Set => dx.zip(gradient).for_each(|(dx, gradient)| *dx = gradient),
                Write::Add => dx.zip(gradient).for_each(|(dx, gradient)| *dx += gradient),
            }
        }
    }
}

pub(crate) fn backward_in_place(cpu: &Cpu, act: Activation, y: View<[f32]>, dy: ViewMut<[f32]>) {
    if act == Activation::None {
        return;
    }
    let flat = all_contiguous(&[y.layout, dy.layout]);
    let (y, dy) = (Rows::elements(y, flat), RowsMut::elements(dy, flat));
    let blocks = Blocks::for_map(y);
    cpu.pool().run(blocks.count(), &|block| mask_in_place(y, dy, floor(act), blocks.range(block)));
}

multiversion! {
    fn mask_in_place(y: Rows, dy: RowsMut, floor: f32, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has rows of its own.
            let dy = unsafe { dy.row(row) };
            dy.iter_mut().zip(y.row(row)).for_each(|(dy, &y)| *dy = if y <= floor { 0.0 } else { *dy });
        }
    }
}
