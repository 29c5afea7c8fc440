//! Learning curves as pictures.

use crate::{
    EpochRecord, Error, Flow, Monitor, Observer, Result, RunInfo, Snapshot, TrainState, metric_names,
    metric_panels, points_by_epoch, printable,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use towers_metrics::about;
use towers_plot::{Chart, Format};

/// The most time for drawing, as a fraction of the run's time: one part in so many.
const SHARE: u32 = 20;

/// Draws loss, accuracy and other metrics of training and validation to `curves.svg` and `curves.png` in the run directory, or
/// to a file of any name.
///
/// The files are replaced as a whole after an epoch and when the run ends. Drawing takes at most a twentieth
/// of the run's time: with short epochs, some are drawn later. Values that are not finite leave a gap. A few
/// losses far above all others are cut off, with an arrowhead at the upper edge.
///
/// ```
/// use towers_callbacks::Curves;
///
/// let curves = Curves::new("runs/a", "minigooglenet on CIFAR-10");
/// let picture = Curves::in_file("plot.svg", "minigooglenet on CIFAR-10")?;
/// assert!(Curves::in_file("plot.doc", "minigooglenet on CIFAR-10").is_err());
/// # Ok::<(), towers_callbacks::Error>(())
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
        let Some(format) = Format::of(&path) else {
            let reason = "a plot's name must end in .png or .svg".to_owned();
            return Err(Error::Picture { path, reason });
        };
        Ok(Curves { is_named: true, files: vec![(path, format)], ..Curves::new("", title) })
    }

    fn draw(&mut self, history: &[EpochRecord]) -> Result<()> {
        let began = Instant::now();
        let chart = chart(&self.title, history);
        for (path, format) in &self.files {
            let content = chart
                .picture(*format)
                .map_err(|error| Error::Picture { path: path.clone(), reason: error.to_string() })?;
            if self.is_named {
                towers_files::write_output(path, &content)
            } else {
                towers_files::write(path, &content)
            }?;
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

/// A panel for each metric, with a ring around the best epoch by the validation accuracy.
fn chart(title: &str, history: &[EpochRecord]) -> Chart {
    let best = Monitor::default().best_of(history).and_then(|best| Some((best.epoch, best.get(BEST)?)));
    let points = |figure: &str| points_by_epoch(history, figure);
    let mut panels = metric_panels(&metric_names(history), &[("", &points)]);
    let title_of_best = about(BEST).title;
    for panel in panels.iter_mut().filter(|panel| panel.title == title_of_best) {
        if let Some((epoch, value)) = best {
            *panel = panel.clone().highlight(format!("best {value:.4}"), (epoch as f64, value));
        }
    }
    let subtitle = best.map(|(epoch, value)| format!("best validation accuracy {value:.4} in epoch {epoch}"));
    Chart::new(printable(title), panels).subtitle(subtitle.unwrap_or_default())
}

/// The metric whose best epoch is marked.
const BEST: &str = "val_acc";

#[cfg(test)]
mod tests;
