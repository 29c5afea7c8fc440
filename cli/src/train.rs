//! `towers train`.

use crate::args::TrainArgs;
use crate::device::warn_of_unused_gpu;
use crate::error::usage;
use crate::interrupt::Interrupts;
use crate::live::Views;
use crate::print::{note, warn};
use crate::resume::Start;
use crate::spelling::flag_of;
use crate::{data, error, print};
use std::fmt::Display;
use std::mem::take;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use towers_callbacks::TrainState;
use towers_callbacks::{LogLine, Progress, Run, Status, from_config, shell_word};
use towers_config::{Config, default_data_dir, describe_data};
use towers_dataset::Dataset;
use towers_launch::{INCOMPLETE, INTERRUPTED};
use towers_options::Message;
use towers_runs::RunFolder;
use towers_train::{Device, FittingBatch, fitting_batch};
use towers_train::{End, Observer, Outcome, Process, Resume, StopFlag, Training, open_devices};

/// How long the first process has to record a failure before the others end.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    print::log_as(args.keep.log_format.into());
    // Early: the first process of a container ignores signals without a handler, and others end by some.
    let in_terminal = args.keep.tui && towers_live::tui::is_possible();
    let interrupts = Interrupts::listen(args.keep.signal_action, in_terminal)?;
    let start = args.start(args.owns_output()?)?;
    let Some(process) = Process::join(&start.config.placement.devices)? else {
        return run_first(None, start, &args, in_terminal, &interrupts.stop);
    };
    if args.options.has_auto_batch() {
        return Err(usage("--batch-size is auto, but must be a number in a job of several processes"));
    }
    let process = process.comes_back(towers_launch::is_restarted_on_failure()).telling(|text| note(text));
    towers_launch::ready();
    interrupts.joined(&process);
    match process.is_first() {
        true => run_first(Some(process), start, &args, in_terminal, &interrupts.stop),
        false => run_other(process, start, &args, &interrupts.stop),
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
    let mut devices = Vec::new();
    if process.is_none() {
        // A missing device is reported before the data are read.
        let Config { placement, training, .. } = &start.config;
        devices = open_devices(&placement.devices, &training.arithmetic)?;
        start.config.check_replicas(devices.len() / start.config.stages())?;
    }
    let mut views = Views::bind(&args.keep, in_terminal)?;
    if let Some(process) = &mut process {
        start = args.agree(process, start)?;
    }
    let Start { mut config, mut folder, resume, changes } = start;
    let resume = resume.as_ref();
    folder.check()?;
    let data = load(&mut config, args, resume, true)?;
    match args.options.has_auto_batch() {
        true if resume.is_none() => choose_batch(&mut config, args, &data, &devices)?,
        true => note(format_args!("--batch-size auto: {}, as the run has begun", config.training.batch_size)),
        false => {}
    }
    let mut status = None;
    let processes = process.as_ref().map_or(1, Process::world);
    let mut begin = || {
        folder.prepare(&config.outputs, resume.map(|resume| &resume.config.outputs))?;
        folder.create()?;
        let run = folder.path();
        towers_config::save_config(&config, run)?;
        towers_config::save_unreadable(&data, run)?;
        status = Some(Status::begin(run, folder.continues(), processes)?);
        announce(&config, &data, run, resume, &changes, args)?;
        let mut observers = observers(&config, &title(&config, &data), &folder, args)?;
        views.observe(run, &mut observers, stop)?;
        observers.push(folder.first_step());
        process.iter_mut().try_for_each(|process| process.share_folder(Some(run)).map(drop))?;
        Ok::<_, anyhow::Error>(observers)
    };
    let outcome = match begin() {
        Ok(mut observers) => {
            let training = Training::new(&config, data).resume(resume).stop(stop).spelling(flag_of);
            // The view restores the terminal when the observers are dropped, before any message.
            match process {
                Some(process) => process.train(training, || Ok(take(&mut observers))),
                None => training.devices(&devices).observers(&mut observers).run(),
            }
            .map_err(anyhow::Error::from)
        }
        Err(error) => Err(error),
    };
    let ending = Ending::of(&outcome);
    if let Some(status) = status {
        ending.record(status, folder.path());
    }
    views.end(&ending.sentence);
    if args.keep.fast_dev_run.is_some() {
        let removed = folder.discard();
        return match outcome?.end {
            End::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
            End::Incomplete => Ok(ExitCode::from(INCOMPLETE)),
            End::Done | End::Stopped(_) => {
                removed?;
                let line = LogLine::info("end", "the trial run went well; nothing of it is kept");
                print::result(&line.with("end", "done")).or(Ok(ExitCode::SUCCESS))
            }
        };
    }
    if outcome.is_err() {
        folder.take_back();
    }
    conclude(outcome?.end, folder.path())
}

/// Sets the batch size of a new run to the largest that fits, and says why.
fn choose_batch(
    config: &mut Config,
    args: &TrainArgs,
    data: &Dataset,
    devices: &[Device],
) -> anyhow::Result<()> {
    let before = config.clone();
    config.training.global_batch_size = None;
    let FittingBatch { size, reason, .. } = fitting_batch(config, data, devices)?;
    config.training.batch_size = size;
    if let (Some(scaling), Some("linear")) = (&mut config.training.lr_scaling, args.options.get("lr_scaling"))
    {
        scaling.base_batch = size;
    }
    config.note_changes(&before);
    config.check()?;
    note(format_args!("--batch-size auto: {size}; {}", reason.spelled(flag_of)));
    Ok(())
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
            warn(error);
        }
    }
}

