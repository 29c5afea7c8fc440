//! ZCA whitening: decorrelates the values of images and keeps them as near to the images as can be.

use crate::{Error, eigen};
use ndarray::{Array2, Axis};
use std::sync::Arc;

/// The matrix of ZCA whitening. Cloning it is cheap.
///
/// It is `U diag(1 / sqrt(s + epsilon)) U^T` for the eigenvalues s and eigenvectors U of the covariance of the training images, each
/// a vector of height x width x channels numbers: keras_preprocessing 1.1.2; A. J. Bell and T. J. Sejnowski, "The 'independent
/// components' of natural scenes are edge filters" (1997).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Whitening {
    #[cfg_attr(feature = "serde", serde(with = "shared"))]
    matrix: Arc<[f32]>,
}

impl Whitening {
    /// Takes the rows of a matrix, one after the other: that of a run before. It must be symmetric.
    pub fn new(matrix: impl Into<Arc<[f32]>>) -> Self {
        Whitening { matrix: matrix.into() }
    }

    /// The rows of the matrix, one after the other.
    pub fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    /// From the covariance of images.
    pub(crate) fn of(covariance: Array2<f64>, epsilon: f64) -> Result<Self, Error> {
        let (values, vectors) = eigen::symmetric(covariance).ok_or(Error::NoWhitening)?;
        // As singular values they are never negative.
        let scales = values.mapv(|value| 1.0 / (value.abs() + epsilon).sqrt());
        let matrix = vectors.t().dot(&(&vectors * &scales.insert_axis(Axis(1))));
        Ok(Whitening { matrix: matrix.iter().map(|&value| value as f32).collect() })
    }

    /// Refuses a matrix that is not for images of `len` values.
    pub(crate) fn check(&self, len: usize) -> Result<(), Error> {
        Error::check_len("the matrix of `zca_whitening`", self.matrix.len(), len.saturating_mul(len))
    }

    /// Whitens one image.
    pub(crate) fn apply(&self, image: &mut [f32], spare: &mut Vec<f32>) {
        spare.clear();
        spare.extend_from_slice(image);
        image.fill(0.0);
        let len = image.len();
        // Four rows a time: the image is read and written a quarter as often.
        let (fours, rest) = spare.as_chunks::<4>();
        let mut rows = self.matrix.chunks_exact(len);
        for &[a, b, c, d] in fours {
            let (Some(ra), Some(rb), Some(rc), Some(rd)) =
                (rows.next(), rows.next(), rows.next(), rows.next())
            else {
                return;
            };
            for ((((out, ra), rb), rc), rd) in image.iter_mut().zip(ra).zip(rb).zip(rc).zip(rd) {
                *out += (a * ra + b * rb) + (c * rc + d * rd);
            }
        }
        for (value, row) in rest.iter().zip(rows) {
            image.iter_mut().zip(row).for_each(|(out, row)| *out += value * row);
        }
    }
}

#[cfg(feature = "serde")]
mod shared {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(matrix: &Arc<[f32]>, serializer: S) -> Result<S::Ok, S::Error> {
        matrix.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[f32]>, D::Error> {
        Vec::deserialize(deserializer).map(Arc::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitened_values_have_no_covariance() {
        let a = ndarray::array![[4.0, 1.0, 0.5], [1.0, 3.0, -0.2], [0.5, -0.2, 2.0]];
        let whitening = Whitening::of(a.clone(), 0.0).unwrap();
        let m = Array2::from_shape_vec((3, 3), whitening.matrix().iter().map(|&x| f64::from(x)).collect());
        let m = m.unwrap();
        let unit = m.dot(&a).dot(&m.t()) - Array2::<f64>::eye(3);
        assert!(unit.iter().all(|error| error.abs() < 1e-6), "{unit}");
    }

    #[test]
    fn every_number_of_values_is_multiplied_right() {
        for len in 1..10_usize {
            let matrix: Vec<f32> = (0..len * len).map(|k| (k * 13 % 7) as f32).collect();
            let mut image: Vec<f32> = (0..len).map(|k| k as f32 - 2.0).collect();
            let expected: Vec<f32> =
                (0..len).map(|j| (0..len).map(|i| image[i] * matrix[i * len + j]).sum()).collect();
            Whitening::new(matrix).apply(&mut image, &mut vec![]);
            assert_eq!(image, expected);
        }
    }
}
