//! `towers train`.

use crate::args::TrainArgs;
use crate::created_paths::{CreatedPaths, FirstStepFlag};
use crate::device::warn_of_unused_gpu;
use crate::error::usage;
use crate::flags::default_dir;
use crate::interrupt::Interrupts;
use crate::kept_devices::{Here, kept};
use crate::live::Views;
use crate::output::{Output, prepare_outside, shown};
use crate::print::note;
use crate::resume::Start;
use crate::spelling::flag_of;
use crate::{classes, data, error, print};
use std::mem::take;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use towers_callbacks::TrainState;
use towers_callbacks::{Outputs, Outside, Progress, Run, Status, from_config, shell_word};
use towers_config::{Config, Placement};
use towers_dataset::Dataset;
use towers_launch::{INCOMPLETE, INTERRUPTED};
use towers_train::{End, Observer, Outcome, Process, Resume, StopFlag, Training};
use towers_trained::ImageSize;

/// How long the first process has to record a failure before the others end.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    // Early: the first process of a container ignores signals without a handler, and others end by some.
    let in_terminal = args.keep.tui && towers_live::tui::is_possible();
    let interrupts = Interrupts::listen(args.keep.signal_action, in_terminal)?;
    let start = args.start(args.owns_output()?)?;
    let process = Process::join(&start.config.placement.devices)?;
    let process = process.map(|process| {
        process.comes_back(towers_launch::is_restarted_on_failure()).telling(|text| note(text))
    });
    if process.is_none() {
        // A missing device is reported before the data are read.
        let Placement { devices, .. } = &start.config.placement;
        start
            .config
            .check_replicas(towers_train::check_devices(devices, &start.config.training.arithmetic)?)?;
    }
    if let Some(process) = &process {
        towers_launch::ready();
        interrupts.joined(process);
    }
    match process {
        Some(process) if !process.is_first() => run_other(process, start, &args, &interrupts.stop),
        process => run_first(process, start, &args, in_terminal, &interrupts.stop),
    }
}

/// Trains, writes the run's files, and prints messages.
fn run_first(
    mut process: Option<Process>,
    mut start: Start,
    args: &TrainArgs,
    in_terminal: bool,
    stop: &StopFlag,
) -> anyhow::Result<ExitCode> {
    let mut views = Views::bind(&args.keep, in_terminal)?;
    if let Some(process) = &mut process {
        start = args.agree(process, start)?;
    }
    let Start { mut config, mut output, resume } = start;
    let (output, resume) = (&mut output, resume.as_ref());
    output.check_unused()?;
    output.check_folder()?;
    let data = load(&mut config, args, resume, true)?;
    let (mut created, mut lock, mut status) = (CreatedPaths::default(), None, None);
    let first_step_done = Arc::new(AtomicBool::new(false));
    let processes = process.as_ref().map_or(1, Process::world);
    let begin = || {
        prepare_outputs(&config.outputs, resume, &output.run, &mut created)?;
        lock = output.create(&mut created)?;
        output.check_unused()?;
        towers_config::save_config(&config, &output.run)?;
        towers_config::save_unreadable(&data, &output.run)?;
        status = Some(Status::begin(&output.run, output.resumed || output.restarted, processes)?);
        announce(&config, &data, output, resume, args)?;
        let mut observers = observers(&config, &title(&config, &data), output, args)?;
        views.observe(&output.run, &mut observers, stop)?;
        observers.push(Box::new(FirstStepFlag(Arc::clone(&first_step_done))));
        // The view restores the terminal when the observers are dropped, before any message.
        Ok::<_, anyhow::Error>(match process {
            Some(mut process) => {
                process.share_folder(Some(&output.run))?;
                process
                    .train(Training::new(&config, data).resume(resume).stop(stop).spelling(flag_of), || {
                        Ok(take(&mut observers))
                    })?
            }
            None => Training::new(&config, data)
                .resume(resume)
                .observers(&mut observers)
                .stop(stop)
                .spelling(flag_of)
                .run()?,
        })
    };
    let outcome = begin();
    let ending = Ending::of(&outcome);
    if let Some(status) = status {
        ending.record(status, &output.run);
    }
    views.end(&ending.sentence);
    // A run that is refused before its first step leaves no files.
    if outcome.is_err() && !first_step_done.load(Ordering::Relaxed) {
        created.remove(lock.take(), &output.lock_path());
    }
    conclude(outcome?.end, output)
}

