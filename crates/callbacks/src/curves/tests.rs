use super::*;
use crate::testing::{Fake, record, run, state};

fn history(epochs: u64) -> Vec<EpochRecord> {
    let at = |epoch: u64| {
        let t = epoch as f64;
        let wave = (2.4 * t).sin() + (0.7 * t).cos();
        let loss = 0.25 + 1.9 * (-t / 14.0).exp();
        let val_loss = 0.42 + 1.7 * (-t / 9.0).exp() + 0.06 * wave * (-t / 40.0).exp();
        record(
            epoch,
            [loss, 0.95 - 0.65 * (-t / 14.0).exp(), val_loss, 0.9 - 0.55 * (-t / 9.0).exp() - 0.015 * wave],
        )
    };
    (1..=epochs).map(at).collect()
}

#[test]
fn the_picture_has_both_panels_and_the_best_epoch() {
    let mut records = history(70);
    records[0].metrics.set("loss", f64::NAN);
    let svg = chart("a <net>\u{202e}", &records).svg();
    let best = records.iter().filter_map(|record| record.get("val_acc")).fold(0.0, f64::max);
    for text in
        ["a &lt;net&gt;\\u202e", "Loss", "Accuracy", "training", "validation", &format!("best {best:.4}")]
    {
        assert!(svg.contains(text), "{text}");
    }
    assert!(!svg.contains("Macro F1") && !chart("", &[]).svg().contains("best"));
    records.iter_mut().skip(1).for_each(|record| record.metrics.set("val_f1", 0.5));
    assert!(chart("", &records).svg().contains("Macro F1"));
}

#[test]
fn the_first_of_equal_bests_is_marked() {
    let mut history = history(3);
    history.iter_mut().for_each(|record| record.metrics.set("val_acc", 0.5));
    let svg = chart("", &history).svg();
    assert!(svg.contains("best validation accuracy 0.5000 in epoch 1"));
}

#[test]
fn the_files_are_there_from_the_beginning_and_grow() {
    let folder = tempfile::tempdir().unwrap();
    let extra = folder.path().join("elsewhere/plot.PNG");
    let mut curves = Curves::new(folder.path(), "net on data");
    let mut picture = Curves::in_file(&extra, "net on data").unwrap();
    let (epochs, start) = (2, state(vec![]));
    curves.on_begin(&run(epochs, &start)).unwrap();
    let read = || ["curves.svg", "curves.png"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
    let empty = read();
    let state = state(history(1));
    let flow = curves.on_epoch_end(&state.history[0], &state, &Fake(0.0)).unwrap();
    assert_eq!(flow, Flow::Continue);
    let one = read();
    picture.on_begin(&run(epochs, &state)).unwrap();
    assert!(one[0] != empty[0] && one[1] != empty[1]);
    assert_eq!(std::fs::read(&extra).unwrap(), one[1]);
    let last = crate::testing::state(history(2));
    curves.on_end(&last, &Fake(0.0)).unwrap();
    assert_ne!(read()[0], one[0]);
}

#[test]
fn only_pictures_are_drawn() {
    for name in ["plot", "plot.jpg", "plot.svgz", "png", ""] {
        let error = Curves::in_file(name, "").unwrap_err().to_string();
        assert!(error.contains(".png or .svg"), "{error}");
    }
}
