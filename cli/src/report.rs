//! `towers report`.

use crate::args::ReportArgs;
use crate::error::{at_least_one, sentence};
use crate::{data, evaluate, print};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towers_callbacks::shortened;
use towers_config::Config;
use towers_report::{RunReport, page_file, save_report};
use towers_runs::{HISTORY_FILE, folder_must_exist, name_of, newest};
use towers_trained::{Classifier, MODEL_FILE};

pub fn run(args: ReportArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch-size", args.batch_size)?;
    let runs =
        if args.runs.is_empty() { vec![newest(&[MODEL_FILE, HISTORY_FILE])?] } else { args.runs.clone() };
    let default = || match &runs[..] {
        [run] => run.join("report.html"),
        _ => PathBuf::from("report.html"),
    };
    // A bad path is refused before any network is tested.
    let file = match &args.output {
        Some(output) => {
            let file = page_file(output)?;
            folder_must_exist("output", &file)?;
            file
        }
        None => default(),
    };
    let mut reports = Vec::with_capacity(runs.len());
    for run in &runs {
        let mut about = RunReport::read(run, name_of(run))?;
        match test(&mut about, run, &args) {
            Err(error) => {
                let why = format!("The network was not tested: {}.", shortened(&sentence(&error)));
                print::note(format_args!("{}: {why}", run.display()));
                about.without_test(why);
            }
            Ok(Some(config)) => {
                let (set, files) = (&config.training.data, &config.placement.files);
                let train = towers_config::load_training_images(set, files, RunReport::AUGMENTED);
                if let Err(error) = train.and_then(|train| about.show_augmentation(&config.training, train)) {
                    let why = shortened(&sentence(&error.into()));
                    print::note(format_args!("{}: no augmented images are shown: {why}", run.display()));
                }
            }
            // The run's own images are not known.
            Ok(None) => {}
        }
        reports.push(about);
    }
    save_report(&file, &reports)?;
    print::text(&format!("wrote {}\n", file.display()))
}

/// Tests a run's network. Returns its configuration if the data are those of its training.
fn test(about: &mut RunReport, run: &Path, args: &ReportArgs) -> anyhow::Result<Option<Config>> {
    let device = args.devices.open()?;
    let mut classifier = Classifier::load(&run.join(MODEL_FILE), &device, args.batch_size)?;
    let (config, whole) = evaluate::data_of(run, &classifier, &args.data)?;
    let (data, all) = data::load_test(&config.training.data, &config.placement.files, whole)?;
    about.test(&mut classifier, &data, all)?;
    Ok((!whole).then_some(config))
}
