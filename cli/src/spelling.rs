//! Options in messages: as flags.

use towers_config::tables;

/// The spelling of an option in messages: its flag, or that of its table. Another parameter, such as the samples of a preview, has a
/// flag of its own name.
pub fn flag_of(key: &str) -> String {
    let own = |key| towers_options::find(tables(), key);
    let of_table = || {
        let (table, option) = key.split_once('.')?;
        Some(format!("{}: {option}", own(table)?.1.flag()?))
    };
    match (key, own(key)) {
        ("lr_scaling.warmup_epochs", _) => "--warmup-epochs".to_owned(),
        ("recipe", _) => "--recipe".to_owned(),
        ("plot", _) => "--output".to_owned(),
        (_, Some((_, option))) if option.flag().is_some() => option.flag().unwrap_or_default().to_owned(),
        (_, Some(_)) => of_table().unwrap_or_else(|| format!("`{key}`")),
        (_, None) => format!("--{}", key.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::flag_of;

    #[test]
    fn every_option_has_the_spelling_of_its_flag() {
        for (key, expected) in [
            ("batch_size", "--batch-size"),
            ("checkpoints.save_best", "--save-best"),
            ("early_stop.min_delta", "--early-stop: min_delta"),
            ("augmentation.random_crop", "--random-crop"),
            ("lr_scaling.warmup_epochs", "--warmup-epochs"),
            ("plot", "--output"),
            ("drop_last", "`drop_last`"),
            ("samples", "--samples"),
        ] {
            assert_eq!(flag_of(key), expected);
        }
    }
}
