//! A recipe in TOML with a network of its own: read, checked, changed and written again.

use towers_config::{find_recipe, read_recipe, write_recipe};

const RECIPE: &str = r#"
like = "quick"
epochs = 20
optimizer = "adam"

[[layer]]
class = "Conv2D"
filters = 8
kernel_size = 3
activation = "relu"

[[layer]]
class = "GlobalAveragePooling2D"

[[layer]]
class = "Dense"
"#;

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("pets.toml");
    std::fs::write(&file, RECIPE)?;
    let mut config = find_recipe(&file.to_string_lossy())?;
    let network = config.network([64, 64, 3], 2)?;
    println!("{}", network.summary());
    assert_eq!(
        (config.recipe.as_str(), network.summary().trainable),
        ("pets", 3 * 3 * 3 * 8 + 8 + 8 * 2 + 2)
    );

    // As a flag of a command line does.
    config.set_text("augmentation.rotation_range", &["15"])?;
    config.check()?;
    let text = write_recipe(&config)?;
    println!("{text}");
    assert_eq!(read_recipe(&text, "pets")?.training, config.training);

    let error = read_recipe(&RECIPE.replace("epochs", "epoch"), "pets").expect_err("a wrong key").to_string();
    println!("{error}");
    assert!(error.contains("line 3") && error.ends_with("did you mean `epochs`?"));
    Ok(())
}
