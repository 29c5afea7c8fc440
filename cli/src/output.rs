//! Where a run's files go.

use crate::error::usage;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of runs that were given no place of their own.
const RUNS: &str = "runs";

/// A run's folder and, if one was asked for, a picture of the curves.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    pub run: PathBuf,
    pub picture: Option<PathBuf>,
}

impl Output {
    /// What `--output` means for a new run of `recipe`: a picture if it ends as one, else the run's folder.
    pub fn new(output: Option<&Path>, recipe: &str) -> Self {
        match output {
            Some(path) if is_picture(path) => {
                Output { run: unused(Path::new(RUNS), recipe), picture: Some(path.to_owned()) }
            }
            Some(path) => Output { run: path.to_owned(), picture: None },
            None => Output { run: unused(Path::new(RUNS), recipe), picture: None },
        }
    }

    /// Refuses a folder that holds a run already.
    pub fn check_unused(&self) -> anyhow::Result<()> {
        let run = self.run.display();
        if self.run.join("config.json").exists() {
            let remedy = format!("go on with it by --resume {run}, or choose another --output");
            return Err(usage(format!("{run} already holds a run; {remedy}")));
        }
        Ok(())
    }

    /// Makes the folder.
    pub fn create(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.run).with_context(|| format!("can't make the folder {}", self.run.display()))
    }
}

pub fn is_picture(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_ascii_lowercase());
    extension.is_some_and(|e| e == "png" || e == "svg")
}

/// `RECIPE-N` with the first N for which there is nothing.
fn unused(runs: &Path, recipe: &str) -> PathBuf {
    (1..)
        .map(|n| runs.join(format!("{recipe}-{n}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| runs.join(recipe))
}

/// The run among `runs/` that holds `what` and was touched last.
pub fn newest_run(what: &str) -> anyhow::Result<PathBuf> {
    let runs = fs::read_dir(RUNS).into_iter().flatten().flatten().map(|entry| entry.path());
    let touched = |run: &PathBuf| fs::metadata(run.join(what)).and_then(|about| about.modified()).ok();
    let newest = runs.filter_map(|run| Some((touched(&run)?, run))).max();
    newest.map(|(_, run)| run).with_context(|| format!("there is no run in {RUNS}/; name the run's folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_or_a_folder() {
        let plot = Output::new(Some(Path::new("out/multi_gpu.PNG")), "minigooglenet");
        assert_eq!(plot.picture, Some("out/multi_gpu.PNG".into()));
        assert!(plot.run.starts_with("runs"));
        let folder = Output::new(Some(Path::new("runs/a")), "minigooglenet");
        assert_eq!(folder, Output { run: "runs/a".into(), picture: None });
    }
}
