//! Operands that do not fit are refused by every device as by the reference, with an error that names them, and never a
//! panic.

use crate::Subject;
use program::{
    Activation, AffineSpans, Backend, BatchNorm, Conv2d, DropoutMask, Error, Fill, ImageDraw, ImageSet,
    Layout, Linear, LoadImages, NormGrads, NormInfer, NormSaved, NormSpans, NormTrain, Pad, Pool2d, Result,
    RmspropStep, Run, RunMut, Shape, SoftmaxXent, Span, View, ViewMut, WeightSpans, Write,
};
use tensor_cpu::Reference;

/// Runs a block on the reference and on every device, with `$device` bound to each.
macro_rules! on_each {
    ($subject:ident, |$device:ident| $body:expr) => {{
        fn check<B: Backend>($device: &B) -> Result<()> {
            $body
            Ok(())
        }
        check(&Reference).expect("the reference takes what fits");
        for bench in $subject.benches() {
            check(bench.device).expect("the device takes what fits");
        }
    }};
}

/// An op with one input and one output.
type Op<'a, B> = &'a dyn Fn(View<B>, ViewMut<B>) -> Result<()>;

/// Asserts that a result is an error of one variant.
macro_rules! refused {
    ($result:expr, $variant:ident { $($fields:tt)* }) => {
        let result = $result;
        assert!(matches!(result, Err(Error::$variant { $($fields)* })), "{} gave {result:?}", stringify!($result));
    };
}

const RELU: Activation = Activation::Relu;
const CONV: Conv2d = Conv2d { inputs: 2, outputs: 3, kernel: [3; 2], stride: [1; 2], pad: Pad::VALID };
const POOL: Pool2d = Pool2d { kernel: [2; 2], stride: [2; 2], pad: Pad::VALID };

fn at(n: usize, h: usize, w: usize, c: usize) -> Layout {
    Layout::contiguous(Shape::new(n, h, w, c))
}

/// Copies and fills.
pub fn transfers_out_of_bounds<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (mut a, mut ints) = (d.alloc(4)?, d.alloc_ints(2)?);
        refused!(d.upload(&[0.0; 3], &mut a, 2), OutOfBounds { op: "upload", end: 5, len: 4, .. });
        refused!(d.download(&a, 4, &mut [0.0]), OutOfBounds { op: "download", .. });
        refused!(d.upload_ints(&[0; 3], &mut ints), OutOfBounds { op: "upload_ints", .. });
        refused!(d.fill(1.0, &mut a, Span::new(3, 2)), OutOfBounds { op: "fill", .. });
    });
}

/// Ops that read and write tensors of one shape.
pub fn elementwise_shapes_and_layouts<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (a, mut b) = (d.alloc_activations(12)?, d.alloc_activations(12)?);
        let (fits, wide) = (at(1, 2, 2, 3), at(1, 2, 3, 2));
        let long = at(2, 2, 2, 3);
        let overlapping = Layout { stride: 2, ..fits };
        let mut pair = |x, y, f: Op<B::Buffer>| f(View::new(&a, x), ViewMut::new(&mut b, y));
        let mask = DropoutMask { rate: 0.5, key: [0; 2], step: 0, first_sample: 0 };
        let all: [(&str, Op<B::Buffer>); 6] = [
            ("copy", &|x, y| d.copy(x, y, Write::Set)),
            ("act_fwd", &|x, y| d.act_fwd(RELU, x, y)),
            ("add_act", &|x, y| d.add_act(RELU, x, y)),
            ("act_bwd", &|x, y| d.act_bwd(RELU, x, x, y, Write::Set)),
            ("dropout", &|x, y| d.dropout(&mask, x, y, Write::Add)),
            ("softmax", &|x, y| d.softmax(x, y)),
        ];
        for (name, op) in all {
            assert!(pair(fits, fits, op).is_ok(), "{name}");
            assert!(matches!(pair(fits, wide, op), Err(Error::Shape { op, .. }) if op == name));
            assert!(matches!(pair(long, long, op), Err(Error::OutOfBounds { op, .. }) if op == name));
            assert!(
                matches!(pair(fits, overlapping, op), Err(Error::NotContiguous { op, .. }) if op == name)
            );
        }
        for rate in [-0.1, 1.0, f32::NAN] {
            let (mask, y) = (DropoutMask { rate, ..mask }, ViewMut::new(&mut b, fits));
            refused!(d.dropout(&mask, View::new(&a, fits), y, Write::Set), Value { op: "dropout", .. });
        }
        refused!(d.act_bwd_in_place(RELU, View::new(&a, wide), ViewMut::new(&mut b, fits)), Shape { .. });
    });
}

