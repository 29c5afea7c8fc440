use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = towers_cifar::synthetic(1, 100, 10).train;
    let samples = Samples::new(data.images, data.labels.to_vec())?;
    let pipeline = ImageDataGenerator::new().horizontal_flip(true).build(samples.shape())?;
    let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(32).workers(2))?;
    let lens: Result<Vec<usize>, _> = loader.epoch(0, 0)?.map(|batch| batch.map(|batch| batch.len())).collect();
    println!("batches of {:?}", lens?);
    Ok(())
}
