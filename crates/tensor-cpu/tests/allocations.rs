//! Once an op has run, running it again allocates nothing: a training step's memory is known in advance.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor_backend::{
    Activation, Backend, BatchNorm, Conv2d, DropoutMask, Layout, Linear, NormSpans, Pad, Pool2d, Result,
    RmspropStep, SgdStep, Shape, SoftmaxXent, Span, Velocity, View, ViewMut, WeightDecay, Write,
};
use tensor_cpu::{Buffer, Cpu};

/// The system's allocator, counting calls of all threads.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Memory) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RELU: Activation = Activation::Relu;

/// Every op once, on operands that the buffers are large enough for.
fn every_op(cpu: &Cpu, labels: &Vec<u32>, [a, b, c, d, saved]: &mut [Buffer; 5]) -> Result<()> {
    let (shape, mode) = (Shape::new(4, 16, 16, 24), Write::Add);
    let at = Layout::contiguous(shape);
    let conv = Conv2d {
        inputs: 24,
        outputs: 24,
        kernel: [3; 2],
        stride: [1; 2],
        pad: Pad::same(16, 16, [3; 2], [1; 2]),
    };
    let (w, bias) = (Span::new(0, conv.weights()), Some(Span::new(conv.weights(), 24)));
    let x = View::new(&*a, at);
    cpu.conv2d_fwd(&conv, RELU, x, b, w, bias, ViewMut::new(c, at))?;
    cpu.conv2d_bwd_data(&conv, x, b, w, ViewMut::new(c, at), mode)?;
    cpu.conv2d_bwd_filter(&conv, x, x, c, w, bias)?;
    let (linear, vectors, classes) = (
        Linear { inputs: 24, outputs: 10 },
        Layout::contiguous(Shape::vectors(64, 24)),
        Layout::contiguous(Shape::vectors(64, 10)),
    );
    let (w, bias) = (Span::new(0, 240), Some(Span::new(240, 10)));
    cpu.linear_fwd(&linear, RELU, View::new(a, vectors), b, w, bias, ViewMut::new(c, classes))?;
    cpu.linear_bwd_data(&linear, View::new(a, classes), b, w, ViewMut::new(c, vectors), mode)?;
    cpu.linear_bwd_filter(&linear, View::new(a, vectors), View::new(a, classes), c, w, bias)?;

    let bn = BatchNorm { epsilon: 1e-3, act: RELU };
    let (first, second, sums) = (Span::new(0, 24), Span::new(24, 24), Span::new(48, 48));
    let x = View::new(&*a, at);
    cpu.bn_act_fwd_train(&bn, x, b, first, second, None, ViewMut::new(c, at), saved, d, sums)?;
    let runs = NormSpans { gamma: first, beta: second, mean: first, var: second };
    cpu.bn_act_fwd_infer(&bn, x, b, d, runs, ViewMut::new(c, at))?;
    let w = Span::new(0, conv.weights());
    cpu.conv2d_bn_act_fwd_infer(&conv, &bn, x, b, w, None, d, runs, ViewMut::new(c, at))?;
    cpu.bn_act_bwd(&bn, x, x, b, first, second, saved, d, first, second, ViewMut::new(c, at), mode)?;
    cpu.ema_step(0.9, 1.0, d, first, c, second)?;

    cpu.act_fwd(RELU, x, ViewMut::new(c, at))?;
    cpu.add_act(RELU, x, ViewMut::new(c, at))?;
    cpu.act_bwd(RELU, x, x, ViewMut::new(c, at), mode)?;
    cpu.act_bwd_in_place(RELU, x, ViewMut::new(c, at))?;
    cpu.copy(x, ViewMut::new(c, at), mode)?;
    let mask = DropoutMask { rate: 0.5, key: [1, 2], step: 3, first_sample: 0 };
    cpu.dropout(&mask, x, ViewMut::new(c, at), mode)?;
    let pool = Pool2d { kernel: [3; 2], stride: [2; 2], pad: Pad::VALID };
    let small = Layout::contiguous(pool.output(shape)?);
    cpu.maxpool_fwd(&pool, x, ViewMut::new(d, small))?;
    cpu.maxpool_bwd(&pool, x, View::new(d, small), View::new(b, small), ViewMut::new(c, at), mode)?;
    cpu.avgpool_fwd(&pool, x, ViewMut::new(d, small))?;
    cpu.avgpool_bwd(&pool, View::new(d, small), ViewMut::new(c, at), mode)?;
    cpu.softmax(View::new(a, classes), ViewMut::new(c, classes))?;
    let xent = SoftmaxXent { label_smoothing: 0.1, scale: 1.0, mixed: false };
    cpu.softmax_xent(
        &xent,
        View::new(a, classes),
        labels,
        Some(ViewMut::new(c, classes)),
        d,
        Span::new(0, 2),
    )?;

    let (arena, velocity, weight_decay) = (Span::new(0, shape.len()), Velocity::Keras, WeightDecay::None);
    let sgd = SgdStep { lr: 0.1, momentum: 0.9, nesterov: true, velocity, weight_decay };
    cpu.sgd_step(&sgd, b, a, c, arena)?;
    let rmsprop = RmspropStep { lr: 0.1, rho: 0.9, epsilon: 1e-7, epsilon_inside_root: false, weight_decay };
    cpu.rmsprop_step(&rmsprop, b, a, c, arena)
}

/// A normalization and a dense layer on so many vectors.
fn on_vectors(cpu: &Cpu, n: usize, [a, b, c, d, saved]: &mut [Buffer; 5]) -> Result<()> {
    let (wide, narrow) =
        (Layout::contiguous(Shape::vectors(n, 4096)), Layout::contiguous(Shape::vectors(n, 8)));
    let (bn, linear) = (BatchNorm { epsilon: 1e-3, act: RELU }, Linear { inputs: 8, outputs: 4096 });
    let (gamma, beta, sums) = (Span::new(0, 4096), Span::new(4096, 4096), Span::new(0, 2 * 4096));
    cpu.bn_act_fwd_train(
        &bn,
        View::new(a, wide),
        b,
        gamma,
        beta,
        None,
        ViewMut::new(c, wide),
        saved,
        d,
        sums,
    )?;
    let (dw, db) = (Span::new(0, 8 * 4096), Span::new(8 * 4096, 4096));
    cpu.linear_bwd_filter(&linear, View::new(b, narrow), View::new(a, wide), d, dw, Some(db))
}

#[test]
fn a_second_run_allocates_nothing() {
    let labels = vec![0; 64];
    for cpu in [Some(Cpu::new(2)), Cpu::new(2).with_bf16()].into_iter().flatten() {
        let mut buffers = core::array::from_fn(|_| Buffer::zeros(4 * 16 * 16 * 24));
        every_op(&cpu, &labels, &mut buffers).unwrap();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        every_op(&cpu, &labels, &mut buffers).unwrap();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    }

    // Fewer rows may be cut into more blocks: still nothing.
    let cpu = Cpu::new(2);
    cpu.prepare_linear(&Linear { inputs: 8, outputs: 4096 }, 65, true).unwrap();
    let mut buffers = core::array::from_fn(|_| Buffer::zeros(65 * 4096));
    on_vectors(&cpu, 65, &mut buffers).unwrap();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (1..65).for_each(|n| on_vectors(&cpu, n, &mut buffers).unwrap());
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
