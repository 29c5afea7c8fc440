//! Every crate builds by itself, with the features that it alone asks for.
//!
//! In a build of the whole workspace Cargo unites the features that all crates ask of a dependency. So a
//! crate may use a feature that only its neighbour turned on. Building it alone shows that.

use crate::cargo;
use crate::tally::Tally;
use crate::workspace::{Crate, Workspace};
use anyhow::{Result, bail};

/// Checks each crate alone, then a project that is not ours; goes through all of them even if one fails.
pub fn alone(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut failed = Vec::new();
    for krate in &workspace.crates {
        for features in feature_sets(krate) {
            let mut arguments = vec!["check", "--quiet", "--package", &krate.name];
            arguments.extend(features.as_deref());
            let built = cargo::run(&mut cargo::command(&workspace.root, &arguments)).is_ok();
            let words = arguments[3..].join(" ");
            println!("{words}: {}", if built { "builds alone" } else { "does not build alone" });
            failed.extend(Some(words).filter(|_| !built));
        }
    }
    let outside = ["test", "--package", "towers-tests", "--test", "end_to_end", "--", "outside::"];
    let mut outside = cargo::command(&workspace.root, &outside);
    let passed_before = tally.passed;
    if tally.run(outside.env("TOWERS_ALONE", "1")).is_err() || tally.passed == passed_before {
        failed.push("a project that is not ours".to_owned());
    }
    if !failed.is_empty() {
        bail!(
            "these do not build alone: {}; name each feature in the crate's own manifest",
            failed.join(", ")
        );
    }
    Ok(())
}

/// The sets of features worth a build: the default, and where there are features, none and all of them.
fn feature_sets(krate: &Crate) -> Vec<Option<String>> {
    let mut sets = vec![None];
    if krate.features.iter().any(|feature| feature == "default") {
        sets.push(Some("--no-default-features".to_owned()));
    }
    let others = krate.features.iter().map(String::as_str).filter(|feature| *feature != "default");
    let others: Vec<&str> = others.collect();
    if !others.is_empty() {
        sets.push(Some(format!("--features={}", others.join(","))));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    #[test]
    fn crates_with_features_are_built_with_and_without_them() {
        let mut workspace = fake(&[("a", &[])]);
        let krate = &mut workspace.crates[0];
        let mut sets = |features: &[&str]| {
            krate.features = features.iter().map(|feature| feature.to_string()).collect();
            feature_sets(krate).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>()
        };
        assert_eq!(sets(&[]), [""]);
        assert_eq!(sets(&["serde", "x"]), ["", "--features=serde,x"]);
        assert_eq!(sets(&["default", "serde"]), ["", "--no-default-features", "--features=serde"]);
    }
}
