use super::*;
use crate::Mistake;
use crate::observers::testing::{Fake, config, record, run, state};
use crate::observers::{Environment, History};
use crate::{Observer, save_config};

/// A run of three epochs in a folder of its own.
fn about(name: &str, seed: u64) -> RunReport {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(3);
    config.seed = seed;
    save_config(&config, folder.path()).unwrap();
    let accuracies = [0.2, 0.5, 0.4];
    let history =
        accuracies.iter().zip(1..).map(|(&acc, epoch)| record(epoch, [1.0 / epoch as f64, acc, 0.9, acc]));
    let state = state(history.collect());
    History::new(folder.path()).on_begin(&run(&config, &state)).unwrap();
    Environment::new(folder.path()).on_begin(&run(&config, &state)).unwrap();
    RunReport::read(folder.path(), name).unwrap()
}

fn tested(classes: usize) -> Tested {
    let mut confusion = vec![vec![0; classes]; classes];
    (confusion[0][0], confusion[0][1], confusion[1][1]) = (7, 3, 5);
    let mistakes = vec![Mistake { sample: 4, label: 0, taken_for: 1, probability: 0.75 }];
    let evaluation = Evaluation { samples: 15, loss: 0.5, acc: 0.8, confusion, mistakes };
    let classes = (0..classes).map(|k| format!("<class {k}>")).collect();
    let picture = || vec![RgbImage::from_pixel(2, 2, image::Rgb([9, 8, 7]))];
    Tested { dataset: "<set>".into(), classes, evaluation, mistakes: picture(), filters: picture() }
}

/// Whatever is not ours stays text, and nothing is loaded.
#[track_caller]
fn assert_self_contained(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for (address, start) in page.match_indices("src=\"").map(|(at, what)| (&page[at + what.len()..], at)) {
        assert!(address.starts_with("data:image/png;base64,"), "{}", &page[start..start + 40]);
    }
    for foreign in ["http://", "https://", "//www", "<script", "<link", "url(", "<class", "<set>", "<b>bold"]
    {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn a_page_about_one_run() {
    let mut run = about("<b>bold", 1);
    run.test = Ok(tested(3));
    let page = report(&[run]);
    assert_self_contained(&page);
    for expected in [
        "0.5000 (epoch 2)",
        "accuracy <b>0.8000</b>",
        "Confusion matrix",
        "70.0%",
        "no images",
        "taken for <b>&lt;class 1&gt;</b> (75.0%)",
        "&lt;class 0&gt; taken for &lt;class 1&gt;: 3",
        "first layer",
        "Environment",
        "<th>seed<td>1",
        "training",
        "&lt;b&gt;bold",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("class=\"differ\""));
}

#[test]
fn many_classes_are_listed() {
    let mut run = about("a", 1);
    run.test = Ok(tested(21));
    let page = report(&[run]);
    assert!(!page.contains("Confusion matrix"));
    assert!(
        page.contains("<td class=\"n\">3<td>&lt;class 0&gt;<td>&lt;class 1&gt;"),
        "the confusions, by their number"
    );
}

#[test]
fn runs_stand_side_by_side() {
    let (first, mut second) = (about("a", 1), about("b", 2));
    second.without_test("There is no <model>.");
    let page = report(&[first, second]);
    assert_self_contained(&page);
    assert!(page.contains("<tr class=\"differ\"><th>seed<td>1<td>2"), "what differs is marked");
    assert_eq!(page.matches("class=\"differ\"").count(), 1);
    assert!(page.contains("There is no &lt;model&gt;.") && page.contains("The network was not tested."));
}

#[test]
fn a_folder_without_a_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(RunReport::read(folder.path(), "a"), Err(Error::Run { .. })));
    let (config, state) = (config(1), state(vec![]));
    save_config(&config, folder.path()).unwrap();
    assert!(report(&[RunReport::read(folder.path(), "not begun").unwrap()]).contains("0 of 1"));
    std::fs::write(folder.path().join("history.csv"), "epoch\n1\n").unwrap();
    assert!(matches!(RunReport::read(folder.path(), "a"), Err(Error::Run { .. })));
    History::new(folder.path()).on_begin(&run(&config, &state)).unwrap();
    History::new(folder.path()).on_epoch_end(&record(1, [0.0; 4]), &state, &Fake(0.0)).unwrap();
    assert!(RunReport::read(folder.path(), "a").is_ok());
}
