//! PyTorch's names and layouts of parameters, which our ONNX graphs have too.

use towers_layers::ParamSpec;

/// The buffers of an exported module with the preprocessing.
pub(crate) const SCALE: &str = "pixel_scale";
pub(crate) const SHIFT: &str = "pixel_shift";

/// The name of a layer's parameter.
pub(crate) fn name(layer: &str, parameter: &str) -> String {
    let parameter = match parameter {
        "kernel" | "depthwise_kernel" | "layer_scale" | "gamma" | "alpha" => "weight",
        "beta" => "bias",
        "moving_mean" => "running_mean",
        "moving_variance" => "running_var",
        other => other,
    };
    format!("{layer}.{parameter}")
}

/// A parameter's shape here, the weights of a depthwise convolution as those of one input channel and all outputs: their numbers
/// lie alike.
pub(crate) fn own(spec: &ParamSpec) -> Vec<usize> {
    match (spec.name, &spec.shape[..]) {
        ("depthwise_kernel", &[kh, kw, c, filters]) => vec![kh, kw, 1, c * filters],
        ("layer_scale", &[c]) => vec![1, 1, 1, c],
        (_, shape) => shape.to_vec(),
    }
}

/// The shape there of a parameter with this shape here: kernels are `(outputs, inputs, rows, columns)` or `(outputs, inputs)`.
pub(crate) fn shape(ours: &[usize]) -> Vec<usize> {
    match *ours {
        [kh, kw, c, k] => vec![k, c, kh, kw],
        [c, k] => vec![k, c],
        _ => ours.to_vec(),
    }
}

/// The values of a parameter with this shape here, in the order that they have there.
pub(crate) fn to_torch(ours: &[usize], data: &[f32]) -> Vec<f32> {
    match *ours {
        [kh, kw, c, k] => {
            // As a matrix of (rows * columns * inputs, outputs), then of (rows * columns, inputs) for each output.
            let each = channels_first(data, kh * kw * c, k);
            transposed_each(&each, kh * kw, c)
        }
        [c, k] => channels_first(data, c, k),
        _ => data.to_vec(),
    }
}

/// The way back.
pub(crate) fn from_torch(ours: &[usize], data: &[f32]) -> Vec<f32> {
    match *ours {
        [kh, kw, c, k] => {
            let filters = transposed_each(data, c, kh * kw);
            channels_first(&filters, k, kh * kw * c)
        }
        [c, k] => channels_first(data, k, c),
        _ => data.to_vec(),
    }
}

/// Matrices of this shape that follow one another, each transposed.
fn transposed_each(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    if rows == 1 || columns == 1 {
        return values.to_vec();
    }
    let mut all = vec![0.0; values.len()];
    let len = rows * columns;
    for (from, to) in values.chunks_exact(len).zip(all.chunks_exact_mut(len)) {
        transpose(from, to, rows, columns);
    }
    all
}

/// Rows of `channels` numbers each, transposed.
pub(crate) fn channels_first(values: &[f32], rows: usize, channels: usize) -> Vec<f32> {
    let mut all = vec![0.0; rows * channels];
    transpose(values, &mut all, rows, channels);
    all
}

/// A matrix of `rows` rows into one of as many columns, square by square. A square's rows and columns are whole lines of a
/// cache, each of which is read or written at once.
fn transpose(from: &[f32], to: &mut [f32], rows: usize, columns: usize) {
    const SIDE: usize = 16;
    let mut square = [[0.0_f32; SIDE]; SIDE];
    for row in (0..rows).step_by(SIDE) {
        let height = SIDE.min(rows - row);
        for column in (0..columns).step_by(SIDE) {
            let width = SIDE.min(columns - column);
            for (r, line) in square.iter_mut().enumerate().take(height) {
                line[..width].copy_from_slice(&from[(row + r) * columns + column..][..width]);
            }
            for c in 0..width {
                let line = &mut to[(column + c) * rows + row..][..height];
                line.iter_mut().zip(&square).for_each(|(to, from)| *to = from[c]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_columns() {
        assert_eq!(channels_first(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert!(channels_first(&[], 0, 3).is_empty());
        let (rows, columns) = (33, 18);
        let numbers: Vec<f32> = (0..rows * columns).map(|k| k as f32).collect();
        let turned = channels_first(&numbers, rows, columns);
        let right = |(k, &x): (usize, &f32)| x == numbers[k % rows * columns + k / rows];
        assert!(turned.iter().enumerate().all(right));
    }

    #[test]
    fn there_and_back_is_where_it_began() {
        for ours in [&[2, 3, 4, 5][..], &[1, 1, 1, 7], &[4, 3], &[6]] {
            let data: Vec<f32> = (0..ours.iter().product()).map(|k: usize| k as f32).collect();
            let there = to_torch(ours, &data);
            assert_eq!(from_torch(ours, &there), data);
            assert_eq!(there == data, shape(ours) == ours || data.len() == 7);
        }
        // The first filter there: the first output's numbers, input by input.
        assert_eq!(
            to_torch(&[2, 1, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])[..4],
            [0.0, 4.0, 2.0, 6.0]
        );
    }
}
