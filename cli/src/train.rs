//! `towers train`.

use crate::args::{KeepArgs, TrainArgs};
use crate::error::usage;
use crate::output::Output;
use crate::print::note;
use crate::{data, print};
use anyhow::Context;
use std::process::ExitCode;
use train::cifar::Dataset;
use train::observers::{Checkpoints, Curves, EarlyStopping, History, Progress, TensorBoard};
use train::{Config, End, Observer, Resume, StopFlag};

/// The exit status after Ctrl-C, as shells count it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

pub fn run(args: TrainArgs) -> anyhow::Result<ExitCode> {
    let (mut config, mut output, resume) = match args.resumed_run()? {
        Some(run) => {
            let resume = Resume::newest(&run)?;
            let config = args.resumed_config(&resume)?;
            let picture = Output::new(args.keep.output.as_deref(), &config.recipe).picture;
            (config, Output { run, picture, numbered: false }, Some(resume))
        }
        None => {
            let config = args.config()?;
            let output = Output::new(args.keep.output.as_deref(), &config.recipe);
            (config, output, None)
        }
    };
    // A device that is not there is told before the data are read.
    config.check_towers(train::check_devices(&config.devices)?)?;
    if resume.is_none() {
        output.check_unused()?;
    }
    let data = load(&mut config, &args)?;
    if data.test.is_empty() {
        return Err(usage("the number of test samples is 0, but must be at least 1; see --limit-test"));
    }
    let _held = output.create()?;
    if resume.is_none() {
        output.check_unused()?;
    }
    train::save_config(&config, &output.run)?;
    announce(&config, &data, &output, resume.as_ref());
    let stop = StopFlag::default();
    let raised = stop.clone();
    ctrlc::set_handler(move || interrupt(&raised)).context("can't listen for Ctrl-C")?;
    let mut observers = observers(&config, &data, &output, &args.keep)?;
    let outcome = train::train(&config, data, resume.as_ref(), &mut observers, &stop)?;
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

/// The first Ctrl-C asks the run to stop after the current step; a second one ends the process.
fn interrupt(stop: &StopFlag) {
    if stop.is_raised() {
        note("stopped at once; the checkpoints saved before are kept");
        std::process::exit(i32::from(INTERRUPTED));
    }
    stop.raise();
    note("stopping after this step, then saving; press Ctrl-C again to stop at once");
}

/// The data; with `--quick` synthetic ones where CIFAR can't be had, for whatever reason.
fn load(config: &mut Config, args: &TrainArgs) -> anyhow::Result<Dataset> {
    match data::load(&config.data, args.keep.no_progress) {
        Ok(data) => Ok(data),
        Err(error @ train::Error::Data(_))
            if args.quick && ["auto", "cifar10", "cifar100"].contains(&config.data.dataset.as_str()) =>
        {
            note(format_args!("warning: {error}"));
            note("warning: going on with SYNTHETIC images: drawn figures, not CIFAR");
            config.data.dataset = "synthetic".to_owned();
            Ok(data::load(&config.data, args.keep.no_progress)?)
        }
        Err(error) => Err(error.into()),
    }
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
        note(format_args!("resuming from {} after epoch {}", resume.path.display(), resume.state.epoch));
        if resume.state.epoch >= config.epochs {
            note(format_args!("all {} epochs are done; to go on, give a larger --epochs", config.epochs));
        }
    }
}

fn observers(
    config: &Config,
    data: &Dataset,
    output: &Output,
    keep: &KeepArgs,
) -> anyhow::Result<Vec<Box<dyn Observer>>> {
    let run = &output.run;
    let mut curves = Curves::new(run, format!("{} on {}", config.model, data.name));
    if let Some(picture) = &output.picture {
        curves = curves.also(picture)?;
    }
    // The progress comes first, so that its bar is gone before anybody else writes.
    let mut observers: Vec<Box<dyn Observer>> = vec![
        Box::new(Progress::new(!keep.no_progress)),
        Box::new(History::new(run)),
        Box::new(Checkpoints::new(run, config)?),
        Box::new(curves),
    ];
    if let Some(folder) = &keep.tensorboard {
        observers.push(Box::new(TensorBoard::new(folder)));
    }
    if let Some(stop) = &config.early_stop {
        let stopping = EarlyStopping::new(&stop.monitor)?.min_delta(stop.min_delta).patience(stop.patience);
        observers.push(Box::new(stopping));
    }
    Ok(observers)
}
