use augment::{ImageDataGenerator, Loader, LoaderOptions, Samples, ndarray::Array4};

fn main() -> Result<(), augment::Error> {
    let samples = Samples::new(Array4::zeros((100, 32, 32, 3)), vec![0; 100])?;
    let pipeline = ImageDataGenerator::new().rotation_range(15.0).horizontal_flip(true).build(samples.shape())?;
    let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(32).workers(2))?;
    let mut images = 0;
    for batch in loader.epoch(0, 0)? {
        images += batch?.len();
    }
    println!("{images} images");
    Ok(())
}
