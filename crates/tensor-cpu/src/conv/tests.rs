//! Every pass against [`Reference`], for every instruction set that this processor has.

use super::winograd;
use crate::element::Format;
use crate::simd::Level;
use crate::{Buffer, Cpu, Reference};
use program::{
    Activation, Backend, Conv2d, Error, Layout, Linear, Pad, Run, RunMut, Shape, Span, View, ViewMut,
    WeightSpans, Write,
};

/// Numbers in -1..1, the same for the same seed.
pub(super) fn random(len: usize, mut seed: u64) -> Vec<f32> {
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The same, as a device computes with them: tests of bf16 begin with numbers that need no rounding, and so see every other
/// error.
fn random_for(cpu: &Cpu, len: usize, seed: u64) -> Vec<f32> {
    let narrow = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    let numbers = random(len, seed).into_iter();
    if cpu.is_bf16() { numbers.map(narrow).collect() } else { numbers.collect() }
}

fn arena(numbers: &[f32]) -> Buffer {
    let mut buffer = Buffer::zeros(numbers.len());
    buffer.copy_from_slice(numbers);
    buffer
}

fn tensor(cpu: &Cpu, numbers: &[f32]) -> Buffer {
    let mut buffer = cpu.alloc_activations(numbers.len()).unwrap();
    cpu.upload(numbers, &mut buffer, 0).unwrap();
    buffer
}

pub(super) fn numbers(cpu: &Cpu, buffer: &Buffer) -> Vec<f32> {
    let mut numbers = vec![0.0; buffer.len()];
    cpu.download(buffer, 0, &mut numbers).unwrap();
    numbers
}

pub(super) fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|&x| f64::from(x)).collect()
}

/// The layout of a slice of a tensor with `extra` more channels, not at its start.
pub(super) fn slice(shape: Shape, extra: usize) -> Layout {
    let stride = shape.c + extra;
    Layout { offset: extra / 2 + 3 * usize::from(extra > 0), shape, stride }
}

/// Elements of a buffer that just holds the tensor.
pub(super) fn room(at: Layout) -> usize {
    at.end()
}

/// `|got - want|` is at most what sums of so many products may differ by, and what rounding to the buffer's format adds; elements
/// that no op may touch included.
#[track_caller]
fn close(what: &str, cpu: &Cpu, got: &Buffer, want: &[f64], products: usize) {
    assert_eq!(got.len(), want.len());
    let rounding = if got.format() == Format::Bf16 { 1.0 / 256.0 } else { 0.0 };
    let tolerance = 2e-7 * (products as f64).sqrt().max(4.0) * 8.0 + rounding;
    let got = numbers(cpu, got);
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(got) - want).abs();
        assert!(error <= tolerance * want.abs().max(1.0), "{what}[{i}]: {got} instead of {want}");
    }
}

/// How many times as many products make transformed sums differ as much as direct ones, see [`close`].
const WINOGRAD: usize = 4 * 4;

