use crate::callback::Callback;
use crate::environment::program_name;
use crate::format::repr;
use crate::status::since_1970;
use crate::{
    EpochRecord, Error, Flow, Observer, Outside, Result, Run, RunInfo, Snapshot, StepRecord, TrainState,
};
use crc::{CRC_64_XZ, Crc};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use towers_metrics::keras_name;
use towers_options::{Kind, Refused, Table, options};

options! {
    /// The options of MLflow's files. [`Mlflow`] writes them. By default the path is empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct MlflowOptions {
        ["Callbacks"]
        /// Write the run into MLflow's file store DIR, as in --mlflow mlruns
        path: PathBuf = PathBuf::new(), Kind::form(towers_options::path, "a path in quotes"), "--mlflow DIR";
        /// With --mlflow, the experiment to which the run belongs
        experiment: String = DEFAULT.to_owned(), EXPERIMENT, "--mlflow-experiment NAME";
    }
}

/// MLflow's experiment without another name.
const DEFAULT: &str = "Default";
const EXPERIMENT: Kind = Kind::form(read_experiment, "a name in quotes");

fn read_experiment(text: &str) -> Result<Value, Refused> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err(Refused::MustBe(EXPERIMENT.accepted().into()));
    }
    Ok(text.into())
}

impl Callback for MlflowOptions {
    const TABLE: Table = Table {
        key: "mlflow",
        options: MlflowOptions::OPTIONS,
        begins: Some(|| json!(MlflowOptions::default())),
    };

    fn outside(&self) -> Option<Outside<'_>> {
        Some(Outside { key: "mlflow.path", path: &self.path, is_folder: true })
    }

    fn outside_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn build(&self, run: &Run<'_>) -> Result<Box<dyn Observer>> {
        Ok(Box::new(Mlflow::new(self.clone(), run)))
    }
}

/// The file with the id of MLflow's run, in the run's folder.
const RUN_ID: &str = "mlflow-run-id";
const META: &str = "meta.yaml";
const PARTS: [&str; 4] = ["artifacts", "metrics", "params", "tags"];

/// MLflow's states of a run.
const RUNNING: u8 = 1;
const FINISHED: u8 = 3;
const FAILED: u8 = 4;
const KILLED: u8 = 5;

/// The figures of a [`StepRecord`], each the metric `batch_NAME`.
const OF_STEPS: [&str; 4] = ["loss", "accuracy", "learning_rate", "images_per_second"];

/// The run's files that are artifacts.
const ARTIFACTS: [&str; 4] = ["config.json", "environment.json", "curves.png", "curves.svg"];

/// Writes a run into MLflow's file store: `DIR/EXPERIMENT_ID/RUN_ID`, which `mlflow ui` shows.
///
/// Metrics have Keras' names, and their step is the epoch, from 0. Those of every [`StepRecord`] are `batch_loss`,
/// `batch_accuracy`, `batch_learning_rate` and `batch_images_per_second`; their step counts from 1 over the whole
/// run. Parameters are the [options](RunInfo::options) that decide the numbers of the run. Artifacts are copies of
/// its configuration, environment and curves.
///
/// The run's folder has the id of MLflow's run, so that a resumed run continues it. Metrics of epochs and steps that
/// it repeats are removed, and missing epochs are added. MLflow's state of the run is `FINISHED` at its end, `KILLED`
/// after an interrupt, and `FAILED` if the observer is dropped before.
///
/// ```
/// use towers_callbacks::{Mlflow, MlflowOptions, Run};
///
/// let options = MlflowOptions { path: "mlruns".into(), ..MlflowOptions::default() };
/// let observer = Mlflow::new(options, &Run::new("runs/a".as_ref(), "minigooglenet on CIFAR-10"));
/// ```
#[derive(Debug)]
pub struct Mlflow {
    options: MlflowOptions,
    folder: PathBuf,
    title: String,
    resumed: bool,
    /// The names of an epoch's figures.
    names: Vec<String>,
    /// The folder of MLflow's run, until the run ends or a file can't be written.
    entry: Option<PathBuf>,
}

impl Mlflow {
    /// An entry for this run in a folder, which need not exist.
    pub fn new(options: MlflowOptions, run: &Run<'_>) -> Self {
        let (folder, title) = (run.folder.to_owned(), run.title.to_owned());
        Mlflow { options, folder, title, resumed: run.resumed, names: Vec::new(), entry: None }
    }

