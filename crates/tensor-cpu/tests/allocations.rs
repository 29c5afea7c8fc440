//! Once an op has run, running it again allocates nothing: a training step's memory is known in advance.
#![allow(clippy::unwrap_used)]

use program::{
    Activation, AdamStep, AffineSpans, Backend, BatchNorm, Conv2d, DropoutMask, Layout, Linear, Moments,
    NormInfer, NormSaved, NormSpans, NormTrain, OptimizerStep, Pad, Pool2d, Result, RmspropStep, Run, RunMut,
    SgdStep, Shape, SoftmaxXent, Span, Velocity, View, ViewMut, WeightDecay, WeightSpans, Write,
};
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// What ops read and write.
struct Operands {
    x: Buffer,
    y: Buffer,
    /// A pooling's output, and the gradient of one.
    small: [Buffer; 2],
    params: Buffer,
    grads: Buffer,
    sums: Buffer,
    saved: Buffer,
    mean_square: Buffer,
    steps: Buffer,
}

impl Operands {
    /// So many numbers each.
    fn new(cpu: &Cpu, len: usize) -> Result<Self> {
        let (tensor, arena) = (|| cpu.alloc_activations(len), || cpu.alloc(len));
        Ok(Operands {
            x: tensor()?,
            y: tensor()?,
            small: [tensor()?, tensor()?],
            params: arena()?,
            grads: arena()?,
            sums: arena()?,
            saved: arena()?,
            mean_square: arena()?,
            steps: arena()?,
        })
    }
}

/// Every op once, on operands that are large enough for it.
fn every_op(cpu: &Cpu, labels: &Vec<u32>, operands: &mut Operands) -> Result<()> {
    let Operands { x, y, small: [pooled, dpooled], params, grads, sums, saved, mean_square, steps } =
        operands;
    let (shape, mode) = (Shape::new(4, 16, 16, 24), Write::Add);
    let at = Layout::contiguous(shape);
    let conv = Conv2d {
        inputs: 24,
        outputs: 24,
        kernel: [3; 2],
        stride: [1; 2],
        pad: Pad::same(16, 16, [3; 2], [1; 2]),
    };
    let weights = WeightSpans { w: Span::new(0, conv.weights()), b: Some(Span::new(conv.weights(), 24)) };
    let of_x = View::new(&*x, at);
    cpu.conv2d_fwd(&conv, RELU, of_x, Run::new(params, weights), ViewMut::new(y, at))?;
    cpu.conv2d_bwd_data(&conv, of_x, Run::new(params, weights.w), ViewMut::new(y, at), mode)?;
    cpu.conv2d_bwd_filter(&conv, of_x, of_x, RunMut::new(grads, weights))?;
    let (linear, vectors, classes) = (
        Linear { inputs: 24, outputs: 10 },
        Layout::contiguous(Shape::vectors(64, 24)),
        Layout::contiguous(Shape::vectors(64, 10)),
    );
    let weights = WeightSpans { w: Span::new(0, 240), b: Some(Span::new(240, 10)) };
    let (of_vectors, of_classes) = (View::new(&*x, vectors), View::new(&*x, classes));
    cpu.linear_fwd(&linear, RELU, of_vectors, Run::new(params, weights), ViewMut::new(y, classes))?;
    cpu.linear_bwd_data(&linear, of_classes, Run::new(params, weights.w), ViewMut::new(y, vectors), mode)?;
    cpu.linear_bwd_filter(&linear, of_vectors, of_classes, RunMut::new(grads, weights))?;

    let bn = BatchNorm { epsilon: 1e-3, act: RELU };
    let (first, second, of_sums) = (Span::new(0, 24), Span::new(24, 24), Span::new(48, 48));
    let affine = AffineSpans { gamma: first, beta: second };
    let norm =
        NormTrain { affine: Run::new(params, affine), bias: None, saved, sums: RunMut::new(sums, of_sums) };
    cpu.bn_act_fwd_train(&bn, of_x, norm, ViewMut::new(y, at))?;
    let runs = NormSpans { affine, mean: first, var: second };
    let norm = || NormInfer { params, running: sums, at: runs };
    cpu.bn_act_fwd_infer(&bn, of_x, norm(), ViewMut::new(y, at))?;
    let w = Run::new(&*params, Span::new(0, conv.weights()).into());
    cpu.conv2d_bn_act_fwd_infer(&conv, &bn, of_x, w, norm(), ViewMut::new(y, at))?;
    let norm = NormSaved { x: of_x, affine: Run::new(params, affine), saved };
    cpu.bn_act_bwd(&bn, norm, of_x, RunMut::new(grads, affine), ViewMut::new(y, at), mode)?;
    cpu.ema_step(0.9, 1.0, sums, first, params, second)?;

    cpu.act_fwd(RELU, of_x, ViewMut::new(y, at))?;
    cpu.add_act(RELU, of_x, ViewMut::new(y, at))?;
    cpu.act_bwd(RELU, of_x, of_x, ViewMut::new(y, at), mode)?;
    cpu.act_bwd_in_place(RELU, of_x, ViewMut::new(y, at))?;
    cpu.copy(of_x, ViewMut::new(y, at), mode)?;
    let mask = DropoutMask { rate: 0.5, key: [1, 2], step: 3, first_sample: 0 };
    cpu.dropout(&mask, of_x, ViewMut::new(y, at), mode)?;
    let pool = Pool2d { kernel: [3; 2], stride: [2; 2], pad: Pad::VALID };
    let out = Layout::contiguous(pool.output(shape)?);
    cpu.maxpool_fwd(&pool, of_x, ViewMut::new(pooled, out))?;
    let (of_pooled, of_dpooled) = (View::new(&*pooled, out), View::new(&*dpooled, out));
    cpu.maxpool_bwd(&pool, of_x, of_pooled, of_dpooled, ViewMut::new(y, at), mode)?;
    cpu.avgpool_fwd(&pool, of_x, ViewMut::new(pooled, out))?;
    cpu.avgpool_bwd(&pool, of_dpooled, ViewMut::new(y, at), mode)?;
    cpu.softmax(View::new(x, classes), ViewMut::new(y, classes))?;
    let xent = SoftmaxXent { label_smoothing: 0.1, scale: 1.0, mixed: false };
    let dlogits = Some(ViewMut::new(y, classes));
    cpu.softmax_xent(&xent, View::new(x, classes), labels, dlogits, sums, Span::new(0, 2))?;

    let (arena, velocity, weight_decay) = (Span::new(0, shape.len()), Velocity::Keras, WeightDecay::None);
    let sgd = SgdStep { lr: 0.1, momentum: 0.9, nesterov: true, velocity, weight_decay };
    cpu.sgd_step(&sgd, params, grads, saved, arena)?;
    let rmsprop = RmspropStep { lr: 0.1, rho: 0.9, epsilon: 1e-7, epsilon_inside_root: false, weight_decay };
    cpu.rmsprop_step(&rmsprop, params, grads, saved, arena)?;
    let adam = AdamStep { lr: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-7, epsilon_hat: true, weight_decay };
    let moments = Moments { mean: saved, mean_square, steps };
    cpu.optimizer_step(OptimizerStep::Adam(adam, moments), params, grads, &[rmsprop.whole(arena)])
}

