//! Images of a format that the crate does not know, decoded when a batch needs them: here PGM, grey pictures.

use std::path::PathBuf;
use towers_dataset::{BoxError, Dataset, Decode, Files, Resize, Split};

/// Binary PGM files: the lines `P5`, `WIDTH HEIGHT` and `255`, then a byte a pixel.
#[derive(Debug)]
struct Pgm;

impl Decode for Pgm {
    fn decode(&self, files: &[PathBuf], shape: [usize; 3], pixels: &mut [u8]) -> Result<(), BoxError> {
        let [height, width, _] = shape;
        for (file, to) in files.iter().zip(pixels.chunks_exact_mut(height * width)) {
            let bytes = std::fs::read(file)?;
            let parts: Vec<&[u8]> = bytes.splitn(4, |byte| *byte == b'\n').collect();
            let &[b"P5", size, b"255", from] = &parts[..] else { return Err("this is no PGM".into()) };
            let size = std::str::from_utf8(size)?.split_once(' ').ok_or("there is no size")?;
            let old = [size.1.parse()?, size.0.parse()?];
            Resize::Stretch.apply::<1>(from, old, [height, width], to);
        }
        Ok(())
    }
}

#[cfg_attr(test, test)]
fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let write = |k: u8| -> std::io::Result<PathBuf> {
        let file = folder.path().join(format!("{k}.pgm"));
        std::fs::write(&file, [b"P5\n2 2\n255\n", &[20 * k; 4][..]].concat())?;
        Ok(file)
    };
    let mut files = (0..6).map(write).collect::<Result<Vec<_>, _>>()?;
    let test = Split::of_files(Files::new(files.split_off(4), [8, 8, 1], Pgm)?, vec![0, 1])?;
    let train = Split::of_files(Files::new(files, [8, 8, 1], Pgm)?, vec![0, 1, 0, 1])?;
    let data = Dataset::new("greys", train, test, ["dark", "bright"])?;
    for batch in data.train.batches(3) {
        let (images, labels) = batch?;
        println!("{:?}, the last pixel is {:?}, labels {labels}", images.dim(), images.last());
    }
    let small = data.reshaped([4, 4, 1])?;
    let (images, _) = small.test.batches(2).next().ok_or("there is no batch")??;
    assert_eq!((images.dim(), images[[1, 3, 3, 0]]), ((2, 4, 4, 1), 100));
    Ok(())
}
