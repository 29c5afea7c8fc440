//! `towers recipes`: the built-in recipes, and recipes as TOML.

use crate::args::RecipesArgs;
use crate::print;
use std::process::ExitCode;
use train::RECIPES;

pub fn run(args: RecipesArgs) -> anyhow::Result<ExitCode> {
    let Some(name) = args.name else {
        let width = RECIPES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        return print::lines(RECIPES.iter().map(|(name, what)| format!("{name:width$}  {what}")).collect());
    };
    let text = train::write_recipe(&train::find_recipe(&name)?)?;
    let source = RECIPES.iter().find(|(known, _)| *known == name);
    let head = source.map_or(String::new(), |(_, what)| format!("# {what}\n"));
    print::text(&format!("{head}{text}"))
}