/// All three passes of one convolution. `extra` channels lie between pixels.
fn check(cpu: &Cpu, conv: Conv2d, x: Shape, extra: usize) {
    let y = conv.output(x).unwrap();
    let what = format!("{:?} {:?} {conv:?} of {x} with {extra} more channels", cpu.simd(), cpu.bf16());
    let (xl, yl) = (slice(x, extra), slice(y, extra / 2));
    let (w, b) = (Span::new(5, conv.weights()), Span::new(5 + conv.weights(), conv.outputs));
    let (xs, dys) = (random_for(cpu, room(xl), 1), random_for(cpu, room(yl), 2));
    let params = random_for(cpu, b.end(), 3);
    let (xb, dyb, pb) = (tensor(cpu, &xs), tensor(cpu, &dys), arena(&params));
    let (xr, dyr, pr) = (wide(&xs), wide(&dys), wide(&params));
    let products = conv.weights() / conv.outputs.max(1);
    let transformed = !cpu.is_bf16() && winograd::choose(cpu, &conv, y).is_some();
    let lost = if transformed { WINOGRAD } else { 1 };
    cpu.prepare_conv2d(&conv, x.with_n(x.n + 1), true).unwrap();
    let prepared = cpu.scratch(0).len();

    for (act, bias) in [(Activation::None, None), (Activation::Relu, Some(b))] {
        let (mut got, mut want) = (tensor(cpu, &dys), dyr.clone());
        cpu.conv2d_fwd(
            &conv,
            act,
            View::new(&xb, xl),
            Run::new(&pb, WeightSpans { w, b: bias }),
            ViewMut::new(&mut got, yl),
        )
        .unwrap();
        Reference
            .conv2d_fwd(
                &conv,
                act,
                View::new(&xr, xl),
                Run::new(&pr, WeightSpans { w, b: bias }),
                ViewMut::new(&mut want, yl),
            )
            .unwrap();
        close(&format!("forward {act:?}, {what}"), cpu, &got, &want, lost * products);
    }
    for mode in [Write::Set, Write::Add] {
        let (mut got, mut want) = (tensor(cpu, &xs), xr.clone());
        cpu.conv2d_bwd_data(&conv, View::new(&dyb, yl), Run::new(&pb, w), ViewMut::new(&mut got, xl), mode)
            .unwrap();
        Reference
            .conv2d_bwd_data(&conv, View::new(&dyr, yl), Run::new(&pr, w), ViewMut::new(&mut want, xl), mode)
            .unwrap();
        let products = lost * conv.weights() / conv.inputs.max(1);
        close(&format!("backward data {mode:?}, {what}"), cpu, &got, &want, products);
    }
    // Not asking for the bias's gradient, which is not this module's.
    let (mut got, mut want) = (arena(&params), pr.clone());
    cpu.conv2d_bwd_filter(&conv, View::new(&xb, xl), View::new(&dyb, yl), RunMut::new(&mut got, w.into()))
        .unwrap();
    Reference
        .conv2d_bwd_filter(&conv, View::new(&xr, xl), View::new(&dyr, yl), RunMut::new(&mut want, w.into()))
        .unwrap();
    close(&format!("backward filter, {what}"), cpu, &got, &want, lost * y.rows());
    assert_eq!(cpu.scratch(0).len(), prepared, "an op allocated: {what}");
}

pub(super) fn square(inputs: usize, outputs: usize, kernel: usize, stride: usize, pad: usize) -> Conv2d {
    let pad = Pad { top: pad, bottom: pad, left: pad, right: pad };
    Conv2d { inputs, outputs, kernel: [kernel; 2], stride: [stride; 2], pad }
}

#[test]
fn channels_of_all_sizes() {
    for cpu in Cpu::of_every_kind(2) {
        for c in [1, 3, 5, 16, 17, 32, 48, 80, 96] {
            for k in [1, 3, 5, 16, 17, 32, 48, 80, 96, 112] {
                check(&cpu, square(c, k, 3, 1, 1), Shape::new(2, 4, 5, c), (c + k) % 7);
                check(&cpu, square(c, k, 1, 1, 0), Shape::new(3, 3, 5, c), (c + k) % 5);
            }
        }
    }
}

#[test]
fn kernels_strides_and_paddings() {
    let pads = [
        Pad::VALID,
        Pad { top: 1, bottom: 1, left: 1, right: 1 },
        Pad { top: 0, bottom: 1, left: 0, right: 1 },
        Pad { top: 2, bottom: 0, left: 1, right: 3 },
    ];
    for cpu in Cpu::of_every_kind(2) {
        for kernel in [[1, 1], [2, 2], [3, 3], [5, 5], [3, 1], [1, 4]] {
            for stride in [[1, 1], [2, 2], [3, 3], [1, 2], [3, 2]] {
                for pad in pads {
                    for (n, h, w, c, k) in [(1, 7, 9, 3, 5), (2, 8, 6, 17, 20), (5, 5, 5, 6, 33)] {
                        let conv = Conv2d { inputs: c, outputs: k, kernel, stride, pad };
                        check(&cpu, conv, Shape::new(n, h, w, c), (n + kernel[0] + stride[0]) % 2 * 3);
                    }
                }
            }
        }
    }
}