/// Says how the run ended.
fn conclude(end: End, folder: &Path) -> anyhow::Result<ExitCode> {
    let run = folder.display();
    let line = |end, message| {
        LogLine::info("end", message).with("end", end).with("run", folder.to_string_lossy().into_owned())
    };
    match end {
        // The run is done and saved even if the message can't be printed.
        End::Done => print::result(&line("done", format!("done: {run}"))).or(Ok(ExitCode::SUCCESS)),
        End::Stopped(reason) => {
            let line = line("stopped", format!("stopped early: {reason}\ndone: {run}"));
            print::result(&line.with("reason", reason)).or(Ok(ExitCode::SUCCESS))
        }
        End::Interrupted => {
            let word = shell_word(&folder.to_string_lossy());
            let message =
                format!("interrupted; everything is saved. Resume with: towers train --resume {word}");
            print::say(&line("interrupted", print::brief(message)));
            Ok(ExitCode::from(INTERRUPTED))
        }
        End::Incomplete => {
            let message = format!("processes are missing; everything is saved in {run}");
            print::say(&line("incomplete", print::brief(message)));
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
    let Start { mut config, mut folder, resume, .. } = args.agree(&mut process, start)?;
    let data = load(&mut config, args, resume.as_ref(), false)?;
    let (alone, world) = (process.is_on_its_own(), process.world());
    let shared = process.share_folder(None)?;
    let (title, mut status) = (title(&config, &data), None);
    let mut take_over = || {
        folder = RunFolder::resumed(shared.as_deref().unwrap_or(folder.path()));
        folder.create()?;
        status = Some(Status::begin(folder.path(), true, world)?);
        observers(&config, &title, &folder, args)
    };
    let observers = || take_over().map_err(|error: anyhow::Error| towers_callbacks::Error::other(error));
    let outcome = process
        .train(Training::new(&config, data).resume(resume.as_ref()).stop(stop).spelling(flag_of), observers);
    let outcome = outcome.map_err(anyhow::Error::from);
    let took_over = status.is_some();
    if let Some(status) = status {
        Ending::of(&outcome).record(status, folder.path());
    }
    if outcome.is_err() && !took_over {
        // MPI's launcher may end all processes when this one ends. The first one still records the end.
        std::thread::sleep(LAST_WORDS);
    }
    let outcome = outcome?;
    if took_over {
        return conclude(outcome.end, folder.path());
    }
    let unfinished = alone && matches!(outcome.end, End::Interrupted);
    Ok(if unfinished { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
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
    let warn = |line: &dyn Display| {
        if is_first {
            warn(line)
        }
    };
    let read = |config: &Config| match is_first {
        true => data::load(&config.training.data, &config.placement.files, args.keep.has_no_bar()),
        // The first process reports it.
        false => towers_config::load_data(&config.training.data, &config.placement.files, |_| ()),
    };
    if (resume.is_some() || args.repeats_run()) && !args.options.names_data() {
        config.training.data.check_folder("the run's config.json")?;
    }
    if resume.is_none() {
        let warning = config.take_weights(args.options.has("preprocessing"))?;
        warning.iter().for_each(|warning| warn(warning));
    }
    let trial = args.quick && resume.is_none();
    let data = match read(config) {
        Ok(data) => data,
        Err(error @ towers_config::Error::Fetch(_))
            if trial
                && config.placement.files.data_dir == Some(default_data_dir())
                && ["auto", "cifar10", "cifar100"].contains(&config.training.data.dataset.as_str()) =>
        {
            warn(&error);
            warn(&"continuing with SYNTHETIC images: drawn figures, not CIFAR");
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

/// Says what begins, and how.
fn announce(
    config: &Config,
    data: &Dataset,
    run: &Path,
    resume: Option<&Resume>,
    changes: &[Message],
    args: &TrainArgs,
) -> anyhow::Result<()> {
    let run = run.display();
    let mut lines = describe_data(config, data);
    lines[0] = format!("{}: {} on {}, into {run}", config.recipe, config.training.model, lines[0]);
    lines.into_iter().for_each(note);
    warn_of_unused_gpu(&config.placement.devices);
    if let Some(resume) = resume {
        for skipped in &resume.skipped {
            warn(format_args!("a checkpoint was skipped: {skipped}"));
        }
        if let Some(command) = resume.command.as_ref().filter(|_| config.outputs.epoch_command.is_none()) {
            let command = shell_word(command);
            warn(format_args!(
                "the run had --epoch-command {command}; give it again to run it, since a run may come from anywhere"
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
        changes.iter().for_each(|change| warn(change.spelled(flag_of)));
        let ignored = args.ignored_recipe_options(config)?;
        ignored.iter().for_each(warn);
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
    folder: &RunFolder,
    args: &TrainArgs,
) -> anyhow::Result<Vec<Box<dyn Observer>>> {
    // The progress comes first, so that its bar is cleared before other output.
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(Progress::new(!args.keep.has_no_bar()).form(print::log_format()))];
    let run = Run::new(folder.path(), title).resumed(folder.continues());
    observers.extend(from_config(&config.outputs, &run).map_err(towers_train::Error::from)?);
    Ok(observers)
}
