use super::*;

const LINEAR: Linear = Linear { inputs: 3, outputs: 2 };

/// What cuBLASLt does with a product, element by element, as its documentation defines it.
fn multiply(product: &Product, a: &[f32], b: &[f32], d: &mut [f32]) {
    let Product { m, n, k, transposed, strides, .. } = *product;
    let at = |matrix: &[f32], which: usize, row: usize, column: usize| {
        let (row, column) = if transposed[which] { (column, row) } else { (row, column) };
        matrix[column * strides[which] + row]
    };
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let sum = (0..k).map(|term| at(a, 0, row, term) * at(b, 1, term, column)).sum();
        d[column * strides[2] + row] = sum;
    }
}

/// Rows of `columns` numbers, `stride` apart, with NaN between them.
fn matrix(rows: usize, columns: usize, stride: usize, first: f32) -> Vec<f32> {
    let mut all = vec![f32::NAN; rows * stride];
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        all[row * stride + column] = first + (row * columns + column) as f32;
    }
    all
}

#[test]
fn a_layer_is_three_products() {
    let (n, wide) = (4, 5);
    let (x, w, dy) = (matrix(n, 3, wide, 1.0), matrix(2, 3, 3, -2.0), matrix(n, 2, wide, 0.5));
    let (mut y, mut dx, mut dw) = (vec![0.0; n * wide], vec![0.0; n * wide], vec![0.0; 6]);
    multiply(&Product::new(&LINEAR, Pass::Forward, n, [wide; 2]), &w, &x, &mut y);
    multiply(&Product::new(&LINEAR, Pass::Data, n, [wide; 2]), &w, &dy, &mut dx);
    multiply(&Product::new(&LINEAR, Pass::Filter, n, [wide; 2]), &x, &dy, &mut dw);
    for i in 0..n {
        for k in 0..2 {
            let sum: f32 = (0..3).map(|c| x[i * wide + c] * w[k * 3 + c]).sum();
            assert_eq!(y[i * wide + k], sum, "y of sample {i}, output {k}");
        }
        for c in 0..3 {
            let sum: f32 = (0..2).map(|k| dy[i * wide + k] * w[k * 3 + c]).sum();
            assert_eq!(dx[i * wide + c], sum, "dx of sample {i}, input {c}");
        }
    }
    for (k, c) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        let sum: f32 = (0..n).map(|i| dy[i * wide + k] * x[i * wide + c]).sum();
        assert_eq!(dw[k * 3 + c], sum, "dw of output {k}, input {c}");
    }
}

#[test]
fn stored_sizes_are_before_the_transposition() {
    assert_eq!(Product::new(&LINEAR, Pass::Forward, 4, [3, 2]).stored(), [[3, 2], [3, 4], [2, 4]]);
    assert_eq!(Product::new(&LINEAR, Pass::Data, 4, [3, 2]).stored(), [[3, 2], [2, 4], [3, 4]]);
    assert_eq!(Product::new(&LINEAR, Pass::Filter, 4, [3, 2]).stored(), [[3, 4], [2, 4], [3, 2]]);
}

#[test]
fn alignment_is_what_the_places_have() {
    let product = Product::new(&LINEAR, Pass::Forward, 4, [3, 2]).at([Ptr(0x1000), Ptr(0x1004), Ptr(0x1030)]);
    assert_eq!(product.aligned, [256, 4, 16]);
}
