//! Softmax and its cross-entropy on the emulated GPU against the f64 reference.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use program::{Backend, Layout, Precision, Result, Shape, SoftmaxXent, Span, View, ViewMut};

/// The loss scale that half precision begins with.
const FIRST_LOSS_SCALE: f32 = 65536.0;

#[derive(Debug)]
struct Logits {
    samples: usize,
    classes: usize,
    place: Placement,
    smoothing: f32,
    /// Factor on the logits: large ones overflow an exponential.
    size: f32,
    /// What some logits are instead of their numbers.
    odd: Option<f32>,
    /// Whether some labels lie outside of the classes.
    outside: bool,
}

impl Logits {
    fn usual(samples: usize, classes: usize) -> Logits {
        let place = PLACEMENTS[0];
        Logits { samples, classes, place, smoothing: 0.0, size: 1.0, odd: None, outside: false }
    }

    fn logits(&self) -> Operand {
        // Coarse numbers: many rows have several largest.
        let mut x = Operand::coarse("x", Shape::vectors(self.samples, self.classes), self.place);
        x.values.iter_mut().for_each(|x| *x *= self.size);
        if let Some(odd) = self.odd {
            let mut rng = draws("odd");
            x.values.iter_mut().filter(|_| rng.below(7) == 0).for_each(|x| *x = odd);
        }
        x
    }

    fn labels(&self) -> Vec<u32> {
        let mut rng = draws("labels");
        let classes = self.classes as u32 + if self.outside { 2 } else { 0 };
        (0..self.samples).map(|_| rng.below(classes)).collect()
    }
}

impl Case for Logits {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let shape = Shape::vectors(self.samples, self.classes);
        let x = self.logits().on(device, precision)?;
        let mut labels = device.alloc_ints(self.samples)?;
        device.upload_ints(&self.labels(), &mut labels)?;
        // So small that the scaled gradient fits into half precision.
        let mut xent = SoftmaxXent { label_smoothing: self.smoothing, scale: 1.0 / 1024.0, mixed: false };
        let (mut sums, metrics) = (upload(device, &numbers("sums", 5))?, Span::new(2, 2));
        let mut d = Operand::draw("d", shape, self.place).on(device, precision)?;
        device.softmax_xent(&xent, x.view(), &labels, None, &mut sums, metrics)?;
        let without = download(device, &sums, Span::new(0, 5))?;
        if precision == Precision::Fp16 && !device.runs_ahead() {
            xent.scale *= FIRST_LOSS_SCALE; // what the GPU does by itself
        }
        device.softmax_xent(&xent, x.view(), &labels, Some(d.view_mut()), &mut sums, metrics)?;
        let with = download(device, &sums, Span::new(0, 5))?;
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&without), bits(&with), "the metrics do not depend on the gradient");
        let mut outputs = vec![
            Output("loss", with[2..3].to_vec(), 2e-6),
            Output("correct", with[3..4].to_vec(), 0.0),
            Output("around", [&with[..2], &with[4..]].concat(), 0.0),
            d.output(device, "dlogits", 2e-6)?,
        ];
        device.softmax(x.view(), d.view_mut())?;
        outputs.push(d.output(device, "probabilities", 2e-6)?);
        let mut y = device.alloc(shape.len())?;
        device.softmax(x.view(), ViewMut::new(&mut y, Layout::contiguous(shape)))?;
        outputs.push(Output("f32 probabilities", download(device, &y, Span::new(0, shape.len()))?, 2e-6));
        Ok(outputs)
    }
}

#[test]
fn any_shape() {
    let mut rng = draws("any_shape");
    let devices = PRECISIONS.map(emulated);
    for _ in 0..30 {
        let smoothing = [0.0, rng.unit_f32() * 0.9][between(&mut rng, 0, 1)];
        let case = Logits {
            samples: between(&mut rng, 0, 70),
            classes: [between(&mut rng, 1, 12), between(&mut rng, 1, 300)][between(&mut rng, 0, 1)],
            place: pick(&mut rng, &PLACEMENTS),
            smoothing,
            size: 0.1 + 20.0 * rng.unit_f32(),
            odd: None,
            outside: false,
        };
        devices.iter().for_each(|cuda| agree_on(cuda, &case));
    }
}

/// More rows than one block holds: their sums come from several.
#[test]
fn many_samples_and_many_classes() {
    for (samples, classes) in [(1024, 10), (300, 100), (40, 1000), (2500, 3)] {
        agree(&Logits::usual(samples, classes));
    }
}

#[test]
fn enormous_logits_do_not_overflow() {
    agree(&Logits { size: 1e4, ..Logits::usual(9, 10) });
}

/// In the sum of a logarithm and a logit of 3e30 nothing is left of the logarithm. Halves must not become ones.
#[test]
fn equal_shares_of_enormous_logits() {
    let (cuda, shape) = (emulated(Precision::Fp32), Shape::vectors(1, 3));
    let x = upload(&cuda, &[3e30, -3e30, 3e30]).unwrap();
    let (mut y, at) = (cuda.alloc(3).unwrap(), Layout::contiguous(shape));
    cuda.softmax(View::new(&x, at), ViewMut::new(&mut y, at)).unwrap();
    assert_eq!(download(&cuda, &y, Span::new(0, 3)).unwrap(), [0.5, 0.0, 0.5]);
}

/// Neither the loss nor the gradient of such a row may look good, and its probabilities are NaN.
#[test]
fn logits_that_are_no_numbers() {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for classes in [5, 40] {
            agree(&Logits { odd: Some(odd), ..Logits::usual(50, classes) });
        }
    }
}

#[test]
fn a_label_outside_of_the_classes_gives_nan() {
    let case = Logits { outside: true, smoothing: 0.1, ..Logits::usual(20, 4) };
    agree(&case);
    let outputs = case.run(&emulated(Precision::Fp32), Precision::Fp32).unwrap();
    assert!(outputs[0].1[0].is_nan() && outputs[1].1[0].is_finite());
}

#[test]
fn an_empty_batch_has_no_loss() {
    let outputs = Logits::usual(0, 10).run(&emulated(Precision::Bf16), Precision::Bf16).unwrap();
    assert_eq!((outputs[0].1[0], outputs[1].1[0]), (0.0, 0.0));
}