/// Shapes, kernels and runs of parameters.
pub fn convolution_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y) = (d.alloc_activations(200)?, d.alloc_activations(200)?);
        let params = d.alloc(60)?;
        let (image, output) = (at(1, 5, 5, 2), at(1, 3, 3, 3));
        let (w, b) = (Span::new(0, 54), Span::new(54, 3));
        let mut forward = |conv: &Conv2d, x_at, y_at, w, b| {
            let weights = Run::new(&params, WeightSpans { w, b: Some(b) });
            d.conv2d_fwd(conv, RELU, View::new(&x, x_at), weights, ViewMut::new(&mut y, y_at))
        };
        assert!(forward(&CONV, image, output, w, b).is_ok());
        refused!(forward(&CONV, at(1, 5, 5, 3), output, w, b), Shape { what: "the input", .. });
        refused!(forward(&CONV, image, at(1, 3, 4, 3), w, b), Shape { what: "the output", .. });
        refused!(forward(&CONV, image, output, Span::new(0, 53), b), Length { what: "the weights", .. });
        refused!(forward(&CONV, image, output, w, Span::new(54, 4)), Length { what: "the bias", .. });
        refused!(forward(&CONV, image, output, Span::new(7, 54), b), OutOfBounds { what: "the weights", .. });
        refused!(forward(&CONV, image, output, w, Span::new(58, 3)), OutOfBounds { what: "the bias", .. });
        refused!(forward(&CONV, at(1, 2, 5, 2), output, w, b), Window { .. });
        refused!(forward(&Conv2d { stride: [0, 1], ..CONV }, image, output, w, b), Window { .. });
        refused!(d.prepare_conv2d(&CONV, Shape::new(1, 2, 2, 2), true), Window { .. });
        let far = Layout { offset: 180, ..image };
        refused!(forward(&CONV, far, output, w, b), OutOfBounds { what: "the input", .. });
        let (running, bn) = (d.alloc(6)?, BatchNorm { epsilon: 1e-3, act: RELU });
        let runs = NormSpans {
            affine: AffineSpans { gamma: b, beta: b },
            mean: Span::new(0, 3),
            var: Span::new(3, 3),
        };
        let mut normalized = |x_at, w: Span, runs| {
            let (x, y) = (View::new(&x, x_at), ViewMut::new(&mut y, output));
            let norm = NormInfer { params: &params, running: &running, at: runs };
            d.conv2d_bn_act_fwd_infer(&CONV, &bn, x, Run::new(&params, w.into()), norm, y)
        };
        assert!(normalized(image, w, runs).is_ok());
        refused!(normalized(at(1, 5, 5, 3), w, runs), Shape { what: "the input", .. });
        refused!(normalized(image, Span::new(7, 54), runs), OutOfBounds { what: "the weights", .. });
        let var = Span::new(4, 3);
        refused!(normalized(image, w, NormSpans { var, ..runs }), OutOfBounds { what: "the variance", .. });
        let beta = Span::new(0, 2);
        let affine = AffineSpans { beta, ..runs.affine };
        refused!(normalized(image, w, NormSpans { affine, ..runs }), Length { what: "beta", .. });
    });
}

