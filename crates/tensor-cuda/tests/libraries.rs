//! cuDNN and cuBLASLt beside our own kernels, on a GPU: the layers of our models, in every number format.
//!
//! It prints what was chosen and how long that takes: `cargo test -p tensor-cuda --test libraries -- --nocapture`. Without
//! a GPU it prints a line that begins with `SKIPPED`; `TOWERS_REQUIRE_CUDA=1` turns that into a failure.
//!
//! One test starts the others on stand-ins for the driver and the libraries, with smaller layers: that shows that the calls are those
//! of the documentation, and what becomes of refusals.

#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "libraries/failures.rs"]
mod failures;
#[path = "driver/play.rs"]
mod play;

use philox::{Philox, domain};
use play::Played;
use program::{
    Activation, Backend, Conv2d, Layout, Linear, Pad, Precision, Run, RunMut, Shape, Span, View, ViewMut,
    Write,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensor_cuda::{Buffer, Cuda, Options};

/// The variable that says that this is a start on stand-ins.
const ON_STAND_INS: &str = "TOWERS_TEST_ON_STAND_INS";

fn is_on_stand_ins() -> bool {
    std::env::var_os(ON_STAND_INS).is_some()
}

/// A batch that is no multiple of anything.
fn batch() -> usize {
    if is_on_stand_ins() { 5 } else { 61 }
}

/// Channels of a layer: fewer where the processor computes.
fn channels(count: usize) -> usize {
    if is_on_stand_ins() { count.div_ceil(8).max(3) } else { count }
}

/// Rows, channels, filters, kernel, stride and padding of the convolutions of MiniGoogLeNet, one of each kind, and of the
/// Keras example.
const CONVOLUTIONS: [[usize; 6]; 18] = [
    [32, 3, 96, 3, 1, 1],
    [32, 96, 32, 1, 1, 0],
    [32, 96, 32, 3, 1, 1],
    [32, 64, 48, 3, 1, 1],
    [32, 80, 80, 3, 2, 0],
    [15, 160, 112, 1, 1, 0],
    [15, 160, 48, 3, 1, 1],
    [15, 160, 64, 3, 1, 1],
    [15, 144, 96, 3, 1, 1],
    [15, 144, 96, 3, 2, 0],
    [7, 240, 176, 1, 1, 0],
    [7, 240, 160, 3, 1, 1],
    [7, 336, 176, 1, 1, 0],
    [7, 336, 160, 3, 1, 1],
    [32, 3, 32, 3, 1, 1],
    [32, 32, 32, 3, 1, 0],
    [15, 32, 64, 3, 1, 1],
    [15, 64, 64, 3, 1, 0],
];

const DENSE: [[usize; 2]; 3] = [[336, 10], [2304, 512], [512, 10]];

fn dense() -> impl Iterator<Item = Linear> {
    DENSE.into_iter().map(|[inputs, outputs]| Linear { inputs: channels(inputs), outputs: channels(outputs) })
}

fn convolutions() -> impl Iterator<Item = (Conv2d, Shape)> {
    // On stand-ins three: with a stride, with padding, of one pixel.
    let few = if is_on_stand_ins() { [4, 3, 3] } else { [0, 1, CONVOLUTIONS.len()] };
    CONVOLUTIONS.into_iter().skip(few[0]).step_by(few[1]).take(few[2]).map(
        |[size, inputs, outputs, kernel, stride, pad]| {
            let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
            let [inputs, outputs] = [inputs, outputs].map(channels);
            let conv = Conv2d { inputs, outputs, kernel: [kernel; 2], stride: [stride; 2], pad };
            let size = if is_on_stand_ins() { size.div_ceil(4) } else { size };
            (conv, Shape::new(batch(), size, size, inputs))
        },
    )
}

/// How far the results of two engines may lie apart, relative to the largest: the format's rounding, the rounding of
/// factors to TF32, and what Winograd's algorithm loses.
fn tolerance(precision: Precision) -> f32 {
    match precision {
        Precision::Fp32 => 3e-4,
        Precision::Tf32 => 4e-3,
        Precision::Bf16 => 2e-2,
        Precision::Fp16 => 5e-3,
    }
}

/// Numbers around 0, the same for both engines.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mut random = Philox::new(seed, domain("libraries"), [0, 0]);
    (0..len).map(|_| 2.0 * random.unit_f32() - 1.0).collect()
}

fn activations(cuda: &Cuda, values: &[f32]) -> Buffer {
    let mut buffer = cuda.alloc_activations(values.len()).unwrap();
    cuda.upload(values, &mut buffer, 0).unwrap();
    buffer
}

