//! Tensors whose last pixels lie beyond 2^32 elements: every place has to be computed in 64 bits. The tensors are small
//! and their row strides are large, so nearly all of their memory is never touched, and costs nothing.

use crate::harness::*;
use towers_program::ops::*;
use towers_program::{
    Activation, Arena, Backend, BatchNorm, Executable, Home, Layout, Linear, Memory, Noise, Pad, Pool2d,
    Precision, Result, Shape, Span, StepArgs, Storage, TensorId, Trial, View, ViewMut, Write,
};
use towers_tensor_cuda::Cuda;

/// A pack, whatever the format.
const PACK: usize = 8;
const PRECISION: Precision = Precision::Bf16;

/// The same tensor with its last pixel at or just behind 2^32.
fn far(shape: Shape) -> Layout {
    let steps = (shape.rows() - 1).max(1);
    Layout { offset: 0, shape, stride: (1_usize << 32).div_ceil(steps).next_multiple_of(PACK) }
}

/// The device, unless it has too little memory for a tensor that is far: it is said that `what` is skipped.
fn device(what: &str) -> Option<Cuda> {
    let cuda = emulated(PRECISION);
    match cuda.alloc_activations((1 << 32) + 1024) {
        Ok(_) => Some(cuda),
        Err(error) => {
            println!("SKIPPED: {what} beyond 2^32 elements: {error}");
            None
        }
    }
}

fn upload_rows(cuda: &Cuda, values: &[f32], at: Layout, to: &mut Storage) -> Result<()> {
    let mut rows = values.chunks(at.shape.c).enumerate();
    rows.try_for_each(|(row, values)| cuda.upload(values, to, at.offset + row * at.stride))
}

fn download_rows(cuda: &Cuda, from: &Storage, at: Layout) -> Result<Vec<f32>> {
    let row = |row| download(cuda, from, Span::new(at.offset + row * at.stride, at.shape.c));
    Ok((0..at.shape.rows()).map(row).collect::<Result<Vec<_>>>()?.concat())
}

