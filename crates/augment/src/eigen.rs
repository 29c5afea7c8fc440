//! Eigenvalues and eigenvectors of symmetric matrices: Householder's tridiagonal form, then the QL algorithm with implicit
//! shifts (G. H. Golub and C. F. Van Loan, "Matrix Computations", 8.3). All inner loops run along rows.

use ndarray::{Array1, Array2, Axis, Slice};

/// The eigenvalues of the symmetric matrix `a`, and its eigenvectors as rows in the same order; in no order of size.
///
/// `None` if it holds a number that is not finite, or the iteration does not settle.
pub(crate) fn symmetric(mut a: Array2<f64>) -> Option<(Array1<f64>, Array2<f64>)> {
    if !a.iter().all(|value| value.is_finite()) {
        return None;
    }
    let (mut diagonal, mut beside) = tridiagonal(&mut a);
    let mut vectors = accumulate(&a);
    iterate(&mut diagonal, &mut beside, &mut vectors)?;
    Some((diagonal.into(), vectors))
}

/// Brings `a` into tridiagonal form: its diagonal and the one beside it. In row k of `a`, behind the diagonal, stays the vector v
/// of the k-th reflection 1 - v v^T.
fn tridiagonal(a: &mut Array2<f64>) -> (Vec<f64>, Vec<f64>) {
    let n = a.nrows();
    let mut beside = vec![0.0; n];
    for (k, beside) in beside.iter_mut().enumerate().take(n.saturating_sub(2)) {
        let (head, below) = a.view_mut().split_at(Axis(0), k + 1);
        let (_, mut v) = head.index_axis_move(Axis(0), k).split_at(Axis(0), k + 1);
        let norm = v.dot(&v).sqrt();
        if norm == 0.0 {
            continue;
        }
        *beside = -norm.copysign(v[0]);
        v[0] -= *beside;
        // Of length sqrt(2), so that the reflection needs no factor.
        let length = (v.dot(&v) / 2.0).sqrt();
        v.mapv_inplace(|value| value / length);
        let (_, mut block) = below.split_at(Axis(1), k + 1);
        let mut p = block.dot(&v);
        let half = v.dot(&p) / 2.0;
        p.scaled_add(-half, &v);
        for (mut row, (&vi, &pi)) in block.rows_mut().into_iter().zip(v.iter().zip(&p)) {
            row.scaled_add(-vi, &p);
            row.scaled_add(-pi, &v);
        }
    }
    if n > 1 {
        beside[n - 2] = a[[n - 2, n - 1]];
    }
    (a.diag().to_vec(), beside)
}

/// The product of the reflections, transposed. It turns the tridiagonal form's eigenvectors into those of the
/// matrix, as rows.
fn accumulate(a: &Array2<f64>) -> Array2<f64> {
    let n = a.nrows();
    let mut vectors = Array2::eye(n);
    for k in (0..n.saturating_sub(2)).rev() {
        let v = a.row(k).slice_axis_move(Axis(0), Slice::from(k + 1..));
        if v.dot(&v) < 1.0 {
            // Not of length sqrt(2): nothing was to be reflected.
            continue;
        }
        for mut row in vectors.rows_mut().into_iter().skip(k + 1) {
            let mut row = row.slice_axis_mut(Axis(0), Slice::from(k + 1..));
            let along = row.dot(&v);
            row.scaled_add(-along, &v);
        }
    }
    vectors
}

/// Makes `beside` vanish; then `diagonal` holds the eigenvalues.
fn iterate(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut Array2<f64>) -> Option<()> {
    let n = diagonal.len();
    // What is small beside the whole matrix is rounding: where eigenvalues vanish, neighbours are nothing else.
    let norm = (0..n).map(|k| diagonal[k].abs() + beside[k].abs()).fold(0.0, f64::max);
    for first in 0..n {
        for round in 0.. {
            let small = |k: usize| beside[k].abs() <= f64::EPSILON * norm;
            let last = (first..n - 1).find(|&k| small(k)).unwrap_or(n - 1);
            if last == first {
                break;
            }
            if round == 60 {
                return None;
            }
            sweep(diagonal, beside, vectors, first, last);
        }
    }
    Some(())
}

