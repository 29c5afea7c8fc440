use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Activation, Backend, BatchNorm, Result, Shape, Span, Write};

/// Training forward and backward, the running statistics, and inference with them.
#[derive(Debug)]
struct Case {
    shape: Shape,
    place: Placement,
    act: Activation,
    mode: Write,
    /// The channels' means: far from 0 they cost digits.
    mean: f32,
}

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let (c, bn) = (self.shape.c, BatchNorm { epsilon: 1e-3, act: self.act });
        let mut x = Operand::draw("x", self.shape, self.place);
        x.values.iter_mut().for_each(|x| *x += self.mean);
        let (x, dy) = (x.on(device)?, Operand::draw("dy", self.shape, self.place).on(device)?);
        let mut y = Operand::draw("y", self.shape, self.place).on(device)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(device)?;
        let params = upload(device, &numbers("params", 2 * c + 3))?;
        let (gamma, beta) = (Span::new(3, c), Span::new(3 + c, c));
        let (mut saved, mut grads) = (device.alloc(2 * c)?, device.alloc(4 * c)?);
        let (dgamma, dbeta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
        device.bn_act_fwd_train(
            &bn,
            x.view(),
            &params,
            gamma,
            beta,
            y.view_mut(),
            &mut saved,
            &mut grads,
            sums,
        )?;
        // Digits that the mean takes from f32 itself.
        let lost = 1.0 + self.mean.abs();
        // Of means near 0, which are sums of much larger numbers.
        let of_mean = 2e-5 / lost + 2e-7;
        let mut outputs = vec![y.output(device, "y", 2e-6 * lost)?];
        let (dy, dx_view) = (dy.view(), dx.view_mut());
        device.bn_act_bwd(
            &bn,
            x.view(),
            dy,
            &params,
            gamma,
            beta,
            &saved,
            &mut grads,
            dgamma,
            dbeta,
            dx_view,
            self.mode,
        )?;
        let mut running = upload(device, &vec![1.0; 2 * c])?;
        let whole = Span::new(0, 2 * c);
        device.ema_step(0.9, 1.0 / self.shape.n.max(1) as f32, &grads, sums, &mut running, whole)?;
        let (mean, var) = (Span::new(0, c), Span::new(c, c));
        device.bn_act_fwd_infer(&bn, x.view(), &params, gamma, beta, &running, mean, var, y.view_mut())?;
        let saved_part = |at| download(device, &saved, at);
        outputs.extend([
            Output("mean", saved_part(mean)?, of_mean),
            Output("inverse deviation", saved_part(var)?, 5e-6 * lost.sqrt()),
            Output("n * mean", download(device, &grads, Span::new(2 * c, c))?, of_mean),
            Output("n * variance", download(device, &grads, Span::new(3 * c, c))?, 5e-6 * lost.sqrt()),
            Output("dgamma", download(device, &grads, dgamma)?, 5e-6 * lost),
            Output("dbeta", download(device, &grads, dbeta)?, 5e-6 * lost),
            Output("running", download(device, &running, whole)?, 1e-6),
            dx.output(device, "dx", 1e-5 * lost)?,
            y.output(device, "y of inference", 2e-6 * lost)?,
        ]);
        Ok(outputs)
    }
}

fn case(shape: Shape, place: Placement) -> Case {
    Case { shape, place, act: Activation::Relu, mode: Write::Set, mean: 0.0 }
}

#[test]
fn layers_of_real_networks() {
    for (n, side, c, place) in
        [(16, 32, 96, ALONE), (8, 32, 48, SLICE), (4, 15, 112, SLICE), (64, 7, 336, ALONE)]
    {
        agree(&case(Shape::new(n, side, side, c), place));
    }
}

/// 65536 numbers a channel around a mean of several hundred: neither mean nor variance may lose digits to it.
#[test]
fn a_large_mean_costs_nothing() {
    agree(&Case { mean: 300.0, act: Activation::None, ..case(Shape::new(64, 32, 32, 10), ALONE) });
}

/// A constant channel has a variance of exactly 0.
#[test]
fn constant_channels() {
    for threads in [1, 2] {
        let device = tensor_cpu::Cpu::new(threads);
        let (shape, bn) = (Shape::new(3, 30, 30, 4), BatchNorm { epsilon: 1e-3, act: Activation::None });
        let x = Operand { values: vec![123.456; shape.len()], ..Operand::draw("x", shape, ALONE) };
        let (x, mut y) = (x.on(&device).unwrap(), Operand::draw("y", shape, ALONE).on(&device).unwrap());
        let params = upload(&device, &[1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5]).unwrap();
        let (mut saved, mut grads) = (device.alloc(8).unwrap(), device.alloc(8).unwrap());
        let (gamma, beta, sums) = (Span::new(0, 4), Span::new(4, 4), Span::new(0, 8));
        let y_view = y.view_mut();
        device
            .bn_act_fwd_train(&bn, x.view(), &params, gamma, beta, y_view, &mut saved, &mut grads, sums)
            .unwrap();
        assert_eq!(download(&device, &grads, Span::new(4, 4)).unwrap(), [0.0; 4]);
        assert!(y.output(&device, "y", 0.0).unwrap().1[..shape.len()].iter().all(|&y| y == 0.5));
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn any_shape(
        (n, h, w, c) in (0..5_usize, 1..9_usize, 1..9_usize, 1..70_usize),
        place in placement(),
        mode in write_mode(),
        relu in any::<bool>(),
        mean in -4.0..4.0_f32,
    ) {
        // Two numbers become 1 and -1, and rounding is all that is left of the input's gradient.
        prop_assume!(n * h * w != 2);
        let act = if relu { Activation::Relu } else { Activation::None };
        agree(&Case { shape: Shape::new(n, h, w, c), place, act, mode, mean });
    }
}
