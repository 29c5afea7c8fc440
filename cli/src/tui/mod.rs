//! `--tui`: a live view of the run in the terminal, which is restored when the run ends.

mod screen;

use crate::interrupt::end_at_once;
use crate::print;
use callbacks::printable;
use callbacks::{LiveStatus, Progress, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use screen::View;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use train::{Observer, StopFlag};

/// The time between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Held while something is drawn, and for good by a process that ends: nothing is drawn after it has given the terminal
/// back.
static DRAWING: Mutex<()> = Mutex::new(());

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
        let _drawing = DRAWING.lock();
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
///
/// A thread of its own draws and reads keys. So both go on while data are prepared, a kernel is compiled, or another
/// replica keeps this one waiting.
pub struct Tui {
    printed: Lines,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
        let (printed, ended) = (Lines::default(), Arc::<AtomicBool>::default());
        let lines = Progress::plain(printed.clone(), io::sink());
        let view = View { run: printable(&run.display().to_string()), address, ..View::default() };
        let mut tui = Tui { printed: printed.clone(), ended: Arc::clone(&ended), thread: None };
        let mut screen = Screen { terminal: ratatui::try_init()?, view, status, printed, stop };
        let show = move || {
            while !ended.load(Ordering::Relaxed) {
                screen.draw();
                screen.read_keys();
            }
        };
        tui.thread = Some(Builder::new().name("view".to_owned()).spawn(show)?);
        Ok([Box::new(lines), Box::new(tui)])
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A view that has panicked does not end the run.
        let _ = self.thread.take().map(JoinHandle::join);
        restore();
        let _ = print::text(&self.printed.text());
    }
}

impl Observer for Tui {
    fn on_warning(&mut self, warning: &str) -> Result<()> {
        let _ = writeln!(self.printed, "warning: {warning}");
        Ok(())
    }
}

/// The terminal and what it shows.
struct Screen {
    terminal: DefaultTerminal,
    view: View,
    status: LiveStatus,
    printed: Lines,
    stop: StopFlag,
}

impl Screen {
    /// Draws. A closed terminal does not end the run.
    fn draw(&mut self) {
        self.view.stopping = self.stop.is_raised();
        self.view.status = self.status.now();
        self.view.log = printable(&self.printed.text()).lines().map(str::to_owned).collect();
        let _drawing = DRAWING.lock();
        let _ = self.terminal.draw(|frame| screen::draw(frame, &self.view));
    }

    /// Waits for keys until the next drawing. In raw mode, Ctrl-C is a key.
    fn read_keys(&self) {
        let next = Instant::now() + DRAW_EVERY;
        loop {
            let left = next.saturating_duration_since(Instant::now());
            match event::poll(left) {
                Ok(true) => {}
                Ok(false) => return,
                // Without a terminal there are no keys.
                Err(_) => return sleep(left),
            }
            let Ok(Event::Key(key)) = event::read() else { continue };
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            let asked = key.code == KeyCode::Char('q') || (control && key.code == KeyCode::Char('c'));
            if asked && key.kind == KeyEventKind::Press {
                interrupt(&self.stop);
            }
        }
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
