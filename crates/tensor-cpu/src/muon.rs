//! Steps of Muon. Matrices are multiplied in f32, as dense layers are computed.

use crate::dispatch::multiversion;
use crate::optimizer::{BLOCK, for_parts, sums_of_parts};
use crate::{Cpu, linear};
use towers_optim::{Form, Muon};
use towers_program::{Activation, Layout, Linear, Shape, View, ViewMut, Write};

/// A step on one matrix: see [`optimizer_step`](crate::operand::optimizer_step).
pub(crate) fn step(
    cpu: &Cpu,
    muon: &Muon,
    lr: f32,
    shape: [usize; 2],
    params: &mut [f32],
    grads: &[f32],
    velocity: &mut [f32],
) {
    let (len, simd) = (params.len(), cpu.simd());
    if len == 0 {
        return;
    }
    // Dense layers don't use this memory.
    let mut memory = cpu.weights(len + Muon::work(shape));
    let (direction, work) = memory.split_at_mut(len);
    let of_parts = [&mut *velocity, &mut *direction];
    let squares =
        sums_of_parts(cpu, params, grads, of_parts, |params, grads, [velocity, direction], sums| {
            gather(simd, muon, params, grads, velocity, direction, sums);
        });
    muon.orthogonalize(shape, squares[1], direction, work, |form, sizes, a, b, out| {
        multiply(cpu, form, sizes, a, b, out);
    });
    let factors = muon.factors(lr, shape, squares[0]);
    for_parts(cpu, BLOCK, params, grads, [&mut [], direction], |_, params, _, [_, direction]| {
        apply(simd, muon, factors, params, direction);
    });
}

multiversion! {
    fn gather(muon: &Muon, params: &[f32], grads: &[f32], velocity: &mut [f32], direction: &mut [f32], sums: &mut [f64; 2]) {
        *sums = muon.gather(params, grads, velocity, direction);
    }
}

multiversion! {
    fn apply(muon: &Muon, factors: [f32; 2], params: &mut [f32], direction: &[f32]) {
        muon.apply(factors, params, direction);
    }
}

/// See [`Muon::orthogonalize`]. The forms are the passes of a dense layer.
fn multiply(cpu: &Cpu, form: Form, [m, k, n]: [usize; 3], a: &[f32], b: &[f32], out: &mut [f32]) {
    fn matrix(data: &[f32], rows: usize, columns: usize) -> View<'_, [f32]> {
        View::new(data, Layout::contiguous(Shape::vectors(rows, columns)))
    }
    let to = Layout::contiguous(Shape::vectors(m, n));
    match form {
        Form::Plain => {
            let linear = Linear { inputs: k, outputs: n };
            linear::forward(cpu, &linear, Activation::None, matrix(a, m, k), b, None, ViewMut::new(out, to));
        }
        Form::RightTransposed => {
            let linear = Linear { inputs: n, outputs: k };
            linear::backward_data(cpu, &linear, matrix(a, m, k), b, ViewMut::new(out, to), Write::Set);
        }
        Form::LeftTransposed => {
            let linear = Linear { inputs: m, outputs: n };
            linear::backward_filter(cpu, &linear, matrix(a, k, m), matrix(b, k, n), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form, on every instruction set and on devices whose activations are bf16.
    #[test]
    fn products_are_those_of_matrices() {
        let numbers =
            |len: usize, phase: f32| (0..len).map(|k| (k as f32 * 1.3 + phase).sin()).collect::<Vec<_>>();
        for cpu in Cpu::of_every_kind(2) {
            for [m, k, n] in [[1, 1, 1], [3, 70, 5], [33, 7, 65], [20, 300, 1]] {
                let (a, b) = (numbers(m * k, 0.0), numbers(k * n, 1.0));
                let by = |form: Form, row, i, j| {
                    let a = if form == Form::LeftTransposed { a[i * m + row] } else { a[row * k + i] };
                    let b: f32 = if form == Form::RightTransposed { b[j * k + i] } else { b[i * n + j] };
                    f64::from(a) * f64::from(b)
                };
                for form in [Form::Plain, Form::LeftTransposed, Form::RightTransposed] {
                    let mut out = vec![f32::NAN; m * n];
                    multiply(&cpu, form, [m, k, n], &a, &b, &mut out);
                    for (at, got) in out.iter().enumerate() {
                        let expected: f64 = (0..k).map(|i| by(form, at / n, i, at % n)).sum();
                        assert!(
                            (f64::from(*got) - expected).abs() < 1e-4,
                            "{form:?} of {m}, {k}, {n}: {got}, not {expected}"
                        );
                    }
                }
            }
        }
    }
}