/// Sizes whose products do not fit into a machine word must not wrap around into sizes that fit.
pub fn absurd_sizes<B: Backend>(subject: &Subject<B>) {
    const MAX: usize = usize::MAX;
    // Three times this is 1 more than what a word holds.
    const THIRD: usize = MAX / 3 * 2 + 1;
    on_each!(subject, |d| {
        refused!(d.alloc(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        refused!(d.alloc_activations(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        refused!(d.alloc_ints(MAX).map(drop), OutOfMemory { bytes: MAX, .. });
        let (x, mut y, params) = (d.alloc_activations(8)?, d.alloc_activations(8)?, d.alloc(8)?);
        assert_eq!(THIRD.wrapping_mul(3), 1);
        for wraps in [at(3, THIRD, 1, 1), at(1 << 32, 1 << 31, 2, 2)] {
            let (x, y) = (View::new(&x, wraps), ViewMut::new(&mut y, wraps));
            refused!(d.act_fwd(RELU, x, y), OutOfBounds { .. });
        }
        let mut forward = |conv: &Conv2d, x_at, y_at, w: Span| {
            let w = Run::new(&params, w.into());
            d.conv2d_fwd(conv, RELU, View::new(&x, x_at), w, ViewMut::new(&mut y, y_at))
        };
        let (one, w) = (at(1, 1, 1, 1), Span::new(0, 1));
        let valid = Conv2d { inputs: 1, outputs: 1, kernel: [1; 2], stride: [1; 2], pad: Pad::VALID };
        let tall = Conv2d { kernel: [3, 1], pad: Pad { top: 1, bottom: 1, ..Pad::VALID }, ..valid };
        refused!(forward(&tall, at(3, THIRD, 1, 1), at(3, THIRD, 1, 1), Span::new(0, 3)), Window { .. });
        let around = Conv2d { pad: Pad { top: MAX, bottom: 1, ..Pad::VALID }, ..valid };
        refused!(forward(&around, one, one, w), Window { .. });
        let apart = Conv2d { pad: Pad { top: 1 << 60, ..Pad::VALID }, stride: [1 << 59, 1], ..valid };
        refused!(forward(&apart, one, at(1, 3, 1, 1), w), Window { .. });
        let wide = Conv2d { inputs: 1 << 32, outputs: 1 << 32, ..valid };
        refused!(forward(&wide, at(0, 1, 1, 1 << 32), at(0, 1, 1, 1 << 32), Span::new(0, 0)), Length { .. });
    });
}

/// No window may lie in the padding alone: an image without pixels has no other ones.
pub fn pooling_of_nothing<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y) = (d.alloc_activations(0)?, d.alloc_activations(3)?);
        let pool = Pool2d { pad: Pad { top: 1, bottom: 1, ..Pad::VALID }, ..POOL };
        let (image, output) = (at(1, 0, 2, 3), at(1, 1, 1, 3));
        refused!(d.maxpool_fwd(&pool, View::new(&x, image), ViewMut::new(&mut y, output)), Window { .. });
        refused!(d.avgpool_fwd(&pool, View::new(&x, image), ViewMut::new(&mut y, output)), Window { .. });
    });
}

/// Two gradients in one run.
pub fn gradients_that_overlap<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut grads) = (d.alloc_activations(200)?, d.alloc(60)?);
        let (image, output) = (View::new(&x, at(1, 5, 5, 2)), View::new(&x, at(1, 3, 3, 3)));
        let weights = WeightSpans { w: Span::new(0, 54), b: Some(Span::new(53, 3)) };
        let weights = RunMut::new(&mut grads, weights);
        refused!(d.conv2d_bwd_filter(&CONV, image, output, weights), Value { .. });
        let linear = Linear { inputs: 2, outputs: 3 };
        let (a, b) = (View::new(&x, at(4, 1, 1, 2)), View::new(&x, at(4, 1, 1, 3)));
        let weights = WeightSpans { w: Span::new(5, 6), b: Some(Span::new(3, 3)) };
        refused!(d.linear_bwd_filter(&linear, a, b, RunMut::new(&mut grads, weights)), Value { .. });
        let (params, saved, mut dx) = (d.alloc(6)?, d.alloc(6)?, d.alloc_activations(12)?);
        let bn = BatchNorm { epsilon: 1e-3, act: RELU };
        let affine = Run::new(&params, AffineSpans { gamma: Span::new(0, 3), beta: Span::new(3, 3) });
        let norm = NormSaved { x: b, affine, saved: &saved };
        let overlap = RunMut::new(&mut grads, AffineSpans { gamma: Span::new(9, 3), beta: Span::new(11, 3) });
        let dx = ViewMut::new(&mut dx, at(4, 1, 1, 3));
        refused!(d.bn_act_bwd(&bn, norm, b, overlap, dx, Write::Set), Value { .. });
    });
}

