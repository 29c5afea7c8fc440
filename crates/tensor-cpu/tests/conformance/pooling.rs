use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Backend, Pad, Pool2d, Result, Shape, Write};

#[derive(Debug)]
struct Case {
    pool: Pool2d,
    shape: Shape,
    place: Placement,
    mode: Write,
}

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let (pool, shape) = (&self.pool, self.pool.output(self.shape)?);
        // Coarse numbers: many windows have several largest elements.
        let x = Operand::coarse("x", self.shape, self.place).on(device)?;
        let dy = Operand::draw("dy", shape, self.place).on(device)?;
        let mut y = Operand::draw("y", shape, self.place).on(device)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(device)?;
        let mut outputs = Vec::new();
        device.maxpool_fwd(pool, x.view(), y.view_mut())?;
        outputs.push(y.output(device, "y of max", 0.0)?);
        device.maxpool_bwd(pool, x.view(), y.view(), dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(device, "dx of max", 1e-6)?);
        device.avgpool_fwd(pool, x.view(), y.view_mut())?;
        outputs.push(y.output(device, "y of average", 1e-6)?);
        device.avgpool_bwd(pool, dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(device, "dx of average", 1e-6)?);
        Ok(outputs)
    }
}

fn square(kernel: usize, stride: usize, pad: Pad) -> Pool2d {
    Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad }
}

#[test]
fn layers_of_real_networks() {
    let valid = |kernel, stride| square(kernel, stride, Pad::VALID);
    for (pool, shape) in [
        (valid(3, 2), Shape::new(2, 32, 32, 80)),
        (valid(3, 2), Shape::new(2, 15, 15, 144)),
        (valid(7, 1), Shape::new(3, 7, 7, 336)),
        (valid(2, 2), Shape::new(3, 30, 30, 32)),
        (valid(2, 2), Shape::new(3, 13, 13, 64)),
        (square(3, 2, Pad::same(32, 32, [3; 2], [2; 2])), Shape::new(2, 32, 32, 16)),
    ] {
        agree(&Case { pool, shape, place: ALONE, mode: Write::Set });
        agree(&Case { pool, shape, place: SLICE, mode: Write::Add });
    }
}

/// A NaN must come out, so that a diverged run is seen.
#[test]
fn nan_wins_a_maximum() {
    #[derive(Debug)]
    struct Nan;
    impl crate::harness::Case for Nan {
        fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
            let shape = Shape::new(1, 3, 3, 5);
            let mut x = Operand::draw("x", shape, ALONE);
            x.values[21] = f32::NAN;
            let (x, pool) = (x.on(device)?, square(2, 1, Pad::VALID));
            let mut y = Operand::draw("y", shape.with_n(1), ALONE);
            y.layout = tensor_backend::Layout::contiguous(Shape::new(1, 2, 2, 5));
            let (mut dx, mut y) = (Operand::draw("dx", shape, ALONE).on(device)?, y.on(device)?);
            device.maxpool_fwd(&pool, x.view(), y.view_mut())?;
            let dy = Operand::draw("dy", Shape::new(1, 2, 2, 5), ALONE).on(device)?;
            device.maxpool_bwd(&pool, x.view(), y.view(), dy.view(), dx.view_mut(), Write::Set)?;
            let outputs = vec![y.output(device, "y", 0.0)?, dx.output(device, "dx", 1e-6)?];
            assert_eq!(outputs[0].1.iter().filter(|y| y.is_nan()).count(), 4);
            Ok(outputs)
        }
    }
    agree(&Nan);
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn any_window(
        (n, h, w, c) in (0..4_usize, 1..12_usize, 1..12_usize, 1..150_usize),
        kernel in prop::array::uniform2(1..5_usize),
        stride in prop::array::uniform2(1..4_usize),
        (top, bottom, left, right) in (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize),
        place in placement(),
        mode in write_mode(),
    ) {
        let pool = Pool2d { kernel, stride, pad: Pad { top, bottom, left, right } };
        let shape = Shape::new(n, h, w, c);
        prop_assume!(pool.output(shape).is_ok());
        agree(&Case { pool, shape, place, mode });
    }
}