#[test]
fn small_and_odd_images() {
    for cpu in Cpu::of_every_kind(2) {
        for (n, h, w) in [(1, 1, 1), (5, 1, 1), (3, 1, 40), (2, 40, 1), (1, 33, 17), (9, 7, 7), (0, 4, 4)] {
            check(&cpu, square(8, 24, 3, 1, 1), Shape::new(n, h, w, 8), 2);
            check(&cpu, square(3, 24, 3, 1, 1), Shape::new(n, h, w, 3), 0);
            check(&cpu, square(40, 24, 1, 1, 0), Shape::new(n, h, w, 40), 4);
            check(&cpu, square(2, 20, 3, 2, 1), Shape::new(n, h, w, 2), 4);
        }
        // More taps than one pass takes; a stride larger than the kernel.
        check(&cpu, square(2, 3, 11, 1, 5), Shape::new(2, 12, 11, 2), 1);
        check(&cpu, square(6, 18, 9, 1, 4), Shape::new(1, 9, 10, 6), 1);
        check(&cpu, square(18, 6, 2, 4, 0), Shape::new(2, 11, 10, 18), 1);
        // Nothing to add up.
        check(&cpu, square(0, 34, 3, 1, 1), Shape::new(2, 4, 3, 0), 1);
        check(&cpu, square(34, 0, 3, 1, 1), Shape::new(2, 4, 3, 34), 1);
        // A stride that is larger than the image.
        let stride = [u32::MAX as usize; 2];
        check(&cpu, Conv2d { stride, ..square(18, 6, 3, 1, 1) }, Shape::new(2, 4, 3, 18), 1);
        check(&cpu, Conv2d { stride, ..square(3, 6, 3, 1, 1) }, Shape::new(2, 4, 3, 3), 0);
    }
}

/// Padded as Keras' "same" does.
fn same(inputs: usize, outputs: usize, kernel: [usize; 2], stride: [usize; 2], x: Shape) -> Conv2d {
    let along = |axis: usize, size: usize| {
        let outputs = size.div_ceil(stride[axis]);
        let all = ((outputs - 1) * stride[axis] + kernel[axis]).saturating_sub(size);
        (all / 2, all - all / 2)
    };
    let ((top, bottom), (left, right)) = (along(0, x.h), along(1, x.w));
    Conv2d { inputs, outputs, kernel, stride, pad: Pad { top, bottom, left, right } }
}

/// Images of one row, of which not all pixels are read or written.
#[test]
fn rows_with_gaps() {
    for cpu in Cpu::of_every_kind(2) {
        check(&cpu, square(64, 32, 1, 2, 0), Shape::new(64, 1, 2, 64), 0);
        for w in [4, 5, 7] {
            let x = Shape::new(64, 1, w, 64);
            check(&cpu, same(64, 32, [3, 3], [3, 3], x), x, 0);
        }
        let x = Shape::new(20, 3, 4, 17);
        check(
            &cpu,
            Conv2d { pad: Pad { left: 2, right: 3, ..Pad::VALID }, ..same(17, 32, [3, 3], [3, 1], x) },
            x,
            0,
        );
    }
}

/// Of these no two parts of an image need the same room.
#[test]
fn kernels_as_large_as_images() {
    for (n, h, w, c, kernel) in [
        (8, 8, 8, 64, [10, 10]),
        (2, 8, 8, 4, [10, 10]),
        (1, 2, 20, 3, [4, 4]),
        (5, 3, 11, 15, [6, 4]),
        (9, 3, 13, 40, [6, 5]),
    ] {
        let x = Shape::new(n, h, w, c);
        for outputs in [7, 40] {
            for cpu in Cpu::of_every_kind(2) {
                check(&cpu, same(c, outputs, kernel, [1, 1], x), x, 0);
            }
        }
    }
    let x = Shape::new(3, 2, 56, 65);
    let pad = Pad { top: 3, bottom: 3, left: 2, right: 2 };
    for cpu in Cpu::of_every_kind(2) {
        check(&cpu, Conv2d { inputs: 65, outputs: 33, kernel: [7, 3], stride: [1, 1], pad }, x, 0);
    }
}