fn values(cuda: &Cuda, buffer: &Buffer) -> Vec<f32> {
    let mut values = vec![0.0; buffer.len()];
    cuda.download(buffer, 0, &mut values).unwrap();
    values
}

/// Output, gradient of the input (set, then added to once more) and gradient of the weights of a convolution.
fn convolve(cuda: &Cuda, conv: &Conv2d, shape: Shape) -> [Vec<f32>; 3] {
    cuda.prepare_conv2d(conv, shape, true).unwrap();
    convolve_unplanned(cuda, conv, shape)
}

fn convolve_unplanned(cuda: &Cuda, conv: &Conv2d, shape: Shape) -> [Vec<f32>; 3] {
    let out = conv.output(shape).unwrap();
    let (xl, yl) = (Layout::contiguous(shape), Layout::contiguous(out));
    let w = Span::new(0, conv.weights());
    let x = activations(cuda, &numbers(1, shape.len()));
    let dy = activations(cuda, &numbers(2, out.len()));
    let (mut params, mut grads) = (cuda.alloc(w.len).unwrap(), cuda.alloc(w.len).unwrap());
    cuda.upload(&numbers(3, w.len), &mut params, 0).unwrap();
    let (mut y, mut dx) =
        (cuda.alloc_activations(out.len()).unwrap(), cuda.alloc_activations(shape.len()).unwrap());
    let write_y = ViewMut { data: &mut y, layout: yl };
    cuda.conv2d_fwd(
        conv,
        Activation::None,
        View { data: &x, layout: xl },
        Run::new(&params, w.into()),
        write_y,
    )
    .unwrap();
    for write in [Write::Set, Write::Add] {
        let (dy, dx) = (View { data: &dy, layout: yl }, ViewMut { data: &mut dx, layout: xl });
        cuda.conv2d_bwd_data(conv, dy, Run::new(&params, w), dx, write).unwrap();
    }
    let (x, dy) = (View { data: &x, layout: xl }, View { data: &dy, layout: yl });
    cuda.conv2d_bwd_filter(conv, x, dy, RunMut::new(&mut grads, w.into())).unwrap();
    cuda.finish_grads(&mut grads, w).unwrap();
    [values(cuda, &y), values(cuda, &dx), values(cuda, &grads)]
}

/// The same of a dense layer.
fn multiply(cuda: &Cuda, linear: &Linear, n: usize) -> [Vec<f32>; 3] {
    let layouts = [linear.inputs, linear.outputs].map(|c| Layout::contiguous(Shape::vectors(n, c)));
    let [xl, yl] = layouts;
    let w = Span::new(0, linear.inputs * linear.outputs);
    let [x, dy] = [(4, xl), (5, yl)].map(|(seed, at)| activations(cuda, &numbers(seed, at.shape.len())));
    let [mut dx, mut y] = layouts.map(|at| cuda.alloc_activations(at.shape.len()).unwrap());
    let (mut params, mut grads) = (cuda.alloc(w.len).unwrap(), cuda.alloc(w.len).unwrap());
    cuda.upload(&numbers(6, w.len), &mut params, 0).unwrap();
    cuda.prepare_linear(linear, n, true).unwrap();
    let write_y = ViewMut { data: &mut y, layout: yl };
    cuda.linear_fwd(
        linear,
        Activation::None,
        View { data: &x, layout: xl },
        Run::new(&params, w.into()),
        write_y,
    )
    .unwrap();
    for write in [Write::Set, Write::Add] {
        let (dy, dx) = (View { data: &dy, layout: yl }, ViewMut { data: &mut dx, layout: xl });
        cuda.linear_bwd_data(linear, dy, Run::new(&params, w), dx, write).unwrap();
    }
    let (x, dy) = (View { data: &x, layout: xl }, View { data: &dy, layout: yl });
    cuda.linear_bwd_filter(linear, x, dy, RunMut::new(&mut grads, w.into())).unwrap();
    cuda.finish_grads(&mut grads, w).unwrap();
    [values(cuda, &y), values(cuda, &dx), values(cuda, &grads)]
}

/// The largest difference, relative to the largest number. A number that is not one is infinitely far from any.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let apart = |(x, y): (&f32, &f32)| if (x - y).is_nan() { f32::INFINITY } else { (x - y).abs() };
    a.iter().zip(b).map(apart).fold(0.0, f32::max) / largest
}

fn compare(what: &str, precision: Precision, theirs: &[Vec<f32>; 3], ours: &[Vec<f32>; 3]) {
    for (result, (theirs, ours)) in ["y", "dx", "dw"].iter().zip(theirs.iter().zip(ours)) {
        let distance = distance(theirs, ours);
        assert!(distance <= tolerance(precision), "{what}, {precision}: {result} is {distance:e} apart");
    }
}

