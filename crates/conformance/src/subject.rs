use crate::bench::Bench;
use crate::case::Case;
use crate::output::{Output, Source};
use crate::shown::brief;
#[cfg(feature = "random")]
use proptest::strategy::Strategy;
#[cfg(feature = "random")]
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::cell::Cell;
use towers_program::{Device, Precision, Shape};
use towers_tensor_cpu::Reference;

/// Devices under test: all of one kind, so that they must agree with each other to the bit, and with the f64 reference as
/// far as their number format goes.
///
/// ```
/// use towers_conformance::Subject;
/// use towers_tensor_cpu::Cpu;
///
/// let subject = Subject::new([1, 2].map(|threads| (format!("{threads} threads"), Cpu::new(threads))));
/// towers_conformance::pooling::any_window(&subject);
/// ```
#[derive(Debug)]
pub struct Subject {
    devices: Vec<(String, Device)>,
    precision: Precision,
    loss_scale: f32,
    slow: bool,
    /// Whether the devices have several instruction sets.
    mixed: bool,
    /// The results that were compared, and the largest difference as a part of the tolerance.
    pub(crate) tally: Cell<(usize, f32)>,
}

/// Multiply-adds of an op that a slow device is asked for, if the case can be made smaller.
const SLOW_WORK: usize = 1 << 19;

impl Subject {
    /// Devices with names, in f32.
    pub fn new(devices: impl IntoIterator<Item = (String, impl Into<Device>)>) -> Self {
        Subject {
            devices: devices.into_iter().map(|(name, device)| (name, device.into())).collect(),
            precision: Precision::Fp32,
            loss_scale: 1.0,
            slow: false,
            mixed: false,
            tally: Cell::default(),
        }
    }

    /// No device: every test passes without doing anything. The caller says why.
    pub fn absent() -> Self {
        Subject::new([] as [(String, Device); 0])
    }

    /// In another number format: inputs are rounded to it, and tolerances widened by it.
    pub fn precision(self, precision: Precision) -> Self {
        Subject { precision, ..self }
    }

    /// For devices that multiply the gradient of the logits by this power of two, and everything after it with it.
    pub fn loss_scale(self, loss_scale: f32) -> Self {
        Subject { loss_scale, ..self }
    }

    /// For devices on which arithmetic is slow: fewer random cases, and smaller layers.
    pub fn slow(self) -> Self {
        Subject { slow: true, ..self }
    }

    /// For devices of several instruction sets: their bits may differ where [matrices are multiplied in
    /// f32](Case::multiplies_in_f32).
    pub fn mixed(self) -> Self {
        Subject { mixed: true, ..self }
    }