/// Shapes and runs of parameters.
pub fn dense_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y, params) = (d.alloc_activations(8)?, d.alloc_activations(12)?, d.alloc(9)?);
        let linear = Linear { inputs: 2, outputs: 3 };
        let (w, b) = (Span::new(0, 6), Some(Span::new(6, 3)));
        let mut forward = |x_at, y_at, w, b| {
            let weights = Run::new(&params, WeightSpans { w, b });
            d.linear_fwd(&linear, RELU, View::new(&x, x_at), weights, ViewMut::new(&mut y, y_at))
        };
        assert!(forward(at(4, 1, 1, 2), at(4, 1, 1, 3), w, b).is_ok());
        refused!(forward(at(2, 2, 1, 2), at(4, 1, 1, 3), w, b), Shape { .. });
        refused!(forward(at(4, 1, 1, 2), at(4, 1, 1, 2), w, b), Shape { .. });
        refused!(forward(at(4, 1, 1, 2), at(4, 1, 1, 3), Span::new(0, 5), b), Length { .. });
        refused!(forward(at(4, 1, 1, 2), at(4, 1, 1, 3), w, Some(Span::new(7, 3))), OutOfBounds { .. });
        refused!(forward(at(5, 1, 1, 2), at(5, 1, 1, 3), w, b), OutOfBounds { .. });
    });
}

/// Shapes, parameters, statistics and sums.
pub fn normalization_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y, params) = (d.alloc_activations(12)?, d.alloc_activations(12)?, d.alloc(8)?);
        let (bn, fits) = (BatchNorm { epsilon: 1e-3, act: RELU }, at(2, 2, 1, 3));
        let (gamma, beta, sums) = (Span::new(0, 3), Span::new(3, 3), Span::new(0, 6));
        let mut train = |x_at, gamma, saved: usize, sums| {
            let (mut saved, mut grads) = (d.alloc(saved)?, d.alloc(6)?);
            let (x, y) = (View::new(&x, x_at), ViewMut::new(&mut y, fits));
            let affine = Run::new(&params, AffineSpans { gamma, beta });
            let sums = RunMut::new(&mut grads, sums);
            d.bn_act_fwd_train(&bn, x, NormTrain { affine, bias: None, saved: &mut saved, sums }, y)
        };
        assert!(train(fits, gamma, 6, sums).is_ok());
        refused!(train(at(4, 1, 1, 3), gamma, 6, sums), Shape { .. });
        refused!(train(fits, Span::new(0, 2), 6, sums), Length { what: "gamma", .. });
        refused!(train(fits, gamma, 5, sums), OutOfBounds { what: "the saved statistics", .. });
        refused!(train(fits, gamma, 6, Span::new(0, 3)), Length { what: "the sums", .. });
        refused!(train(fits, gamma, 6, Span::new(1, 6)), OutOfBounds { what: "the sums", .. });
        let (running, mut averages) = (d.alloc(4)?, d.alloc(4)?);
        let average = d.ema_step(0.9, 1.0, &running, Span::new(0, 3), &mut averages, Span::new(0, 4));
        refused!(average, Length { op: "ema_step", .. });
    });
}

