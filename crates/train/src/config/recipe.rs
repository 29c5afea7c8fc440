use super::file::{about, read};
use crate::{Config, Error, Result};
use options::hint;

/// The built-in recipes: their names and their texts.
pub const RECIPES: [(&str, &str); 8] = [
    ("minigooglenet", include_str!("recipes/minigooglenet.toml")),
    ("keras-cnn", include_str!("recipes/keras-cnn.toml")),
    ("slice-batch", include_str!("recipes/slice-batch.toml")),
    ("mirrored", include_str!("recipes/mirrored.toml")),
    ("resnet18", include_str!("recipes/resnet18.toml")),
    ("resnet18-group-norm", include_str!("recipes/resnet18-group-norm.toml")),
    ("airbench94", include_str!("recipes/airbench94.toml")),
    ("quick", include_str!("recipes/quick.toml")),
];

/// The names of the built-in recipes.
pub(super) fn names() -> [&'static str; RECIPES.len()] {
    RECIPES.map(|(name, _)| name)
}

/// The built-in recipes, each with a sentence about it.
pub fn recipes() -> Vec<(&'static str, String)> {
    RECIPES.into_iter().map(|(name, text)| (name, about(text).unwrap_or_default())).collect()
}

/// The built-in recipe called `name`.
///
/// # Errors
/// [`Error::Option`] for a name that is not among [`RECIPES`].
pub fn recipe(name: &str) -> Result<Config> {
    let found = RECIPES.into_iter().find(|(known, _)| *known == name);
    let unknown = || Error::Option {
        option: "`recipe`",
        value: format!("`{name}`"),
        accepted: format!(
            "one of {}, a file FILE.toml, or the folder of a run{}",
            names().join(", "),
            hint(name, names())
        ),
    };
    let (name, text) = found.ok_or_else(unknown)?;
    read(text, name)
}
