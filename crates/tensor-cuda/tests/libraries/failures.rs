//! What becomes of a layer where a library fails: on stand-ins that are told to.

use super::play::Played;
use super::{alone, batch, choices, convolutions, dense, numbers, on_failing_stand_ins, on_stand_ins};
use towers_program::ops::{Conv2dForward, Conv2dInputGradient, LinearForward, LinearInputGradient};
use towers_program::{
    Activation, Arena, CapturedGraph as _, Error, ReplayArgs, Shape, StepArgs, TensorId, Trial, TrialRun,
    Write,
};
use towers_tensor_cuda::{Cuda, Kernels, Options};

/// The next algorithm takes its place; half-written results are overwritten.
#[test]
fn an_algorithm_that_fails_gives_way_to_the_next() {
    let settings = [("FAKE_CUDNN_FAILS", "1:always:5000"), ("FAKE_CUBLASLT_FAILS", "0:always:13")];
    let Some(printed) = on_stand_ins(&["libraries_agree"], &settings) else { return };
    assert!(printed.contains(": implicit_gemm, ") && !printed.contains(": implicit_precomp_gemm, "));
    for line in choices(&printed) {
        assert!(!line.contains(": 1, "), "{line}");
        assert!(line.contains(" filters ") || line.contains(": cuBLASLt, "), "{line}");
    }
}

#[test]
fn where_all_algorithms_fail_our_own_kernels_take_their_place() {
    let settings = [("FAKE_CUDNN_FAILS", "all:always:5001"), ("FAKE_CUBLASLT_FAILS", "all:always:14")];
    let Some(printed) = on_stand_ins(&["libraries_agree"], &settings) else { return };
    let wrong: Vec<_> = choices(&printed).filter(|line| !line.ends_with(": own kernels")).collect();
    assert!(wrong.is_empty(), "{settings:?}: {wrong:#?}");
}

/// Any failure of a library, with unknown statuses too.
#[test]
fn every_status_gives_way() {
    for (cudnn, cublaslt) in [("1008", "1"), ("2000", "7"), ("3999", "15"), ("4999", "999")] {
        let [cudnn, cublaslt] = [format!("1:always:{cudnn}"), format!("all:always:{cublaslt}")];
        let settings = [("FAKE_CUDNN_FAILS", &*cudnn), ("FAKE_CUBLASLT_FAILS", &*cublaslt)];
        let Some(printed) = on_stand_ins(&["a_layer_goes_on"], &settings) else { return };
        let chosen: Vec<_> = choices(&printed).collect();
        assert!(chosen.len() == 2, "{printed}");
        assert!(
            chosen[0].contains(": implicit_gemm, ") && chosen[1].ends_with(": own kernels"),
            "{chosen:#?}"
        );
    }
}

/// On stand-ins that fail.
#[test]
fn a_layer_goes_on() {
    let _alone = alone();
    if std::env::var_os("FAKE_CUDNN_FAILS").is_none() {
        return;
    }
    let cuda = Cuda::new(Options { kernels: Kernels::Library, ..Options::default() }).unwrap();
    let mut layer = Layers::new(&cuda, false);
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    assert!(layer.outputs().iter().flatten().all(|y| y.is_finite()));
    println!("{}", cuda.describe_engine().join("\n"));
}

#[test]
fn what_can_not_be_recorded_gives_way_likewise() {
    for (cudnn, cublaslt) in [("1:recorded:5000", "0:recorded:14"), ("1:spoiled:0", "0:spoiled:0")] {
        let settings = [("FAKE_CUDNN_FAILS", cudnn), ("FAKE_CUBLASLT_FAILS", cublaslt)];
        let played = on_failing_stand_ins(&["a_recording_is_made_without"], &settings);
        let Some(Played { printed, .. }) = played else { return };
        assert!(printed.contains("dropped 2 for a recording"), "{printed}");
    }
}

/// A convolution and a dense layer: their forward passes, and the gradients of their inputs, which are added to.
struct Layers<'a> {
    run: TrialRun<'a>,
    /// Of the forward passes.
    outputs: [TensorId; 2],
    samples: usize,
}

