use super::*;
use crate::testing::{self, Fake, record, run, state};
use indicatif::TermLike;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// A stream that can be read while another thread writes to it.
#[derive(Clone, Debug, Default)]
struct Tape(Arc<Mutex<String>>);

impl Tape {
    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A terminal of 100 columns that shows one line; a cleared line is written as `~`.
impl TermLike for Tape {
    fn width(&self) -> u16 {
        100
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.write_str("~")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn step(steps_done: u64, seconds: f64) -> StepInfo {
    let metrics = testing::means(1.1012345, 0.60434);
    StepInfo { metrics, lr: 0.005, seconds, ..testing::step(3, steps_done, 1563) }
}

/// `before`: the steps of epoch 3 that were done before a resume.
fn begin<O: Write + Send, E: Write + Send>(progress: &mut Progress<O, E>, before: u64) {
    let epochs = 70;
    let mut start = state((1..=2).map(|epoch| record(epoch, [1.0; 4])).collect());
    (start.partial.steps, start.partial.samples) = (before, 32 * before);
    progress.on_begin(&run(epochs, &start)).unwrap();
    progress.on_epoch_begin(3).unwrap();
}

fn end<O: Write + Send, E: Write + Send>(progress: &mut Progress<O, E>) {
    let record = record(3, [0.8554, 0.69971, 1.5473, 0.5592]);
    assert_eq!(progress.on_epoch_end(&record, &state(vec![]), &Fake(0.0)).unwrap(), Flow::Continue);
}

#[test]
fn an_epoch_reads_as_in_keras() {
    let (out, err) = (Tape::default(), Tape::default());
    let mut progress = Progress::plain(out.clone(), err.clone());
    begin(&mut progress, 0);
    progress.on_step(&step(1, 0.02)).unwrap();
    progress.on_evaluate(5120, 10_000).unwrap();
    end(&mut progress);
    let expected = "Train on 50000 samples, validate on 10000 samples, on the CPU (2 threads)\n\
                    Epoch 3/70\n - 63s - loss: 0.8554 - acc: 0.6997 - val_loss: 1.5473 - val_acc: 0.5592\n";
    assert_eq!(out.take(), expected);
    assert_eq!(err.take(), "");
}

/// Warnings go to standard error, where scripts don't read.
#[test]
fn warnings_go_to_standard_error() {
    let (out, err) = (Tape::default(), Tape::default());
    let mut progress = Progress::plain(out.clone(), err.clone());
    progress.on_warning("the steps are slow").unwrap();
    assert_eq!((out.take().as_str(), err.take().as_str()), ("", "warning: the steps are slow\n"));
    let mut progress: Progress<_, io::Stderr> =
        Progress::bar(out.clone(), ProgressDrawTarget::term_like(Box::new(err.clone())), 100);
    progress.on_warning("the steps are slow").unwrap();
    assert!(err.take().contains("warning: the steps are slow") && out.take().is_empty());
}

#[test]
fn a_log_shows_life_every_half_minute() {
    let err = Tape::default();
    let mut progress = Progress::plain(io::sink(), err.clone());
    begin(&mut progress, 0);
    for (steps, seconds) in [(100, 20.0), (150, 30.0), (151, 30.2), (299, 59.8), (300, 60.0)] {
        progress.on_step(&step(steps, seconds)).unwrap();
    }
    let expected = "Epoch 3/70: 150/1563 - ETA: 4:43 - 160 img/s - loss: 1.1012 - acc: 0.6043 - run: 3m<5h53m\n\
                    Epoch 3/70: 300/1563 - ETA: 4:13 - 160 img/s - loss: 1.1012 - acc: 0.6043 - run: 3m<5h53m\n";
    assert_eq!(err.take(), expected);
    progress.on_epoch_begin(4).unwrap();
    progress.on_step(&step(1, 30.0)).unwrap();
    assert!(err.take().contains("- 1.1 img/s"), "the clock starts anew, and slow speeds have a digit more");
}

#[test]
fn a_resumed_epoch_is_timed_from_where_it_went_on() {
    let err = Tape::default();
    let mut progress = Progress::plain(io::sink(), err.clone());
    begin(&mut progress, 1000);
    progress.on_step(&step(1063, 30.0)).unwrap();
    assert_eq!(
        err.take(),
        "Epoch 3/70: 1063/1563 - ETA: 3:58 - 67 img/s - loss: 1.1012 - acc: 0.6043 - run: 3m<13h55m\n"
    );
}

#[test]
fn a_terminal_has_a_bar_that_goes_away() {
    let (out, screen) = (Tape::default(), Tape::default());
    let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
    let mut progress: Progress<_, io::Stderr> = Progress::bar(out.clone(), target, 100);
    let epochs = 70;
    progress.on_begin(&run(epochs, &state(vec![]))).unwrap();
    assert_eq!(screen.take(), "", "nothing is drawn where the first lines go");
    begin(&mut progress, 0);
    assert!(screen.take().ends_with("] ") && out.take().ends_with("Epoch 3/70\n"));
    progress.on_step(&step(312, 4.4)).unwrap();
    let drawn = screen.take();
    assert!(drawn.contains("312/1563 [====>......") && drawn.contains("...] - ETA: 18s - "), "{drawn}");
    assert!(drawn.contains("- ETA: 18s - 2269 img/s - loss: 1.1012 - acc: 0.6043 - run: 2m<"), "{drawn}");
    progress.on_step(&step(313, 4.41)).unwrap();
    assert_eq!(screen.take(), "", "a drawing for every step would only cost time");
    progress.on_evaluate(5120, 10_000).unwrap();
    assert!(screen.take().contains("evaluating 5120/10000"));
    end(&mut progress);
    let cleared = screen.take();
    assert!(cleared.contains('~') && !cleared.contains("evaluating"), "{cleared:?}");
    assert!(
        out.take().ends_with(" - 63s - loss: 0.8554 - acc: 0.6997 - val_loss: 1.5473 - val_acc: 0.5592\n")
    );

    progress.on_epoch_begin(4).unwrap();
    progress.on_step(&step(8, 0.1)).unwrap();
    assert!(screen.take().contains("8/1563 [>......"));
    drop(progress);
    assert!(screen.take().contains('~'), "a run that fails takes its bar along");
}

/// Of the splits of a set in files, one after the other.
#[test]
fn images_that_are_read_before_a_run_have_a_bar() {
    let (out, screen) = (Tape::default(), Tape::default());
    let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
    let mut progress: Progress<_, io::Stderr> = Progress::bar(out.clone(), target, 100);
    for all in [400, 100] {
        progress.on_read(0, all).unwrap();
        assert!(screen.take().contains("- ETA: ? - reading the pictures"));
        progress.on_read(all / 2, all).unwrap();
        let (drawn, half) = (screen.take(), all / 2);
        assert!(drawn.contains(&format!("{half}/{all} [=======")), "{drawn}");
        assert!(drawn.contains("- ETA: 0s - reading the pictures"), "{drawn}");
        progress.on_read(all, all).unwrap();
        let cleared = screen.take();
        assert!(cleared.contains('~') && !cleared.contains("read"), "{cleared:?}");
    }
    assert_eq!(out.take(), "");
    begin(&mut progress, 0);
    assert!(screen.take().contains("0/1563 ["), "the bar of an epoch follows");
    let err = Tape::default();
    let mut progress = Progress::plain(io::sink(), err.clone());
    (0..=2).for_each(|done| progress.on_read(done, 2).unwrap());
    assert_eq!(err.take(), "", "what takes no time needs no line");
}

#[test]
fn an_interrupt_takes_the_bar_away() {
    let screen = Tape::default();
    let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
    let mut progress: Progress<_, io::Stderr> = Progress::bar(io::sink(), target, 99);
    begin(&mut progress, 0);
    progress.on_step(&step(312, 4.4)).unwrap();
    let narrow = screen.take();
    assert!(
        narrow.contains("312/1563 - ETA: 18s - ") && !narrow.contains('['),
        "no room for a bar: {narrow}"
    );
    progress.on_interrupt(&state(vec![]), &Fake(0.0)).unwrap();
    assert!(screen.take().contains('~'));
}

/// Figures that do not fit are left out, the least important first.
#[test]
fn a_narrow_terminal_cuts_no_figure() {
    for (columns, shows) in [
        (99, "312/1563 - ETA: 18s - 71 img/s - loss: 1.1012 - acc: 0.6043 - run: 2m<"),
        (60, "312/1563 - ETA: 18s - 71 img/s - loss: 1.1012 - acc: 0.6043"),
        (50, "312/1563 - ETA: 18s - loss: 1.1012 - acc: 0.6043"),
        (20, "312/1563 "),
    ] {
        let screen = Tape::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let mut progress: Progress<_, io::Stderr> = Progress::bar(io::sink(), target, columns);
        begin(&mut progress, 0);
        progress.on_step(&StepInfo { samples: 312, ..step(312, 4.4) }).unwrap();
        let line = screen.take();
        let line = line.rsplit('~').next().unwrap().trim_end();
        assert!(line.starts_with(shows) && line.len() <= usize::from(columns).max(30), "{columns}: {line}");
    }
}

#[test]
fn a_closed_pipe_or_a_full_disk_ends_no_run() {
    struct Broken(io::ErrorKind);
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }
    for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull] {
        let mut progress = Progress::plain(Broken(kind), Broken(kind));
        begin(&mut progress, 0);
        progress.on_step(&step(900, 40.0)).unwrap();
        end(&mut progress);
    }
}

#[test]
fn figures_are_spelled_as_in_keras() {
    let spelled = [0.8554, 12.0, 0.0, 0.00012, 1e-10, -0.5, 1e5, f64::NAN, f64::INFINITY].map(figure);
    let expected =
        ["0.8554", "12.0000", "0.0000", "1.2000e-04", "1.0000e-10", "-0.5000", "1.00e+05", "nan", "inf"];
    assert_eq!(spelled, expected);
    assert_eq!(
        [0.04, 4.24, 9.94, 9.96, 63.4, 3661.0].map(seconds),
        ["0.0s", "4.2s", "9.9s", "10s", "63s", "3661s"]
    );
    assert_eq!([0.4, 12.2, 62.0, 3723.0].map(duration), ["0s", "12s", "1:02", "1:02:03"]);
}

/// The same events, as objects.
#[test]
fn programs_read_objects() {
    let (out, err) = (Tape::default(), Tape::default());
    let mut progress = Progress::plain(out.clone(), err.clone()).form(LogFormat::Json);
    begin(&mut progress, 0);
    progress.on_step(&step(299, 31.0)).unwrap();
    progress.on_warning("the \"steps\" are\nslow").unwrap();
    end(&mut progress);
    let read = |tape: &Tape| -> Vec<serde_json::Value> {
        tape.take().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (out, err) = (read(&out), read(&err));
    for line in out.iter().chain(&err) {
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && &time[10..11] == "T", "{time}");
    }
    let events = |lines: &[serde_json::Value]| -> Vec<String> {
        lines.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        json!([events(&out), events(&err)]),
        json!([["start", "epoch_begin", "epoch"], ["progress", "warning"]])
    );
    let start = json!([out[0]["train_samples"], out[0]["model"], out[0]["epochs_done"]]);
    assert_eq!(start, json!([50_000, "small_cnn", 2]));
    let epoch = ["message", "epoch", "epochs", "val_loss", "lr", "seconds", "images_per_second"];
    let message = "Epoch 3/70 - 63s - loss: 0.8554 - acc: 0.6997 - val_loss: 1.5473 - val_acc: 0.5592";
    assert_eq!(json!(epoch.map(|key| &out[2][key])), json!([message, 3, 70, 1.5473, 0.005, 63.2, 791.5]));
    let progress = json!([err[0]["steps_done"], err[0]["loss"], err[0]["seconds"]]);
    assert_eq!(progress, json!([299, 1.1012345, 31.0]));
    assert!(err[0]["seconds_left"].as_f64().unwrap() > 100.0);
    assert_eq!(json!([err[1]["level"], err[1]["message"]]), json!(["warning", "the \"steps\" are\nslow"]));
}
