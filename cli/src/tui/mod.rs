//! `--tui`: a live view of the run in the terminal, which is restored when the run ends.

mod screen;

use crate::interrupt::end_at_once;
use crate::print;
use callbacks::{LiveStatus, Progress, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use screen::View;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use train::printable;
use train::{EpochRecord, Flow, Observer, RunInfo, Snapshot, StepInfo, StopFlag, TrainState};

/// The least time between two drawings; keys are read at every step.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Whether standard output can show the view.
pub fn is_possible() -> bool {
    io::stdout().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        && is_in_foreground()
}

/// Whether this process may draw on the terminal. The terminal stops background processes that draw, such as
/// those of a launcher.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    use nix::unistd::{getpgrp, tcgetpgrp};
    tcgetpgrp(io::stdout()).is_ok_and(|foreground| foreground == getpgrp())
}

#[cfg(not(unix))]
fn is_in_foreground() -> bool {
    true
}

/// Handles Ctrl-C, SIGTERM and `q` while there is a view. The first one stops the run after the step; the
/// second, or one before the run, ends it immediately.
pub fn interrupt(stop: &StopFlag) {
    if stop.is_raised() || !stop.is_watched() {
        restore();
        end_at_once();
    }
    stop.raise();
}

/// Gives the terminal back, and shows its cursor again, which drawing has hidden.
fn restore() {
    ratatui::restore();
    let _ = execute!(io::stdout(), Show);
}

/// Shows the run in the terminal. Afterwards the terminal shows the lines of a run without the view.
pub struct Tui {
    terminal: DefaultTerminal,
    view: View,
    status: LiveStatus,
    printed: Lines,
    stop: StopFlag,
    drawn: Option<Instant>,
}

impl Tui {
    /// Takes over the terminal; dropping this restores it. The other observer comes before this one: it writes the
    /// lines that a run without the view prints.
    ///
    /// # Errors
    /// If the terminal can't be prepared.
    pub fn observers(
        run: &Path,
        address: Option<String>,
        status: LiveStatus,
        stop: StopFlag,
    ) -> io::Result<[Box<dyn Observer>; 2]> {
        let printed = Lines::default();
        let lines = Progress::plain(printed.clone(), io::sink());
        let view = View { run: printable(&run.display().to_string()), address, ..View::default() };
        let tui = Tui { terminal: ratatui::try_init()?, view, status, printed, stop, drawn: None };
        Ok([Box::new(lines), Box::new(tui)])
    }

    /// Draws, if enough time has passed, and handles keys. A closed terminal does not end the run.
    fn show(&mut self, at_once: bool) {
        self.keys();
        if at_once || self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY) {
            self.view.status = self.status.now();
            self.view.log = printable(&self.printed.text()).lines().map(str::to_owned).collect();
            let _ = self.terminal.draw(|frame| screen::draw(frame, &self.view));
            self.drawn = Some(Instant::now());
        }
    }

    /// In raw mode, Ctrl-C is a key.
    fn keys(&mut self) {
        while event::poll(Duration::ZERO).unwrap_or(false) {
            let Ok(Event::Key(key)) = event::read() else { continue };
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            let asked = key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c'));
            if asked && key.kind == KeyEventKind::Press {
                interrupt(&self.stop);
            }
        }
        self.view.stopping = self.stop.is_raised();
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        restore();
        let _ = print::text(&self.printed.text());
    }
}

impl Observer for Tui {
    fn on_read(&mut self, _: usize, _: usize) -> Result<()> {
        self.show(false);
        Ok(())
    }

    fn on_begin(&mut self, _: &RunInfo<'_>) -> Result<()> {
        self.show(true);
        Ok(())
    }

    fn on_step(&mut self, _: &StepInfo) -> Result<()> {
        self.show(false);
        Ok(())
    }

    fn on_evaluate(&mut self, _: usize, _: usize) -> Result<()> {
        self.show(false);
        Ok(())
    }

    fn on_warning(&mut self, warning: &str) -> Result<()> {
        let _ = writeln!(self.printed, "warning: {warning}");
        Ok(())
    }

    fn on_epoch_end(&mut self, _: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.show(true);
        Ok(Flow::Continue)
    }
}

/// Text that is printed later.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
