use super::format::{Format, Request};
use crate::Progress;
use crate::{Result, When, memory};
use std::path::Path;
use towers_dataset::{Dataset, Limit};
use towers_pictures::Table;
use towers_rendezvous::{discover, variable};

/// Pictures in files: in class folders, or those of a table of labels.
pub(crate) struct Pictures;

impl Format for Pictures {
    fn path(&self) -> Option<&'static str> {
        Some("a folder of class folders with pictures")
    }

    fn is_at(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn streams(&self) -> bool {
        true
    }

    fn limits(&self) -> bool {
        true
    }

    fn read(&self, Request { set, files, whole, listener }: Request<'_>) -> Result<Dataset> {
        let [height, width, channels] = set.image();
        let pictures = match (&set.labels, &set.train_dir) {
            (None, None) => towers_pictures::Pictures::class_folders(&set.dataset),
            (None, Some(train)) => {
                let (validation, test) = (set.val_dir.as_ref(), set.test_dir.as_ref());
                towers_pictures::Pictures::split_folders(train, validation, test)
            }
            (Some(file), _) => {
                let mut table = Table::new(file).columns(&set.label_columns);
                if let Some(folder) = set.table_folder() {
                    table = table.folder(folder);
                }
                if let Some(separator) = &set.label_separator {
                    table = table.label_separator(separator);
                }
                towers_pictures::Pictures::table(table)
            }
        };
        let pictures = pictures.image_size(height, width).channels(channels);
        let pictures = pictures.resize(set.resize.0).free_memory(memory::available);
        // The limit is applied here: the first pictures of a set that is sorted by class are all of one class.
        let pictures = pictures.limit_train(set.limit_train.map_or(Limit::ALL, |limit| limit.0));
        let pictures = pictures.limit_test(files.limit_test.map_or(Limit::ALL, |limit| limit.0));
        let pictures = pictures.on_demand_above(in_memory(files.stream, memory::available(), neighbours()));
        let told = |progress: towers_pictures::Progress<'_>| listener(Progress::Pictures(progress));
        Ok(pictures.whole(whole).skip_unreadable(set.skip_unreadable).progress(told).read()?)
    }
}

/// The processes of this machine that a launcher started, all of which load the data: at least 1.
fn neighbours() -> u64 {
    discover(variable).ok().flatten().map_or(1, |place| place.local_world as u64)
}

/// The most bytes of pixels to keep in memory: half of the `free` memory, shared among so many processes.
fn in_memory(stream: When, free: Option<u64>, processes: u64) -> u64 {
    match stream {
        When::Auto => free.map_or(u64::MAX, |free| free / 2 / processes),
        When::Always => 0,
        When::Never => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_of_a_machine_share_its_memory() {
        let half = |processes| in_memory(When::Auto, Some(8000), processes);
        assert_eq!([1, 2, 4].map(half), [4000, 2000, 1000]);
        assert_eq!(in_memory(When::Auto, None, 4), u64::MAX);
        assert_eq!([When::Always, When::Never].map(|stream| in_memory(stream, Some(8000), 2)), [0, u64::MAX]);
    }
}
