use super::{
    Checkpoints, CsvLogger, Curves, Environment, History, ModelCheckpoint, TensorBoard, read_history,
};
use crate::{Config, CsvLogOptions, Observer, Result, TensorBoardOptions};
use std::path::Path;

/// Those who write the files of a run into the folder `run`, and what `config` asks for besides: its history, environment, checkpoints
/// and curves, the files of `model_checkpoint`, `csv_log`, `tensorboard` and `plot`. Early stopping is not among them, since
/// [`train`](crate::train()) does it by itself. `dataset` is named by the curves. Where the run in the folder `goes_on`, so do its files.
///
/// Whatever a resume does not write again comes before the checkpoints: if it can't be written, a resume does the epoch again.
///
/// ```
/// use train::{Config, StopFlag, recipe, train};
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// let mut config = recipe("quick")?;
/// (config.epochs, config.early_stop) = (2, Some(train::EarlyStop::parse("val_loss:patience=3")?));
/// let mut observers = train::observers::from_config(&config, run, "synthetic", false)?;
/// train(&config, cifar::synthetic(1, 100, 50), None, &mut observers, &StopFlag::default())?;
/// assert!(run.join("model.safetensors").is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Option`](crate::Error::Option) for options that make no sense; [`Error::Checkpoint`](crate::Error::Checkpoint) when the folder
/// can't be used.
pub fn from_config(
    config: &Config,
    run: impl AsRef<Path>,
    dataset: &str,
    goes_on: bool,
) -> Result<Vec<Box<dyn Observer>>> {
    let run = run.as_ref();
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(History::new(run)), Box::new(Environment::new(run))];
    if let Some(options) = &config.model_checkpoint {
        observers.push(Box::new(ModelCheckpoint::new(run, options.clone())?));
    }
    if let Some(CsvLogOptions { path, separator, append }) = &config.csv_log {
        // Figures that can't be read take nothing back.
        let written = if goes_on { read_history(run).unwrap_or_default() } else { Vec::new() };
        observers.push(Box::new(CsvLogger::new(path).separator(*separator).append(*append).written(written)));
    }
    if let Some(TensorBoardOptions { path, histogram_freq, images }) = &config.tensorboard {
        observers.push(Box::new(TensorBoard::new(path).histograms(*histogram_freq).images(*images)));
    }
    observers.push(Box::new(Checkpoints::new(run, config)?));
    let mut curves = Curves::new(run, format!("{} on {dataset}", config.model));
    if let Some(picture) = &config.plot {
        curves = curves.also(picture)?;
    }
    observers.push(Box::new(curves));
    Ok(observers)
}
