//! Tensors whose last pixels lie beyond 2^32 elements: every place has to be computed in 64 bits. The tensors are small
//! and their row strides are large, so nearly all of their memory is never touched, and costs nothing.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use program::{
    Activation, AffineSpans, Backend, BatchNorm, DropoutMask, Layout, Linear, NormSaved, NormTrain, Pad,
    Pool2d, Precision, Run, RunMut, Shape, Span, WeightSpans, Write,
};
use tensor_cuda::Cuda;

/// Elements of a buffer with a far tensor.
const FAR: usize = (1 << 32) + 1024;
/// A pack, whatever the format.
const PACK: usize = 8;

/// Where a tensor lies: its last pixel at or just behind 2^32, or all pixels back to back.
fn place(shape: Shape, far: bool) -> Layout {
    let steps = (shape.rows() - 1).max(1);
    let stride = if far { (1_usize << 32).div_ceil(steps).next_multiple_of(PACK) } else { shape.c };
    Layout { offset: 0, shape, stride }
}

/// Makes tensors on a device, far or not.
struct Maker<'a> {
    cuda: &'a Cuda,
    far: bool,
}

impl Maker<'_> {
    fn tensor(&self, name: &str, shape: Shape) -> Tensor<Cuda> {
        let layout = place(shape, self.far);
        let mut data = self.cuda.alloc_activations(if self.far { FAR } else { layout.end() }).unwrap();
        let values: Vec<f32> = numbers(name, shape.len()).iter().map(|&x| rounded(PRECISION, x)).collect();
        for (row, values) in values.chunks(shape.c).enumerate() {
            self.cuda.upload(values, &mut data, row * layout.stride).unwrap();
        }
        Tensor { data, layout }
    }

    fn values(&self, tensor: &Tensor<Cuda>) -> Vec<f32> {
        let Layout { shape, stride, .. } = tensor.layout;
        let row = |row| download(self.cuda, &tensor.data, Span::new(row * stride, shape.c)).unwrap();
        (0..shape.rows()).flat_map(row).collect()
    }
}

const PRECISION: Precision = Precision::Bf16;

/// Asserts that ops write the same bits whether their tensors are far or not; the first says what they are.
fn same_far_and_near(what: &str, ops: impl Fn(&Maker) -> Vec<Vec<f32>>) {
    let cuda = emulated(PRECISION);
    if let Err(error) = cuda.alloc_activations(FAR) {
        println!("SKIPPED: {what} beyond 2^32 elements: {error}");
        return;
    }
    let [near, far] = [false, true].map(|far| ops(&Maker { cuda: &cuda, far }));
    assert_eq!(near.len(), far.len());
    for (k, (near, far)) in near.iter().zip(&far).enumerate() {
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(near), bits(far), "output {k} of {what}");
    }
}

#[test]
fn elements() {
    let shape = Shape::new(1, 3, 3, PACK);
    same_far_and_near("copies and activations", |m| {
        let (x, dy, mut y) = (m.tensor("x", shape), m.tensor("dy", shape), m.tensor("y", shape));
        m.cuda.copy(x.view(), y.view_mut(), Write::Add).unwrap();
        let copied = m.values(&y);
        m.cuda.act_fwd(Activation::Relu, x.view(), y.view_mut()).unwrap();
        let activated = m.values(&y);
        m.cuda.act_bwd(Activation::Relu, x.view(), dy.view(), y.view_mut(), Write::Set).unwrap();
        vec![copied, activated, m.values(&y)]
    });
}

