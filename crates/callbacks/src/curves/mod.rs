//! Learning curves as pictures.

mod chart;

use crate::{EpochRecord, Error, Flow, Observer, Result, RunInfo, Snapshot, TrainState};
use checkpoint::{write_file, write_output};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use plotters::prelude::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pixels of the drawing per pixel of a PNG, along each side, for smooth edges.
const FINE: u32 = 2;

/// The most time for drawing, as a fraction of the run's time: one part in so many.
const SHARE: u32 = 20;

/// Draws loss and accuracy of training and validation to `curves.svg` and `curves.png` in the run directory, or
/// to a file of any name.
///
/// The files are replaced as a whole after an epoch and when the run ends. Drawing takes at most a twentieth
/// of the run's time: with short epochs, some are drawn later. Values that are not finite leave a gap. A few
/// losses far above all others are cut off, with an arrowhead at the upper edge.
///
/// ```
/// use callbacks::Curves;
///
/// let curves = Curves::new("runs/a", "minigooglenet on CIFAR-10");
/// let picture = Curves::in_file("plot.svg", "minigooglenet on CIFAR-10")?;
/// assert!(Curves::in_file("plot.doc", "minigooglenet on CIFAR-10").is_err());
/// # Ok::<(), callbacks::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Curves {
    title: String,
    files: Vec<(PathBuf, Format)>,
    /// Whether somebody has named the file.
    is_named: bool,
    /// The end and the duration of the last drawing.
    last: Option<(Instant, Duration)>,
    /// The epochs in the last drawing.
    drawn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Svg,
    Png,
}

impl Curves {
    /// Curves in a run directory. `title` is above the picture: "MODEL on DATASET".
    pub fn new(run_dir: impl AsRef<Path>, title: impl Into<String>) -> Self {
        let at = |name| run_dir.as_ref().join(name);
        let files = vec![(at("curves.svg"), Format::Svg), (at("curves.png"), Format::Png)];
        Curves { title: title.into(), files, is_named: false, last: None, drawn: 0 }
    }

    /// Curves in the file `path`: a `.png` or a `.svg`.
    ///
    /// # Errors
    /// [`Error::Picture`] for another ending.
    pub fn in_file(path: impl Into<PathBuf>, title: impl Into<String>) -> Result<Self> {
        let path = path.into();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let format = match ending.as_deref() {
            Some("svg") => Format::Svg,
            Some("png") => Format::Png,
            _ => {
                let reason = "a plot's name must end in .png or .svg".to_owned();
                return Err(Error::Picture { path, reason });
            }
        };
        Ok(Curves { is_named: true, files: vec![(path, format)], ..Curves::new("", title) })
    }

    fn draw(&mut self, history: &[EpochRecord]) -> Result<()> {
        let began = Instant::now();
        let (mut svg, mut png) = (None, None);
        for (path, format) in &self.files {
            let (content, render): (_, Render) = match format {
                Format::Svg => (&mut svg, render_svg),
                Format::Png => (&mut png, render_png),
            };
            if content.is_none() {
                let unfit = |reason| Error::Picture { path: path.clone(), reason };
                *content = Some(render(&self.title, history).map_err(unfit)?);
            }
            if let Some(content) = content {
                if self.is_named { write_output(path, content) } else { write_file(path, content) }?;
            }
        }
        (self.last, self.drawn) = (Some((Instant::now(), began.elapsed())), history.len());
        Ok(())
    }
}

impl Observer for Curves {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        // A folder that can't be written is reported now, not after the first epoch.
        self.draw(&run.state.history)?;
        self.last = None;
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &EpochRecord, state: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        if self.last.is_none_or(|(end, cost)| end.elapsed() >= SHARE * cost) {
            self.draw(&state.history)?;
        }
        Ok(Flow::Continue)
    }

    fn on_interrupt(&mut self, state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        self.draw(&state.history)
    }

    fn on_end(&mut self, state: &TrainState, _: &dyn Snapshot) -> Result<()> {
        if self.drawn < state.history.len() { self.draw(&state.history) } else { Ok(()) }
    }
}

type Render = fn(&str, &[EpochRecord]) -> Result<Vec<u8>, String>;

fn render_svg(title: &str, history: &[EpochRecord]) -> Result<Vec<u8>, String> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, chart::SIZE).into_drawing_area();
    chart::draw(&root, chart::Pen { unit: 1.0, lift: 0.0 }, title, history)
        .map_err(|error| error.to_string())?;
    drop(root);
    Ok(text.into_bytes())
}

fn render_png(title: &str, history: &[EpochRecord]) -> Result<Vec<u8>, String> {
    let (width, height) = chart::SIZE;
    let size = (width * FINE, height * FINE);
    let mut fine = vec![0; 3 * (size.0 * size.1) as usize];
    let root = BitMapBackend::with_buffer(&mut fine, size).into_drawing_area();
    chart::draw(&root, chart::Pen { unit: f64::from(FINE), lift: 3.0 }, title, history)
        .map_err(|error| error.to_string())?;
    drop(root);
    let mut png = Vec::new();
    let pixels = shrink(&fine, size.0 as usize);
    let encoded = PngEncoder::new(&mut png).write_image(&pixels, width, height, ExtendedColorType::Rgb8);
    encoded.map_err(|error| error.to_string())?;
    Ok(png)
}

/// The means of `FINE` x `FINE` squares of RGB pixels.
///
/// Without iterators: tests build this crate with little optimization, and millions of calls would take
/// longer than the rest of a short run.
fn shrink(fine: &[u8], width: usize) -> Vec<u8> {
    let (side, line) = (FINE as usize, 3 * width);
    let mut pixels = vec![0; fine.len() / (side * side)];
    let means: &mut [u8] = &mut pixels;
    let (mut at, mut square) = (0, 0);
    while at < means.len() {
        let mut channel = 0;
        while channel < 3 {
            let (mut y, mut sum) = (0, FINE * FINE / 2);
            while y < side {
                let mut x = 0;
                while x < side {
                    sum += fine[square + y * line + 3 * x + channel] as u32;
                    x += 1;
                }
                y += 1;
            }
            means[at + channel] = (sum / (FINE * FINE)) as u8;
            channel += 1;
        }
        at += 3;
        square += 3 * side;
        if square % line == 0 {
            square += (side - 1) * line;
        }
    }
    pixels
}

#[cfg(test)]
mod tests;