    /// The devices, ready for a case.
    pub fn benches(&self) -> impl Iterator<Item = Bench<'_>> {
        self.devices.iter().map(|(_, device)| Bench::new(&**device, self.precision, self.loss_scale))
    }

    /// The reference, with inputs rounded as on these devices.
    pub fn reference(&self) -> Bench<'static> {
        Bench::new(&Reference, self.precision, 1.0)
    }

    /// The largest number that the format of activations holds.
    pub fn largest(&self) -> f32 {
        if self.precision == Precision::Fp16 { 65504.0 } else { f32::MAX }
    }

    /// The shape, or one with fewer samples and pixels if an op of `work` multiply-adds a pixel took a slow device long.
    /// Sides stay at least 4.
    pub fn fit(&self, mut shape: Shape, work: usize) -> Shape {
        while self.slow && shape.rows() * work > SLOW_WORK {
            match shape {
                Shape { n: 2.., .. } => shape.n = shape.n.div_ceil(2),
                Shape { h: 8.., w: 8.., .. } => (shape.h, shape.w) = (shape.h / 2, shape.w / 2),
                _ => break,
            }
        }
        shape
    }

    /// The variants of the `k`-th layer: all of them, or one on a slow device, another one for each layer.
    pub(crate) fn variants<C, const N: usize>(&self, k: usize, all: [C; N]) -> impl Iterator<Item = C> {
        let slow = self.slow;
        all.into_iter().enumerate().filter(move |(place, _)| !slow || *place == k % N).map(|(_, case)| case)
    }

    /// How far a result may lie from the reference's, relative to the largest magnitude, where `for_f32` is right for f32.
    /// A result that must be exact is exact in every format.
    fn tolerance(&self, source: Source, for_f32: f32) -> f32 {
        let unit = |digits: i32| 2.0_f32.powi(-digits);
        let rounding = match (self.precision, source) {
            _ if for_f32 == 0.0 => 0.0,
            (Precision::Fp32, _) | (_, Source::Kept) | (Precision::Tf32, Source::Stored) => 0.0,
            (Precision::Tf32 | Precision::Fp16, Source::Shifted) => unit(9),
            (Precision::Bf16, Source::Shifted) => unit(6),
            // Half a unit in the last place, twice: some ops store a result that a second pass completes.
            (Precision::Tf32 | Precision::Fp16, _) => unit(10),
            (Precision::Bf16, _) => unit(7),
        };
        for_f32 + rounding
    }

    /// Asserts that the devices agree with the reference, and to the bit with each other, unless the case
    /// [multiplies in f32](Case::multiplies_in_f32) on [mixed](Subject::mixed) devices.
    ///
    /// # Panics
    /// If they don't, or fail.
    pub fn agree(&self, case: &impl Case) {
        let mut results = self.devices.iter().zip(self.benches()).map(|((name, _), bench)| {
            let outputs =
                case.run(&bench).unwrap_or_else(|error| panic!("{name} fails {}: {error}", brief(case)));
            (name, outputs)
        });
        let Some((first_name, first)) = results.next() else { return };
        let expected = case.run(&self.reference()).expect("the reference runs every case");
        assert_eq!(first.len(), expected.len(), "outputs of {}", brief(case));
        let close = |name: &str, outputs: &[Output]| {
            for (expected, got) in expected.iter().zip(outputs) {
                let tolerance = self.tolerance(expected.source, expected.tolerance);
                let what = format!("{} of {} on {name}", expected.name, brief(case));
                self.assert_close(&what, got, expected, tolerance);
            }
        };
        close(first_name, &first);
        for (name, again) in results {
            if self.mixed && case.multiplies_in_f32() {
                close(name, &again);
                continue;
            }
            for (a, b) in first.iter().zip(&again) {
                assert!(
                    a.same_bits(b),
                    "{} of {} has other bits on {name} than on {first_name}",
                    a.name,
                    brief(case)
                );
            }
        }
    }

    /// Asserts that the numbers differ by at most `tolerance` of the largest expected magnitude, and that NaNs meet NaNs.
    fn assert_close(&self, what: &str, got: &Output, expected: &Output, tolerance: f32) {
        let (got, expected) = (&got.values, &expected.values);
        assert_eq!(got.len(), expected.len(), "{what}");
        let magnitude = expected.iter().filter(|x| x.is_finite()).fold(0.0, |m: f32, x| m.max(x.abs()));
        let (results, mut worst) = self.tally.get();
        for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
            if got == expected || got.is_nan() && expected.is_nan() {
                continue;
            }
            let apart = (got - expected).abs();
            worst = worst.max(apart / (tolerance * magnitude));
            self.tally.set((results + 1, worst));
            assert!(
                apart <= tolerance * magnitude,
                "{what}[{k}] is {got}, not {expected} (at most {tolerance} of the largest, {magnitude}, may they differ)"
            );
        }
        self.tally.set((results + 1, worst));
    }

    /// Asserts it for random cases, `full` of them on a fast device. They are the same every time: a failure can be
    /// repeated, and none comes by chance.
    ///
    /// # Panics
    /// With a case that fails, made as small as possible.
    #[cfg(feature = "random")]
    pub fn agree_on<C: Case>(&self, full: u32, cases: impl Strategy<Value = C>) {
        if self.devices.is_empty() {
            return;
        }
        let config = Config {
            rng_seed: RngSeed::Fixed(20),
            failure_persistence: None,
            cases: if self.slow { full.div_ceil(6) } else { full },
            max_shrink_iters: if self.slow { 60 } else { 1000 },
            ..Config::default()
        };
        let outcome = TestRunner::new(config).run(&cases, |case| {
            self.agree(&case);
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{failure}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_program::Result;

    /// What a device "computes": its factor on gradients, so that two subjects differ at will.
    #[derive(Debug)]
    struct Factor {
        tolerance: f32,
        source: Source,
    }

    impl Case for Factor {
        fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
            let values = vec![0.0, bench.loss_scale, f32::NAN];
            Ok(vec![Output { name: "y", values, tolerance: self.tolerance, source: self.source }])
        }
    }

    fn subject(factor: f32) -> Subject {
        Subject::new([("a device".to_owned(), Reference)]).loss_scale(factor)
    }

    #[test]
    fn tolerances_follow_the_format() {
        let case = |source| Factor { tolerance: 1e-6, source };
        subject(1.0 + 1e-6).agree(&case(Source::Stored));
        subject(1.003).precision(Precision::Bf16).agree(&case(Source::Stored));
        subject(1.0009).precision(Precision::Tf32).agree(&case(Source::Products));
        subject(1.0018).precision(Precision::Fp16).agree(&case(Source::Shifted));
        subject(1.0).precision(Precision::Fp16).agree(&Factor { tolerance: 0.0, source: Source::Stored });
    }

    #[test]
    #[should_panic(expected = "y of Factor { tolerance: 1e-6, source: Kept } on a device[1] is 1.003, not 1")]
    fn what_is_kept_in_f32_is_exact_in_every_format() {
        subject(1.003).precision(Precision::Bf16).agree(&Factor { tolerance: 1e-6, source: Source::Kept });
    }

    #[test]
    #[should_panic(expected = "is 1.0000001, not 1")]
    fn what_must_be_exact_is() {
        let exact = Factor { tolerance: 0.0, source: Source::Stored };
        subject(1.0000001).precision(Precision::Bf16).agree(&exact);
    }

    /// A device that is another one every time.
    #[derive(Debug)]
    struct Fickle(Cell<f32>);

    impl Case for Fickle {
        fn run(&self, _: &Bench) -> Result<Vec<Output>> {
            self.0.set(self.0.get() + 1e-6);
            Ok(vec![Output::new("y", vec![self.0.get()], 1e-3)])
        }
    }

    #[test]
    #[should_panic(expected = "y of Fickle(Cell { value: 1.0000029 }) has other bits on b than on a")]
    fn devices_of_a_kind_have_the_same_bits() {
        Subject::new(["a", "b"].map(|name| (name.to_owned(), Reference))).agree(&Fickle(1.0.into()));
    }

    #[test]
    fn slow_devices_get_one_variant_a_layer() {
        let of = |subject: Subject, k| subject.variants(k, ["a", "b", "c"]).collect::<String>();
        assert_eq!([0, 1, 5].map(|k| of(subject(1.0), k)), ["abc"; 3]);
        assert_eq!([0, 1, 5].map(|k| of(subject(1.0).slow(), k)), ["a", "b", "c"]);
    }

    #[test]
    fn slow_devices_get_smaller_layers() {
        let shape = Shape::new(4, 32, 32, 8);
        assert_eq!(subject(1.0).fit(shape, 1 << 20), shape);
        assert_eq!(subject(1.0).slow().fit(shape, 1 << 9), shape.with_n(1));
        assert_eq!(subject(1.0).slow().fit(shape, 1 << 30), Shape::new(1, 4, 4, 8));
    }
}
