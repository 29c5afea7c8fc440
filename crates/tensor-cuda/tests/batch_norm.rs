//! Batch normalization on the emulated GPU.

use crate::harness::*;
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Error, Layout, NormInfer, NormSaved, NormSpans, NormTrain,
    Precision, Result, Run, RunMut, Shape, Span, View, ViewMut, Write,
};

/// Training forward and backward, then inference.
#[derive(Debug)]
struct Norm {
    shape: Shape,
    /// Of x and dy, y, dx.
    place: [Placement; 3],
    act: Activation,
    write: Write,
    /// The channels' means: far from 0 they cost digits.
    mean: f32,
}

impl Norm {
    fn of(shape: Shape) -> Norm {
        Norm { shape, place: [PLACEMENTS[0]; 3], act: Activation::Relu, write: Write::Set, mean: 0.0 }
    }

    fn draw(rng: &mut philox::Philox) -> Norm {
        let c = [between(rng, 1, 70), 8 * between(rng, 1, 20)][between(rng, 0, 1)];
        Norm {
            shape: Shape::new(between(rng, 0, 4), between(rng, 1, 9), between(rng, 3, 9), c),
            place: [pick(rng, &PLACEMENTS), pick(rng, &PLACEMENTS), pick(rng, &PLACEMENTS)],
            act: pick(rng, &[Activation::None, Activation::Relu]),
            write: pick(rng, &[Write::Set, Write::Add]),
            mean: pick(rng, &[0.0, -4.0]),
        }
    }
}

impl Case for Norm {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let (shape, c, bn) = (self.shape, self.shape.c, BatchNorm { epsilon: 1e-3, act: self.act });
        let mut x = Operand::draw("x", shape, self.place[0]);
        x.values.iter_mut().for_each(|x| *x += self.mean);
        let x = x.on(device, precision)?;
        let dy = Operand::draw("dy", shape, self.place[0]).on(device, precision)?;
        let mut y = Operand::draw("y", shape, self.place[1]).on(device, precision)?;
        let mut dx = Operand::draw("dx", shape, self.place[2]).on(device, precision)?;
        let params = upload(device, &numbers("params", 2 * c + 3))?;
        let (gamma, beta) = (Span::new(3, c), Span::new(3 + c, c));
        let (mut saved, mut grads) =
            (device.alloc(2 * c + 1)?, upload(device, &numbers("grads", 4 * c + 3))?);
        let (dgamma, dbeta, sums) = (Span::new(1, c), Span::new(2 + c, c), Span::new(2 + 2 * c, 2 * c));
        let affine = Run::new(&params, AffineSpans { gamma, beta });
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums: RunMut::new(&mut grads, sums) };
        device.bn_act_fwd_train(&bn, x.view(), norm, y.view_mut())?;
        // Digits that the mean takes from f32 itself, and from a mean near 0, the sum of larger numbers.
        let lost = 1.0 + self.mean.abs();
        let (of_mean, of_deviation) = (2e-5 / lost + 2e-7, 5e-6 * lost.sqrt());
        let mut outputs = vec![y.output(device, "y", 2e-6 * lost)?];
        let norm = NormSaved { x: x.view(), affine, saved: &saved };
        let gradients = RunMut::new(&mut grads, AffineSpans { gamma: dgamma, beta: dbeta });
        device.bn_act_bwd(&bn, norm, dy.view(), gradients, dx.view_mut(), self.write)?;
        let running = upload(device, &numbers("running", 2 * c).iter().map(|x| x.abs()).collect::<Vec<_>>())?;
        let (mean, var) = (Span::new(0, c), Span::new(c, c));
        let at = NormSpans { affine: affine.at, mean, var };
        let norm = NormInfer { params: &params, running: &running, at };
        device.bn_act_fwd_infer(&bn, x.view(), norm, y.view_mut())?;
        let grads_of =
            |name, at, tolerance| Ok::<_, Error>(Output(name, download(device, &grads, at)?, tolerance));
        outputs.extend([
            Output("mean", download(device, &saved, mean)?, of_mean),
            Output("inverse deviation", download(device, &saved, var)?, of_deviation),
            grads_of("n * mean", Span::new(sums.offset, c), of_mean)?,
            grads_of("n * variance", Span::new(sums.offset + c, c), of_deviation)?,
            grads_of("dgamma", dgamma, 5e-6 * lost)?,
            grads_of("dbeta", dbeta, 5e-6 * lost)?,
            grads_of("what lies between", Span::new(0, 1), 0.0)?,
            grads_of("what lies behind", Span::new(sums.end(), 1), 0.0)?,
            dx.output(device, "dx", 1e-5 * lost)?,
            y.output(device, "y of inference", 2e-6 * lost)?,
        ]);
        Ok(outputs)
    }
}

