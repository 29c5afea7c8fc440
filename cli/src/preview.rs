//! `towers preview`.

use crate::args::PreviewArgs;
use crate::{data, print};
use std::process::ExitCode;

pub fn run(args: PreviewArgs) -> anyhow::Result<ExitCode> {
    let recipe = train::recipe(&args.recipe)?;
    let data = data::load(&args.data.options(), false)?;
    train::preview(
        &recipe.augmentation,
        &data.train,
        args.samples,
        args.columns,
        args.seed,
        args.zoom,
        &args.output,
    )?;
    print::text(&format!("wrote {}\n", args.output.display()))
}
