//! What changes or looks at the rows and columns of images, against values from PyTorch, made by `tests/golden/spatial.py`.

use super::{Golden, Ops, expect, left};
use towers_program::ops::{
    AveragePool, AveragePoolGradient, LayerNorm, LayerNormGradient, LocalResponseNorm,
    LocalResponseNormGradient, MaxPool, MaxPoolGradient, Upsample, UpsampleGradient, ZeroPad,
};
use towers_program::{Arena, Device, Op, Pad, Pool2d, StepArgs, TensorId};

/// Windows over the edge, and padding that counts.
pub(super) fn windows(device: &Device) {
    let golden = Golden::of("spatial");
    for (case, kernel, stride, pad, counts) in [
        ("3s2", 3, 2, 0, false),
        ("2s2p1", 2, 2, 1, false),
        ("3s2p1", 3, 2, 1, true),
        ("2s3p1", 2, 3, 1, true),
    ] {
        let name = |what: &str| format!("pool.{case}.{what}");
        let (x_at, y_at) = (golden.layout(&name("x")), golden.layout(&name("dy")));
        let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
        let pool = Pool2d::new([kernel; 2], [stride; 2], pad).ceil(x_at.shape);
        let mut ops = Ops::new(&golden, x_at.shape.n);
        let (x, dy) = (ops.batch(&name("x")), ops.batch(&name("dy")));
        let ([largest, mean], [of_largest, of_mean]) =
            ([(); 2].map(|()| ops.room(y_at)), [(); 2].map(|()| ops.room(x_at)));
        ops.set(MaxPool { pool }, &[x], &[largest]);
        ops.set(MaxPoolGradient { pool }, &[x, largest, dy], &[of_largest]);
        let pool = if counts { Pool2d { counted: pad, ..pool } } else { pool };
        ops.set(AveragePool { pool }, &[x], &[mean]);
        ops.set(AveragePoolGradient { pool, x: x_at.shape.with_n(1) }, &[dy], &[of_mean]);
        let run = ops.run(device, &StepArgs::inference(x_at.shape.n));
        let results =
            [("max.y", largest), ("max.dx", of_largest), ("average.y", mean), ("average.dx", of_mean)];
        for (what, id) in results {
            expect(device, &golden, &name(what), &left(&run, id));
        }
    }
}

/// Zeros around images, images without their borders, larger images.
pub(super) fn sides(device: &Device) {
    let golden = Golden::of("spatial");
    let pad = |top, bottom, left, right| ZeroPad { top, bottom, left, right };
    let larger = |by, bilinear| Upsample { by, bilinear };
    let gradient = |upsample| Op::from(UpsampleGradient { upsample });
    for (case, op, gradient) in [
        ("pad.around", pad(1, 2, 0, 3).into(), (-pad(1, 2, 0, 3)).into()),
        ("pad.cut", pad(-1, 0, -2, -1).into(), (-pad(-1, 0, -2, -1)).into()),
        ("pad.both", pad(-1, 2, 1, -2).into(), (-pad(-1, 2, 1, -2)).into()),
        ("upsample.nearest", larger([2, 3], false).into(), gradient(larger([2, 3], false))),
        ("upsample.bilinear", larger([2, 2], true).into(), gradient(larger([2, 2], true))),
        ("upsample.bilinear3", larger([3, 4], true).into(), gradient(larger([3, 4], true))),
    ] {
        compare(device, &golden, case, op, gradient, |_, dy| vec![dy]);
    }
}

/// Normalizations of each pixel by its own channels.
pub(super) fn pixels(device: &Device) {
    let golden = Golden::of("spatial");
    for (case, norm) in [
        ("lrn", LocalResponseNorm { size: 5, alpha: 0.5, beta: 0.75, bias: 1.0 }),
        ("lrn3", LocalResponseNorm { size: 3, alpha: 1.0, beta: 1.25, bias: 2.0 }),
    ] {
        let gradient = LocalResponseNormGradient { norm };
        compare(device, &golden, case, norm.into(), gradient.into(), |x, dy| vec![x, dy]);
    }
    let (at, norm) = (golden.layout("ln.x"), LayerNorm { epsilon: 1.0 / 1024.0 });
    let mut ops = Ops::new(&golden, at.shape.n);
    let (x, dy) = (ops.batch("ln.x"), ops.batch("ln.dy"));
    let (gamma, beta) = (ops.parameter("ln.gamma"), ops.parameter("ln.beta"));
    let (y, dx) = (ops.room(at), ops.room(at));
    let [dgamma, dbeta] = [(); 2].map(|()| ops.run_of(Arena::Gradients, &vec![0.0; at.shape.c]));
    ops.set(norm, &[x, gamma, beta], &[y]);
    ops.set(LayerNormGradient { norm }, &[x, gamma, dy], &[dx, dgamma, dbeta]);
    let run = ops.run(device, &StepArgs::inference(at.shape.n));
    for (what, id) in [("y", y), ("dx", dx), ("dgamma", dgamma), ("dbeta", dbeta)] {
        expect(device, &golden, &format!("ln.{what}"), &left(&run, id));
    }
}

/// An op and its gradient beside the golden `y` and `dx` of a case.
fn compare(
    device: &Device,
    golden: &Golden,
    case: &str,
    op: Op,
    gradient: Op,
    reads: impl Fn(TensorId, TensorId) -> Vec<TensorId>,
) {
    let name = |what: &str| format!("{case}.{what}");
    let (x_at, y_at) = (golden.layout(&name("x")), golden.layout(&name("dy")));
    let mut ops = Ops::new(golden, x_at.shape.n);
    let (x, dy) = (ops.batch(&name("x")), ops.batch(&name("dy")));
    let (y, dx) = (ops.room(y_at), ops.room(x_at));
    ops.set(op, &[x], &[y]);
    ops.set(gradient, &reads(x, dy), &[dx]);
    let run = ops.run(device, &StepArgs::inference(x_at.shape.n));
    for (what, id) in [("y", y), ("dx", dx)] {
        expect(device, golden, &name(what), &left(&run, id));
    }
}
