//! Splits of decoded pictures.

use std::path::Path;

use ndarray::Array2;
use towers_dataset::{Files, Split};

use crate::decode::{Decoder, MAX_DECODED, all, bytes_of};
use crate::error::{Error, Result};
use crate::listing::Picture;
use crate::progress::{Listener, Progress};

/// Decodes the pictures of a folder, split by split.
pub(crate) struct SplitDecoder<'l, 'a> {
    pub(crate) decoder: Decoder,
    /// Whether bad pictures are left out of their split.
    pub(crate) skip: bool,
    /// The number of classes, if a picture has any number of them.
    pub(crate) multi_hot: Option<usize>,
    /// How many are done, of the splits before.
    pub(crate) done: usize,
    /// How many there are, in all splits.
    pub(crate) total: usize,
    /// Why pictures can't be decoded.
    pub(crate) bad: Vec<Error>,
    pub(crate) listener: &'l mut Listener<'a>,
}

impl SplitDecoder<'_, '_> {
    /// A split of these pictures, decoded now or `on_demand`.
    pub(crate) fn split(&mut self, mut pictures: Vec<Picture>, on_demand: bool) -> Result<Split> {
        let (mut images, bytes) = (Vec::new(), bytes_of(self.decoder.shape));
        if !on_demand {
            let bad = self.decode(&pictures, &mut images)?;
            if self.skip && !bad.is_empty() {
                let kept = (0..pictures.len()).filter(|place| bad.binary_search(place).is_err());
                let moved = kept.enumerate().map(|(to, from)| {
                    images.copy_within(from * bytes..(from + 1) * bytes, to * bytes);
                    pictures[from].clone()
                });
                pictures = moved.collect();
                images.truncate(pictures.len() * bytes);
            }
        } else if self.skip {
            let mut kept = Vec::new();
            for part in pictures.chunks((MAX_DECODED as usize / bytes).max(1)) {
                let bad = self.decode(part, &mut images)?;
                let whole = part.iter().enumerate().filter(|(place, _)| bad.binary_search(place).is_err());
                kept.extend(whole.map(|(_, picture)| picture.clone()));
            }
            pictures = kept;
        }
        let labels: Vec<u16> = pictures.iter().map(|picture| picture.label).collect();
        let rows = self.multi_hot.map(|classes| multi_hot(&pictures, classes));
        let paths: Vec<_> = pictures.into_iter().map(|picture| picture.path).collect();
        let split = if on_demand {
            Split::of_files(Files::new(paths, self.decoder.shape, self.decoder)?, labels)?
        } else {
            let mut split = Split::of_pixels(self.decoder.shape, images, labels)?;
            split.paths = Some(paths.into());
            split
        };
        match rows {
            Some(rows) => Ok(split.multi_label(rows)?),
            None => Ok(split),
        }
    }

    /// Decodes all of them into `images`. Returns the places of the bad ones.
    fn decode(&mut self, pictures: &[Picture], images: &mut Vec<u8>) -> Result<Vec<usize>> {
        images.resize(pictures.len() * bytes_of(self.decoder.shape), 0);
        let (before, total) = (self.done, self.total);
        let mut tell = |done| (self.listener)(Progress::Decoding { done: before + done, total });
        let paths: Vec<&Path> = pictures.iter().map(|picture| picture.path.as_path()).collect();
        let (places, errors): (_, Vec<_>) =
            all(&paths, &self.decoder, images, &mut tell)?.into_iter().unzip();
        self.bad.extend(errors);
        self.done += pictures.len();
        Ok(places)
    }
}

/// The [multi-hot](Split::multi_hot) rows of pictures.
fn multi_hot(pictures: &[Picture], classes: usize) -> Array2<u8> {
    let mut rows = Array2::zeros((pictures.len(), classes));
    for (mut row, picture) in rows.rows_mut().into_iter().zip(pictures) {
        picture
            .classes
            .iter()
            .flat_map(|classes| classes.iter())
            .for_each(|&class| row[usize::from(class)] = 1);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::RgbImage;

    /// So many pictures take longer than it takes until something is told.
    #[test]
    fn long_decoding_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.png");
        RgbImage::from_fn(1500, 1500, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]))
            .save(&path)
            .unwrap();
        let mut pictures = vec![Picture { path, label: 0, classes: None }; 8];
        let mut told = Vec::new();
        // However fast the machine is.
        while told.is_empty() {
            let mut listener = |progress: Progress<'_>| match progress {
                Progress::Decoding { done, total } => told.push((done, total)),
                other => panic!("{other}"),
            };
            let total = 100 + pictures.len();
            let (bad, listener) = (Vec::new(), &mut listener);
            let decoder = Decoder::new([8, 8, 3]).unwrap();
            let mut decoder =
                SplitDecoder { decoder, skip: false, multi_hot: None, done: 100, total, bad, listener };
            assert_eq!(decoder.split(pictures.clone(), false).unwrap().len(), pictures.len());
            assert!(decoder.done == total && decoder.bad.is_empty());
            pictures.extend_from_within(..);
        }
        assert!(told.iter().all(|(done, total)| (100..=*total).contains(done)), "{told:?}");
        assert!(told.is_sorted());
    }
}
