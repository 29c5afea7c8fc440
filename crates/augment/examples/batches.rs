//! A batch for a framework with channels first, and batches made ahead of time.

use towers_augment::{
    Compose, Flip, ImageDataGenerator, Layout, Loader, LoaderOptions, Samples, ndarray::Array4,
};

#[cfg_attr(test, test)]
fn main() -> Result<(), towers_augment::Error> {
    let images = Array4::from_elem((100, 32, 32, 3), 51);
    let samples = Samples::new(images.clone(), vec![0; 100])?;
    let steps = ImageDataGenerator::new().rotation_range(15.0);
    let compose = Compose::new().with_probability(0.3, Flip::Horizontal).then(steps);
    let pipeline = ImageDataGenerator::new().compose(compose).rescale(1.0 / 255.0).build(samples.shape())?;
    let (pictures, mut x) = (images.as_slice().unwrap_or_default(), vec![0.0; 4 * 3 * 32 * 32]);
    pipeline.apply_batch(1, 0, &[0, 1, 2, 3], &pictures[..x.len()], Layout::Nchw, &mut x)?;
    println!("{:?}", &x[..2]);
    let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(32).workers(2))?;
    let mut images = 0;
    for batch in loader.epoch(0, 0)? {
        images += batch?.len();
    }
    println!("{images} images");
    Ok(())
}