/// One test at a time: what is measured is kept for the user, and must not be measured beside another test.
fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU with the libraries, and the same with our own kernels alone; `None` where there is no GPU.
fn both(options: Options) -> Option<[Cuda; 2]> {
    match Cuda::new(options) {
        Ok(cuda) => Some([cuda, Cuda::of_own_kernels(options).unwrap()]),
        Err(why) => {
            let required = std::env::var_os("TOWERS_REQUIRE_CUDA").is_some_and(|value| value == "1");
            assert!(!required, "TOWERS_REQUIRE_CUDA=1, but no GPU can be used: {why}");
            println!("SKIPPED: cuda: {why}");
            None
        }
    }
}

fn compare_all(deterministic: bool) {
    let _alone = alone();
    for precision in Precision::ALL {
        let options = Options { precision, deterministic, ..Options::default() };
        let Some([libraries, own]) = both(options) else { return };
        for (conv, shape) in convolutions() {
            let what = format!("{conv:?} of {shape}");
            compare(&what, precision, &convolve(&libraries, &conv, shape), &convolve(&own, &conv, shape));
            // The last batch of an epoch was not planned.
            let ragged = shape.with_n(batch() - 2);
            let [theirs, ours] = [&libraries, &own].map(|cuda| convolve_unplanned(cuda, &conv, ragged));
            compare(&what, precision, &theirs, &ours);
        }
        for linear in dense() {
            let what = format!("{linear:?}");
            let [theirs, ours] = [&libraries, &own].map(|cuda| multiply(cuda, &linear, batch()));
            compare(&what, precision, &theirs, &ours);
        }
        let lines = libraries.describe_engine();
        println!("{precision}, deterministic: {deterministic}\n  {}", lines.join("\n  "));
        // Before Ampere there is no bf16 in cuDNN. Otherwise it has something for each pass, and where it may be measured it was
        // so against our own kernels: both times are there. Who is faster is not for a test to say.
        let is_used =
            |name| tensor_cuda::libraries().iter().any(|each| each.name == name && each.state.is_ok());
        let is_to_refuse =
            ["FAKE_CUDNN_LACKS", "FAKE_CUDNN_FAILS"].iter().any(|name| std::env::var_os(name).is_some());
        if !is_used("cuDNN") || precision == Precision::Bf16 || is_to_refuse {
            continue;
        }
        for pass in ["forward", "data", "filter"] {
            let mut of_pass = lines.iter().filter(|line| line.starts_with(pass));
            let is_fine = of_pass.clone().any(|line| !line.ends_with("own kernels"));
            assert!(is_fine, "cuDNN is installed, but has no algorithm for any pass `{pass}` in {precision}");
            let is_compared = of_pass.any(|line| line.contains(" ms; "));
            assert!(is_compared != deterministic, "compared with our own kernels: {is_compared}");
        }
    }
}

#[test]
fn libraries_agree_with_our_own_kernels() {
    compare_all(false);
}

#[test]
fn so_do_their_deterministic_algorithms() {
    compare_all(true);
}

/// Two devices stand for two runs: each chooses for itself.
#[test]
fn deterministic_algorithms_give_the_same_bits_every_time() {
    let _alone = alone();
    for precision in Precision::ALL {
        let options = Options { precision, deterministic: true, ..Options::default() };
        let Some([first, _]) = both(options) else { return };
        let second = Cuda::new(options).unwrap();
        for (conv, shape) in convolutions() {
            let once = convolve(&first, &conv, shape);
            assert!(once == convolve(&first, &conv, shape), "{conv:?} {precision}: the same device");
            assert!(once == convolve(&second, &conv, shape), "{conv:?} {precision}: another device");
        }
        for linear in dense() {
            let once = multiply(&first, &linear, batch());
            assert!(once == multiply(&second, &linear, batch()), "{linear:?} {precision}");
        }
    }
}

/// A convolution that is padded on one side only is not cuDNN's; it must go elsewhere without a word.
#[test]
fn what_a_library_can_not_do_is_done_all_the_same() {
    let _alone = alone();
    let Some([libraries, own]) = both(Options::default()) else { return };
    let pad = Pad { top: 0, bottom: 1, left: 0, right: 1 };
    let conv = Conv2d { inputs: 8, outputs: 16, kernel: [3; 2], stride: [2; 2], pad };
    let shape = Shape::new(batch(), 32, 32, 8);
    let what = "padding on one side";
    compare(what, Precision::Fp32, &convolve(&libraries, &conv, shape), &convolve(&own, &conv, shape));
}