#[test]
fn batch_norm() {
    let (shape, c) = (Shape::new(3, 1, 1, PACK), PACK);
    same_far_and_near("batch normalization", |m| {
        let (x, dy) = (m.tensor("x", shape), m.tensor("dy", shape));
        let (mut y, mut dx) = (m.tensor("y", shape), m.tensor("dx", shape));
        let (bn, params) = (
            BatchNorm { epsilon: 1e-3, act: Activation::Relu },
            upload(m.cuda, &numbers("p", 2 * c)).unwrap(),
        );
        let (gamma, beta, sums) = (Span::new(0, c), Span::new(c, c), Span::new(2 * c, 2 * c));
        let (mut saved, mut grads) = (m.cuda.alloc(2 * c).unwrap(), m.cuda.alloc(4 * c).unwrap());
        let affine = Run::new(&params, AffineSpans { gamma, beta });
        let norm = NormTrain { affine, bias: None, saved: &mut saved, sums: RunMut::new(&mut grads, sums) };
        m.cuda.bn_act_fwd_train(&bn, x.view(), norm, y.view_mut()).unwrap();
        let norm = NormSaved { x: x.view(), affine, saved: &saved };
        let gradients = RunMut::new(&mut grads, affine.at);
        m.cuda.bn_act_bwd(&bn, norm, dy.view(), gradients, dx.view_mut(), Write::Set).unwrap();
        let grads = download(m.cuda, &grads, Span::new(0, 4 * c)).unwrap();
        vec![m.values(&y), m.values(&dx), grads]
    });
}

#[test]
fn pooling() {
    let shape = Shape::new(1, 3, 3, PACK);
    let windows = |kernel, stride| Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad: Pad::VALID };
    // Windows that overlap and that do not.
    for pool in [windows(2, 1), windows(1, 1)] {
        same_far_and_near("pooling", |m| {
            let of_y = pool.output(shape).unwrap();
            let (x, dy) = (m.tensor("x", shape), m.tensor("dy", of_y));
            let (mut y, mut dx) = (m.tensor("y", of_y), m.tensor("dx", shape));
            m.cuda.maxpool_fwd(&pool, x.view(), y.view_mut()).unwrap();
            let largest = m.values(&y);
            m.cuda.maxpool_bwd(&pool, x.view(), y.view(), dy.view(), dx.view_mut(), Write::Add).unwrap();
            let of_largest = m.values(&dx);
            m.cuda.avgpool_fwd(&pool, x.view(), y.view_mut()).unwrap();
            m.cuda.avgpool_bwd(&pool, dy.view(), dx.view_mut(), Write::Set).unwrap();
            vec![largest, of_largest, m.values(&y), m.values(&dx)]
        });
    }
}

#[test]
fn dropout_and_softmax() {
    let shape = Shape::vectors(3, PACK);
    same_far_and_near("dropout and softmax", |m| {
        let (x, mut y) = (m.tensor("x", shape), m.tensor("y", shape));
        let mask = DropoutMask { rate: 0.5, key: [1, 2], step: 3, first_sample: 4 };
        m.cuda.dropout(&mask, x.view(), y.view_mut(), Write::Add).unwrap();
        let dropped = m.values(&y);
        m.cuda.softmax(x.view(), y.view_mut()).unwrap();
        vec![dropped, m.values(&y)]
    });
}

/// Tensors with gaps are packed for the product, and their columns are summed where they lie.
#[test]
fn dense_layers() {
    let (linear, n) = (Linear { inputs: PACK, outputs: 2 * PACK }, 3);
    let [inputs, outputs] = [linear.inputs, linear.outputs].map(|c| Shape::vectors(n, c));
    let w = Span::new(0, linear.inputs * linear.outputs);
    let all = w.len + linear.outputs;
    let b = Some(Span::new(w.end(), linear.outputs));
    same_far_and_near("a dense layer", |m| {
        let (x, dy) = (m.tensor("x", inputs), m.tensor("dy", outputs));
        let (mut y, mut dx) = (m.tensor("y", outputs), m.tensor("dx", inputs));
        let params = upload(m.cuda, &numbers("params", all)).unwrap();
        let mut grads = m.cuda.alloc(all).unwrap();
        let weights = Run::new(&params, WeightSpans { w, b });
        m.cuda.linear_fwd(&linear, Activation::Relu, x.view(), weights, y.view_mut()).unwrap();
        // Not added: sums of what was packed are rounded twice.
        m.cuda.linear_bwd_data(&linear, dy.view(), Run::new(&params, w), dx.view_mut(), Write::Set).unwrap();
        let gradients = RunMut::new(&mut grads, weights.at);
        m.cuda.linear_bwd_filter(&linear, x.view(), dy.view(), gradients).unwrap();
        m.cuda.finish_grads(&mut grads, w).unwrap();
        let grads = download(m.cuda, &grads, Span::new(0, all)).unwrap();
        vec![m.values(&y), m.values(&dx), grads]
    });
}
