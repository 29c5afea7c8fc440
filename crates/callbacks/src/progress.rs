use crate::{
    EpochRecord, Flow, LogFormat, LogLine, Observer, Result, RunInfo, RunTime, Snapshot, StepInfo,
    TrainState, figure,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// The seconds between two drawings of the bar.
const BAR_EVERY: f64 = 0.05;
const LINE_EVERY: f64 = 30.0;

/// In a terminal with fewer columns the figures leave no room for a bar.
const COLUMNS_FOR_BAR: u16 = 100;

/// Prints the progress of a run, in Keras' format.
///
/// Standard output gets the two lines per epoch that Keras prints with `verbose=2`:
///
/// ```text
/// Epoch 3/70
///  - 63s - loss: 0.8554 - acc: 0.6997 - val_loss: 1.5473 - val_acc: 0.5592
/// ```
///
/// Seconds are whole from ten on; below, they have one decimal. While an epoch runs, a terminal shows a bar
/// on standard error, which is cleared before the second line. Without a terminal, standard error gets a line
/// every 30 seconds:
///
/// ```text
/// 312/1563 [=====>................] - ETA: 12s - 71 img/s - loss: 1.1012 - acc: 0.6043 - run: 14m<2h03m
/// Epoch 3/70: 312/1563 - ETA: 12s - 71 img/s - loss: 1.1012 - acc: 0.6043 - run: 14m<2h03m
/// ```
///
/// `ETA` is the time left in the epoch. The end, in tqdm's form, is the time that the whole run has taken, with
/// the parts before a resume, and the time that it still will ([`RunTime`]). A terminal with fewer than 100
/// columns shows the figures that fit, without the bar. Before the run, a data set in files that is read for the first time
/// has such a bar, and such lines:
///
/// ```text
/// 40960/100000 [=====>................] - ETA: 1:12 - reading the pictures
/// 40960/100000 - ETA: 1:12 - reading the pictures
/// ```
///
/// With [`LogFormat::Json`] each line is an object: the events are `start`, `note`, `reading`, `epoch_begin`, `progress`,
/// `warning` and `epoch`. They go to the same streams.
///
/// No error of the output (a closed pipe, a full disk) ends a run.
///
/// ```
/// use towers_callbacks::{Observer, Progress};
///
/// let for_people: Box<dyn Observer> = Box::new(Progress::new(true));
/// let into_memory = Progress::plain(Vec::new(), std::io::sink());
/// ```
pub struct Progress<O = io::Stdout, E = io::Stderr> {
    out: O,
    live: Live<E>,
    format: LogFormat,
    epochs: u64,
    steps_per_epoch: u64,
    /// The epoch at which this run began, and its steps and samples done before.
    resumed: Done,
    /// The same for the current epoch.
    before: Done,
    time: RunTime,
    /// When the reading of images in files began.
    reading: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Done {
    epoch: u64,
    steps: u64,
    samples: u64,
}

/// The display while an epoch runs, and the second of the epoch of its last line.
enum Live<E> {
    Bar { bar: ProgressBar, last: f64, columns: u16 },
    Lines { err: E, last: f64 },
}

impl Progress {
    /// Prints to standard output and standard error, with a bar if `bar` is true and standard error is a
    /// suitable terminal.
    pub fn new(bar: bool) -> Self {
        let able = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if bar && able {
            let (_, columns) = console::Term::stderr().size();
            Progress::bar(io::stdout(), ProgressDrawTarget::stderr(), columns)
        } else {
            Progress::plain(io::stdout(), io::stderr())
        }
    }
}

impl<O: Write, E: Write> Progress<O, E> {
    /// Plain lines: those of the epochs to `out`, the others to `err`.
    pub fn plain(out: O, err: E) -> Self {
        Progress::with(out, Live::Lines { err, last: 0.0 })
    }

    /// Prints lines of another form. JSON has no bar.
    pub fn form(self, format: LogFormat) -> Self {
        Progress { format, ..self }
    }

    fn bar(out: O, target: ProgressDrawTarget, columns: u16) -> Self {
        // An error of the run clears its bar.
        let bar = ProgressBar::with_draw_target(None, target).with_finish(ProgressFinish::AndClear);
        Progress::with(out, Live::Bar { bar, last: 0.0, columns })
    }

    fn with(out: O, live: Live<E>) -> Self {
        Progress {
            out,
            live,
            format: LogFormat::Text,
            epochs: 0,
            steps_per_epoch: 0,
            resumed: Done::default(),
            before: Done::default(),
            time: RunTime::default(),
            reading: None,
        }
    }

    /// The time left in the epoch, the throughput, the figures so far, and the time of the run.
    fn figures(&mut self, step: &StepInfo) -> String {
        self.time.step(step);
        let samples = step.samples.saturating_sub(self.before.samples) as f64;
        let eta = duration(self.time.left_in_epoch().unwrap_or(0.0));
        let [elapsed, left] = [self.time.elapsed(), self.time.left().unwrap_or(0.0)].map(RunTime::words);
        let rate = if step.seconds > 0.0 { samples / step.seconds } else { 0.0 };
        let digits = usize::from(rate < 10.0);
        let of_step = |name| figure(step.metrics.get(name).unwrap_or(f64::NAN));
        let parts = [
            format!("- ETA: {eta}"),
            format!("- {rate:.digits$} img/s"),
            format!("- loss: {}", of_step("loss")),
            format!("- acc: {}", of_step("acc")),
            format!("- run: {elapsed}<{left}"),
        ];
        let head = format!("{}/{} ", step.steps_done, step.steps_per_epoch).len();
        let room = match self.live {
            Live::Bar { columns, .. } if columns < COLUMNS_FOR_BAR => {
                usize::from(columns).saturating_sub(head)
            }
            _ => usize::MAX,
        };
        fitting(parts.map(Some), room)
    }
}

/// The figures that fit into so many columns, in their order. The loss stays longest.
fn fitting(mut parts: [Option<String>; 5], room: usize) -> String {
    let joined = |parts: &[Option<String>; 5]| parts.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    for dropped in [4, 1, 3, 0] {
        if joined(&parts).len() <= room {
            break;
        }
        parts[dropped] = None;
    }
    joined(&parts)
}

/// Errors are ignored on purpose: a closed pipe or a full disk should not end a run.
fn say(out: &mut impl Write, format: LogFormat, line: &LogLine) {
    let _ = out.write_all(line.form(format).as_bytes()).and_then(|()| out.flush());
}

/// The duration of an epoch.
fn seconds(seconds: f64) -> String {
    if seconds < 9.95 { format!("{seconds:.1}s") } else { format!("{seconds:.0}s") }
}

/// The remaining time in Keras' format: `12s`, `1:02`, `1:02:03`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    let (h, m, s) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (h, m) {
        (0, 0) => format!("{s}s"),
        (0, _) => format!("{m}:{s:02}"),
        _ => format!("{h}:{m:02}:{s:02}"),
    }
}

