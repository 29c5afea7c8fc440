//! Converts another program's preprocessing of pixels to preprocessing and standardization here.

use crate::Input;
use crate::input::EPSILON;
use towers_augment::{ImageDataGenerator, Mean};
use towers_interchange::Pixels;

/// The preprocessing, and the options of it and of the standardization after it.
pub(crate) type Measured = (Input, ImageDataGenerator);

/// With the options of the input alone.
pub(crate) fn plain(input: Input) -> Measured {
    let options = input.options(ImageDataGenerator::new());
    (input, options)
}

/// What `x * scale + shift` is here: `scale` has a number a channel, `shift` as many or one for each value of an image. `None` where a
/// factor is not positive, a number is not finite or gets too large, or anything else doesn't fit images of this height, width and channels.
pub(crate) fn of_pixels(pixels: &Pixels, image: [usize; 3]) -> Option<Measured> {
    if let Some(input) = input_of(pixels, image) {
        return Some(plain(input));
    }
    let Pixels { scale, shift } = pixels;
    let (channels, values) = (image[2], image.iter().product::<usize>());
    let sound = scale.iter().all(|&factor| factor.is_finite() && factor > 0.0)
        && shift.iter().all(|shift| shift.is_finite());
    if !sound || scale.len() != channels || ![channels, values].contains(&shift.len()) {
        return None;
    }
    // As values from 0 to 255.
    let mean = |k: usize| -f64::from(shift[k]) / f64::from(scale[k % channels]);
    // Of values that were multiplied by `factor`.
    let deviations = |factor: f64| -> Option<Vec<f32>> {
        let of = |scale: &f32| Some(factor / f64::from(*scale) - EPSILON).filter(|std| *std >= 0.0);
        let all: Option<Vec<f32>> = scale.iter().map(|scale| Some(of(scale)? as f32)).collect();
        finite(all?.into_iter())
    };
    let new = ImageDataGenerator::new();
    let (input, beyond) = if shift.len() == channels {
        let factor = 1.0 / 255.0;
        let means = finite((0..channels).map(|c| (mean(c) * factor) as f32))?;
        (Input::DivideBy255, new.mean(Mean::PerChannel(means)).std(deviations(factor)?))
    } else {
        let mean = finite((0..values).map(|k| mean(k) as f32))?;
        let input = Input::SubtractPixelMean { image, mean };
        let beyond = match scale.iter().all(|factor| *factor == scale[0]) {
            true => new.rescale(scale[0]),
            false => new.mean(Mean::PerChannel(vec![0.0; channels])).std(deviations(1.0)?),
        };
        (input, beyond)
    };
    let options = input.options(beyond);
    Some((input, options))
}

/// The input that `x * scale + shift` is, if it is one of the plain ones, for images of this height, width and channels.
fn input_of(pixels: &Pixels, image: [usize; 3]) -> Option<Input> {
    let Pixels { scale, shift } = pixels;
    let factor = *scale.first()?;
    let sound = factor.is_finite() && factor > 0.0 && shift.iter().all(|shift| shift.is_finite());
    let channels = image[2];
    if !sound || scale.len() != channels || scale.iter().any(|other| *other != factor) {
        return None;
    }
    let std = 1.0 / factor;
    // What is computed with: the numbers here, and those of `Input::options`.
    finite([std, 1.0 / std].into_iter())?;
    let mean = finite(shift.iter().map(|shift| -shift / factor))?;
    finite(mean.iter().map(|mean| mean / std))?;
    match shift.len() {
        len if len == channels && factor == 1.0 / 255.0 && shift.iter().all(|shift| *shift == 0.0) => {
            Some(Input::DivideBy255)
        }
        len if len == channels => Some(Input::Standardize { mean, std }),
        len if len == image.iter().product::<usize>() && factor == 1.0 => {
            Some(Input::SubtractPixelMean { image, mean })
        }
        _ => None,
    }
}