#[test]
fn a_recorded_convolution_is_replayed() {
    let _alone = alone();
    let Some([cuda, _]) = both(Options::default()) else { return };
    let (conv, shape) = convolutions().next().unwrap();
    let out = conv.output(shape).unwrap();
    let (xl, yl) = (Layout::contiguous(shape), Layout::contiguous(out));
    let w = Span::new(0, conv.weights());
    let mut x = activations(&cuda, &numbers(1, shape.len()));
    let mut params = cuda.alloc(w.len).unwrap();
    cuda.upload(&numbers(3, w.len), &mut params, 0).unwrap();
    let mut y = cuda.alloc_activations(out.len()).unwrap();
    let run = |x: &Buffer, y: &mut Buffer| {
        let (x, y) = (View { data: x, layout: xl }, ViewMut { data: y, layout: yl });
        cuda.conv2d_fwd(&conv, Activation::None, x, Run::new(&params, w.into()), y)
    };
    cuda.prepare_conv2d(&conv, shape, false).unwrap();
    run(&x, &mut y).unwrap();
    cuda.begin_recording().unwrap();
    run(&x, &mut y).unwrap();
    let recording = cuda.end_recording().unwrap();
    cuda.upload(&numbers(7, shape.len()), &mut x, 0).unwrap();
    recording.replay(&tensor_cuda::Turn::default()).unwrap();
    let replayed = values(&cuda, &y);
    run(&x, &mut y).unwrap();
    assert!(replayed == values(&cuda, &y));
}

/// Starts the tests of that name on stand-ins, where nothing may be called wrongly.
fn on_stand_ins(tests: &[&str], settings: &[(&str, &str)]) -> Option<String> {
    Some(on_failing_stand_ins(tests, settings)?.correct().printed)
}

/// The same where a stand-in fails, after which refusals are right.
fn on_failing_stand_ins(tests: &[&str], settings: &[(&str, &str)]) -> Option<Played> {
    if is_on_stand_ins() {
        return None;
    }
    let arguments = [tests, &["--nocapture", "--test-threads=1"]].concat();
    // More memory means more scratch memory to write to.
    let fixed = [(ON_STAND_INS, "1"), ("TOWERS_REQUIRE_CUDA", "1"), ("FAKE_MEMORY", "134217728")];
    let settings = [&fixed, settings].concat();
    let played = play::play_on(true, &arguments, &settings)?;
    for library in ["cuDNN", "cuBLASLt"] {
        assert!(played.printed.contains(&format!("{library}: 0 left over")), "{}", played.printed);
    }
    Some(played)
}

#[test]
fn all_calls_are_those_of_the_documentation() {
    let Some(printed) = on_stand_ins(&["a", "e", "i", "o", "u"], &[]) else { return };
    for chosen in ["implicit_precomp_gemm, Fma", "1, TensorOp", "3, Default", ": cuBLASLt, "] {
        assert!(printed.contains(chosen), "{chosen}: {printed}");
    }
}

/// Libraries that have nothing, algorithms that can't add, products that are too narrow, answers of another kind than was asked for:
/// our own kernels take their place, and no one else's.
#[test]
fn refusals_send_a_layer_to_our_own_kernels() {
    type Which = fn(&str) -> bool;
    let cases: [(_, Which); 3] = [
        ([("FAKE_CUDNN_LACKS", "all"), ("FAKE_CUBLASLT_LACKS", "all")], |_| true),
        ([("FAKE_CUDNN_LACKS", "add"), ("FAKE_CUBLASLT_LACKS", "narrow")], |line| {
            // Columns of 3 or 42 numbers are no whole 16 bytes.
            line.starts_with("data")
                || line.contains(" = a") && ["42", " 3,", " 3]"].iter().any(|narrow| line.contains(narrow))
        }),
        ([("FAKE_CUDNN_LACKS", "math"), ("FAKE_PACE", "7")], |line| line.contains(" fp32 x ")),
    ];
    for (settings, is_own) in cases {
        let Some(printed) = on_stand_ins(&["libraries_agree"], &settings) else { return };
        let wrong: Vec<_> =
            choices(&printed).filter(|line| is_own(line) != line.ends_with(": own kernels")).collect();
        assert!(wrong.is_empty(), "{settings:?}: {wrong:#?}");
    }
}

/// What was chosen for convolutions and products: a line each.
fn choices(printed: &str) -> impl Iterator<Item = &str> {
    printed.lines().map(str::trim).filter(|line| line.contains(" filters ") || line.contains(" = a"))
}
