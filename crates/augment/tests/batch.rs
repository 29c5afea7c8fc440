//! A batch in one call, bytes and floats, and the order of axes.

use ndarray::Array4;
use towers_augment::{
    Error, ImageDataGenerator, Layout, Loader, LoaderOptions, Pipeline, RandAugment, Samples,
};

const SHAPE: [usize; 3] = [6, 5, 3];

fn images() -> Array4<u8> {
    Array4::from_shape_fn((9, 6, 5, 3), |(k, y, x, c)| (k * 89 + y * 31 + x * 7 + c * 3) as u8)
}

fn pipeline() -> Pipeline {
    let options = ImageDataGenerator::new().rand_augment(RandAugment::default()).rotation_range(20.0);
    let options = options.horizontal_flip(true).random_crop(1).brightness_range([0.5, 1.5]);
    options.rescale(1.0 / 255.0).cutout(2).build(SHAPE).unwrap()
}

fn loader(layout: Layout, workers: usize) -> Loader {
    let samples = Samples::new(images(), vec![0; 9]).unwrap();
    let options = LoaderOptions::new().batch_size(4).seed(7).workers(workers).layout(layout);
    Loader::new(samples, pipeline(), options).unwrap()
}

#[test]
fn a_batch_has_the_bits_of_the_loader_in_both_layouts() {
    let (images, pipeline) = (images(), pipeline());
    let mut rows_first = loader(Layout::Nhwc, 2);
    let mut channels_first = loader(Layout::Nchw, 0);
    for (nhwc, nchw) in rows_first.epoch(3, 0).unwrap().zip(channels_first.epoch(3, 0).unwrap()) {
        let (nhwc, nchw) = (nhwc.unwrap(), nchw.unwrap());
        assert_eq!(nchw.images().dim(), (nhwc.len(), 3, 6, 5));
        assert_eq!(nhwc.images().permuted_axes([0, 3, 1, 2]), nchw.images());
        let places: Vec<usize> = nhwc.indices.iter().map(|&index| index as usize).collect();
        let bytes: Vec<u8> = images.select(ndarray::Axis(0), &places).into_iter().collect();
        let floats: Vec<f32> = bytes.iter().map(|&byte| byte.into()).collect();
        let mut x = vec![f32::NAN; bytes.len()];
        for (layout, expected) in [(Layout::Nhwc, &nhwc.x), (Layout::Nchw, &nchw.x)] {
            pipeline.apply_batch(7, 3, &nhwc.indices, &bytes, layout, &mut x).unwrap();
            assert_eq!(x, *expected);
            x.fill(f32::NAN);
            pipeline.apply_batch(7, 3, &nhwc.indices, &floats, layout, &mut x).unwrap();
            assert_eq!(x, *expected);
        }
    }
}

#[test]
fn lengths_are_checked_and_mixtures_refused() {
    let (pipeline, mut out) = (pipeline(), [0.0; 180]);
    for (pictures, values) in [(179, 180), (90, 180), (180, 90)] {
        let pictures = vec![0_u8; pictures];
        let error = pipeline.apply_batch(0, 0, &[1, 2], &pictures, Layout::Nhwc, &mut out[..values]);
        assert!(matches!(error, Err(Error::Shape { .. })), "{error:?}");
    }
    pipeline.apply_batch::<u8>(0, 0, &[], &[], Layout::Nchw, &mut []).unwrap();
    let mixes = ImageDataGenerator::new().cutmix(1.0).build(SHAPE).unwrap();
    let error = mixes.apply_batch(0, 0, &[0], &[0_u8; 90], Layout::Nhwc, &mut out[..90]).unwrap_err();
    assert!(matches!(error, Error::Option { option: "cutmix", .. }), "{error}");
}
