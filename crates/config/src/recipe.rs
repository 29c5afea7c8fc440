//! The built-in recipes, and the one of a run that names none.

use crate::DataSet;

/// The built-in recipes, as names and texts.
pub const RECIPES: [(&str, &str); 11] = [
    ("minigooglenet", include_str!("recipes/minigooglenet.toml")),
    ("keras-cnn", include_str!("recipes/keras-cnn.toml")),
    ("slice-batch", include_str!("recipes/slice-batch.toml")),
    ("mirrored", include_str!("recipes/mirrored.toml")),
    ("resnet18", include_str!("recipes/resnet18.toml")),
    ("resnet18-group-norm", include_str!("recipes/resnet18-group-norm.toml")),
    ("airbench94", include_str!("recipes/airbench94.toml")),
    ("airbench94-muon", include_str!("recipes/airbench94-muon.toml")),
    ("mnist", include_str!("recipes/mnist.toml")),
    ("adam", include_str!("recipes/adam.toml")),
    ("quick", include_str!("recipes/quick.toml")),
];

/// The names of the built-in recipes.
pub(crate) fn names() -> [&'static str; RECIPES.len()] {
    RECIPES.map(|(name, _)| name)
}

/// The name and the text of a built-in recipe; `_` stands for `-`, as in the names of networks.
pub(crate) fn built_in(name: &str) -> Option<(&'static str, &'static str)> {
    let name = name.replace('_', "-");
    RECIPES.into_iter().find(|(known, _)| *known == name)
}

/// The recipe of a run that names none, and why it is not that of the tutorial, `minigooglenet`.
///
/// The numbers of that recipe are for its network and 50,000 images. A network from a file (`model`, or that of
/// `weights`) and pictures in a folder (`dataset`) get `adam`, which trains most networks, few pictures too. MNIST and
/// Fashion-MNIST get `mnist`.
///
/// ```
/// assert_eq!(towers_config::default_recipe(None, None, Some("cifar10")), ("minigooglenet", None));
/// let (name, why) = towers_config::default_recipe(Some("cnn.keras"), None, Some("pets"));
/// assert_eq!((name, why), ("adam", Some("for a network of your own")));
/// ```
pub fn default_recipe(
    model: Option<&str>,
    weights: Option<&str>,
    dataset: Option<&str>,
) -> (&'static str, Option<&'static str>) {
    let own_network = match model {
        Some(model) => towers_models::built_in(model).is_none(),
        None => weights.is_some(),
    };
    if own_network {
        return ("adam", Some("for a network of your own"));
    }
    let data = DataSet::default();
    DataSet { dataset: dataset.map_or(data.dataset, str::to_owned), ..data }.default_recipe()
}
