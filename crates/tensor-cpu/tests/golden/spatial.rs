//! What changes or looks at the rows and columns of images, against values from PyTorch, made by `tests/golden/spatial.py`.

use super::{Golden, Ops, expect, left};
use program::ops::{AveragePool, AveragePoolGradient, MaxPool, MaxPoolGradient};
use program::{Device, Pad, Pool2d, StepArgs};

/// Windows over the edge, and padding that counts.
pub(super) fn windows(device: &Device) {
    let golden = Golden::named("spatial");
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
