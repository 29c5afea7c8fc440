//! `towers preview`.

use crate::args::PreviewArgs;
use crate::{data, print};
use std::process::ExitCode;
use train::{DataOptions, Preview};

pub fn run(args: PreviewArgs) -> anyhow::Result<ExitCode> {
    let mut augmentation = train::find_recipe(&args.recipe)?.augmentation;
    args.augmentation.apply(&mut augmentation);
    let preview = Preview { samples: args.samples, columns: args.columns, seed: args.seed, zoom: args.zoom };
    preview.check()?;
    let options = DataOptions { limit_train: args.limit.limit_train, ..args.data.options() };
    let data = data::load(&options, false)?;
    train::preview(&augmentation, &data.train, &preview, &args.output)?;
    let Some(folder) = args.save_to_dir else {
        return print::text(&format!("wrote {}\n", args.output.display()));
    };
    let pictures = train::save_pictures(&augmentation, &data.train, &preview, &folder, &args.save_prefix)?;
    print::text(&format!(
        "wrote {} and {pictures} pictures into {}\n",
        args.output.display(),
        folder.display()
    ))
}
