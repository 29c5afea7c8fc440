//! Dropout on the emulated GPU: to the bit as on the CPU.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use program::{Backend, DropoutMask, Precision, Result, Shape, Write};
use tensor_cpu::Cpu;

#[derive(Debug)]
struct Drop {
    mask: DropoutMask,
    shape: Shape,
    place: [Placement; 2],
    write: Write,
}

impl Drop {
    fn draw(rng: &mut philox::Philox) -> Drop {
        let c = [between(rng, 1, 20), 8 * between(rng, 1, 5)][between(rng, 0, 1)];
        Drop {
            mask: DropoutMask {
                rate: [0.0, 0.25, 0.5, rng.unit_f32() * 0.99][between(rng, 0, 3)],
                key: [rng.below(u32::MAX), rng.below(u32::MAX)],
                step: u64::from(rng.below(u32::MAX)) << 20,
                first_sample: rng.below(u32::MAX),
            },
            shape: Shape::new(between(rng, 0, 4), between(rng, 1, 6), between(rng, 1, 6), c),
            place: [pick(rng, &PLACEMENTS), pick(rng, &PLACEMENTS)],
            write: pick(rng, &[Write::Set, Write::Add]),
        }
    }
}

impl Case for Drop {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let x = Operand::draw("x", self.shape, self.place[0]).on(device, precision)?;
        let mut y = Operand::draw("y", self.shape, self.place[1]).on(device, precision)?;
        device.dropout(&self.mask, x.view(), y.view_mut(), self.write)?;
        Ok(vec![y.output(device, "y", 1e-6)?])
    }
}

/// With every number rounded to the format once, the CPU's bits are the device's.
#[test]
fn masks_are_those_of_the_cpu() {
    let mut rng = draws("masks");
    let devices = PRECISIONS.map(emulated);
    let cpu = Cpu::new(1);
    for _ in 0..60 {
        let case = Drop::draw(&mut rng);
        for cuda in &devices {
            let precision = cuda.options().precision;
            let got = &case.run(cuda, precision).unwrap()[0].1;
            let expected = &case.run(&cpu, precision).unwrap()[0].1;
            for (k, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                let expected = rounded(precision, expected);
                assert_eq!(
                    got.to_bits(),
                    expected.to_bits(),
                    "{case:?} in {precision} at {k}: {got}, {expected}"
                );
            }
            agree_on(cuda, &case);
        }
    }
}

#[test]
fn a_rate_of_one_is_refused() {
    let case = Drop {
        mask: DropoutMask { rate: 1.0, ..Drop::draw(&mut draws("one")).mask },
        ..Drop::draw(&mut draws("one"))
    };
    assert!(case.run(&emulated(Precision::Fp32), Precision::Fp32).is_err());
}