#[test]
fn any_shape() {
    let (mut rng, devices) = (draws("norms"), PRECISIONS.map(emulated));
    for _ in 0..40 {
        let case = Norm::draw(&mut rng);
        devices.iter().for_each(|cuda| agree_on(cuda, &case));
    }
}

/// Shapes of MiniGoogLeNet, with fewer samples: many slabs, several tiles, channels that fill no vector.
#[test]
fn layers_of_real_networks() {
    let slice = |shape| Norm { place: [PLACEMENTS[1]; 3], ..Norm::of(shape) };
    agree(&Norm::of(Shape::new(4, 32, 32, 96)));
    agree(&slice(Shape::new(4, 15, 15, 112)));
    agree(&Norm::of(Shape::new(8, 7, 7, 336)));
    agree(&slice(Shape::new(4, 20, 20, 10)));
    agree(&Norm { write: Write::Add, ..Norm::of(Shape::new(20, 32, 32, 3)) });
}

/// Nothing but the mean's own rounding is lost: deviations are those of numbers around 0.
#[test]
fn a_large_mean_costs_nothing() {
    for (mean, c) in [(1000.0, 10), (-300.0, 32)] {
        let case = Norm { mean, act: Activation::None, ..Norm::of(Shape::new(8, 32, 32, c)) };
        agree_on(&emulated(Precision::Fp32), &case);
    }
}

/// An outlier where a slab's sums begin does not spoil the others' variance.
#[test]
fn an_outlier_in_front_costs_little() {
    let (cuda, shape) = (emulated(Precision::Fp32), Shape::new(8, 32, 32, 4));
    let mut values = numbers("x", shape.len());
    values[..4].fill(1e3);
    let got = statistics(&cuda, shape, &values).unwrap().sums;
    let expected = statistics(&tensor_cpu::Reference, shape, &values).unwrap().sums;
    assert_close("the variance", &got[4..], &expected[4..], 1e-4, 0.0);
}

/// A constant channel has a variance of exactly 0, and so has a single number.
#[test]
fn constant_channels() {
    for cuda in PRECISIONS.map(emulated) {
        for shape in [Shape::new(3, 30, 30, 8), Shape::new(2, 9, 9, 3), Shape::vectors(1, 5)] {
            let value = rounded(cuda.options().precision, 123.456);
            let Trained { saved, sums, y } = statistics(&cuda, shape, &vec![value; shape.len()]).unwrap();
            assert!(saved[..shape.c].iter().all(|&mean| mean == value), "{saved:?}");
            assert!(sums[shape.c..].iter().all(|&variance| variance == 0.0), "{sums:?}");
            assert!(y.iter().all(|&y| y == 0.5), "{y:?}");
        }
    }
}

/// A NaN reaches the statistics of its channel and no other.
#[test]
fn nan_stays_in_its_channel() {
    for cuda in PRECISIONS.map(emulated) {
        for c in [8, 3] {
            let shape = Shape::new(2, 9, 9, c);
            let mut values = numbers("x", shape.len());
            values[70 * c + 1] = f32::NAN;
            let Trained { saved, sums, y } = statistics(&cuda, shape, &values).unwrap();
            for all in [saved, sums, y] {
                assert!(all.iter().enumerate().all(|(k, x)| x.is_nan() == (k % c == 1)), "{all:?}");
            }
        }
    }
}

