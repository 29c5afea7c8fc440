//! `towers preview`.

use crate::args::PreviewArgs;
use crate::output::folder_must_exist;
use crate::{data, print};
use std::process::ExitCode;
use train::{DataOptions, Preview};

pub fn run(args: PreviewArgs) -> anyhow::Result<ExitCode> {
    let train::Config { mut augmentation, data: of_recipe, .. } = train::find_recipe(&args.recipe)?;
    args.augmentation.apply(&mut augmentation);
    let preview = Preview { samples: args.samples, columns: args.columns, seed: args.seed, zoom: args.zoom };
    preview.check()?;
    folder_must_exist("--output", &args.output)?;
    args.save_to_dir.as_deref().map_or(Ok(()), |folder| folder_must_exist("--save-to-dir", folder))?;
    let mut options = DataOptions { limit_train: args.limit.limit_train, ..args.data.options() };
    if let Some(size) = args.size.image_size {
        options.image_size = size;
    } else if std::path::Path::new(&options.dataset).is_dir() {
        options.image_size = of_recipe.image_size;
    }
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
