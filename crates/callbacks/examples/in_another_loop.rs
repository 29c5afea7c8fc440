//! Callbacks in a training loop that knows nothing of towers: a CSV log as Keras writes it, the best network as a
//! file, and early stopping.

use towers_callbacks::{
    CsvLogOptions, CsvLogger, EarlyStop, EarlyStopping, EpochRecord, Flow, ModelCheckpoint,
    ModelCheckpointOptions, Observer, Result, RunInfo, TrainState,
};
use towers_checkpoint::{Tensors, load_tensors};

/// Brings a weight to 3, in 100 epochs at most. Returns the reason for an earlier end.
fn train(observers: &mut [Box<dyn Observer>]) -> Result<Option<String>> {
    let (mut weight, mut state, mut stop) = (0.0, TrainState::default(), None);
    let mut run = RunInfo::new(&state);
    run.metrics = vec!["loss".to_owned()];
    observers.iter_mut().try_for_each(|observer| observer.on_begin(&run))?;
    while state.epochs_done < 100 && stop.is_none() {
        weight += 0.5 * (3.0 - weight);
        let mut record = EpochRecord::default();
        (record.epoch, record.lr) = (state.epochs_done + 1, 0.5);
        record.metrics.set("loss", 3.0 - weight);
        (state.epochs_done, state.step) = (record.epoch, record.epoch);
        state.history.push(record.clone());
        let mut network = Tensors::new();
        network.insert("weight", [1], vec![weight as f32])?;
        for observer in observers.iter_mut() {
            if let Flow::Stop(why) = observer.on_epoch_end(&record, &state, &network)? {
                stop = Some(why);
            }
        }
    }
    Ok(stop)
}

#[cfg_attr(test, test)]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log.csv");
    let log = CsvLogOptions { path: path.clone(), ..CsvLogOptions::default() };
    let (monitor, file) = ("loss".to_owned(), "best.safetensors".to_owned());
    let stop = EarlyStop { monitor: monitor.clone(), min_delta: 0.1, patience: 2, ..EarlyStop::default() };
    let best = ModelCheckpointOptions { path: file, monitor, save_best_only: true, ..Default::default() };
    let why = train(&mut [
        Box::new(CsvLogger::new(log)),
        Box::new(ModelCheckpoint::new(folder.path(), best)?),
        Box::new(EarlyStopping::new(stop)?),
    ])?;
    let log = std::fs::read_to_string(path)?;
    println!("{log}{why:?}");
    assert_eq!(log.lines().nth(1), Some("0,0.5,1.5"));
    assert!(why.is_some_and(|why| why.ends_with("its best was 0.0469 in epoch 6")));
    let best = load_tensors(folder.path().join("best.safetensors"))?;
    assert!(best.get("weight").is_some_and(|weight| weight.data()[0] > 2.9));
    Ok(())
}
