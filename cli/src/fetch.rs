//! `towers fetch`.

use crate::args::FetchArgs;
use crate::{data, print};
use std::process::ExitCode;

pub fn run(args: FetchArgs) -> anyhow::Result<ExitCode> {
    let config = args.data.config()?;
    let data = data::load(&config.training.data, &config.placement.files, false)?;
    let (train, test, classes) = (data.train.len(), data.test.len(), data.classes.len());
    print::text(&format!("{}: {train} training and {test} test images of {classes} classes\n", data.name))
}