/// The same bits however blocks and threads take turns: the emulation has another order for each launch.
#[test]
fn the_order_of_threads_changes_no_bit() {
    for cuda in PRECISIONS.map(emulated) {
        let precision = cuda.options().precision;
        for shape in [Shape::new(2, 24, 24, 48), Shape::new(3, 13, 13, 7)] {
            let case = Norm { write: Write::Add, ..Norm::of(shape) };
            let first = case.run(&cuda, precision).unwrap();
            for _ in 0..4 {
                // Launches more, so that each kernel meets every order.
                statistics(&cuda, Shape::vectors(2, 1), &[1.0, 2.0]).unwrap();
                for (Output(name, a, _), Output(_, b, _)) in
                    first.iter().zip(&case.run(&cuda, precision).unwrap())
                {
                    let same = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{name} of {case:?} has other bits");
                }
            }
        }
    }
}

#[test]
fn refuses_what_does_not_fit() {
    let cuda = emulated(Precision::Fp32);
    let bn = BatchNorm { epsilon: 1e-3, act: Activation::None };
    let at = Layout::contiguous(Shape::vectors(2, 4));
    let (x, mut y, params) = (cuda.alloc(8).unwrap(), cuda.alloc(8).unwrap(), cuda.alloc(8).unwrap());
    let (mut grads, mut saved) = (cuda.alloc(16).unwrap(), cuda.alloc(7).unwrap());
    let (gamma, beta, sums) = (Span::new(0, 4), Span::new(4, 4), Span::new(8, 8));
    let mut train = |gamma, sums| {
        let affine = Run::new(&params, AffineSpans { gamma, beta });
        let sums = RunMut::new(&mut grads, sums);
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums };
        cuda.bn_act_fwd_train(&bn, View::new(&x, at), norm, ViewMut::new(&mut y, at))
    };
    assert!(matches!(train(gamma, sums), Err(Error::OutOfBounds { end: 8, len: 7, .. })));
    assert!(matches!(train(Span::new(0, 3), sums), Err(Error::Length { what: "gamma", .. })));
    assert!(matches!(train(gamma, gamma), Err(Error::Length { what: "the sums", .. })));
    let (saved, x) = (cuda.alloc(8).unwrap(), View::new(&x, at));
    let dx = ViewMut::new(&mut y, at);
    let overlap = Span::new(2, 4);
    let norm = NormSaved { x, affine: Run::new(&params, AffineSpans { gamma, beta }), saved: &saved };
    let overlap = RunMut::new(&mut grads, AffineSpans { gamma, beta: overlap });
    let refused = cuda.bn_act_bwd(&bn, norm, x, overlap, dx, Write::Set);
    assert!(matches!(refused, Err(Error::Value { op: "bn_act_bwd_params", .. })), "{refused:?}");
}

/// What the forward pass of training writes.
struct Trained {
    saved: Vec<f32>,
    sums: Vec<f32>,
    y: Vec<f32>,
}

/// With a scale of 1, an offset of 0.5 and ReLU.
fn statistics<B: Backend>(device: &B, shape: Shape, values: &[f32]) -> Result<Trained> {
    let (c, at) = (shape.c, Layout::contiguous(shape));
    let bn = BatchNorm { epsilon: 1e-3, act: Activation::Relu };
    let mut x = device.alloc_activations(shape.len())?;
    device.upload(values, &mut x, 0)?;
    let mut y = device.alloc_activations(shape.len())?;
    let params = upload(device, &[vec![1.0; c], vec![0.5; c]].concat())?;
    let (mut saved, mut grads) = (device.alloc(2 * c)?, device.alloc(2 * c)?);
    let (gamma, beta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(0, 2 * c));
    let (x, yv) = (View::new(&x, at), ViewMut::new(&mut y, at));
    let affine = Run::new(&params, AffineSpans { gamma, beta });
    let norm = NormTrain { affine, bias: None, saved: &mut saved, sums: RunMut::new(&mut grads, sums) };
    device.bn_act_fwd_train(&bn, x, norm, yv)?;
    let all = |buffer, len| download(device, buffer, Span::new(0, len));
    Ok(Trained { saved: all(&saved, 2 * c)?, sums: all(&grads, 2 * c)?, y: all(&y, shape.len())? })
}