/// A normalization and a dense layer on so many vectors.
fn on_vectors(cpu: &Cpu, n: usize, operands: &mut Operands) -> Result<()> {
    let Operands { x, y, params, grads, sums, saved, .. } = operands;
    let (wide, narrow) =
        (Layout::contiguous(Shape::vectors(n, 4096)), Layout::contiguous(Shape::vectors(n, 8)));
    let (bn, linear) = (BatchNorm { epsilon: 1e-3, act: RELU }, Linear { inputs: 8, outputs: 4096 });
    let affine = Run::new(&*params, AffineSpans { gamma: Span::new(0, 4096), beta: Span::new(4096, 4096) });
    let norm = NormTrain { affine, bias: None, saved, sums: RunMut::new(sums, Span::new(0, 2 * 4096)) };
    cpu.bn_act_fwd_train(&bn, View::new(x, wide), norm, ViewMut::new(y, wide))?;
    let weights = WeightSpans { w: Span::new(0, 8 * 4096), b: Some(Span::new(8 * 4096, 4096)) };
    let grads = RunMut::new(grads, weights);
    cpu.linear_bwd_filter(&linear, View::new(y, narrow), View::new(x, wide), grads)
}

/// The fewest allocations of some runs: beside the first ones threads of the pool may still begin, for which the system allocates.
fn fewest_allocations(mut run: impl FnMut()) -> usize {
    let allocations = |_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    (0..5).map(allocations).min().unwrap()
}

#[test]
fn a_second_run_allocates_nothing() {
    let labels = vec![0; 64];
    for cpu in [Some(Cpu::new(2)), Cpu::new(2).with_bf16()].into_iter().flatten() {
        let mut operands = Operands::new(&cpu, 4 * 16 * 16 * 24).unwrap();
        every_op(&cpu, &labels, &mut operands).unwrap();
        assert_eq!(fewest_allocations(|| every_op(&cpu, &labels, &mut operands).unwrap()), 0);

        // Fewer rows may be cut into more blocks: still nothing.
        cpu.prepare_linear(&Linear { inputs: 8, outputs: 4096 }, 65, true).unwrap();
        let mut operands = Operands::new(&cpu, 65 * 4096).unwrap();
        on_vectors(&cpu, 65, &mut operands).unwrap();
        let smaller = || (1..65).for_each(|n| on_vectors(&cpu, n, &mut operands).unwrap());
        assert_eq!(fewest_allocations(smaller), 0);
    }
}