#[test]
fn scratch_memory_that_can_not_be_had_is_an_error() {
    // Weights are rounded in scratch memory.
    let cpu = Cpu::with_simd(1, Level::Portable).with_bf16().unwrap();
    let conv = Conv2d { inputs: 1 << 24, outputs: 1 << 24, ..square(1, 1, 3, 1, 1) };
    let error = cpu.prepare_conv2d(&conv, Shape::new(1, 8, 8, conv.inputs), true).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes, .. } if bytes > 1 << 50), "{error}");
}

/// Large enough for several tasks, passes and partitions.
#[test]
fn shapes_of_real_networks() {
    for (conv, x, extra) in [
        (square(3, 96, 3, 1, 1), Shape::new(2, 32, 32, 3), 0),
        (square(64, 48, 3, 1, 1), Shape::new(2, 32, 32, 64), 16),
        (square(32, 40, 3, 1, 0), Shape::new(3, 40, 34, 32), 0),
        (square(32, 40, 3, 1, 0), Shape::new(1, 3, 3000, 32), 0),
        (square(64, 48, 3, 1, 0), Shape::new(9, 13, 13, 64), 8),
        (square(80, 80, 3, 2, 0), Shape::new(3, 32, 32, 80), 0),
        (square(160, 112, 1, 1, 0), Shape::new(10, 15, 15, 160), 48),
        (square(240, 160, 3, 1, 1), Shape::new(9, 7, 7, 240), 0),
    ] {
        // Devices of their own, whose scratch memory no other case has made larger.
        for cpu in Cpu::of_every_kind(2) {
            check(&cpu, conv, x, extra);
        }
    }
}

#[test]
fn dense_layers() {
    for cpu in Cpu::of_every_kind(2) {
        let cpu = &cpu;
        for (n, inputs, outputs) in
            [(1, 1, 1), (128, 300, 10), (3, 64, 512), (65, 1000, 130), (130, 31, 17), (40, 170_000, 3)]
        {
            let linear = Linear { inputs, outputs };
            let at = |c: usize| slice(Shape::vectors(n, c), n % 3);
            let (xl, yl, w) = (at(inputs), at(outputs), Span::new(1, inputs * outputs));
            let b = Span::new(w.end(), outputs);
            let random = |len, seed| random_for(cpu, len, seed);
            let (xs, dys, params) = (random(room(xl), 4), random(room(yl), 5), random(b.end(), 6));
            let (xb, dyb, pb) = (tensor(cpu, &xs), tensor(cpu, &dys), arena(&params));
            let (xr, dyr, pr) = (wide(&xs), wide(&dys), wide(&params));
            let what = format!("{:?} {:?} {linear:?} of {n}", cpu.simd(), cpu.bf16());

            let (mut got, mut want) = (tensor(cpu, &dys), dyr.clone());
            let act = Activation::Relu;
            cpu.linear_fwd(
                &linear,
                act,
                View::new(&xb, xl),
                Run::new(&pb, WeightSpans { w, b: Some(b) }),
                ViewMut::new(&mut got, yl),
            )
            .unwrap();
            Reference
                .linear_fwd(
                    &linear,
                    act,
                    View::new(&xr, xl),
                    Run::new(&pr, WeightSpans { w, b: Some(b) }),
                    ViewMut::new(&mut want, yl),
                )
                .unwrap();
            close(&format!("forward, {what}"), cpu, &got, &want, inputs);

            let (mut got, mut want) = (tensor(cpu, &xs), xr.clone());
            cpu.linear_bwd_data(
                &linear,
                View::new(&dyb, yl),
                Run::new(&pb, w),
                ViewMut::new(&mut got, xl),
                Write::Add,
            )
            .unwrap();
            Reference
                .linear_bwd_data(
                    &linear,
                    View::new(&dyr, yl),
                    Run::new(&pr, w),
                    ViewMut::new(&mut want, xl),
                    Write::Add,
                )
                .unwrap();
            close(&format!("backward data, {what}"), cpu, &got, &want, outputs);

            let (mut got, mut want) = (arena(&params), pr.clone());
            cpu.linear_bwd_filter(
                &linear,
                View::new(&xb, xl),
                View::new(&dyb, yl),
                RunMut::new(&mut got, w.into()),
            )
            .unwrap();
            Reference
                .linear_bwd_filter(
                    &linear,
                    View::new(&xr, xl),
                    View::new(&dyr, yl),
                    RunMut::new(&mut want, w.into()),
                )
                .unwrap();
            close(&format!("backward filter, {what}"), cpu, &got, &want, n);
        }
    }
}

