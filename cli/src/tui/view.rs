//! The content of the view: numbers and texts, no terminal.

use callbacks::RunStatus;

/// All content of the screen.
#[derive(Default)]
pub struct View {
    /// The run's folder.
    pub run: String,
    /// The address of the page of `--serve`.
    pub address: Option<String>,
    pub status: RunStatus,
    /// The lines that a run without the view would print.
    pub log: Vec<String>,
    /// Whether the run was asked to stop.
    pub stopping: bool,
}
