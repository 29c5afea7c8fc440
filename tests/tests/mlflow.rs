//! MLflow's own client reads the files of `--mlflow`.

use std::path::Path;
use towers_callbacks::{MlflowOptions, Run, from_config};
use towers_config::{Config, recipe};
use towers_tests::{read_by_python, run};
use towers_train::{Observer, Resume};

/// MLflow's newest versions read its files on request alone, and others warn of it.
const READER: &str = r#"
import json, os, sys, warnings
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
warnings.simplefilter("ignore")
from pathlib import Path
from mlflow import MlflowClient
client = MlflowClient(tracking_uri=Path(sys.argv[1]).absolute().as_uri())
experiment = client.get_experiment_by_name("towers: own")
(run,) = client.search_runs([experiment.experiment_id], "params.model = 'small_cnn' and metrics.loss > 0")
history = lambda name: [[point.step, point.value] for point in client.get_metric_history(run.info.run_id, name)]
print(json.dumps({
    "name": run.info.run_name,
    "status": run.info.status,
    "timed": run.info.start_time < run.info.end_time,
    "lr": run.data.params["lr"],
    "note": run.data.tags["mlflow.note.content"],
    "loss": history("loss"),
    "last": run.data.metrics["val_accuracy"],
    "batches": [step for step, _ in history("batch_loss")],
    "artifacts": sorted(file.path for file in client.list_artifacts(run.info.run_id)),
}))
# The run and its experiment are MLflow's: it may change them.
client.log_metric(run.info.run_id, "test_accuracy", 0.5)
client.set_tag(run.info.run_id, "mine", "yes")
client.update_run(run.info.run_id, name="renamed")
client.delete_run(run.info.run_id)
client.restore_run(run.info.run_id)
assert client.get_run(run.info.run_id).info.run_name == "renamed"
assert len(client.search_experiments()) == 1
"#;

fn observers(config: &Config, folder: &Path, resumed: bool) -> Vec<Box<dyn Observer>> {
    let run = Run::new(folder, "small_cnn on synthetic images").resumed(resumed);
    from_config(&config.outputs, &run).unwrap()
}

/// Also after an interrupt within the second epoch.
#[test]
fn mlflow_reads_a_run() {
    let place = tempfile::tempdir().unwrap();
    let (folder, store) = (place.path().join("a run"), place.path().join("mlruns"));
    let mut config = recipe("quick").unwrap();
    (config.training.epochs, config.training.batch_size, config.outputs.log_every) = (3, 16, 2);
    config.placement.devices.threads = 1;
    config.outputs.mlflow = Some(MlflowOptions { path: store.clone(), experiment: "towers: own".into() });
    let data = towers_cifar::synthetic(5, 64, 16);
    run(&config, &data, None, Some(5), observers(&config, &folder, false)).unwrap();
    let resume = Resume::newest(&folder).unwrap();
    assert_eq!((resume.state.step, resume.state.epochs_done), (6, 1));
    let finished = run(&config, &data, Some(&resume), None, observers(&config, &folder, true)).unwrap();

    let Some(text) = read_by_python("mlflow", READER, &store) else { return };
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let history = finished.outcome.state.history;
    let losses: Vec<(u64, f64)> = serde_json::from_value(read["loss"].clone()).unwrap();
    let own = history.iter().map(|record| (record.epoch - 1, record.metrics["loss"]));
    assert_eq!(losses, own.collect::<Vec<_>>());
    assert_eq!(read["last"].as_f64(), history[2].get("val_acc"));
    assert_eq!(read["batches"], serde_json::json!([2, 4, 6, 8, 10, 12]));
    assert_eq!(read["artifacts"], serde_json::json!(["curves.png", "curves.svg", "environment.json"]));
    let told = serde_json::json!([read["name"], read["status"], read["timed"], read["note"]]);
    let note = "small_cnn on synthetic images, on the CPU (1 thread)";
    assert_eq!(told, serde_json::json!(["a run", "FINISHED", true, note]));
    let lr: f64 = read["lr"].as_str().unwrap().parse().unwrap();
    assert_eq!(lr, config.training.lr);
}
