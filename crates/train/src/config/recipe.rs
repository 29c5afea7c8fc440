//! The built-in recipes.

/// The built-in recipes, as names and texts.
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