    /// The folder of the experiment, which is created if there is none with this name.
    fn experiment(&self) -> Result<PathBuf> {
        let MlflowOptions { path: store, experiment: name } = &self.options;
        create_folder(store)?;
        let folders = fs::read_dir(store).map_err(Error::io("read", store))?;
        let mut folders = folders.flatten().map(|entry| entry.path());
        let is_named = |folder: &PathBuf| field(&folder.join(META), "name").as_deref() == Some(name);
        if let Some(found) = folders.find(is_named) {
            return Ok(found);
        }
        // The same for all runs that begin at the same time, with as many digits as MLflow's.
        let id = Crc::<u64>::new(&CRC_64_XZ).checksum(name.as_bytes()) % 1_000_000_000_000_000_000;
        let folder = store.join(if name == DEFAULT { "0".to_owned() } else { id.to_string() });
        if !folder.join(META).exists() {
            create_folder(&folder)?;
            let now = milliseconds();
            let [location, id, name] = [&uri(&folder)?, &name_of(&folder), name].map(|text| quoted(text));
            let meta = format!(
                "artifact_location: {location}\ncreation_time: {now}\nexperiment_id: {id}\nlast_update_time: {now}\n\
                 lifecycle_stage: active\nname: {name}\n"
            );
            towers_files::write(&folder.join(META), meta.as_bytes())?;
        }
        Ok(folder)
    }

    /// The id of MLflow's run: that of the run before a resume, or a random one.
    fn run_id(&self) -> Result<String> {
        let path = self.folder.join(RUN_ID);
        let before =
            if self.resumed { towers_files::read_text(&path).unwrap_or_default() } else { String::new() };
        let before = before.trim_end();
        if before.len() == 32 && before.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(before.to_owned());
        }
        let half = || RandomState::new().build_hasher().finish();
        let id = format!("{:016x}{:016x}", half(), half());
        create_folder(&self.folder)?;
        towers_files::write(&path, format!("{id}\n").as_bytes())?;
        Ok(id)
    }

    /// Writes what MLflow knows of a run: times, state, user, tags.
    fn describe(&self, entry: &Path, run: &RunInfo<'_>) -> Result<()> {
        let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
        let user = user.unwrap_or_else(|| "unknown".to_owned());
        let name = name_of(&self.folder);
        let experiment = entry.parent().map(name_of).unwrap_or_default();
        let artifacts = uri(&entry.join("artifacts"))?;
        let [artifacts, experiment, id, name_quoted, user_quoted] =
            [&artifacts, &experiment, &name_of(entry), &name, &user].map(|text| quoted(text));
        let meta = format!(
            "artifact_uri: {artifacts}\nend_time: null\nentry_point_name: ''\nexperiment_id: {experiment}\n\
             lifecycle_stage: active\nrun_id: {id}\nrun_name: {name_quoted}\nrun_uuid: {id}\nsource_name: ''\n\
             source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {RUNNING}\ntags: []\nuser_id: {user_quoted}\n",
            milliseconds()
        );
        towers_files::write(&entry.join(META), meta.as_bytes())?;
        let tags = [
            ("mlflow.runName", name),
            ("mlflow.source.name", program_name()),
            ("mlflow.source.type", "LOCAL".to_owned()),
            ("mlflow.user", user),
            ("mlflow.note.content", format!("{}, on {}", self.title, run.devices)),
            ("recipe", run.recipe.to_owned()),
        ];
        tags.iter().try_for_each(|(tag, value)| write(&entry.join("tags").join(tag), value))
    }

    /// Removes the metrics of epochs and steps that the run repeats, and adds those of finished epochs that are missing.
    fn go_on_after(&self, entry: &Path, state: &TrainState) -> Result<()> {
        for name in &self.names {
            let missing = |kept: &str| {
                let there: Vec<u64> = kept.lines().filter_map(step_of).collect();
                let missing =
                    state.history.iter().filter(|record| !there.contains(&(record.epoch.saturating_sub(1))));
                let line =
                    |record: &EpochRecord| Some(line(record.get(name)?, record.epoch.saturating_sub(1)));
                missing.filter_map(line).collect()
            };
            go_on(&entry.join("metrics").join(name), state.epochs_done, missing)?;
        }
        OF_STEPS.iter().try_for_each(|name| {
            go_on(&entry.join(format!("metrics/batch_{name}")), state.step + 1, |_| String::new())
        })
    }

    fn copy_artifacts(&self, entry: &Path) -> Result<()> {
        for name in ARTIFACTS {
            let (from, to) = (self.folder.join(name), entry.join("artifacts").join(name));
            if from.is_file() {
                fs::copy(from, &to).map_err(Error::io("write", &to))?;
            }
        }
        Ok(())
    }

    /// Writes into the entry, if there is one. After a failure there is none.
    fn within(&mut self, write: impl FnOnce(&Self, &Path) -> Result<()>) -> Result<()> {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        write(self, &entry)?;
        self.entry = Some(entry);
        Ok(())
    }

    fn end(&mut self, status: u8) -> Result<()> {
        let Some(entry) = self.entry.take() else { return Ok(()) };
        set_status(&entry, status, Some(milliseconds()))?;
        self.copy_artifacts(&entry)
    }
}

fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io("create", path))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::io("write", path))
}

/// Milliseconds since 1970.
fn milliseconds() -> u128 {
    since_1970().as_millis()
}

/// The name of a file, without control characters.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.replace(char::is_control, " ")
}