impl<'a> Layers<'a> {
    fn new(cuda: &'a Cuda, training: bool) -> Self {
        let ((conv, shape), linear) = (convolutions().next().unwrap(), dense().next().unwrap());
        let (out, n, act) = (conv.output(shape).unwrap(), shape.n, Activation::None);
        let mut trial = if training { Trial::new(n) } else { Trial::new(n).for_inference() };
        let [inputs, outputs] = [linear.inputs, linear.outputs].map(|c| Shape::vectors(n, c));
        let [x, y, of_x] = [shape, out, shape].map(|shape| batch(&mut trial, 1, shape));
        let [dense_x, dense_y, of_dense_x] =
            [inputs, outputs, inputs].map(|shape| batch(&mut trial, 1, shape));
        let w = trial.run(Arena::Parameters, &numbers(2, conv.weights()));
        let dense_w = trial.run(Arena::Parameters, &numbers(2, linear.inputs * linear.outputs));
        trial.step(Conv2dForward { conv, act }, &[x, w], &[y], Write::Set);
        trial.step(LinearForward { linear, act }, &[dense_x, dense_w], &[dense_y], Write::Set);
        trial.step(Conv2dInputGradient { conv, x: shape.with_n(1) }, &[y, w], &[of_x], Write::Add);
        trial.step(LinearInputGradient { linear }, &[dense_y, dense_w], &[of_dense_x], Write::Add);
        Layers { run: trial.on(cuda).unwrap(), outputs: [y, dense_y], samples: n }
    }

    fn step(&mut self, number: usize) -> Result<(), Error> {
        self.run.run_steps(number..number + 1, &StepArgs::inference(self.samples))
    }

    fn convolve(&mut self) -> Result<(), Error> {
        self.step(0)
    }

    fn multiply(&mut self) -> Result<(), Error> {
        self.step(1)
    }

    /// Adds to the gradient of an input.
    fn add(&mut self, is_dense: bool) -> Result<(), Error> {
        self.step(2 + usize::from(is_dense))
    }

    fn outputs(&self) -> [Vec<f32>; 2] {
        self.outputs.map(|id| self.run.read(id, self.samples).unwrap())
    }
}

/// On stand-ins of which an algorithm may fail in a capture: the next capture is made with another.
#[test]
fn a_recording_is_made_without_what_can_not_be_recorded() {
    let _alone = alone();
    if std::env::var_os("FAKE_CUDNN_FAILS").is_none() {
        return;
    }
    let cuda = Cuda::new(Options { kernels: Kernels::Library, ..Options::default() }).unwrap();
    let mut layer = Layers::new(&cuda, true);
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    for dropped in 1..=2 {
        cuda.begin_capture().unwrap();
        let failed = if dropped == 1 { layer.convolve() } else { layer.multiply() }.unwrap_err().to_string();
        cuda.abandon_capture();
        assert!(failed.contains(" by cu"), "{failed}");
        assert_eq!(cuda.dropped_algorithms(), dropped);
        layer.convolve().and_then(|()| layer.multiply()).unwrap();
    }
    let expected = layer.outputs();
    cuda.begin_capture().unwrap();
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    let graph = cuda.end_capture().unwrap();
    for (id, values) in layer.outputs.into_iter().zip(&expected) {
        layer.run.write(id, &vec![0.0; values.len()]).unwrap();
    }
    graph.replay(&ReplayArgs::default()).unwrap();
    assert!(layer.outputs() == expected);
    println!("dropped {} for a recording", cuda.dropped_algorithms());
}

/// On stand-ins that fail.
#[test]
fn the_first_failure_is_told() {
    let _alone = alone();
    if std::env::var_os("FAKE_CUDNN_FAILS").is_none() {
        return;
    }
    for is_dense in [false, true] {
        let cuda = Cuda::new(Options { kernels: Kernels::Library, ..Options::default() }).unwrap();
        let mut layer = Layers::new(&cuda, true);
        println!("told: {}", layer.add(is_dense).unwrap_err());
    }
}

/// What may be half-written can't be computed once more, and neither a broken device nor too little memory is mended by another
/// algorithm.
#[test]
fn some_failures_are_errors() {
    let half = "; what it was to add to may be half-written";
    let broken = ": cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS: what the driver says; this process can't";
    for (which, cudnn, cublaslt, said) in
        [("add", "5000", "13", half), ("lost", "5003", "13", broken), ("always", "4004", "3", "by cu")]
    {
        let [cudnn, cublaslt] = [cudnn, cublaslt].map(|status| format!("all:{which}:{status}"));
        let settings = [("FAKE_CUDNN_FAILS", &*cudnn), ("FAKE_CUBLASLT_FAILS", &*cublaslt)];
        let Some(Played { printed, .. }) = on_failing_stand_ins(&["the_first_failure_is_told"], &settings)
        else {
            return;
        };
        let told: Vec<_> = printed.lines().filter(|line| line.contains("told: ")).collect();
        assert!(told.len() == 2 && told.iter().all(|line| line.contains(said)), "{which}: {printed}");
        assert!(told[0].contains("for data fp32 x ") && told[1].contains(" by cuBLASLt"), "{told:#?}");
    }
}
