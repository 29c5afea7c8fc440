//! Early stopping, a learning rate that falls at plateaus, checkpoints, metrics and a CSV log as Keras writes it, in a training
//! loop that knows nothing of towers.

use std::error::Error;
use towers_callbacks::{
    CheckpointOptions, Checkpoints, CsvLogOptions, CsvLogger, EarlyStop, EarlyStopping, EpochRecord, Flow,
    Observer, Plateau, ReduceLrOnPlateau, RunInfo, TrainState,
};
use towers_checkpoint::{Tensors, load_tensors};
use towers_metrics::Tally;

/// Brings the border between two classes of points to 3, in 100 epochs at most. Returns the reason for an earlier end.
fn train(
    mut plateau: Plateau,
    observers: &mut [Box<dyn Observer>],
) -> Result<Option<String>, Box<dyn Error>> {
    let (mut border, mut state, mut stop) = (0.0, TrainState::default(), None);
    let mut run = RunInfo::new(&state);
    run.metrics = ["loss", "val_f1"].map(str::to_owned).to_vec();
    observers.iter_mut().try_for_each(|observer| observer.on_begin(&run))?;
    let mut network = Tensors::new();
    while state.epochs_done < 100 && stop.is_none() {
        let lr = plateau.lr(0.5);
        border += lr * (3.0 - border);
        let mut tally = Tally::named(&["f1"], 2)?;
        (0..6).for_each(|point| tally.add(&[border as f32, point as f32], usize::from(point >= 3)));
        let metrics = [("loss", 3.0 - border), ("val_f1", tally.values()["f1"])];
        let record = EpochRecord::new(state.epochs_done + 1, lr, metrics);
        plateau.observe_epoch(&record);
        (state.epochs_done, state.step) = (record.epoch, record.epoch);
        state.history.push(record.clone());
        network = Tensors::new();
        network.insert("border", [1], vec![border as f32])?;
        for observer in observers.iter_mut() {
            if let Flow::Stop(why) = observer.on_epoch_end(&record, &state, &network)? {
                stop = Some(why);
            }
        }
    }
    observers.iter_mut().try_for_each(|observer| observer.on_end(&state, &network))?;
    Ok(stop)
}

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log.csv");
    let log = CsvLogOptions { path: path.clone(), ..CsvLogOptions::default() };
    let stop = EarlyStop::parse("loss:min_delta=0.1,patience=2").map_err(|_| "unknown options")?;
    let plateau = ReduceLrOnPlateau::parse("loss:factor=0.5,patience=1,min_delta=0.1");
    let checkpoints = Checkpoints::new(folder.path(), &CheckpointOptions::default())?.best_weights(&stop)?;
    let why = train(
        Plateau::new(plateau.map_err(|_| "unknown options")?),
        &mut [Box::new(CsvLogger::new(log)), Box::new(checkpoints), Box::new(EarlyStopping::new(stop)?)],
    )?;
    let log = std::fs::read_to_string(path)?;
    println!("{log}{why:?}");
    assert!(log.lines().nth(1).is_some_and(|first| first.starts_with("0,0.5,1.5,")));
    assert!(log.lines().last().is_some_and(|last| last.starts_with("7,0.125,") && last.ends_with(",1.0")));
    assert!(why.is_some_and(|why| why.ends_with("its best was 0.0703 in epoch 6")));
    let best = load_tensors(folder.path().join("model.safetensors"))?;
    assert!(best.get("border").is_some_and(|border| (border.data()[0] - 2.9297).abs() < 1e-3));
    Ok(())
}
