//! cuDNN and cuBLASLt beside our own kernels, on a GPU: the layers of our models, in every number format.
//!
//! It prints the choices: `cargo test -p towers-tensor-cuda --test libraries -- --nocapture`.
//! Without a GPU it prints a line that begins with `SKIPPED`; `TOWERS_REQUIRE_CUDA=1` turns that into a
//! failure.
//!
//! One test starts the others on stand-ins for the driver and the libraries, with smaller layers. It shows
//! that the calls follow the documentation, and that refusals are handled.

#![expect(clippy::unwrap_used, reason = "a test's panic is its report")]

#[path = "libraries/failures.rs"]
mod failures;
#[path = "driver/play.rs"]
mod play;

use play::Played;
use std::sync::{Mutex, MutexGuard, PoisonError};
use towers_philox::{Philox, domain};
use towers_program::ops::{
    Conv2dForward, Conv2dInputGradient, Conv2dWeightGradient, LinearForward, LinearInputGradient,
    LinearWeightGradient,
};
use towers_program::{
    Activation, Arena, CapturedGraph as _, Conv2d, Layout, Linear, Pad, Precision, Shape, StepArgs, TensorId,
    Trial, TrialRun, Write,
};
use towers_tensor_cuda::{Cuda, Kernels, Options};

/// The variable that says that this is a start on stand-ins.
const ON_STAND_INS: &str = "TOWERS_TEST_ON_STAND_INS";

fn is_on_stand_ins() -> bool {
    std::env::var_os(ON_STAND_INS).is_some()
}