/// How a run ended: for `status.json`, and in a sentence for its page.
struct Ending {
    end: &'static str,
    reason: Option<String>,
    sentence: String,
}

impl Ending {
    fn of(outcome: &anyhow::Result<Outcome>) -> Self {
        let (end, reason, sentence) = match outcome.as_ref().map(|outcome| &outcome.end) {
            Ok(End::Done) => ("done", None, "The run is done.".to_owned()),
            Ok(End::Stopped(reason)) => {
                let sentence = format!("The run stopped early: {reason}.");
                ("stopped", Some(reason.clone()), sentence)
            }
            Ok(End::Interrupted) => {
                let sentence = "The run was interrupted and saved; --resume continues it.";
                ("interrupted", None, sentence.to_owned())
            }
            Ok(End::Incomplete) => {
                let sentence = "The run was saved, since processes are missing.";
                ("incomplete", Some("processes were lost".to_owned()), sentence.to_owned())
            }
            Err(error) => {
                let reason = error::sentence(error);
                let sentence = format!("The run failed: {reason}.");
                ("failed", Some(reason), sentence)
            }
        };
        Ending { end, reason, sentence }
    }

    /// Writes it. The run itself is saved, so a file that can't be written is a warning.
    fn record(&self, status: Status, run: &Path) {
        if let Err(error) = status.finish(run, self.end, self.reason.clone()) {
            note(format_args!("warning: {error}"));
        }
    }
}

/// Says how the run ended.
fn conclude(end: End, output: &Output) -> anyhow::Result<ExitCode> {
    let run = output.run.display();
    match end {
        // The run is done and saved even if the message can't be printed.
        End::Done => print::text(&format!("done: {run}\n")).or(Ok(ExitCode::SUCCESS)),
        End::Stopped(reason) => {
            print::text(&format!("stopped early: {reason}\ndone: {run}\n")).or(Ok(ExitCode::SUCCESS))
        }
        End::Interrupted => {
            let run = shell_word(&output.run.to_string_lossy());
            note(format_args!("interrupted; everything is saved. Resume with: towers train --resume {run}"));
            Ok(ExitCode::from(INTERRUPTED))
        }
        End::Incomplete => {
            note(format_args!("processes are missing; everything is saved in {run}"));
            Ok(ExitCode::from(INCOMPLETE))
        }
    }
}

