//! `towers train`.

use crate::args::TrainArgs;
use crate::error::{INTERRUPTED, at_least_one, usage};
use crate::output::Output;
use crate::print::note;
use crate::tui::{self, Tui};
use crate::{data, print};
use anyhow::Context;
use std::process::ExitCode;
use std::time::Duration;
use train::cifar::Dataset;
use train::observers::{Checkpoints, Curves, Environment, History, Progress};
use train::{Config, End, Observer, Process, Resume, StopFlag, TrainState};

pub fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    let (config, mut output, resume) = match args.resumed_run()? {
        Some(run) => {
            let resume = Resume::newest(&run)?;
            let config = args.resumed_config(&resume)?;
            let picture = Output::new(args.keep.output.as_deref(), &config.recipe).picture;
            let output = Output { run, picture, numbered: false, goes_on: true, restarted: false };
            (config, output, Some(resume))
        }
        None => {
            let resume = args.keep.resume_from.as_deref().map(Resume::read).transpose()?;
            let config =
                resume.as_ref().map_or_else(|| args.config(), |resume| args.resumed_config(resume))?;
            let new = Output::new(args.keep.output.as_deref(), &config.recipe);
            (config, Output { restarted: args.goes_on()?, ..new }, resume)
        }
    };
    at_least_one("--collective-timeout", args.keep.collective_timeout as usize)?;
    let process = Process::join(&config.devices, Duration::from_secs(args.keep.collective_timeout))?;
    // A device that is not there is told before the data are read.
    config.check_towers(match &process {
        Some(process) => process.world(),
        None => train::check_devices(&config.devices)?,
    })?;
    match process {
        Some(process) if !process.is_first() => follow(process, config, &args, resume.as_ref()),
        process => lead(process, config, &args, &mut output, resume.as_ref()),
    }
}