/// A batch with random numbers.
fn batch(trial: &mut Trial, name: &str, shape: Shape) -> TensorId {
    let values: Vec<f32> = numbers(name, shape.len()).iter().map(|&x| rounded(PRECISION, x)).collect();
    trial.activations(Layout::contiguous(shape), &values)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Asserts that steps write the same bits wherever their tensors lie: each of the activations is far once.
fn same_far_and_near(what: &str, n: usize, trial: &Trial) {
    let check = |cuda: &Cuda| -> Result<()> {
        let mut near = trial.clone().on(cuda)?;
        near.run(&StepArgs::inference(n))?;
        let program = near.executable.program();
        let roots = (0..program.tensors.len()).filter(|&k| {
            let tensor = &program.tensors[k];
            tensor.arena == Arena::Activations && matches!(tensor.home, Home::At(_)) && tensor.shape.c > 0
        });
        for root in roots.collect::<Vec<_>>() {
            let (results, there) = run_far(cuda, trial, n, root)?;
            for (id, values) in results {
                let what = format!("tensor {} of {what}, with tensor {root} far", id.index());
                assert_eq!(bits(&values), bits(&near.read(id, n)?), "{what}");
            }
            assert!(there.end() > 1 << 32);
        }
        Ok(())
    };
    if let Some(cuda) = device(what) {
        check(&cuda).expect("the device runs the steps");
    }
}

/// Results, with their numbers.
type Left = Vec<(TensorId, Vec<f32>)>;

/// What the steps leave where one tensor is far, and where that is.
fn run_far(cuda: &Cuda, trial: &Trial, n: usize, which: usize) -> Result<(Left, Layout)> {
    let mut run = trial.clone().on(cuda)?;
    let mut program = run.executable.program().clone();
    // Behind all others.
    let shape = program.tensors[which].shape;
    program.tensors[which].shape = shape.with_c(far(shape.with_n(n)).stride);
    program.tensors[which].home = Home::At(run.executable.len(Arena::Activations).next_multiple_of(PACK));
    let executable = Executable::place(program, n, 0)?;
    cuda.prepare(&executable)?;
    let program = executable.program();
    let (ids, mut activations) =
        (run.activation_ids(), cuda.alloc_activations(executable.len(Arena::Activations))?);
    for &id in &ids {
        upload_rows(cuda, &run.read(id, n)?, executable.layout(id, n), &mut activations)?;
    }
    let memory = Memory {
        activations: &mut activations,
        statistics: &mut run.statistics,
        params: &run.parameters,
        grads: &mut run.gradients,
        averages: &run.averages,
        labels: &run.labels,
    };
    cuda.run(&executable, 0..program.steps.len(), &StepArgs::inference(n), memory)?;
    let all = Span::new(0, run.gradients.len());
    cuda.finish_grads(&mut run.gradients, all)?;
    let mut left = Vec::new();
    for &id in program.steps.iter().flat_map(|step| &step.results) {
        let values = match program.tensor(id).arena {
            Arena::Activations => download_rows(cuda, &activations, executable.layout(id, n))?,
            _ => run.read(id, n)?,
        };
        left.push((id, values));
    }
    let is_far = |id: &&TensorId| program.root(**id).0.index() == which;
    let there = ids.iter().find(is_far).map(|&id| executable.layout(id, n));
    Ok((left, there.expect("the tensor is a part of its memory")))
}

#[test]
fn elements() {
    let (shape, act, mut trial) = (Shape::new(1, 3, 3, PACK), Activation::Relu, Trial::new(1));
    let [x, dy, copy, y, dx] = ["x", "dy", "copy", "y", "dx"].map(|name| batch(&mut trial, name, shape));
    trial.step(Scale { factor: 1.0 }, &[x], &[copy], Write::Add);
    trial.step(Activate { act }, &[x], &[y], Write::Set);
    trial.step(ActivationGradient { act }, &[x, dy], &[dx], Write::Set);
    same_far_and_near("copies and activations", 1, &trial);
}

#[test]
fn batch_norm() {
    let (shape, c, mut trial) = (Shape::new(3, 1, 1, PACK), PACK, Trial::new(3));
    let [x, dy, y, dx] = ["x", "dy", "y", "dx"].map(|name| batch(&mut trial, name, shape));
    let [gamma, beta] = ["gamma", "beta"].map(|name| trial.run(Arena::Parameters, &numbers(name, c)));
    let saved = trial.run(Arena::Statistics, &numbers("saved", 2 * c));
    let [dgamma, dbeta, sums] = [c, c, 2 * c].map(|len| trial.run(Arena::Gradients, &numbers("sums", len)));
    let bn = BatchNorm { epsilon: 1e-3, act: Activation::Relu };
    trial.step(BatchNormTrain { bn }, &[x, gamma, beta], &[y, saved, sums], Write::Set);
    trial.step(BatchNormWeightGradient { bn }, &[x, gamma, beta, saved, dy], &[dgamma, dbeta], Write::Set);
    let op = BatchNormInputGradient { bn, shared: false };
    trial.step(op, &[x, gamma, beta, saved, dy, dgamma, dbeta], &[dx], Write::Set);
    same_far_and_near("batch normalization", 3, &trial);
}

#[test]
fn pooling() {
    let shape = Shape::new(1, 3, 3, PACK);
    let windows = |kernel, stride| Pool2d::new([kernel; 2], [stride; 2], Pad::VALID);
    // Windows that overlap and that do not.
    for pool in [windows(2, 1), windows(1, 1)] {
        let (of_y, mut trial) = (pool.output(shape).expect("a window"), Trial::new(1));
        let [dy, largest, mean] = ["dy", "largest", "mean"].map(|name| batch(&mut trial, name, of_y));
        let [x, of_largest, of_mean] =
            ["x", "of largest", "of mean"].map(|name| batch(&mut trial, name, shape));
        trial.step(MaxPool { pool }, &[x], &[largest], Write::Set);
        trial.step(MaxPoolGradient { pool }, &[x, largest, dy], &[of_largest], Write::Add);
        trial.step(AveragePool { pool }, &[x], &[mean], Write::Set);
        trial.step(AveragePoolGradient { pool, x: shape }, &[dy], &[of_mean], Write::Set);
        same_far_and_near("pooling", 1, &trial);
    }
}

#[test]
fn dropout() {
    let (shape, mut trial) = (Shape::vectors(3, PACK), Trial::new(3));
    let [x, y] = ["x", "y"].map(|name| batch(&mut trial, name, shape));
    trial.step(Dropout { rate: 0.5, noise: Noise::Element, domain: 1 }, &[x], &[y], Write::Add);
    same_far_and_near("dropout", 3, &trial);
}

/// Tensors with gaps are packed for the product, and their columns are summed where they lie.
#[test]
fn dense_layers() {
    let (linear, mut trial) = (Linear { inputs: PACK, outputs: 2 * PACK }, Trial::new(3));
    let [x, dx] = ["x", "dx"].map(|name| batch(&mut trial, name, Shape::vectors(3, linear.inputs)));
    let [y, dy] = ["y", "dy"].map(|name| batch(&mut trial, name, Shape::vectors(3, linear.outputs)));
    let len = linear.inputs * linear.outputs;
    let [w, b] = [len, linear.outputs].map(|len| trial.run(Arena::Parameters, &numbers("params", len)));
    let [dw, db] = [len, linear.outputs].map(|len| trial.run(Arena::Gradients, &numbers("grads", len)));
    trial.step(LinearForward { linear, act: Activation::Relu }, &[x, w, b], &[y], Write::Set);
    // Not added: sums of packed values are rounded twice.
    trial.step(LinearInputGradient { linear }, &[dy, w], &[dx], Write::Set);
    trial.step(LinearWeightGradient { linear, bias: true }, &[x, dy], &[dw, db], Write::Set);
    same_far_and_near("a dense layer", 3, &trial);
}

#[test]
fn softmax() -> Result<()> {
    let Some(cuda) = device("softmax") else { return Ok(()) };
    let shape = Shape::vectors(3, PACK);
    let values: Vec<f32> = numbers("x", shape.len()).iter().map(|&x| rounded(PRECISION, x)).collect();
    let probabilities = |from: Layout, to: Layout| -> Result<Vec<u32>> {
        let (mut x, mut y) = (cuda.alloc_activations(from.end())?, cuda.alloc_activations(to.end())?);
        upload_rows(&cuda, &values, from, &mut x)?;
        cuda.softmax(View::new(&x, from), ViewMut::new(&mut y, to))?;
        Ok(bits(&download_rows(&cuda, &y, to)?))
    };
    let near = Layout::contiguous(shape);
    let expected = probabilities(near, near)?;
    assert_eq!(probabilities(far(shape), near)?, expected);
    assert_eq!(probabilities(near, far(shape))?, expected);
    Ok(())
}
