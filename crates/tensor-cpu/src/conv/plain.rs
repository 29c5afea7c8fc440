use super::*;
use crate::threads::Shards;

/// The input's coordinate under kernel element `k` at output `o`, where it is inside of `size`.
fn under(o: usize, stride: usize, k: usize, pad: usize, size: usize) -> Option<usize> {
    (o * stride + k).checked_sub(pad).filter(|&i| i < size)
}

pub(crate) fn forward(
    cpu: &Cpu,
    conv: &Conv2d,
    act: Activation,
    x: View<[f32]>,
    w: &[f32],
    b: Option<&[f32]>,
    y: ViewMut<[f32]>,
) {
    let (xl, yl) = (x.layout, y.layout);
    let (c, k) = (conv.inputs, conv.outputs);
    let out = Shards::new(y.data);
    cpu.pool().run(yl.shape.n * yl.shape.h, &|task| {
        let (i, oy) = (task / yl.shape.h, task % yl.shape.h);
        for ox in 0..yl.shape.w {
            let at = yl.offset + (task * yl.shape.w + ox) * yl.stride;
            // SAFETY: each output pixel belongs to one task.
            let row = unsafe { out.part(at..at + k) };
            match b {
                Some(b) => row.copy_from_slice(b),
                None => row.fill(0.0),
            }
            for u in 0..conv.kernel[0] {
                let Some(iy) = under(oy, conv.stride[0], u, conv.pad.top, xl.shape.h) else { continue };
                for v in 0..conv.kernel[1] {
                    let Some(ix) = under(ox, conv.stride[1], v, conv.pad.left, xl.shape.w) else { continue };
                    let from = xl.offset + ((i * xl.shape.h + iy) * xl.shape.w + ix) * xl.stride;
                    let tap = &w[(u * conv.kernel[1] + v) * c * k..][..c * k];
                    for (&a, w) in x.data[from..from + c].iter().zip(tap.chunks_exact(k)) {
                        row.iter_mut().zip(w).for_each(|(y, &w)| *y += a * w);
                    }
                }
            }
            if act == Activation::Relu {
                row.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
            }
        }
    });
}

pub(crate) fn backward_data(
    cpu: &Cpu,
    conv: &Conv2d,
    dy: View<[f32]>,
    w: &[f32],
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let (yl, xl) = (dy.layout, dx.layout);
    let (c, k) = (conv.inputs, conv.outputs);
    let out = Shards::new(dx.data);
    cpu.pool().run(yl.shape.n, &|i| {
        let pixel = |y: usize, x: usize| xl.offset + ((i * xl.shape.h + y) * xl.shape.w + x) * xl.stride;
        if mode == Write::Set {
            for at in (0..xl.shape.h * xl.shape.w).map(|p| pixel(0, p)) {
                // SAFETY: each image belongs to one task, and parts are used one after the other.
                unsafe { out.part(at..at + c) }.fill(0.0);
            }
        }
        for (oy, ox) in (0..yl.shape.h).flat_map(|oy| (0..yl.shape.w).map(move |ox| (oy, ox))) {
            let from = yl.offset + ((i * yl.shape.h + oy) * yl.shape.w + ox) * yl.stride;
            let dy = &dy.data[from..from + k];
            for u in 0..conv.kernel[0] {
                let Some(iy) = under(oy, conv.stride[0], u, conv.pad.top, xl.shape.h) else { continue };
                for v in 0..conv.kernel[1] {
                    let Some(ix) = under(ox, conv.stride[1], v, conv.pad.left, xl.shape.w) else { continue };
                    // SAFETY: as above.
                    let row = unsafe { out.part(pixel(iy, ix)..pixel(iy, ix) + c) };
                    let tap = &w[(u * conv.kernel[1] + v) * c * k..][..c * k];
                    for (dx, w) in row.iter_mut().zip(tap.chunks_exact(k)) {
                        *dx += dy.iter().zip(w).map(|(&a, &b)| a * b).sum::<f32>();
                    }
                }
            }
        }
    });
}

pub(crate) fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    let (xl, yl) = (x.layout, dy.layout);
    let (c, k) = (conv.inputs, conv.outputs);
    let out = Shards::new(dw);
    cpu.pool().run(conv.kernel[0] * conv.kernel[1], &|tap| {
        let (u, v) = (tap / conv.kernel[1], tap % conv.kernel[1]);
        // SAFETY: each tap belongs to one task.
        let dw = unsafe { out.part(tap * c * k..(tap + 1) * c * k) };
        dw.fill(0.0);
        for (i, oy) in (0..yl.shape.n).flat_map(|i| (0..yl.shape.h).map(move |oy| (i, oy))) {
            let Some(iy) = under(oy, conv.stride[0], u, conv.pad.top, xl.shape.h) else { continue };
            for ox in 0..yl.shape.w {
                let Some(ix) = under(ox, conv.stride[1], v, conv.pad.left, xl.shape.w) else { continue };
                let from = xl.offset + ((i * xl.shape.h + iy) * xl.shape.w + ix) * xl.stride;
                let at = yl.offset + ((i * yl.shape.h + oy) * yl.shape.w + ox) * yl.stride;
                for (&a, dw) in x.data[from..from + c].iter().zip(dw.chunks_exact_mut(k)) {
                    dw.iter_mut().zip(&dy.data[at..at + k]).for_each(|(dw, &dy)| *dw += a * dy);
                }
            }
        }
    });
}
