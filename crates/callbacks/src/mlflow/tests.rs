use super::*;
use crate::testing::{Fake, record, run, state, step_record};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("ml runs")
    }

    fn log(&self, experiment: &str, resumed: bool) -> Mlflow {
        let options = MlflowOptions { path: self.store(), experiment: experiment.to_owned() };
        let folder = self.0.path().join("it's a run");
        Mlflow::new(options, &Run::new(&folder, "small_cnn on CIFAR-10").resumed(resumed))
    }

    /// The file of the only run of the only experiment, with `TIME` for every time.
    fn read(&self, file: &str) -> String {
        let only = |folder: &Path| {
            let mut folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let only = folders.find(|path| path.is_dir()).unwrap();
            assert!(!folders.any(|path| path.is_dir()));
            only
        };
        let text = fs::read_to_string(only(&only(&self.store())).join(file)).unwrap();
        let is_time = |word: &str| word.len() == 13 && word.bytes().all(|digit| digit.is_ascii_digit());
        let shown = |word: &str| {
            if is_time(word.trim()) { word.replace(word.trim(), "TIME") } else { word.to_owned() }
        };
        text.split_inclusive(' ').flat_map(|word| word.split_inclusive('\n')).map(shown).collect()
    }

    fn status(&self) -> (u8, bool) {
        let meta = self.read(META);
        let status = meta.lines().find_map(|line| line.strip_prefix("status: ")).unwrap();
        (status.parse().unwrap(), meta.contains("end_time: TIME"))
    }
}

fn epoch(k: u64) -> EpochRecord {
    record(k, [1.0 / k as f64, 0.5, f64::NAN, 1e-7])
}

#[test]
fn files_are_those_of_mlflow() {
    let place = Place::new();
    let mut log = place.log(DEFAULT, false);
    let start = state(vec![]);
    let mut begun = run(9, &start);
    begun.options = [("lr", json!(0.5)), ("model", json!("a: b")), ("drop_last", json!(true))]
        .map(|(key, value)| (key.to_owned(), value))
        .to_vec();
    log.on_begin(&begun).unwrap();
    assert_eq!(place.status(), (RUNNING, false));
    fs::write(log.folder.join("config.json"), "{}").unwrap();
    log.on_record(&step_record(7, 0.25, 0.125)).unwrap();
    log.on_epoch_end(&epoch(1), &start, &Fake(0.0)).unwrap();
    fs::write(log.folder.join("curves.svg"), "<svg/>").unwrap();
    log.on_end(&start, &Fake(0.0)).unwrap();

    let id = fs::read_to_string(log.folder.join(RUN_ID)).unwrap();
    let (id, user) = (id.trim(), log.read_user());
    let root = uri(&place.store()).unwrap();
    assert!(root.starts_with("file:///") && root.ends_with("/ml%20runs"), "{root}");
    let experiment = fs::read_to_string(place.store().join("0/meta.yaml")).unwrap();
    assert!(experiment.starts_with(&format!("artifact_location: '{root}/0'\ncreation_time: ")));
    assert!(experiment.ends_with("\nlifecycle_stage: active\nname: 'Default'\n"), "{experiment}");
    assert_eq!(
        place.read(META),
        format!(
            "artifact_uri: '{root}/0/{id}/artifacts'\nend_time: TIME\nentry_point_name: ''\nexperiment_id: '0'\n\
             lifecycle_stage: active\nrun_id: '{id}'\nrun_name: 'it''s a run'\nrun_uuid: '{id}'\nsource_name: ''\n\
             source_type: 4\nsource_version: ''\nstart_time: TIME\nstatus: 3\ntags: []\nuser_id: '{user}'\n"
        )
    );
    for (file, content) in [
        ("params/lr", "0.5"),
        ("params/model", "a: b"),
        ("params/drop_last", "true"),
        ("metrics/loss", "TIME 1.0 0\n"),
        ("metrics/accuracy", "TIME 0.5 0\n"),
        ("metrics/val_loss", "TIME nan 0\n"),
        ("metrics/val_accuracy", "TIME 1e-07 0\n"),
        ("metrics/learning_rate", "TIME 0.005 0\n"),
        ("metrics/seconds", "TIME 63.2 0\n"),
        ("metrics/images_per_second", "TIME 791.5 0\n"),
        ("metrics/batch_loss", "TIME 0.25 7\n"),
        ("metrics/batch_images_per_second", "TIME 8.0 7\n"),
        ("tags/mlflow.runName", "it's a run"),
        ("tags/mlflow.source.type", "LOCAL"),
        ("tags/mlflow.user", &user),
        ("tags/mlflow.note.content", "small_cnn on CIFAR-10, on the CPU (2 threads)"),
        ("tags/recipe", "quick"),
        ("artifacts/config.json", "{}"),
        ("artifacts/curves.svg", "<svg/>"),
    ] {
        assert_eq!(place.read(file), content, "{file}");
    }
}

