//! A live view of the run in the terminal, which is restored when the run ends.

mod screen;

use crate::{Error, LiveStatus, Result};
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
use towers_callbacks::{Observer, Progress, printable};

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

/// Gives the terminal back for good, for a process that ends at once. Nothing is drawn after it.
pub fn give_back() {
    std::mem::forget(DRAWING.lock());
    restore();
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
    /// The view shows the folder `run` and perhaps the `address` of its page. Both functions are called by its thread:
    /// `stopping` tells whether the run was asked to stop, and `interrupt` is called for the keys `q` and Ctrl-C.
    ///
    /// # Errors
    /// [`Error::Terminal`] if the terminal can't be prepared.
    pub fn observers(
        run: &Path,
        address: Option<String>,
        status: LiveStatus,
        stopping: impl Fn() -> bool + Send + 'static,
        interrupt: impl Fn() + Send + 'static,
    ) -> Result<[Box<dyn Observer>; 2]> {
        let (printed, ended) = (Lines::default(), Arc::<AtomicBool>::default());
        let lines = Progress::plain(printed.clone(), io::sink());
        let mut tui = Tui { printed: printed.clone(), ended: Arc::clone(&ended), thread: None };
        let mut terminal = ratatui::try_init().map_err(Error::Terminal)?;
        let mut view = View { run: printable(&run.display().to_string()), address, ..View::default() };
        let show = move || {
            while !ended.load(Ordering::Relaxed) {
                view.stopping = stopping();
                view.status = status.now();
                view.log = printable(&printed.text()).lines().map(str::to_owned).collect();
                draw(&mut terminal, &view);
                read_keys(&interrupt);
            }
        };
        tui.thread = Some(Builder::new().name("view".to_owned()).spawn(show).map_err(Error::Terminal)?);
        Ok([Box::new(lines), Box::new(tui)])
    }
}

impl Drop for Tui {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // A view that has panicked does not end the run.
        let _ = self.thread.take().map(JoinHandle::join);
        restore();
        // A closed pipe does not end the run.
        let _ = io::stdout().lock().write_all(printable(&self.printed.text()).as_bytes());
    }
}

impl Observer for Tui {
    fn on_warning(&mut self, warning: &str) -> towers_callbacks::Result<()> {
        let _ = writeln!(self.printed, "warning: {warning}");
        Ok(())
    }
}

/// Draws. A closed terminal does not end the run.
fn draw(terminal: &mut DefaultTerminal, view: &View) {
    let _drawing = DRAWING.lock();
    let _ = terminal.draw(|frame| screen::draw(frame, view));
}

/// Waits for keys until the next drawing. In raw mode, Ctrl-C is a key.
fn read_keys(interrupt: impl Fn()) {
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
            interrupt();
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
