//! `towers recipes`: the built-in recipes, and recipes as TOML.

use crate::args::RecipesArgs;
use crate::print;
use std::process::ExitCode;
use towers_config::recipes;

pub fn run(args: RecipesArgs) -> anyhow::Result<ExitCode> {
    let all = recipes();
    let Some(name) = args.name else {
        let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        return print::lines(all.iter().map(|(name, about)| format!("{name:width$}  {about}")).collect());
    };
    let recipe = towers_config::find_recipe(&name)?;
    let text = towers_config::write_recipe(&recipe)?;
    let about = all.iter().find(|(known, _)| *known == name.replace('_', "-"));
    let head = about.map_or(String::new(), |(_, about)| format!("# {about}\n"));
    print::text(&format!("{head}{text}"))
}