/// A folder as a URI with the scheme `file`.
fn uri(folder: &Path) -> Result<String> {
    let path = std::path::absolute(folder).map_err(Error::io("find", folder))?;
    let path = path.to_string_lossy();
    let path = if cfg!(windows) { path.replace('\\', "/") } else { path.into_owned() };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~:".contains(&byte);
    let shown = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    let path: String = path.trim_start_matches('/').bytes().map(shown).collect();
    Ok(format!("file:///{path}"))
}

/// A text of YAML between single quotes.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A text of a file of YAML with one level.
fn field(file: &Path, key: &str) -> Option<String> {
    let text = towers_files::read_text(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim();
    let inner = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    let single = || inner('\'').map(|text: &str| text.replace("''", "'"));
    let double = || serde_json::from_str(value).ok().filter(|_| inner('"').is_some());
    Some(single().or_else(double).unwrap_or_else(|| value.to_owned()))
}

/// Changes state and end of a run, and nothing that somebody else has written, such as another name.
fn set_status(entry: &Path, status: u8, ended: Option<u128>) -> Result<()> {
    let meta = entry.join(META);
    let text = towers_files::read_text(&meta)?;
    let ended = ended.map_or("null".to_owned(), |time| time.to_string());
    let changed = text.lines().map(|line| match line.split_once(':') {
        Some(("status", _)) => format!("status: {status}\n"),
        Some(("end_time", _)) => format!("end_time: {ended}\n"),
        _ => format!("{line}\n"),
    });
    Ok(towers_files::write(&meta, changed.collect::<String>().as_bytes())?)
}

/// The line of a metric.
fn line(value: f64, step: u64) -> String {
    format!("{} {} {step}\n", milliseconds(), repr(value))
}

/// The step of a metric's line.
fn step_of(line: &str) -> Option<u64> {
    line.split(' ').nth(2)?.trim_end().parse().ok()
}

/// Keeps the whole lines of a metric before the step `end`, and adds those that are `missing`.
fn go_on(path: &Path, end: u64, missing: impl FnOnce(&str) -> String) -> Result<()> {
    let text = if path.exists() { towers_files::read_text(path)? } else { String::new() };
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let kept: String = whole.filter(|line| step_of(line).is_some_and(|step| step < end)).collect();
    let missing = missing(&kept);
    let all = kept + &missing;
    if all == text { Ok(()) } else { Ok(towers_files::write(path, all.as_bytes())?) }
}

/// Appends a value to the file of a metric.
fn append(entry: &Path, name: &str, value: f64, step: u64) -> Result<()> {
    let path = entry.join("metrics").join(name);
    let file = OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line(value, step).as_bytes())).map_err(Error::io("write", &path))
}

impl Observer for Mlflow {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let metrics = run.metrics.iter().map(|name| keras_name(name).into_owned());
        let others = ["learning_rate", "seconds", "images_per_second"].map(str::to_owned);
        self.names = metrics.chain(others).collect();
        let entry = self.experiment()?.join(self.run_id()?);
        PARTS.iter().try_for_each(|part| create_folder(&entry.join(part)))?;
        if entry.join(META).exists() {
            set_status(&entry, RUNNING, None)?;
        } else {
            self.describe(&entry, run)?;
        }
        for (key, value) in &run.options {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            write(&entry.join("params").join(key), &text)?;
        }
        self.go_on_after(&entry, run.state)?;
        self.copy_artifacts(&entry)?;
        self.entry = Some(entry);
        Ok(())
    }

    fn on_record(&mut self, record: &StepRecord) -> Result<()> {
        self.within(|_, entry| {
            let figures = OF_STEPS.iter().filter_map(|name| Some((name, record.get(name)?)));
            figures
                .into_iter()
                .try_for_each(|(name, value)| append(entry, &format!("batch_{name}"), value, record.step))
        })
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.within(|own, entry| {
            let figures = own.names.iter().filter_map(|name| Some((name, record.get(name)?)));
            let step = record.epoch.saturating_sub(1);
            figures.into_iter().try_for_each(|(name, value)| append(entry, name, value, step))?;
            own.copy_artifacts(entry)
        })?;
        Ok(Flow::Continue)
    }

    fn on_end_within_epoch(&mut self, _: &TrainState, _: &dyn Snapshot) -> Result<()> {
        self.end(FINISHED)
    }

    fn on_interrupt(&mut self, _: &TrainState, _: &dyn Snapshot) -> Result<()> {
        self.end(KILLED)
    }

    fn on_end(&mut self, _: &TrainState, _: &dyn Snapshot) -> Result<()> {
        self.end(FINISHED)
    }
}

impl Drop for Mlflow {
    fn drop(&mut self) {
        // A run that fails tells no observer. An error of writing is lost here.
        let _ = self.end(FAILED);
    }
}

#[cfg(test)]
#[path = "mlflow/tests.rs"]
mod tests;