/// Trains, writes the run's files, and tells people.
fn lead(
    process: Option<Process>,
    mut config: Config,
    args: &TrainArgs,
    output: &mut Output,
    resume: Option<&Resume>,
) -> anyhow::Result<ExitCode> {
    output.check_unused()?;
    // From here on: the first process of a container gets no signal that it has no handler for.
    let live = args.keep.tui && tui::is_possible();
    let stop = stop_flag(if live { tui::interrupt } else { interrupt })?;
    let data = load(&mut config, args, resume, |line| note(line))?;
    output.make_others(args.callbacks.folders()?)?;
    let _held = output.create()?;
    output.check_unused()?;
    train::save_config(&config, &output.run)?;
    announce(&config, &data, output, resume);
    let mut observers = observers(&config, &data, output, args)?;
    if live {
        observers[0] =
            Box::new(Tui::new(&output.run, stop.clone()).context("the terminal can't be drawn on")?);
    }
    let outcome = match process {
        Some(process) => process.train(&config, data, resume, &mut observers, &stop),
        None => train::train(&config, data, resume, &mut observers, &stop),
    };
    // A view gives the terminal back before anything is said.
    drop(observers);
    let outcome = outcome?;
    let run = output.run.display();
    match outcome.end {
        // The run is done and saved, whether or not anybody can read so.
        End::Done => print::text(&format!("done: {run}\n")).or(Ok(ExitCode::SUCCESS)),
        End::Stopped(reason) => {
            print::text(&format!("stopped early: {reason}\ndone: {run}\n")).or(Ok(ExitCode::SUCCESS))
        }
        End::Interrupted => {
            note(format_args!("interrupted; everything is saved. Go on with: towers train --resume {run}"));
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Trains with the first process of a job, which writes and talks for all. An interrupted run is no failure here if there is a
/// launcher: it would end the first process too, which reports it. Where there is none, a process that says that it is done
/// is not started again to go on.
fn follow(
    process: Process,
    mut config: Config,
    args: &TrainArgs,
    resume: Option<&Resume>,
) -> anyhow::Result<ExitCode> {
    let stop = stop_flag(|stop| if stop.is_heeded() { stop.raise() } else { end_at_once() })?;
    let data = load(&mut config, args, resume, |_| ())?;
    let alone = process.is_on_its_own();
    let outcome = process.train(&config, data, resume, &mut [], &stop)?;
    let going_on = alone && matches!(outcome.end, End::Interrupted);
    Ok(if going_on { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// A wish to stop that Ctrl-C and SIGTERM raise.
fn stop_flag(raise: fn(&StopFlag)) -> anyhow::Result<StopFlag> {
    let stop = StopFlag::default();
    let raised = stop.clone();
    ctrlc::set_handler(move || raise(&raised)).context("can't listen for Ctrl-C")?;
    Ok(stop)
}

/// The first Ctrl-C asks the run to stop after the current step; a second one ends the process, as does one before the run.
fn interrupt(stop: &StopFlag) {
    if stop.is_raised() || !stop.is_heeded() {
        end_at_once();
    }
    stop.raise();
    note("stopping after this step, then saving; press Ctrl-C again to stop at once");
}

/// Ends the process in the middle of a step.
pub fn end_at_once() -> ! {
    note("stopped at once; the checkpoints saved before are kept");
    std::process::exit(i32::from(INTERRUPTED))
}

/// The data, with samples to train on and to test; with `--quick` synthetic ones where CIFAR can't be had, for whatever reason. But
/// a run that goes on needs the images that it began with.
fn load(
    config: &mut Config,
    args: &TrainArgs,
    resume: Option<&Resume>,
    tell: fn(&str),
) -> anyhow::Result<Dataset> {
    let trial = args.quick && resume.is_none();
    let data = match data::load(&config.data, args.keep.no_progress) {
        Ok(data) => data,
        Err(error @ train::Error::Data(_))
            if trial && ["auto", "cifar10", "cifar100"].contains(&config.data.dataset.as_str()) =>
        {
            tell(&format!("warning: {error}"));
            tell("warning: going on with SYNTHETIC images: drawn figures, not CIFAR");
            config.data.dataset = "synthetic".to_owned();
            data::load(&config.data, args.keep.no_progress)?
        }
        Err(error) => return Err(error.into()),
    };
    if data.test.is_empty() {
        return Err(usage("the number of test samples is 0, but must be at least 1; see --limit-test"));
    }
    Ok(data)
}

fn announce(config: &Config, data: &Dataset, output: &Output, resume: Option<&Resume>) {
    let run = output.run.display();
    let (train, test) = (data.train.len(), data.test.len());
    note(format_args!(
        "{}: {} on {} ({train} training, {test} test images), into {run}",
        config.recipe, config.model, data.name
    ));
    if let Some(why) = train::unused_gpu(&config.devices) {
        note(format_args!("warning: {why}; training on the CPU"));
    }
    if let Some(resume) = resume {
        for skipped in &resume.skipped {
            note(format_args!("warning: a checkpoint was passed over: {skipped}"));
        }
        let TrainState { epoch, partial, .. } = &resume.state;
        let at = match partial.steps {
            0 => format!("after epoch {epoch}"),
            steps => format!("in epoch {}, after {steps} of its steps", epoch + 1),
        };
        note(format_args!("resuming from {} {at}", resume.path.display()));
        if *epoch >= config.epochs {
            note(format_args!(
                "epoch {epoch} of {} is done; to go on, give a larger --epochs",
                config.epochs
            ));
        }
    }
}

fn observers(
    config: &Config,
    data: &Dataset,
    output: &Output,
    args: &TrainArgs,
) -> anyhow::Result<Vec<Box<dyn Observer>>> {
    let run = &output.run;
    let mut curves = Curves::new(run, format!("{} on {}", config.model, data.name));
    if let Some(picture) = &output.picture {
        curves = curves.also(picture)?;
    }
    // The progress comes first, so that its bar is gone before anybody else writes.
    let mut observers: Vec<Box<dyn Observer>> = vec![
        Box::new(Progress::new(!args.keep.no_progress)),
        Box::new(History::new(run)),
        Box::new(Environment::new(run)),
    ];
    observers.extend(args.callbacks.writers(config, run)?);
    observers.push(Box::new(Checkpoints::new(run, config)?));
    observers.push(Box::new(curves));
    observers.extend(args.callbacks.observers(config)?);
    Ok(observers)
}