/// The halves that replicas meet between: statistics, and gradients of gamma and beta.
pub fn halves_of_a_normalization<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y, params) = (d.alloc_activations(12)?, d.alloc_activations(12)?, d.alloc(8)?);
        let (bn, fits) = (BatchNorm { epsilon: 1e-3, act: RELU }, at(2, 2, 1, 3));
        let at_params = AffineSpans { gamma: Span::new(0, 3), beta: Span::new(3, 3) };
        let (affine, mut stats) = (Run::new(&params, at_params), d.alloc(14)?);
        let mut own = |at| d.bn_statistics(View::new(&x, fits), RunMut::new(&mut stats, at));
        assert!(own(Span::new(7, 7)).is_ok());
        refused!(own(Span::new(8, 7)), OutOfBounds { .. });
        refused!(own(Span::new(0, 6)), Length { .. });
        let (mut saved, mut grads) = (d.alloc(6)?, d.alloc(6)?);
        let mut joined = |stats_len, y_at| {
            let (x, y) = (View::new(&x, fits), ViewMut::new(&mut y, y_at));
            let sums = RunMut::new(&mut grads, Span::new(0, 6));
            let norm = NormTrain { affine, bias: None, saved: &mut saved, sums };
            d.bn_act_fwd_joined(&bn, x, Run::new(&stats, Span::new(0, stats_len)), norm, y)
        };
        assert!(joined(14, fits).is_ok());
        refused!(joined(21, fits), OutOfBounds { what: "the replicas' statistics", .. });
        refused!(joined(13, fits), Length { what: "the replicas' statistics", .. });
        refused!(joined(0, fits), Length { what: "the replicas' statistics", .. });
        refused!(joined(14, at(4, 1, 1, 3)), Shape { .. });
        let x = View::new(&x, fits);
        let norm = NormSaved { x, affine, saved: &saved };
        let mut params_of = |dy, beta| {
            let gradients = RunMut::new(&mut grads, AffineSpans { beta, ..at_params });
            d.bn_act_bwd_params(&bn, norm, dy, gradients)
        };
        assert!(params_of(x, at_params.beta).is_ok());
        refused!(params_of(View::new(x.data, at(4, 1, 1, 3)), at_params.beta), Shape { .. });
        refused!(params_of(x, Span::new(2, 3)), Value { .. });
        refused!(params_of(x, Span::new(3, 2)), Length { what: "dbeta", .. });
        let mut data = |dx, beta| {
            let grads = Run::new(&grads, AffineSpans { beta, ..at_params });
            let whole = NormGrads { grads, count: 4 };
            d.bn_act_bwd_data(&bn, norm, x, whole, ViewMut::new(&mut y, dx), Write::Set)
        };
        assert!(data(fits, at_params.beta).is_ok());
        refused!(data(at(4, 1, 1, 3), at_params.beta), Shape { .. });
        refused!(data(fits, Span::new(4, 3)), OutOfBounds { .. });
        refused!(data(fits, Span::new(3, 2)), Length { what: "dbeta", .. });
    });
}

/// Shapes and windows.
pub fn pooling_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, mut y) = (d.alloc_activations(48)?, d.alloc_activations(48)?);
        let (image, output) = (at(1, 4, 4, 3), at(1, 2, 2, 3));
        refused!(d.maxpool_fwd(&POOL, View::new(&x, image), ViewMut::new(&mut y, image)), Shape { .. });
        refused!(
            d.avgpool_fwd(&POOL, View::new(&x, at(1, 1, 4, 3)), ViewMut::new(&mut y, output)),
            Window { .. }
        );
        let padded = Pool2d { pad: Pad { top: 2, ..Pad::VALID }, ..POOL };
        refused!(d.maxpool_fwd(&padded, View::new(&x, image), ViewMut::new(&mut y, output)), Window { .. });
        let (image_of, dy) = (View::new(&x, image), View::new(&x, output));
        let wrong = ViewMut::new(&mut y, output);
        refused!(d.maxpool_bwd(&POOL, image_of, dy, dy, wrong, Write::Set), Shape { what: "dx", .. });
        let right = ViewMut::new(&mut y, image);
        refused!(d.maxpool_bwd(&POOL, image_of, dy, image_of, right, Write::Set), Shape { what: "dy", .. });
        let right = ViewMut::new(&mut y, image);
        refused!(d.avgpool_bwd(&POOL, image_of, right, Write::Set), Shape { .. });
    });
}

