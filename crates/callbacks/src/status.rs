use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When a run began and how it ended: `status.json` in the run directory.
///
/// The program that trains writes it, since observers don't see a failure. A run without an end is running, or was
/// killed.
///
/// ```
/// use towers_callbacks::Status;
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// let status = Status::begin(run, false, 1)?;
/// assert_eq!(Status::read(run)?.and_then(|status| status.end), None);
/// status.finish(run, "stopped", Some("the time of 60 s is over".into()))?;
/// assert_eq!(Status::read(run)?.and_then(|status| status.end).as_deref(), Some("stopped"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The number of processes that train together; 0 in runs of earlier versions.
    #[serde(default)]
    pub processes: usize,
    /// The time of the first start, in UTC: `2026-11-26T13:40:00Z`.
    pub started: String,
    /// The time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// How it ended: `done`, `stopped` (by a callback), `interrupted`, `failed`, or `incomplete` (processes were lost).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Why it was stopped or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Status {
    /// The file in a run directory.
    pub const FILE: &str = "status.json";

    /// Writes that a run begins now, by so many processes. One that is `resumed` keeps the time of its first start.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be written.
    pub fn begin(run: &Path, resumed: bool, processes: usize) -> Result<Self> {
        let before = if resumed { Status::read(run).ok().flatten() } else { None };
        let started = before.map_or_else(now, |status| status.started);
        let status = Status { started, processes, ended: None, end: None, reason: None };
        status.write(run)?;
        Ok(status)
    }

    /// Writes how the run has ended.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be written.
    pub fn finish(self, run: &Path, end: &str, reason: Option<String>) -> Result<()> {
        Status { ended: Some(now()), end: Some(end.to_owned()), reason, ..self }.write(run)
    }

    /// Reads the file. `None` if there is none, as in runs of earlier versions.
    ///
    /// # Errors
    /// [`Error::File`] if it can't be read.
    pub fn read(run: &Path) -> Result<Option<Self>> {
        let path = run.join(Self::FILE);
        match towers_files::read_text(&path) {
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            text => {
                let status = serde_json::from_str(&text?).map_err(std::io::Error::from);
                status.map(Some).map_err(Error::io("read", &path))
            }
        }
    }

    fn write(&self, run: &Path) -> Result<()> {
        write_json(&run.join(Self::FILE), self)
    }
}

/// Replaces a file by a value as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::io("write", path)(error.into()))?;
    Ok(towers_files::write(path, (text + "\n").as_bytes())?)
}

/// The time now, in UTC.
pub(crate) fn now() -> String {
    utc(since_1970().as_secs())
}

/// The time now, in UTC: `2026-11-26T13:40:00.250Z`.
pub(crate) fn now_in_milliseconds() -> String {
    let since = since_1970();
    format!("{}.{:03}Z", utc(since.as_secs()).trim_end_matches('Z'), since.subsec_millis())
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Seconds since 1970 as date and time. The date by H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Counted from March.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn a_resumed_run_keeps_its_start_and_loses_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        assert_eq!(Status::read(run).unwrap(), None);
        let (started, end) = ("2001-02-03T04:05:06Z".to_owned(), Some("interrupted".to_owned()));
        let before = Status { started, processes: 1, ended: None, end, reason: None };
        before.write(run).unwrap();
        let resumed = Status::begin(run, true, 3).unwrap();
        assert_eq!(resumed, Status { processes: 3, end: None, ..before });
        resumed.clone().finish(run, "done", None).unwrap();
        let done = Status::read(run).unwrap().unwrap();
        assert_eq!((done.started, done.end.as_deref()), (resumed.started, Some("done")));
        assert!(done.ended.is_some_and(|ended| ended.as_str() > "2026"));
        std::fs::write(run.join(Status::FILE), "{").unwrap();
        assert!(Status::read(run).unwrap_err().to_string().contains("status.json"));
    }
}
