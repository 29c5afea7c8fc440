//! `towers preview`.

use crate::args::PreviewArgs;
use crate::configure::without_random_steps;
use crate::{data, print};
use std::process::ExitCode;
use towers_config::{Config, Preview};
use towers_runs::folder_must_exist;

pub fn run(args: PreviewArgs) -> anyhow::Result<ExitCode> {
    let of_recipe = towers_config::find_recipe(&args.recipe)?.training;
    let mut config = Config::default().with(|config| config.training.augmentation = of_recipe.augmentation);
    if args.no_augmentation {
        config.training.augmentation = without_random_steps(&config.training.augmentation);
    }
    args.options.apply(&mut config)?;
    let (augmentation, mut set) = (config.training.augmentation, config.training.data);
    if !args.options.has("data.image_size") && set.is_of_files() {
        set.image_size = of_recipe.data.image_size;
    }
    let preview = Preview { samples: args.samples, columns: args.columns, seed: args.seed, zoom: args.zoom };
    preview.check()?;
    folder_must_exist("output", &args.output)?;
    args.save_to_dir.as_deref().map_or(Ok(()), |folder| folder_must_exist("save_to_dir", folder))?;
    let data = data::load(&set, &config.placement.files, false)?;
    let save = args.save_to_dir.as_deref().map(|folder| (folder, args.save_prefix.as_str()));
    let pictures = towers_config::preview(&augmentation, data.train, &preview, &args.output, save)?;
    let output = args.output.display();
    print::text(&match save {
        None => format!("wrote {output}\n"),
        Some((folder, _)) => format!("wrote {output} and {pictures} pictures into {}\n", folder.display()),
    })
}
