use crate::harness::*;
use proptest::prelude::*;
use tensor_backend::{Backend, Result, Shape, SoftmaxXent, Span};

#[derive(Debug)]
struct Case {
    samples: usize,
    classes: usize,
    place: Placement,
    smoothing: f32,
    /// Factor on the logits: large ones overflow an exponential.
    size: f32,
}

impl crate::harness::Case for Case {
    fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
        let shape = Shape::vectors(self.samples, self.classes);
        let mut x = Operand::coarse("x", shape, self.place);
        x.values.iter_mut().for_each(|x| *x *= self.size);
        let x = x.on(device)?;
        let labels: Vec<u32> = numbers("labels", self.samples)
            .iter()
            .map(|x| (x.abs() * 7.0) as u32 % self.classes as u32)
            .collect();
        let mut ints = device.alloc_ints(self.samples)?;
        device.upload_ints(&labels, &mut ints)?;
        let xent = SoftmaxXent { label_smoothing: self.smoothing, scale: 0.125 };
        let (mut sums, metrics) = (device.alloc(5)?, Span::new(2, 2));
        let mut y = Operand::draw("y", shape, self.place).on(device)?;
        device.softmax_xent(&xent, x.view(), &ints, None, &mut sums, metrics)?;
        let without = download(device, &sums, Span::new(0, 5))?;
        device.softmax_xent(&xent, x.view(), &ints, Some(y.view_mut()), &mut sums, metrics)?;
        let with = download(device, &sums, Span::new(0, 5))?;
        assert_eq!(without, with, "the metrics do not depend on the gradient");
        let mut outputs = vec![Output("metrics", with, 1e-6), y.output(device, "dlogits", 1e-6)?];
        device.softmax(x.view(), y.view_mut())?;
        outputs.push(y.output(device, "probabilities", 1e-6)?);
        Ok(outputs)
    }
}

#[test]
fn enormous_logits_do_not_overflow() {
    agree(&Case { samples: 9, classes: 10, place: ALONE, smoothing: 0.0, size: 1e4 });
    agree(&Case { samples: 9, classes: 10, place: ALONE, smoothing: 0.1, size: -3e30 });
}

#[test]
fn a_label_outside_of_the_classes_gives_nan() {
    #[derive(Debug)]
    struct Outside;
    impl crate::harness::Case for Outside {
        fn run<B: Backend>(&self, device: &B) -> Result<Vec<Output>> {
            let shape = Shape::vectors(2, 3);
            let (x, mut dx) =
                (Operand::draw("x", shape, ALONE).on(device)?, Operand::draw("dx", shape, ALONE).on(device)?);
            let (mut labels, mut sums) = (device.alloc_ints(2)?, device.alloc(2)?);
            device.upload_ints(&[1, 3], &mut labels)?;
            let xent = SoftmaxXent { label_smoothing: 0.0, scale: 1.0 };
            device.softmax_xent(&xent, x.view(), &labels, Some(dx.view_mut()), &mut sums, Span::new(0, 2))?;
            let sums = download(device, &sums, Span::new(0, 2))?;
            assert!(sums[0].is_nan() && sums[1].is_finite());
            Ok(vec![Output("metrics", sums, 1e-6), dx.output(device, "dlogits", 1e-6)?])
        }
    }
    agree(&Outside);
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn any_shape(
        samples in 0..70_usize,
        classes in 1..120_usize,
        place in placement(),
        smoothing in prop_oneof![Just(0.0_f32), 0.0..0.9_f32],
        size in 0.1..30.0_f32,
    ) {
        agree(&Case { samples, classes, place, smoothing, size });
    }
}