/// The line of an epoch on a terminal with so many columns.
fn bar_for(columns: u16) -> &'static str {
    if columns >= COLUMNS_FOR_BAR { "{pos}/{len} [{wide_bar}] {msg}" } else { "{pos}/{len} {wide_msg}" }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file, and a test draws them.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=>.")
}

impl<O: Write + Send, E: Write + Send> Observer for Progress<O, E> {
    fn on_read(&mut self, done: usize, all: usize) -> Result<()> {
        if done == 0 {
            self.reading = None;
        }
        let seconds = self.reading.get_or_insert_with(Instant::now).elapsed().as_secs_f64();
        let eta = match done {
            0 => "?".to_owned(),
            _ => duration(seconds * all.saturating_sub(done) as f64 / done as f64),
        };
        let figures = format!("- ETA: {eta} - reading the pictures");
        match &mut self.live {
            Live::Bar { bar, .. } if done >= all => bar.finish_and_clear(),
            Live::Bar { bar, columns, .. } => {
                if done == 0 {
                    bar.set_style(style(bar_for(*columns)));
                    bar.set_length(all as u64);
                    bar.reset();
                }
                bar.set_message(figures);
                bar.set_position(done as u64);
            }
            Live::Lines { last, .. } if done == 0 => *last = 0.0,
            Live::Lines { err, last } if seconds - *last >= LINE_EVERY => {
                *last = seconds;
                let line = LogLine::info("reading", format!("{done}/{all} {figures}"));
                say(err, self.format, &line.with("done", done).with("all", all));
            }
            Live::Lines { .. } => {}
        }
        Ok(())
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        self.epochs = run.epochs;
        let TrainState { epochs_done, partial, .. } = run.state;
        self.resumed = Done { epoch: epochs_done + 1, steps: partial.steps, samples: partial.samples };
        self.steps_per_epoch = run.steps_per_epoch;
        self.time = RunTime::new(run);
        let RunInfo { train_samples, val_samples, devices, .. } = run;
        let head =
            format!("Train on {train_samples} samples, validate on {val_samples} samples, on {devices}");
        let head = LogLine::info("start", head).with("recipe", run.recipe).with("model", run.model);
        let head = head.with("train_samples", *train_samples).with("val_samples", *val_samples);
        let head = head.with("replicas", run.replicas).with("devices", devices.as_str());
        let head = head.with("epochs", run.epochs).with("epochs_done", *epochs_done);
        say(&mut self.out, self.format, &head.with("steps_per_epoch", run.steps_per_epoch));
        for note in &run.notes {
            say(&mut self.out, self.format, &LogLine::info("note", note));
        }
        Ok(())
    }