/// Trains with the first process of a job, which writes all files and messages. If that is lost, this process may
/// take over its files.
///
/// An interrupted run is no failure here if a launcher watches all processes: a failure would end the first
/// process too, which reports the interrupt. Without such a launcher, the exit status must say that the process
/// is not done, or it would not be restarted.
fn run_other(
    mut process: Process,
    start: Start,
    args: &TrainArgs,
    stop: &StopFlag,
) -> anyhow::Result<ExitCode> {
    let Start { mut config, mut output, resume } = args.agree(&mut process, start)?;
    let data = load(&mut config, args, resume.as_ref(), false)?;
    let (alone, world) = (process.is_on_its_own(), process.world());
    let folder = process.share_folder(None)?;
    let (title, mut lock, mut status) = (title(&config, &data), None, None);
    let mut take_over = || {
        let folder = folder.clone().unwrap_or_else(|| output.run.clone());
        output = Output { run: folder, resumed: true, ..Output::default() };
        lock = Some(output.create(&mut CreatedPaths::default())?);
        status = Some(Status::begin(&output.run, output.resumed, world)?);
        observers(&config, &title, &output, args)
    };
    let observers = || take_over().map_err(|error: anyhow::Error| towers_callbacks::Error::other(error));
    let outcome = process
        .train(Training::new(&config, data).resume(resume.as_ref()).stop(stop).spelling(flag_of), observers);
    let outcome = outcome.map_err(anyhow::Error::from);
    if let Some(status) = status {
        Ending::of(&outcome).record(status, &output.run);
    }
    if outcome.is_err() && lock.is_none() {
        // MPI's launcher may end all processes when this one ends. The first one still records the end.
        std::thread::sleep(LAST_WORDS);
    }
    let outcome = outcome?;
    if lock.is_some() {
        return conclude(outcome.end, &output);
    }
    let unfinished = alone && matches!(outcome.end, End::Interrupted);
    Ok(if unfinished { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Prepares the outputs outside of the run's folder; a folder in the place of a file is refused.
fn prepare_outputs(
    outputs: &Outputs,
    resume: Option<&Resume>,
    run: &Path,
    created: &mut CreatedPaths,
) -> anyhow::Result<()> {
    let all = outputs.outside();
    if let Some(Outside { key, path, .. }) =
        all.iter().find(|outside| !outside.is_folder && outside.path.is_dir())
    {
        let flag = flag_of(key);
        let kind = if *key == "plot" { "picture" } else { "file" };
        return Err(usage(format!(
            "{flag} is {}, but must be a {kind}, not a folder",
            shown(path).display()
        )));
    }
    let before = resume.map_or_else(Vec::new, |resume| resume.config.outputs.outside());
    for outside in all {
        let was_written = before.iter().any(|before| before.path == outside.path);
        prepare_outside(&outside, run, created)
            .map_err(|error| if was_written { with_remedy(error) } else { error })?;
        if !outside.is_folder {
            created.add_file(outside.path.to_owned());
        }
    }
    Ok(())
}

/// Adds a remedy to an error about an output that the run wrote before.
fn with_remedy(error: anyhow::Error) -> anyhow::Error {
    let what = "; the run wrote there before: name another path, or drop it with --forget-outputs";
    anyhow::anyhow!("{}{what}", error::sentence(&error))
}

/// The data, with training and test samples; for a resumed run, those of the run. Only the first process
/// reports the progress. A new run with `--quick` takes synthetic images if CIFAR is not available, unless a
/// data folder is given.
pub fn load(
    config: &mut Config,
    args: &TrainArgs,
    resume: Option<&Resume>,
    is_first: bool,
) -> anyhow::Result<Dataset> {
    let warn = |line: &str| {
        if is_first {
            note(line)
        }
    };
    let read = |config: &Config| match is_first {
        true => data::load(&config.training.data, &config.placement.files, args.keep.no_progress),
        // The first process reports it.
        false => towers_config::load_data(&config.training.data, &config.placement.files, |_| ()),
    };
    if (resume.is_some() || args.repeats_run()) && !args.options.has("data.dataset") {
        config.training.data.check_folder("the run's config.json")?;
    }
    if resume.is_none() {
        let warning = config.take_weights(args.options.has("preprocessing"))?;
        warning.iter().for_each(|warning| warn(&format!("warning: {warning}")));
    }
    let trial = args.quick && resume.is_none();
    let data = match read(config) {
        Ok(data) => data,
        Err(error @ towers_config::Error::Fetch(_))
            if trial
                && config.placement.files.data_dir == Some(default_dir())
                && ["auto", "cifar10", "cifar100"].contains(&config.training.data.dataset.as_str()) =>
        {
            warn(&format!("warning: {error}"));
            warn("warning: continuing with SYNTHETIC images: drawn figures, not CIFAR");
            config.training.data.dataset = "synthetic".to_owned();
            read(config)?
        }
        Err(error) => return Err(error.into()),
    };
    // Before any file of the run is written.
    resume.map_or(Ok(()), |resume| resume.check_data(&data))?;
    if data.test.is_empty() {
        return Err(usage("the number of test samples is 0, but must be at least 1; see --limit-test"));
    }
    Ok(data)
}

/// The number of images and, for a folder, the source of the validation images.
fn images(config: &Config, data: &Dataset) -> String {
    let (train, test) = (data.train.len(), data.test.len());
    match (&data.validation_from, config.training.augmentation.validation_split) {
        (None, _) => {
            let validation = data.validation.as_ref().map(|split| format!(" {} validation,", split.len()));
            format!("{train} training,{} {test} test images", validation.unwrap_or_default())
        }
        (Some(from), 0.0) => {
            let validation = data.validation.as_ref().map_or(test, |split| split.len());
            format!("{train} training images, {validation} validation images {from}")
        }
        (Some(_), share) => format!("{train} training images, a share of {share} of them for validation"),
    }
}

/// Says what begins, and how.
fn announce(
    config: &Config,
    data: &Dataset,
    output: &Output,
    resume: Option<&Resume>,
    args: &TrainArgs,
) -> anyhow::Result<()> {
    let run = output.run.display();
    let images = images(config, data);
    let (size, [_, _, channels]) = (ImageSize::of(data.train.shape()), data.train.shape());
    let mut at = if size == ImageSize::default() { String::new() } else { format!(" at {size}") };
    if channels == 1 {
        at += " in grey";
    }
    note(format_args!(
        "{}: {} on {}{at} ({images}), into {run}",
        config.recipe, config.training.model, data.name
    ));
    classes::lines(config, data).into_iter().for_each(note);
    warn_of_unused_gpu(&config.placement.devices);
    if let Some(resume) = resume {
        for skipped in &resume.skipped {
            note(format_args!("warning: a checkpoint was skipped: {skipped}"));
        }
        if let Some(command) = resume.command.as_ref().filter(|_| config.outputs.epoch_command.is_none()) {
            let command = shell_word(command);
            note(format_args!(
                "warning: the run had --epoch-command {command}; give it again to run it, since a run may come from anywhere"
            ));
        }
        let TrainState { epochs_done: epoch, partial, .. } = &resume.state;
        let at = match partial.steps {
            0 => format!("after epoch {epoch}"),
            steps => format!("in epoch {}, after {steps} of its steps", epoch + 1),
        };
        note(format_args!("resuming from {} {at}", resume.path.display()));
        if *epoch >= config.training.epochs {
            note(format_args!(
                "epoch {epoch} of {} is done; to continue, give a larger --epochs",
                config.training.epochs
            ));
        }
        let saved = &resume.config.placement.devices;
        let (_, changes) = kept(saved, Here::look(saved)?);
        let is_given = |key: &str| {
            args.options.has(key) || (key == "devices.gpus" && args.options.has("devices.device"))
        };
        let untold = changes.iter().filter(|(key, _)| !is_given(key));
        untold.for_each(|(_, line)| note(format_args!("warning: {line}")));
        let ignored = args.ignored_recipe_options(config)?;
        ignored.iter().for_each(|line| note(format_args!("warning: {line}")));
    } else if args.quick && !args.options.has("epochs") && config.recipe != "quick" {
        // With `--quick`, little work is expected.
        let (recipe, towers_config::Training { model, epochs, .. }) = (&config.recipe, &config.training);
        note(format_args!(
            "--quick leaves network and epochs to --recipe {recipe}: {model}, {epochs} epochs; for a short trial give --epochs N and \
             --limit-train N, or leave --recipe out"
        ));
    }
    Ok(())
}

/// The title of the run's curves.
fn title(config: &Config, data: &Dataset) -> String {
    format!("{} on {}", config.training.model, data.name)
}

fn observers(
    config: &Config,
    title: &str,
    output: &Output,
    args: &TrainArgs,
) -> anyhow::Result<Vec<Box<dyn Observer>>> {
    // The progress comes first, so that its bar is cleared before other output.
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(Progress::new(!args.keep.no_progress))];
    let run = Run::new(&output.run, title).resumed(output.resumed || output.restarted);
    observers.extend(from_config(&config.outputs, &run).map_err(towers_train::Error::from)?);
    Ok(observers)
}
