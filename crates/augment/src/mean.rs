//! Mean images: one value a channel, or one a pixel.

use crate::Error;
use ndarray::{ArrayView4, Axis};

/// The mean of a set of images, to be subtracted from each.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Mean {
    /// One value a channel, over all images, rows and columns, as Keras' `featurewise_center` subtracts it.
    PerChannel(Vec<f32>),
    /// One value for each row, column and channel, over all images: `np.mean(x, axis=0)`.
    PerPixel {
        /// Height, width, channels.
        shape: [usize; 3],
        /// The values, row by row, channels together (HWC).
        values: Vec<f32>,
    },
}

impl Mean {
    /// The per-channel mean of `images` (N, H, W, C), in units of 0..=255.
    ///
    /// # Errors
    /// [`Error::EmptySet`] without images.
    pub fn per_channel(images: ArrayView4<'_, u8>) -> Result<Self, Error> {
        let (n, h, w, c) = images.dim();
        let pixel_sums = PixelSums::of(images);
        let mut channel_sums = vec![0; c];
        for pixel in pixel_sums.checked()?.sums.chunks_exact(c.max(1)) {
            channel_sums.iter_mut().zip(pixel).for_each(|(sum, &value)| *sum += value);
        }
        Ok(Mean::PerChannel(divide(&channel_sums, n * h * w)))
    }

    /// The per-pixel mean of `images` (N, H, W, C), in units of 0..=255.
    ///
    /// # Errors
    /// [`Error::EmptySet`] without images.
    pub fn per_pixel(images: ArrayView4<'_, u8>) -> Result<Self, Error> {
        PixelSums::of(images).mean()
    }

    /// The mean as one value a pixel of images of `shape` (H, W, C). `what` names it in the error.
    pub(crate) fn expand(&self, shape: [usize; 3], what: &'static str) -> Result<Vec<f32>, Error> {
        let [h, w, c] = shape;
        let values = match self {
            Mean::PerChannel(values) => {
                Error::check_len(what, values.len(), c)?;
                values.repeat(h * w)
            }
            Mean::PerPixel { shape: own, values } => {
                if *own != shape {
                    return Err(Error::Shape { what, got: own.to_vec(), expected: shape.to_vec() });
                }
                Error::check_len(what, values.len(), h * w * c)?;
                values.clone()
            }
        };
        match values.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(Error::option(what, value, "finite in every place")),
            None => Ok(values),
        }
    }
}

/// For each pixel and channel the sum over all images, exact in whole numbers: [`Mean::per_pixel`] of a set
/// that is read some images at a time.
///
/// ```
/// use towers_augment::{Mean, engine::PixelSums};
///
/// let mut sums = PixelSums::new([1, 1, 3]);
/// sums.add(&[10, 20, 30, 20, 40, 60]);
/// assert_eq!(sums.mean()?, Mean::PerPixel { shape: [1, 1, 3], values: vec![15.0, 30.0, 45.0] });
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PixelSums {
    shape: [usize; 3],
    sums: Vec<u64>,
    images: usize,
}

impl PixelSums {
    /// Of no images yet, of this height, width and channels.
    pub fn new(shape: [usize; 3]) -> Self {
        PixelSums { shape, sums: vec![0; shape.iter().product()], images: 0 }
    }

    /// Adds whole images (HWC), one after the other.
    pub fn add(&mut self, images: &[u8]) {
        images.chunks_exact(self.sums.len().max(1)).for_each(|image| self.add_one(image));
    }

    /// The mean.
    ///
    /// # Errors
    /// [`Error::EmptySet`] without images.
    pub fn mean(&self) -> Result<Mean, Error> {
        let PixelSums { shape, sums, images } = self.checked()?;
        Ok(Mean::PerPixel { shape: *shape, values: divide(sums, *images) })
    }

    fn of(images: ArrayView4<'_, u8>) -> Self {
        let (_, h, w, c) = images.dim();
        let mut sums = PixelSums::new([h, w, c]);
        images.axis_iter(Axis(0)).for_each(|image| sums.add_one(image));
        sums
    }

    fn add_one<'a>(&mut self, image: impl IntoIterator<Item = &'a u8>) {
        self.sums.iter_mut().zip(image).for_each(|(sum, &value)| *sum += u64::from(value));
        self.images += 1;
    }

    fn checked(&self) -> Result<&Self, Error> {
        let some = self.images > 0 && !self.sums.is_empty();
        some.then_some(self).ok_or(Error::EmptySet { op: "mean" })
    }
}

fn divide(sums: &[u64], count: usize) -> Vec<f32> {
    sums.iter().map(|&sum| (sum as f64 / count as f64) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array4, array};

    #[test]
    fn means_by_hand() {
        let images = array![[[[1, 10], [3, 20]]], [[[5, 30], [8, 50]]]];
        assert_eq!(Mean::per_channel(images.view()), Ok(Mean::PerChannel(vec![4.25, 27.5])));
        let per_pixel = Mean::PerPixel { shape: [1, 2, 2], values: vec![3.0, 20.0, 5.5, 35.0] };
        assert_eq!(Mean::per_pixel(images.view()), Ok(per_pixel));
    }

    #[test]
    fn no_images_no_mean() {
        for shape in [(0, 4, 4, 3), (2, 0, 4, 3), (2, 4, 4, 0)] {
            let images = Array4::zeros(shape);
            assert_eq!(Mean::per_pixel(images.view()), Err(Error::EmptySet { op: "mean" }));
            assert_eq!(Mean::per_channel(images.view()), Err(Error::EmptySet { op: "mean" }));
        }
    }
}