/// One implicit QL step on the block from `first` to `last`.
fn sweep(d: &mut [f64], e: &mut [f64], vectors: &mut Array2<f64>, first: usize, last: usize) {
    let slope = (d[first + 1] - d[first]) / (2.0 * e[first]);
    let shift = d[first] - e[first] / (slope + slope.hypot(1.0).copysign(slope));
    let (mut g, mut sin, mut cos, mut moved) = (d[last] - shift, 1.0, 1.0, 0.0);
    for k in (first..last).rev() {
        let (f, b) = (sin * e[k], cos * e[k]);
        let r = f.hypot(g);
        e[k + 1] = r;
        if r == 0.0 {
            d[k + 1] -= moved;
            e[last] = 0.0;
            return;
        }
        (sin, cos) = (f / r, g / r);
        let base = d[k + 1] - moved;
        let turn = (d[k] - base) * sin + 2.0 * cos * b;
        moved = sin * turn;
        d[k + 1] = base + moved;
        g = cos * turn - b;
        let (mut head, mut tail) = vectors.view_mut().split_at(Axis(0), k + 1);
        let (mut low, mut high) = (head.row_mut(k), tail.row_mut(0));
        let rows = low.iter_mut().zip(high.iter_mut());
        rows.for_each(|(low, high)| (*low, *high) = (cos * *low - sin * *high, sin * *low + cos * *high));
    }
    d[first] -= moved;
    e[first] = g;
    e[last] = 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_philox::Philox;

    #[test]
    fn vectors_are_orthonormal_and_take_the_matrix_apart() {
        for (n, rank) in [(1, 1), (2, 2), (3, 1), (7, 7), (24, 24), (24, 5), (40, 1)] {
            let mut rng = Philox::new(n as u64, 5, [0, 0]);
            let x = Array2::from_shape_simple_fn((rank, n), || rng.normal());
            let a = x.t().dot(&x);
            let (values, vectors) = symmetric(a.clone()).unwrap();
            let unit = vectors.dot(&vectors.t()) - Array2::<f64>::eye(n);
            assert!(unit.iter().all(|error| error.abs() < 1e-12), "{n} {rank}");
            let again = vectors.t().dot(&(&vectors * &values.view().insert_axis(Axis(1))));
            let scale = a.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
            assert!((&again - &a).iter().all(|error| error.abs() < 1e-12 * scale), "{n} {rank}");
        }
    }

    /// Most eigenvalues vanish: the numbers beside them on the diagonal are rounding errors too.
    #[test]
    fn fewer_images_than_values_settle() {
        for (n, images) in [(48, 10), (192, 20), (192, 50)] {
            let mut rng = Philox::new(n as u64, 6, [0, images as u64]);
            let x = Array2::from_shape_simple_fn((images, n), || f64::from((255.0 * rng.unit_f32()).round()));
            let x = &x - &x.mean_axis(Axis(0)).unwrap();
            let a = x.t().dot(&x) / images as f64;
            let (values, vectors) = symmetric(a.clone()).unwrap();
            let again = vectors.t().dot(&(&vectors * &values.view().insert_axis(Axis(1))));
            let scale = a.iter().fold(1.0_f64, |most, value| most.max(value.abs()));
            assert!((&again - &a).iter().all(|error| error.abs() < 1e-11 * scale), "{n} {images}");
        }
    }

    #[test]
    fn diagonal_and_empty_matrices_are_their_own_answer() {
        let (values, _) = symmetric(Array2::from_diag(&ndarray::array![3.0, -1.0, 2.0, 0.0])).unwrap();
        assert_eq!(values, ndarray::array![3.0, -1.0, 2.0, 0.0]);
        assert_eq!(symmetric(Array2::zeros((0, 0))).unwrap().0.len(), 0);
        assert!(symmetric(ndarray::array![[1.0, f64::NAN], [f64::NAN, 1.0]]).is_none());
    }
}