/// The numbers if all are finite: a quotient of finite ones need not be.
fn finite(values: impl Iterator<Item = f32>) -> Option<Vec<f32>> {
    values.map(|value| value.is_finite().then_some(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preprocessing;
    use towers_augment::{Draws, Scratch};

    const IMAGE: [usize; 3] = [32, 32, 3];

    fn image(options: &ImageDataGenerator, picture: &[u8]) -> Vec<f32> {
        let mut image = vec![0.0; picture.len()];
        let pipeline = options.build(IMAGE).unwrap();
        pipeline.apply(&Draws::default(), picture, &mut image, &mut Scratch::default()).unwrap();
        image
    }

    fn assert_close(what: &str, options: &ImageDataGenerator, expected: &[f32], picture: &[u8]) {
        let worst =
            image(options, picture).iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let largest = expected.iter().map(|x| x.abs()).fold(1.0, f32::max);
        assert!(worst <= 2e-6 * largest, "{what}: {worst} of {largest}");
    }

    /// A network sees the same after an export and an import.
    #[test]
    fn what_goes_out_comes_back() {
        let data = towers_cifar::synthetic(3, 40, 2);
        let picture = &data.test.images.as_slice().unwrap()[..IMAGE.iter().product()];
        let flips = ImageDataGenerator::new().horizontal_flip(true);
        for preprocessing in
            [Preprocessing::DivideBy255, Preprocessing::SubtractPixelMean, Preprocessing::Standardize]
        {
            let name = &format!("{preprocessing:?}");
            let input = Input::fit(preprocessing, &data.train).unwrap();
            let options = input.options(flips.clone()).evaluation();
            let out = crate::export::pixels("model".as_ref(), &options, IMAGE).unwrap();
            let (back, own) = of_pixels(&out, IMAGE).unwrap_or_else(|| panic!("{name} does not come back"));
            assert_eq!(core::mem::discriminant(&back), core::mem::discriminant(&input), "{name}");
            assert_close(name, &own, &image(&options, picture), picture);
        }
    }

    #[test]
    fn any_positive_factor_will_do() {
        let data = towers_cifar::synthetic(3, 2, 2);
        let len = IMAGE.iter().product();
        let picture = &data.test.images.as_slice().unwrap()[..len];
        let per_pixel: Vec<f32> = (0..len).map(|k| (k % 97) as f32 / 9.0 - 5.0).collect();
        for (scale, shift) in [
            (vec![0.017, 0.0175, 0.0174], vec![-2.1, -2.0, -1.8]),
            (vec![1.0 / 255.0; 3], vec![-0.5; 3]),
            (vec![1.0, 2.0, 0.5], per_pixel.clone()),
            (vec![0.5; 3], per_pixel.clone()),
            (vec![1.0; 3], vec![0.0; 3]),
        ] {
            let (_, options) =
                of_pixels(&Pixels { scale: scale.clone(), shift: shift.clone() }, IMAGE).unwrap();
            let expected: Vec<f32> = picture
                .iter()
                .enumerate()
                .map(|(k, &x)| f32::from(x) * scale[k % 3] + shift[k % shift.len()])
                .collect();
            assert_close(&format!("{scale:?}"), &options, &expected, picture);
        }
        let three = vec![1.0; 3];
        for (scale, shift) in [
            (vec![], vec![]),
            (vec![1.0], vec![0.0]),
            (vec![1.0; 3], vec![0.0; 4]),
            (vec![1.0; 4], vec![0.0; 4]),
            (vec![0.0, 1.0, 1.0], three.clone()),
            (vec![-1.0; 3], three.clone()),
            (vec![f32::NAN, 1.0, 1.0], three.clone()),
            (vec![f32::INFINITY; 3], three.clone()),
            (vec![1e30, 1.0, 2.0], three),
            // Finite numbers whose quotients are not.
            (vec![1e-30; 3], vec![1e30; 3]),
            (vec![1e-42; 3], vec![0.0; 3]),
            (vec![1e-42, 1.0, 1.0], vec![0.0; 3]),
            (vec![1e-30, 1.0, 1.0], vec![1e30, 0.0, 0.0]),
            (vec![0.01; 3], vec![3e38; IMAGE.iter().product()]),
            (vec![1e-42, 1.0, 1.0], vec![0.0; IMAGE.iter().product()]),
            (vec![0.5, 1.0, 1.0], vec![0.0, f32::NAN, 0.0]),
        ] {
            let pixels = Pixels { scale, shift };
            assert!(of_pixels(&pixels, IMAGE).is_none(), "{pixels:?}");
        }
    }
}