/// A batch that is no multiple of anything.
fn samples() -> usize {
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
            let conv = Conv2d { stride: [stride; 2], pad, ..Conv2d::new(inputs, outputs, [kernel; 2]) };
            let size = if is_on_stand_ins() { size.div_ceil(4) } else { size };
            (conv, Shape::new(samples(), size, size, inputs))
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

fn batch(trial: &mut Trial, seed: u64, shape: Shape) -> TensorId {
    trial.activations(Layout::contiguous(shape), &numbers(seed, shape.len()))
}

/// Output, gradient of the input (set, then added to once more) and gradient of the weights of a convolution of `n` samples, of a batch that was
/// planned.
fn convolve(cuda: &Cuda, conv: &Conv2d, shape: Shape, n: usize) -> [Vec<f32>; 3] {
    let (conv, out, mut trial) = (*conv, conv.output(shape).unwrap(), Trial::new(shape.n));
    let (x, dy, y) = (batch(&mut trial, 1, shape), batch(&mut trial, 2, out), batch(&mut trial, 7, out));
    let w = trial.run(Arena::Parameters, &numbers(3, conv.weights()));
    let dw = trial.run(Arena::Gradients, &numbers(8, conv.weights()));
    trial.step(Conv2dForward { conv, act: Activation::None }, &[x, w], &[y], Write::Set);
    let dx = batch(&mut trial, 9, shape);
    let dx = [Write::Set, Write::Add].map(|mode| {
        let dx = trial.in_place_of(dx);
        trial.step(Conv2dInputGradient { conv, x: shape.with_n(1) }, &[dy, w], &[dx], mode);
        dx
    });
    trial.step(Conv2dWeightGradient { conv, bias: false }, &[x, dy], &[dw], Write::Set);
    results(trial.on(cuda).unwrap(), n, [y, dx[1], dw])
}

/// The same of a dense layer.
fn multiply(cuda: &Cuda, linear: &Linear, n: usize) -> [Vec<f32>; 3] {
    let (linear, mut trial) = (*linear, Trial::new(n));
    let [inputs, outputs] = [linear.inputs, linear.outputs].map(|c| Shape::vectors(n, c));
    let (x, dy, y) =
        (batch(&mut trial, 4, inputs), batch(&mut trial, 5, outputs), batch(&mut trial, 7, outputs));
    let len = linear.inputs * linear.outputs;
    let (w, dw) =
        (trial.run(Arena::Parameters, &numbers(6, len)), trial.run(Arena::Gradients, &numbers(8, len)));
    trial.step(LinearForward { linear, act: Activation::None }, &[x, w], &[y], Write::Set);
    let dx = batch(&mut trial, 9, inputs);
    let dx = [Write::Set, Write::Add].map(|mode| {
        let dx = trial.in_place_of(dx);
        trial.step(LinearInputGradient { linear }, &[dy, w], &[dx], mode);
        dx
    });
    trial.step(LinearWeightGradient { linear, bias: false }, &[x, dy], &[dw], Write::Set);
    results(trial.on(cuda).unwrap(), n, [y, dx[1], dw])
}

fn results<const N: usize>(mut run: TrialRun<'_>, n: usize, ids: [TensorId; N]) -> [Vec<f32>; N] {
    run.run(&StepArgs::inference(n)).unwrap();
    ids.map(|id| run.read(id, n).unwrap())
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

/// One test at a time, so that they fit on a small GPU.
fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU with the libraries, and the same with our own kernels alone; `None` where there is no GPU.
fn both(options: Options) -> Option<[Cuda; 2]> {
    match Cuda::new(Options { kernels: Kernels::Library, ..options }) {
        Ok(cuda) => Some([cuda, Cuda::new(Options { kernels: Kernels::Own, ..options }).unwrap()]),
        Err(why) => {
            let required = std::env::var_os("TOWERS_REQUIRE_CUDA").is_some_and(|value| value == "1");
            assert!(!required, "TOWERS_REQUIRE_CUDA=1, but no GPU can be used: {why}");
            println!("SKIPPED: cuda: {why}");
            None
        }
    }
}

#[test]
fn libraries_agree_with_our_own_kernels() {
    let _alone = alone();
    for precision in Precision::ALL {
        let options = Options { precision, ..Options::default() };
        let Some([libraries, own]) = both(options) else { return };
        for (conv, shape) in convolutions() {
            let what = format!("{conv:?} of {shape}");
            // The last batch of an epoch was not planned.
            for n in [samples(), samples() - 2] {
                let [theirs, ours] = [&libraries, &own].map(|cuda| convolve(cuda, &conv, shape, n));
                compare(&what, precision, &theirs, &ours);
            }
        }
        for linear in dense() {
            let what = format!("{linear:?}");
            let [theirs, ours] = [&libraries, &own].map(|cuda| multiply(cuda, &linear, samples()));
            compare(&what, precision, &theirs, &ours);
        }
        let lines = libraries.describe_engine();
        println!("{precision}\n  {}", lines.join("\n  "));
        // Before Ampere there is no bf16 in cuDNN. Otherwise it has something for each pass.
        let is_used =
            |name| towers_tensor_cuda::libraries().iter().any(|each| each.name == name && each.state.is_ok());
        let is_to_refuse =
            ["FAKE_CUDNN_LACKS", "FAKE_CUDNN_FAILS"].iter().any(|name| std::env::var_os(name).is_some());
        if !is_used("cuDNN") || precision == Precision::Bf16 || is_to_refuse {
            continue;
        }
        for pass in ["forward", "data", "filter"] {
            let mut of_pass = lines.iter().filter(|line| line.starts_with(pass));
            let is_fine = of_pass.any(|line| !line.ends_with("own kernels"));
            assert!(is_fine, "cuDNN is installed, but has no algorithm for any pass `{pass}` in {precision}");
        }
    }
}

/// Two devices stand for two runs: each chooses for itself.
#[test]
fn libraries_give_the_same_bits_every_time() {
    let _alone = alone();
    for precision in Precision::ALL {
        let options = Options { precision, ..Options::default() };
        let Some([first, _]) = both(options) else { return };
        let second = Cuda::new(Options { kernels: Kernels::Library, ..options }).unwrap();
        for (conv, shape) in convolutions() {
            let once = convolve(&first, &conv, shape, shape.n);
            assert!(once == convolve(&first, &conv, shape, shape.n), "{conv:?} {precision}: the same device");
            assert!(once == convolve(&second, &conv, shape, shape.n), "{conv:?} {precision}: another device");
        }
        for linear in dense() {
            let once = multiply(&first, &linear, samples());
            assert!(once == multiply(&second, &linear, samples()), "{linear:?} {precision}");
        }
    }
}

/// A convolution that is padded on one side only is not cuDNN's; it must go elsewhere without a word.
#[test]
fn what_a_library_can_not_do_is_done_all_the_same() {
    let _alone = alone();
    let Some([libraries, own]) = both(Options::default()) else { return };
    let pad = Pad { top: 0, bottom: 1, left: 0, right: 1 };
    let conv = Conv2d { stride: [2; 2], pad, ..Conv2d::new(8, 16, [3; 2]) };
    let shape = Shape::new(samples(), 32, 32, 8);
    let what = "padding on one side";
    compare(
        what,
        Precision::Fp32,
        &convolve(&libraries, &conv, shape, shape.n),
        &convolve(&own, &conv, shape, shape.n),
    );
}

#[test]
fn a_recorded_convolution_is_replayed() {
    let _alone = alone();
    let Some([cuda, _]) = both(Options::default()) else { return };
    let (conv, shape) = convolutions().next().unwrap();
    let (out, n, mut trial) = (conv.output(shape).unwrap(), shape.n, Trial::new(shape.n).for_inference());
    let (x, y) = (batch(&mut trial, 1, shape), batch(&mut trial, 2, out));
    let w = trial.run(Arena::Parameters, &numbers(3, conv.weights()));
    trial.step(Conv2dForward { conv, act: Activation::None }, &[x, w], &[y], Write::Set);
    let (mut run, args) = (trial.on(&cuda).unwrap(), StepArgs::inference(n));
    run.run(&args).unwrap();
    cuda.begin_capture().unwrap();
    run.run(&args).unwrap();
    let graph = cuda.end_capture().unwrap();
    run.write(x, &numbers(7, shape.len())).unwrap();
    graph.replay(&towers_program::ReplayArgs::default()).unwrap();
    let replayed = run.read(y, n).unwrap();
    run.run(&args).unwrap();
    assert!(replayed == run.read(y, n).unwrap());
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
    for chosen in ["implicit_precomp_gemm, Fma", ": 1, TensorOp", ": 1, Default", ": cuBLASLt, "] {
        assert!(printed.contains(chosen), "{chosen}: {printed}");
    }
    // The heuristic's first ones, which are not deterministic.
    assert!(!printed.contains(": 0, ") && !printed.contains(": 3, "), "{printed}");
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
        ([("FAKE_CUDNN_LACKS", "math"), ("FAKE_PACE", "7")], |line| {
            line.contains(" filters ") && !line.contains(" tf32 x ")
        }),
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