/// The outputs of all passes of a convolution, back to back.
pub(super) fn all_passes(cpu: &Cpu, conv: Conv2d, x: Shape) -> Vec<u32> {
    let y = conv.output(x).unwrap();
    let (xl, yl, w) = (slice(x, 0), slice(y, 0), Span::new(0, conv.weights()));
    let (xs, dys) = (tensor(cpu, &random(room(xl), 7)), tensor(cpu, &random(room(yl), 8)));
    let params = arena(&random(w.end(), 9));
    let (mut got, mut dx, mut dw) = (dys.clone(), xs.clone(), params.clone());
    let act = Activation::Relu;
    cpu.conv2d_fwd(&conv, act, View::new(&xs, xl), Run::new(&params, w.into()), ViewMut::new(&mut got, yl))
        .unwrap();
    cpu.conv2d_bwd_data(
        &conv,
        View::new(&dys, yl),
        Run::new(&params, w),
        ViewMut::new(&mut dx, xl),
        Write::Add,
    )
    .unwrap();
    cpu.conv2d_bwd_filter(&conv, View::new(&xs, xl), View::new(&dys, yl), RunMut::new(&mut dw, w.into()))
        .unwrap();
    [&got, &dx, &dw].into_iter().flat_map(|buffer| numbers(cpu, buffer)).map(f32::to_bits).collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for (conv, x) in [
        (square(3, 40, 3, 1, 1), Shape::new(5, 32, 32, 3)),
        (square(48, 40, 3, 2, 0), Shape::new(11, 15, 15, 48)),
        (square(80, 96, 1, 1, 0), Shape::new(7, 9, 9, 80)),
        (square(200, 70, 3, 1, 1), Shape::new(6, 7, 7, 200)),
        (square(600, 70, 1, 1, 0), Shape::new(100, 1, 1, 600)),
    ] {
        let all = |threads| Cpu::of_every_kind(threads).map(move |cpu| all_passes(&cpu, conv, x));
        let one: Vec<_> = all(1).collect();
        for threads in [2, 3, 5] {
            assert!(all(threads).eq(one.iter().cloned()), "{conv:?}");
        }
    }
}

/// A number that is none reaches every output that depends on it, past a rectifier too.
#[test]
fn nan_is_not_hidden() {
    for cpu in Cpu::of_every_kind(2) {
        let conv = square(4, 20, 1, 1, 0);
        let at = |c| Layout::contiguous(Shape::new(1, 2, 2, c));
        let mut x = random(16, 1);
        x[4] = f32::NAN;
        let (x, params, mut y) = (tensor(&cpu, &x), arena(&random(80, 2)), tensor(&cpu, &[0.0; 80]));
        let (w, y_at) = (Span::new(0, 80), at(20));
        cpu.conv2d_fwd(
            &conv,
            Activation::Relu,
            View::new(&x, at(4)),
            Run::new(&params, w.into()),
            ViewMut::new(&mut y, y_at),
        )
        .unwrap();
        assert!(numbers(&cpu, &y).iter().enumerate().all(|(i, y)| y.is_nan() == (20..40).contains(&i)));
    }
}
