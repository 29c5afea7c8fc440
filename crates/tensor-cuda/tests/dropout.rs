//! Dropout on the emulated GPU: to the bit as on the CPU.

use crate::harness::*;
use towers_conformance::dropout::Dropped;
use towers_conformance::{ALONE, Case as _, Placement, SLICE, Subject};
use towers_program::ops::Dropout;
use towers_program::{Noise, Shape, StepArgs, Write};
use towers_tensor_cpu::Cpu;

fn draw(rng: &mut towers_philox::Philox) -> Dropped {
    let places = [ALONE, SLICE, Placement { before: 16, beside: 24 }];
    let c = [between(rng, 1, 20), 8 * between(rng, 1, 5)][between(rng, 0, 1)];
    let shape = Shape::new(between(rng, 0, 4), between(rng, 1, 6), between(rng, 1, 6), c);
    Dropped {
        shape,
        from: pick(rng, &places),
        to: pick(rng, &places),
        mode: pick(rng, &[Write::Set, Write::Add]),
        op: Dropout {
            rate: [0.0, 0.25, 0.5, rng.unit_f32() * 0.99][between(rng, 0, 3)],
            noise: pick(rng, &[Noise::Element, Noise::Element, Noise::Channel, Noise::Sample]),
            domain: rng.below(u32::MAX),
        },
        args: StepArgs {
            seed: u64::from(rng.below(u32::MAX)) << 20,
            step: u64::from(rng.below(u32::MAX)) << 20,
            first_sample: rng.below(u32::MAX),
            ..StepArgs::inference(shape.n)
        },
    }
}

/// With every number rounded to the format once, the CPU's bits are the device's.
#[test]
fn masks_are_those_of_the_cpu() {
    let mut rng = draws("masks");
    let cases: Vec<Dropped> = (0..60).map(|_| draw(&mut rng)).collect();
    for precision in PRECISIONS {
        let (gpu, cpu) = (subject(precision), Subject::new([("the CPU".to_owned(), Cpu::new(1))]));
        let cpu = cpu.precision(precision);
        for case in &cases {
            for (gpu, cpu) in gpu.benches().zip(cpu.benches()) {
                let (got, expected) =
                    (case.run(&gpu).expect("on the GPU"), case.run(&cpu).expect("on the CPU"));
                for (k, (got, &expected)) in got[0].values.iter().zip(&expected[0].values).enumerate() {
                    let expected = rounded(precision, expected);
                    let same = got.to_bits() == expected.to_bits();
                    assert!(same, "{case:?} in {precision} at {k}: {got}, {expected}");
                }
            }
        }
    }
}
