//! `towers fetch`.

use crate::args::FetchArgs;
use crate::{data, print};
use std::process::ExitCode;

pub fn run(args: FetchArgs) -> anyhow::Result<ExitCode> {
    let options = args.data.options();
    let data = data::load(&options, false)?;
    let (train, test, classes) = (data.train.len(), data.test.len(), data.classes.len());
    print::text(&format!("{}: {train} training and {test} test images of {classes} classes\n", data.name))
}
