//! Makes two runs, one of which is refused, and lists what is left.

use towers_callbacks::Status;
use towers_runs::{RunFolder, RunSummary, SortKey, list};

#[cfg_attr(test, test)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let config = towers_config::recipe("quick")?.with(|config| config.changed = vec!["epochs".to_owned()]);
    for (name, is_refused) in [("first", false), ("second", true)] {
        let mut folder = RunFolder::new(place.path().join(name));
        folder.check()?;
        folder.create()?;
        towers_config::save_config(&config, folder.path())?;
        let status = Status::begin(folder.path(), folder.continues(), 1)?;
        match is_refused {
            true => folder.take_back(),
            false => status.finish(folder.path(), "done", None)?,
        }
    }
    let runs = list(place.path(), SortKey::When)?;
    for RunSummary { run, recipe, changed, end, .. } in &runs {
        println!("{run}: {recipe:?}, but {changed:?}, {end:?}");
    }
    assert!(runs.len() == 1 && runs[0].run.ends_with("first") && runs[0].end.as_deref() == Some("done"));
    // Its figures are not there, so another run may take the folder.
    RunFolder::new(place.path().join("first")).check()?;
    Ok(())
}
