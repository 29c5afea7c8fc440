//! Augments a folder of photographs: `cargo run --release -p towers-augment --example photographs -- DIR OUT`.
//!
//! Reads every PNG and JPEG in DIR and brings them to one size. Writes OUT/grid.png, each picture beside six
//! augmentations of it, and eight single pictures of two batches. Without arguments it draws pictures into
//! the system's folder for temporary files.

use image::imageops::FilterType;
use ndarray::{Array4, Axis};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use towers_augment::{
    FillMode, ImageDataGenerator, LoaderOptions, RandAugment, RandomResizedCrop, Samples, save_picture,
};

const SIDE: u32 = 96;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (folder, out) = match (arguments.next(), arguments.next()) {
        (Some(folder), Some(out)) => (folder, out),
        _ => {
            let folder = std::env::temp_dir().join("augment-photographs");
            draw_some(&folder)?;
            (folder.clone(), folder.join("augmented"))
        }
    };
    let images = read(&folder)?;
    let count = images.dim().0;
    println!("{count} pictures in {}", folder.display());

    let generator = ImageDataGenerator::new()
        .rotation_range(20.0)
        .width_shift_range(0.1)
        .height_shift_range(0.1)
        .shear_range(10.0)
        .zoom_range([0.8, 1.1])
        .brightness_range([0.6, 1.2])
        .horizontal_flip(true)
        .fill_mode(FillMode::Reflect);
    fs::create_dir_all(&out)?;
    let shape = [SIDE as usize, SIDE as usize, 3];
    let samples = Samples::new(images.clone(), vec![0; count])?;
    let rows: Vec<u32> = (0..count.min(6) as u32).collect();
    let grid = generator.build(shape)?.preview(&samples, &rows, 7, 1)?;
    let (h, w, c) = grid.dim();
    let path = out.join("grid.png");
    save_picture(&path, [h, w, c], &grid.into_raw_vec_and_offset().0)?;
    println!("wrote {}", path.display());

    // Batches for a network, and a picture of each image in them.
    let generator = generator
        .random_resized_crop(RandomResizedCrop { scale: [0.5, 1.0], ..RandomResizedCrop::default() })
        .rand_augment(RandAugment::default())
        .featurewise_std_normalization(true)
        .fit(images.view())?;
    let options = LoaderOptions::new().batch_size(4).seed(1).save_to_dir(&out).save_prefix("batch");
    for batch in generator.flow(samples, options)?.take(2) {
        let batch = batch?;
        let mean = batch.images().mean().unwrap_or(0.0);
        println!("step {}: {:?}, mean {mean:.2}", batch.step, batch.images().dim());
    }
    Ok(())
}

/// The pictures of a folder, one size.
fn read(folder: &Path) -> Result<Array4<u8>, Box<dyn Error>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|end| ["png", "jpg", "jpeg"].iter().any(|e| end == *e)));
    files.sort();
    if files.is_empty() {
        return Err(format!("there is no PNG or JPEG in {}", folder.display()).into());
    }
    let side = SIDE as usize;
    let mut images = Array4::zeros((files.len(), side, side, 3));
    for (mut pixels, file) in images.axis_iter_mut(Axis(0)).zip(&files) {
        let picture = image::open(file)?.resize_to_fill(SIDE, SIDE, FilterType::Triangle).into_rgb8();
        pixels.iter_mut().zip(picture.into_raw()).for_each(|(to, from)| *to = from);
    }
    Ok(images)
}

/// Hills before a sky, in four lights.
fn draw_some(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    for (number, light) in [0.5_f32, 0.75, 1.0, 1.2].into_iter().enumerate() {
        let picture = image::RgbImage::from_fn(160, 120, |x, y| {
            let (x, y) = (x as f32, y as f32);
            let hill = 70.0 + 18.0 * (x / (17.0 + 4.0 * number as f32)).sin();
            let sun = (x - 120.0).hypot(y - 30.0) < 14.0;
            let color = if sun {
                [250.0, 230.0, 120.0]
            } else if y > hill {
                [60.0 + 0.3 * y, 130.0 - 0.3 * y, 60.0]
            } else {
                [90.0 + 0.7 * y, 140.0 + 0.5 * y, 230.0]
            };
            image::Rgb(color.map(|value| (value * light) as u8))
        });
        picture.save(folder.join(format!("hills-{number}.png")))?;
    }
    Ok(())
}