/// Logits, labels, metrics and the smoothing.
pub fn loss_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (x, labels, mut sums) = (d.alloc_activations(12)?, d.alloc_ints(3)?, d.alloc(2)?);
        let (metrics, hard) =
            (Span::new(0, 2), SoftmaxXent { label_smoothing: 0.0, scale: 1.0, mixed: false });
        let mut loss = |xent: &SoftmaxXent, x_at, metrics| {
            d.softmax_xent(xent, View::new(&x, x_at), &labels, None, &mut sums, metrics)
        };
        assert!(loss(&hard, at(3, 1, 1, 4), metrics).is_ok());
        refused!(loss(&hard, at(4, 1, 1, 3), metrics), OutOfBounds { what: "the labels", .. });
        refused!(loss(&hard, at(1, 3, 1, 4), metrics), Shape { .. });
        refused!(loss(&hard, at(3, 1, 1, 4), Span::new(0, 1)), Length { .. });
        refused!(loss(&hard, at(3, 1, 1, 4), Span::new(1, 2)), OutOfBounds { .. });
        for label_smoothing in [1.0, -0.5, f32::NAN] {
            let xent = SoftmaxXent { label_smoothing, ..hard };
            refused!(loss(&xent, at(3, 1, 1, 4), metrics), Value { .. });
        }
    });
}

/// Arenas that are too short.
pub fn optimizer_arenas<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let (mut params, grads, mut state) = (d.alloc(8)?, d.alloc(8)?, d.alloc(6)?);
        let step = RmspropStep {
            lr: 0.1,
            rho: 0.9,
            epsilon: 1e-7,
            epsilon_inside_root: false,
            weight_decay: Default::default(),
        };
        let refuse_state = d.rmsprop_step(&step, &mut params, &grads, &mut state, Span::new(0, 8));
        refused!(refuse_state, OutOfBounds { what: "the mean squares", .. });
        refused!(d.rmsprop_step(&step, &mut params, &grads, &mut state, Span::new(5, 4)), OutOfBounds { .. });
    });
}

/// A set of images, its table of draws, and the batch.
pub fn image_operands<B: Backend>(subject: &Subject<B>) {
    on_each!(subject, |d| {
        let load = LoadImages { height: 2, width: 2, channels: 3, fill: Fill::Nearest, scale: 1.0 };
        let (images, labels) = (d.alloc_bytes(36)?, d.alloc_ints(3)?);
        let draws = d.alloc_ints(4 * ImageDraw::WORDS)?;
        let (mut x, mut to) = (d.alloc_activations(48)?, d.alloc_ints(4)?);
        let mut batch = |load: &LoadImages, images, first, means: usize, x_at| {
            let means = d.alloc(means)?;
            let (set, x) = (ImageSet { images, labels: &labels, means: &means }, ViewMut::new(&mut x, x_at));
            d.load_images(load, set, &draws, first, x, &mut to)
        };
        let (short, fits) = (d.alloc_bytes(35)?, at(2, 2, 2, 3));
        assert!(batch(&load, &images, 2, 24, fits).is_ok());
        refused!(batch(&load, &short, 2, 24, fits), Length { what: "the set of images", .. });
        refused!(batch(&load, &images, 3, 24, fits), OutOfBounds { what: "the table of draws", .. });
        refused!(batch(&load, &images, usize::MAX, 24, fits), OutOfBounds { what: "the table of draws", .. });
        refused!(batch(&load, &images, 2, 23, fits), OutOfBounds { what: "the means", .. });
        refused!(batch(&load, &images, 2, 24, at(2, 2, 3, 2)), Shape { what: "the batch", .. });
        refused!(batch(&load, &images, 0, 24, Layout { offset: 25, ..fits }), OutOfBounds { .. });
        refused!(batch(&LoadImages { width: 0, ..load }, &images, 2, 24, at(2, 2, 0, 3)), Value { .. });
    });
}
