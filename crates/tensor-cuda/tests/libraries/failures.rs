//! What becomes of a layer where a library fails: on stand-ins that are told to.

use super::play::Played;
use super::{
    activations, alone, choices, convolutions, dense, numbers, on_failing_stand_ins, on_stand_ins, values,
};
use program::{Activation, Backend, Conv2d, Error, Layout, Linear, Run, Shape, Span, View, ViewMut, Write};
use tensor_cuda::{Buffer, Cuda, Options, Turn};

/// The next algorithm takes its place; half-written results are overwritten.
#[test]
fn an_algorithm_that_fails_gives_way_to_the_next() {
    let settings = [("FAKE_CUDNN_FAILS", "1:always:5000"), ("FAKE_CUBLASLT_FAILS", "0:always:13")];
    let Some(printed) = on_stand_ins(&["libraries_agree", "so_do_their"], &settings) else { return };
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

/// Whatever a library says when it fails, in numbers that nobody knows too.
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
    let mut layer = Layer::new(Options { deterministic: true, ..Options::default() }, false);
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    assert!([1, 3].iter().all(|&k| values(&layer.cuda, &layer.data[k]).iter().all(|y| y.is_finite())));
    println!("{}", layer.cuda.describe_engine().join("\n"));
}

/// A failure in a recording is found in the race, or where nothing is raced, when a recording is made.
#[test]
fn what_can_not_be_recorded_gives_way_likewise() {
    for (cudnn, cublaslt) in [("1:recorded:5000", "0:recorded:14"), ("1:spoiled:0", "0:spoiled:0")] {
        let settings = [("FAKE_CUDNN_FAILS", cudnn), ("FAKE_CUBLASLT_FAILS", cublaslt)];
        let tests = ["libraries_agree", "a_recording_is_made_without"];
        let tests = if cudnn.contains("spoiled") { &tests[1..] } else { &tests[..] };
        let Some(Played { printed, .. }) = on_failing_stand_ins(tests, &settings) else { return };
        // Nothing is raced for batches that were not planned.
        let mut raced = choices(&printed).filter(|line| line.contains(" filters ") && line.contains(" ms"));
        assert!(raced.all(|line| !line.contains(": implicit_precomp_gemm, ")), "{printed}");
        assert!(printed.contains("dropped 2 for a recording"), "{printed}");
    }
}

/// A layer on memory of its own.
struct Layer {
    cuda: Cuda,
    conv: Conv2d,
    linear: Linear,
    /// Inputs and outputs of the two.
    layouts: [Layout; 4],
    params: Buffer,
    data: [Buffer; 4],
}

impl Layer {
    fn new(options: Options, training: bool) -> Layer {
        let cuda = Cuda::new(options).unwrap();
        let (conv, shape) = convolutions().next().unwrap();
        let linear = dense().next().unwrap();
        cuda.prepare_conv2d(&conv, shape, training).unwrap();
        cuda.prepare_linear(&linear, 5, training).unwrap();
        let [inputs, outputs] = [linear.inputs, linear.outputs].map(|c| Shape::vectors(5, c));
        let layouts = [shape, conv.output(shape).unwrap(), inputs, outputs].map(Layout::contiguous);
        let data = layouts.map(|at| activations(&cuda, &numbers(1, at.shape.len())));
        let most = conv.weights() + linear.inputs * linear.outputs;
        let mut params = cuda.alloc(most).unwrap();
        cuda.upload(&numbers(2, most), &mut params, 0).unwrap();
        Layer { cuda, conv, linear, layouts, params, data }
    }

    fn convolve(&mut self) -> Result<(), Error> {
        let ([x, y, ..], [xl, yl, ..]) = (&mut self.data, self.layouts);
        let (x, y) = (View { data: x, layout: xl }, ViewMut { data: y, layout: yl });
        let w = Span::new(0, self.conv.weights());
        self.cuda.conv2d_fwd(&self.conv, Activation::None, x, Run::new(&self.params, w.into()), y)
    }

    fn multiply(&mut self) -> Result<(), Error> {
        let ([_, _, x, y], [_, _, xl, yl]) = (&mut self.data, self.layouts);
        let (x, y) = (View { data: x, layout: xl }, ViewMut { data: y, layout: yl });
        let w = Span::new(self.conv.weights(), self.linear.inputs * self.linear.outputs);
        self.cuda.linear_fwd(&self.linear, Activation::None, x, Run::new(&self.params, w.into()), y)
    }

    /// Adds to the gradient of an input.
    fn add(&mut self, is_dense: bool) -> Result<(), Error> {
        let [x, y, dense_x, dense_y] = &mut self.data;
        let [xl, yl, dense_xl, dense_yl] = self.layouts;
        if is_dense {
            let w = Span::new(self.conv.weights(), self.linear.inputs * self.linear.outputs);
            let (dy, dx) =
                (View { data: dense_y, layout: dense_yl }, ViewMut { data: dense_x, layout: dense_xl });
            return self.cuda.linear_bwd_data(&self.linear, dy, Run::new(&self.params, w), dx, Write::Add);
        }
        let w = Span::new(0, self.conv.weights());
        let (dy, dx) = (View { data: y, layout: yl }, ViewMut { data: x, layout: xl });
        self.cuda.conv2d_bwd_data(&self.conv, dy, Run::new(&self.params, w), dx, Write::Add)
    }
}

/// On stand-ins of which an algorithm may fail in a recording: the next recording is made with another.
#[test]
fn a_recording_is_made_without_what_can_not_be_recorded() {
    let _alone = alone();
    if std::env::var_os("FAKE_CUDNN_FAILS").is_none() {
        return;
    }
    // Nothing is tried before on a deterministic device.
    let mut layer = Layer::new(Options { deterministic: true, ..Options::default() }, true);
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    for dropped in 1..=2 {
        layer.cuda.begin_recording().unwrap();
        let failed = if dropped == 1 { layer.convolve() } else { layer.multiply() }.unwrap_err().to_string();
        layer.cuda.abandon_recording();
        assert!(failed.contains(" by cu"), "{failed}");
        assert_eq!(layer.cuda.dropped_algorithms(), dropped);
        layer.convolve().and_then(|()| layer.multiply()).unwrap();
    }
    let outputs = |layer: &Layer| [1, 3].map(|k| values(&layer.cuda, &layer.data[k]));
    let expected = outputs(&layer);
    layer.cuda.begin_recording().unwrap();
    layer.convolve().and_then(|()| layer.multiply()).unwrap();
    let recording = layer.cuda.end_recording().unwrap();
    let cuda = layer.cuda.clone();
    for k in [1, 3] {
        let len = layer.data[k].len();
        cuda.upload(&vec![0.0; len], &mut layer.data[k], 0).unwrap();
    }
    recording.replay(&Turn::default()).unwrap();
    assert!(outputs(&layer) == expected);
    println!("dropped {} for a recording", layer.cuda.dropped_algorithms());
}

/// On stand-ins that fail.
#[test]
fn the_first_failure_is_told() {
    let _alone = alone();
    if std::env::var_os("FAKE_CUDNN_FAILS").is_none() {
        return;
    }
    for is_dense in [false, true] {
        let mut layer = Layer::new(Options { deterministic: true, ..Options::default() }, true);
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