    fn on_epoch_begin(&mut self, epoch: u64) -> Result<()> {
        let fresh = Done { epoch, ..Done::default() };
        self.before = if self.resumed.epoch == epoch { self.resumed } else { fresh };
        let line = LogLine::info("epoch_begin", format!("Epoch {epoch}/{}", self.epochs));
        say(&mut self.out, self.format, &line.with("epoch", epoch).with("epochs", self.epochs));
        match &mut self.live {
            Live::Bar { bar, last, columns } => {
                bar.set_style(style(bar_for(*columns)));
                bar.set_length(self.steps_per_epoch);
                bar.set_message("");
                bar.reset();
                *last = 0.0;
            }
            Live::Lines { last, .. } => *last = 0.0,
        }
        Ok(())
    }

    fn on_step(&mut self, step: &StepInfo) -> Result<()> {
        let (Live::Bar { last, .. } | Live::Lines { last, .. }) = &self.live;
        let every = if matches!(self.live, Live::Bar { .. }) { BAR_EVERY } else { LINE_EVERY };
        if step.seconds - last < every {
            return Ok(());
        }
        let figures = self.figures(step);
        match &mut self.live {
            Live::Bar { bar, last, .. } => {
                *last = step.seconds;
                bar.set_message(figures);
                bar.set_position(step.steps_done);
            }
            Live::Lines { err, last } => {
                *last = step.seconds;
                let (epoch, epochs) = (step.epoch, step.epochs);
                let (done, all) = (step.steps_done, step.steps_per_epoch);
                let line =
                    LogLine::info("progress", format!("Epoch {epoch}/{epochs}: {done}/{all} {figures}"));
                let line = line.with("epoch", epoch).with("epochs", epochs).with("steps_done", done);
                let line =
                    line.with("steps_per_epoch", all).with_all(step.metrics.iter()).with("lr", step.lr);
                say(
                    err,
                    self.format,
                    &line.with("seconds", step.seconds).with("seconds_left", self.time.left()),
                );
            }
        }
        Ok(())
    }

    fn on_evaluate(&mut self, done: usize, all: usize) -> Result<()> {
        if let Live::Bar { bar, .. } = &self.live {
            bar.set_style(style("{msg}"));
            bar.set_message(format!("evaluating {done}/{all}"));
        }
        Ok(())
    }

    fn on_warning(&mut self, warning: &str) -> Result<()> {
        let line = LogLine::warning(warning);
        match &mut self.live {
            Live::Bar { bar, .. } => bar.println(line.form(self.format).trim_end_matches('\n')),
            Live::Lines { err, .. } => say(err, self.format, &line),
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        if let Live::Bar { bar, .. } = &self.live {
            bar.finish_and_clear();
        }
        self.time.epoch(record);
        let figures = record.metrics.iter().map(|(name, value)| format!(" - {name}: {}", figure(value)));
        let figures = format!(" - {}{}", seconds(record.seconds), figures.collect::<String>());
        let line = LogLine::info("epoch", figures).after(format!("Epoch {}/{}", record.epoch, self.epochs));
        let line =
            line.with("epoch", record.epoch).with("epochs", self.epochs).with_all(record.metrics.iter());
        let others =
            [("lr", record.lr), ("seconds", record.seconds), ("images_per_second", record.images_per_second)];
        say(&mut self.out, self.format, &line.with_all(others));
        Ok(Flow::Continue)
    }

    fn on_interrupt(&mut self, _: &TrainState, _: &dyn Snapshot) -> Result<()> {
        if let Live::Bar { bar, .. } = &self.live {
            bar.finish_and_clear();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "progress/tests.rs"]
mod tests;
