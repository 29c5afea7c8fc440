use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Activation, Backend, DropoutMask, Result, Shape, Span, Write};

/// Activations, copies and dropout.
#[derive(Debug)]
struct Case {
    shape: Shape,
    from: Placement,
    to: Placement,
    mode: Write,
    act: Activation,
    mask: DropoutMask,
}

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let (from, to) =
            (Operand::coarse("from", self.shape, self.from), Operand::draw("to", self.shape, self.to));
        let from = from.on(device)?;
        let mut outputs = Vec::new();
        let mut y = to.on(device)?;
        device.copy(from.view(), y.view_mut(), self.mode)?;
        outputs.push(y.output(device, "copy", 1e-7)?);
        let mut y = to.on(device)?;
        device.dropout(&self.mask, from.view(), y.view_mut(), self.mode)?;
        outputs.push(y.output(device, "dropout", 1e-6)?);
        let mut y = to.on(device)?;
        device.act_fwd(self.act, from.view(), y.view_mut())?;
        outputs.push(y.output(device, "y", 0.0)?);
        let (dy, mut dx) = (Operand::draw("dy", self.shape, self.to).on(device)?, to.on(device)?);
        device.act_bwd(self.act, from.view(), dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(device, "dx", 1e-7)?);
        device.act_bwd_in_place(self.act, from.view(), dx.view_mut())?;
        outputs.push(dx.output(device, "dx in place", 1e-7)?);
        Ok(outputs)
    }
}

/// A NaN must come through an activation, so that a diverged run is seen.
#[test]
fn nan_stays() {
    fn run<B: Backend>(device: &B) {
        let x =
            Operand { values: vec![f32::NAN, -1.0, 1.0], ..Operand::draw("x", Shape::vectors(1, 3), ALONE) };
        let (x, mut y) =
            (x.on(device).unwrap(), Operand::draw("y", Shape::vectors(1, 3), ALONE).on(device).unwrap());
        device.act_fwd(Activation::Relu, x.view(), y.view_mut()).unwrap();
        let y = y.output(device, "y", 0.0).unwrap().1;
        assert!(y[0].is_nan() && y[1..3] == [0.0, 1.0]);
    }
    run(&tensor_cpu::Reference);
    run(&tensor_cpu::Cpu::new(2));
}

/// The mask belongs to a sample's place in the global batch: a slice of the batch gets a slice of the mask.
#[test]
fn a_slice_of_the_batch_has_its_own_part_of_the_mask() {
    let device = tensor_cpu::Cpu::new(2);
    let mask = DropoutMask { rate: 0.5, key: [1, 2], step: 9, first_sample: 0 };
    let run = |shape: Shape, mask| {
        let ones = Operand { values: vec![1.0; shape.len()], ..Operand::draw("x", shape, ALONE) };
        let (x, mut y) = (ones.on(&device).unwrap(), device.alloc(shape.len()).unwrap());
        let at = tensor_backend::Layout::contiguous(shape);
        device.dropout(&mask, x.view(), tensor_backend::ViewMut::new(&mut y, at), Write::Set).unwrap();
        download(&device, &y, Span::new(0, shape.len())).unwrap()
    };
    let shape = Shape::new(5, 3, 3, 7);
    let (whole, last) = (run(shape, mask), run(shape.with_n(2), DropoutMask { first_sample: 3, ..mask }));
    assert_eq!(whole[3 * 63..], last);
    assert_ne!(whole[..2 * 63], last);
}

/// As many are dropped as the rate says, up to five standard deviations.
#[test]
fn the_rate_is_kept() {
    let (device, shape) = (tensor_cpu::Cpu::new(2), Shape::new(4, 16, 16, 33));
    for rate in [0.0, 0.1, 0.5, 0.9] {
        let x = Operand { values: vec![1.0; shape.len() + 3], ..Operand::draw("x", shape, ALONE) };
        let (x, mut y) = (x.on(&device).unwrap(), Operand::draw("y", shape, ALONE).on(&device).unwrap());
        let mask = DropoutMask { rate, key: [3, 4], step: 1, first_sample: 0 };
        device.dropout(&mask, x.view(), y.view_mut(), Write::Set).unwrap();
        let y = y.output(&device, "y", 0.0).unwrap().1;
        let dropped = y[..shape.len()].iter().filter(|&&y| y == 0.0).count() as f64;
        let (expected, len) = (f64::from(rate) * shape.len() as f64, shape.len() as f64);
        let deviation = (len * f64::from(rate) * (1.0 - f64::from(rate))).sqrt();
        assert!(
            (dropped - expected).abs() <= 5.0 * deviation,
            "{dropped} of {len} dropped at a rate of {rate}"
        );
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn any_shape(
        (n, h, w, c) in (0..5_usize, 1..20_usize, 1..20_usize, 1..40_usize),
        from in placement(),
        to in placement(),
        mode in write_mode(),
        relu in any::<bool>(),
        rate in 0.0..0.95_f32,
        step in any::<u64>(),
        first_sample in any::<u32>(),
    ) {
        let act = if relu { Activation::Relu } else { Activation::None };
        let mask = DropoutMask { rate, key: [5, 6], step, first_sample };
        agree(&Case { shape: Shape::new(n, h, w, c), from, to, mode, act, mask });
    }
}
