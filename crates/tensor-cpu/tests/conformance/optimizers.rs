use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Backend, Result, RmspropStep, SgdStep, Span, Velocity, WeightDecay};

/// A few steps of both optimizers on a run in the middle of an arena.
#[derive(Debug)]
struct Case {
    at: Span,
    sgd: SgdStep,
    rmsprop: RmspropStep,
}

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let len = self.at.end() + 5;
        let grads = upload(device, &numbers("grads", len))?;
        let mut outputs = Vec::new();
        let (mut params, mut state) = (upload(device, &numbers("params", len))?, device.alloc(len)?);
        for _ in 0..3 {
            device.sgd_step(&self.sgd, &mut params, &grads, &mut state, self.at)?;
        }
        outputs.push(Output("params after SGD", download(device, &params, Span::new(0, len))?, 1e-6));
        outputs.push(Output("velocity", download(device, &state, Span::new(0, len))?, 1e-6));
        let (mut params, mut state) = (upload(device, &numbers("params", len))?, device.alloc(len)?);
        for _ in 0..3 {
            device.rmsprop_step(&self.rmsprop, &mut params, &grads, &mut state, self.at)?;
        }
        // Where a penalty nearly cancels a gradient, the quotient enlarges what rounding left of it.
        outputs.push(Output("params after RMSprop", download(device, &params, Span::new(0, len))?, 2e-5));
        outputs.push(Output("mean squares", download(device, &state, Span::new(0, len))?, 1e-6));
        Ok(outputs)
    }
}

/// Without momentum there need be no velocity at all.
#[test]
fn no_momentum_needs_no_velocity() {
    fn run<B: Backend>(device: &B) {
        let (mut params, grads) =
            (upload(device, &[1.0, 2.0]).unwrap(), upload(device, &[0.5, -1.0]).unwrap());
        let step = SgdStep {
            lr: 0.5,
            momentum: 0.0,
            nesterov: false,
            velocity: Velocity::Keras,
            weight_decay: WeightDecay::None,
        };
        let at = Span::new(0, 2);
        device.sgd_step(&step, &mut params, &grads, &mut device.alloc(0).unwrap(), at).unwrap();
        assert_eq!(download(device, &params, at).unwrap(), [0.75, 2.5]);
    }
    run(&tensor_cpu::Reference);
    run(&tensor_cpu::Cpu::new(2));
}

fn weight_decay() -> impl Strategy<Value = WeightDecay> {
    prop_oneof![
        Just(WeightDecay::None),
        (0.0..0.1_f32).prop_map(WeightDecay::Coupled),
        (0.0..0.1_f32).prop_map(WeightDecay::Decoupled),
    ]
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn any_convention(
        (offset, len) in (0..50_usize, prop_oneof![0..100_usize, 16_000..50_000_usize]),
        lr in 0.001..0.5_f32,
        momentum in prop_oneof![Just(0.0_f32), 0.1..0.99_f32],
        (nesterov, keras, inside) in any::<(bool, bool, bool)>(),
        rho in 0.5..0.99_f32,
        epsilon in 1e-7..1e-3_f32,
        weight_decay in weight_decay(),
    ) {
        let velocity = if keras { Velocity::Keras } else { Velocity::PyTorch };
        let sgd = SgdStep { lr, momentum, nesterov, velocity, weight_decay };
        let rmsprop = RmspropStep { lr, rho, epsilon, epsilon_inside_root: inside, weight_decay };
        agree(&Case { at: Span::new(offset, len), sgd, rmsprop });
    }
}
