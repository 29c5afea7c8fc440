//! Reads class folders, in memory and streamed.
use towers_pictures::{Decoder, Pictures, Resize};

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("towers-pictures-{}", std::process::id()));
    // A picture of 2 x 2 pixels: a header, and rows of blue, green and red from the bottom up.
    let mut bmp = b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x18\0".to_vec();
    bmp.extend([vec![0; 24], [0, 0, 255, 0, 0, 255, 0, 0].repeat(2)].concat());
    for name in ["train/cat/1.bmp", "train/dog/1.bmp", "val/cat/2.bmp", "val/dog/2.bmp"] {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().expect("it is in a folder"))?;
        std::fs::write(file, &bmp)?;
    }
    for in_memory in [u64::MAX, 0] {
        let data = Pictures::class_folders(&folder).image_size(8, 8).on_demand_above(in_memory).read()?;
        for batch in data.train.batches(2) {
            let (images, labels) = batch?;
            println!("{:?} of {:?}, streamed: {}", images.dim(), labels.to_vec(), data.train.files.is_some());
        }
    }
    let decoder = Decoder::new([4, 4, 3])?.resize(Resize::ShorterSide(None));
    println!("the first pixel is {:?}", &decoder.decode(folder.join("val/cat/2.bmp"))?[..3]);
    Ok(std::fs::remove_dir_all(folder)?)
}
