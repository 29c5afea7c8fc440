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

/// All kinds of histories, by name.
fn cases() -> Vec<(&'static str, Vec<EpochRecord>)> {
    let mut holes = history(20);
    holes[4].val_loss = f64::NAN;
    holes[9].loss = f64::INFINITY;
    holes[10].val_acc = f64::NAN;
    holes[12].val_acc = f64::NAN;
    let mut explosion = history(20);
    explosion[2].val_loss = 1e6;
    explosion[3].loss = 480.0;
    let mut lost = history(3);
    lost.iter_mut()
        .for_each(|record| (record.loss, record.val_loss, record.val_acc) = (f64::NAN, f64::NAN, f64::NAN));
    let bad = vec![record(1, [14.0, 0.1, 1e30, 0.1])];
    let mut overfit = history(40);
    overfit
        .iter_mut()
        .for_each(|record| record.val_loss = 0.9 + (record.epoch as f64 - 12.0).powi(2) / 600.0);
    let mut noisy = history(150);
    noisy.iter_mut().for_each(|record| record.val_acc -= 0.2 * (37.0 * record.epoch as f64).sin().powi(8));
    let mut steep = history(4);
    let losses = [[1.05, 0.14], [0.13, 0.07], [0.08, 0.05], [0.06, 0.04]];
    for (record, [loss, val_loss]) in steep.iter_mut().zip(losses) {
        (record.loss, record.val_loss) = (loss, val_loss);
    }
    vec![
        ("none", vec![]),
        ("steep", steep),
        ("one", history(1)),
        ("two", history(2)),
        ("ten", history(10)),
        ("seventy", history(70)),
        ("noisy", noisy),
        ("many", history(1000)),
        ("holes", holes),
        ("explosion", explosion),
        ("lost", lost),
        ("bad", bad),
        ("overfit", overfit),
    ]
}

#[test]
fn every_history_can_be_drawn() {
    for (name, history) in cases() {
        let svg = String::from_utf8(render_svg("minigooglenet on CIFAR-10", &history).unwrap()).unwrap();
        let png = render_png("minigooglenet on CIFAR-10", &history).unwrap();
        let picture = image::load_from_memory(&png).unwrap().into_rgb8();
        assert_eq!(picture.dimensions(), chart::SIZE, "{name}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        // `CURVES=DIR` keeps the pictures.
        if let Some(folder) = std::env::var_os("CURVES") {
            std::fs::write(Path::new(&folder).join(format!("{name}.png")), png).unwrap();
            std::fs::write(Path::new(&folder).join(format!("{name}.svg")), svg).unwrap();
        }
    }
}

#[test]
fn the_svg_says_in_words_what_it_shows() {
    let svg = String::from_utf8(render_svg("a <net> & \"data\"", &history(70)).unwrap()).unwrap();
    let best = history(70).iter().map(|record| record.val_acc).fold(0.0, f64::max);
    for text in ["Loss", "Accuracy", "Epoch", "training", "validation", "70", &format!("best {best:.4}")] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("a &lt;net&gt; &amp;") && !svg.contains("<net>"), "the title is escaped");
}

#[test]
fn text_is_drawn_into_the_png() {
    let ink = |title: &str| {
        let picture = image::load_from_memory(&render_png(title, &[]).unwrap()).unwrap().into_rgb8();
        // The title's area, above the panels.
        picture.rows().take(55).flatten().filter(|pixel| pixel.0[0] < 128).count()
    };
    assert_eq!(ink(""), 0);
    assert!(ink("minigooglenet on CIFAR-10") > 500);
}

#[test]
fn the_first_of_equal_bests_is_marked() {
    let mut history = history(3);
    history.iter_mut().for_each(|record| record.val_acc = 0.5);
    let svg = String::from_utf8(render_svg("", &history).unwrap()).unwrap();
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

#[test]
fn shrinking_takes_means() {
    let fine = [0, 10, 255, 4, 20, 255, 1, 1, 1, 1, 1, 1, 0, 30, 255, 4, 40, 255, 2, 2, 2, 2, 2, 2];
    assert_eq!(shrink(&fine, 4), [2, 25, 255, 2, 2, 2]);
}