impl Mlflow {
    fn read_user(&self) -> String {
        let experiment = fs::read_dir(&self.options.path).unwrap().next().unwrap().unwrap().path();
        let id = fs::read_to_string(self.folder.join(RUN_ID)).unwrap();
        fs::read_to_string(experiment.join(id.trim()).join("tags/mlflow.user")).unwrap()
    }
}

#[test]
fn a_resumed_run_continues_its_entry() {
    let place = Place::new();
    let go = |resumed, done: u64, to: u64| {
        let mut log = place.log("mine", resumed);
        let start = state((1..=done).map(epoch).collect());
        log.on_begin(&run(9, &start)).unwrap();
        for k in done + 1..=to {
            log.on_record(&step_record(10 * k, k as f64, 0.5)).unwrap();
            log.on_epoch_end(&epoch(k), &start, &Fake(0.0)).unwrap();
        }
        log
    };
    go(false, 0, 3).on_interrupt(&state(vec![]), &Fake(0.0)).unwrap();
    assert_eq!(place.status(), (KILLED, true));
    let losses = "TIME 1.0 0\nTIME 0.5 1\nTIME 0.3333333333333333 2\n";
    assert_eq!(place.read("metrics/loss"), losses);
    // The checkpoint of the third epoch is missing, and somebody has named the run.
    let id = fs::read_to_string(place.log("", true).folder.join(RUN_ID)).unwrap();
    let entry = place.log("mine", true).experiment().unwrap().join(id.trim());
    let named = fs::read_to_string(entry.join(META)).unwrap().replace("it''s a run", "the best");
    fs::write(entry.join(META), named).unwrap();
    drop(go(true, 2, 4));
    assert_eq!(place.status(), (FAILED, true));
    assert!(place.read(META).contains("run_name: 'the best'"));
    assert_eq!(place.read("metrics/loss"), format!("{losses}TIME 0.25 3\n"));
    assert_eq!(place.read("metrics/batch_loss"), "TIME 1.0 10\nTIME 2.0 20\nTIME 3.0 30\nTIME 4.0 40\n");
    // A lost file is written again, without the figures of steps.
    fs::remove_dir_all(entry.join("metrics")).unwrap();
    let mut log = go(true, 3, 3);
    assert_eq!((place.status(), place.read("metrics/loss").as_str()), ((RUNNING, false), losses));
    log.on_end_within_epoch(&state(vec![]), &Fake(0.0)).unwrap();
    drop(log);
    assert_eq!(place.status(), (FINISHED, true));
}

#[test]
fn runs_share_an_experiment_by_its_name() {
    let place = Place::new();
    let theirs = place.store().join("342736355708274114");
    fs::create_dir_all(&theirs).unwrap();
    for (written, name) in
        [("plain name", "plain name"), ("'it''s'", "it's"), ("\"a\\u00e9\"", "aé"), ("'7'", "7")]
    {
        fs::write(theirs.join(META), format!("experiment_id: '342736355708274114'\nname: {written}\n"))
            .unwrap();
        assert_eq!(place.log(name, false).experiment().unwrap(), theirs);
    }
    let own = place.log("another", false).experiment().unwrap();
    assert!(own != theirs && name_of(&own).parse::<u64>().is_ok());
    assert_eq!(place.log("another", false).experiment().unwrap(), own);
    for name in ["", " ", "a\nb"] {
        let options = MlflowOptions { path: "mlruns".into(), experiment: name.to_owned() };
        assert!(options.check().unwrap_err().to_string().contains("must be a name"));
    }
}

/// The run goes on: the log is optional, and does not call the run failed.
#[test]
fn a_failure_names_the_file() {
    let place = Place::new();
    let mut log = place.log(DEFAULT, false);
    log.on_begin(&run(9, &state(vec![]))).unwrap();
    let entry = log.entry.clone().unwrap();
    fs::create_dir(entry.join("metrics/loss")).unwrap();
    let error = log.on_epoch_end(&epoch(1), &state(vec![]), &Fake(0.0)).unwrap_err();
    assert!(log.is_optional() && error.to_string().contains("metrics"), "{error}");
    drop(log);
    assert_eq!(place.status(), (RUNNING, false));
}
