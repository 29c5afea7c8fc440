use crate::calibration::Calibration;
use crate::ranking::Ranking;
use crate::run_report::{Shown, Tested};
use crate::{Error, RunReport, chart, comparison, page, pictures, report, save_report};
use image::RgbImage;
use towers_callbacks::testing::{record, run, state};
use towers_callbacks::{Environment, History, Observer};
use towers_config::{recipe, save_config};
use towers_trained::{Evaluation, Mistake};

/// A run of three epochs in a new folder.
fn about(name: &str, seed: u64) -> RunReport {
    let folder = tempfile::tempdir().unwrap();
    let config = recipe("quick").unwrap().with(|config| {
        (config.training.epochs, config.training.seed) = (3, seed);
    });
    save_config(&config, folder.path()).unwrap();
    let accuracies = [0.2, 0.5, 0.4];
    let history =
        accuracies.iter().zip(1..).map(|(&acc, epoch)| record(epoch, [1.0 / epoch as f64, acc, 0.9, acc]));
    let state = state(history.collect());
    History::new(folder.path()).on_begin(&run(3, &state)).unwrap();
    Environment::new(folder.path()).on_begin(&run(3, &state)).unwrap();
    RunReport::read(folder.path(), name).unwrap()
}

fn tested(classes: usize) -> Tested {
    let mut confusion = vec![vec![0; classes]; classes];
    (confusion[0][0], confusion[0][1], confusion[1][1]) = (7, 3, 5);
    let mistakes = vec![Mistake { sample: 4, label: 0, taken_for: 1, probability: 0.75 }];
    let mut evaluation = Evaluation::default();
    (evaluation.samples, evaluation.loss, evaluation.acc) = (15, 0.5, 0.8);
    evaluation.metrics = [("f1", 0.75)].into_iter().collect();
    (evaluation.confusion, evaluation.mistakes) = (confusion, mistakes);
    let classes = (0..classes).map(|k| format!("<class {k}>")).collect();
    let picture = || RgbImage::from_pixel(2, 2, image::Rgb([9, 8, 7]));
    let images = "the first 15 of the 90 test images of <set>".into();
    let heat = pictures::heat(&[0.0, 1.0], [1, 2]);
    let mistakes = vec![Shown { picture: picture(), file: Some("<cat>/001.png".into()), heat }];
    let mut calibration = Calibration::default();
    [(0.75, false), (0.5, true)]
        .into_iter()
        .for_each(|(confidence, right)| calibration.add(confidence, right));
    let filters = vec![picture()];
    Tested { images, split: "test", classes, evaluation, mistakes, filters, calibration, ranking: None }
}

/// The elements of a page, none of which loads or runs anything but `img`.
const ELEMENTS: &str = "html head meta title style body header main footer h1 h2 h3 p b i br code div section figure figcaption details summary table thead tbody \
                        tr th td span img svg path text circle a";

/// Text of others stays text, and the page needs no more than its policy allows: its own styles, and pictures within.
#[track_caller]
fn assert_self_contained(page: &str) {
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let policy =
        format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<title>", page::POLICY);
    assert!(page.contains(&policy), "before everything that it is about");
    for tag in page.split('<').skip(1).filter(|tag| !tag.starts_with(['/', '!'])) {
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        assert!(ELEMENTS.split(' ').any(|known| known == name), "<{tag}");
        let attributes: String = tag.split('>').next().unwrap_or_default().split('"').step_by(2).collect();
        for attribute in [" on", " action", " srcset", " formaction"] {
            assert!(!attributes.contains(attribute), "<{tag}");
        }
        // Links stay within the page.
        let link = tag.strip_prefix("a href=\"#").and_then(|link| link.split_once("\">"));
        assert!(
            !attributes.contains("href")
                || link.is_some_and(|(id, _)| page.contains(&format!("id=\"{id}\""))),
            "<{tag}"
        );
    }
    // On a phone most tables are wider than the screen: a shadow at the edge says so.
    let scrolls = page.matches("<div class=\"scroll\"><table").count();
    assert_eq!(
        (page.matches("<table").count(), page.matches("var(--edge), transparent)").count()),
        (scrolls, 2)
    );
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
        "<td>70.0%<td>100.0%<td>82.4%<td>10</tr>",
        "<td>100.0%<td>62.5%<td>76.9%<td>5</tr>",
        "<td>–<td>–<td>–<td>0</tr>",
        ">epoch</text>",
        "<th>parameters<td>1,234,567",
        "<th>FLOPs per image<td>25.0 million",
        "All options are those of the recipe quick.",
        "</p>\n<details><summary>All ",
        "taken for <b>&lt;class 1&gt;</b> (75.0%)<br><code>&lt;cat&gt;/001.png</code>",
        "&lt;class 0&gt; taken for &lt;class 1&gt;: 3",
        "<td class=\"n\">3<td class=\"n\">30.0%<td>&lt;class 0&gt;<td>&lt;class 1&gt;<td><a href=\"#mistake-0-0\">1</a></tr>",
        "<figure id=\"mistake-0-0\" title=\"test image 4\">",
        "<img class=\"heat\" src=\"data:image/png;base64,",
        "(Grad-CAM)",
        "aria-label=\"Calibration\"",
        "calibration error is <b>0.6250</b>",
        "<title>probability of the predicted class 0.750, accuracy: 0</title>",
        "first layer",
        "Environment",
        "<th>seed<td>1",
        "training",
        "&lt;b&gt;bold",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("class=\"differ\"") && page.contains("<th>started<td>20"), "{page}");
}

/// Names and values of others, wherever the page has any.
#[test]
fn hostile_text_is_text() {
    let markup = "</title></style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u{202e}";
    let hostile = |name: &str| {
        let mut run = about(name, 1);
        let own = || (markup.to_owned(), markup.to_owned());
        run.config.iter_mut().for_each(|(_, value)| *value = markup.to_owned());
        run.config.push(own());
        run.environment.push(own());
        run
    };
    let mut first = hostile(markup);
    let tested = tested(3);
    let classes = vec![markup.to_owned(); 3];
    first.test = Ok(Tested { images: markup.to_owned(), classes, ..tested });
    let mut second = hostile("b");
    second.without_test(markup);
    for page in [report(&[first]), report(&[hostile(markup), second])] {
        assert_self_contained(&page);
        assert!(!page.contains("<script") && !page.contains("onerror=alert(1)>"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("\\u202e"));
    }
}

#[test]
fn pictures_to_validate_on_are_no_test_images() {
    let mut run = about("a", 1);
    run.test =
        Ok(Tested { images: "the 15 validation images of pets".into(), split: "validation", ..tested(3) });
    let page = report(&[run]);
    for expected in [
        "<h2>Validation images",
        "On the 15 validation images of pets: ",
        "validation image 4",
        "<td>0.8000 (validation)",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

/// A page replaces pages alone.
#[test]
fn a_page_is_written_to_pages_and_folders_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("model.safetensors"), "learnt").unwrap();
    for name in ["model.safetensors", "page.pdf", "page"] {
        let error = save_report(&at(name), &[about("a", 1)]).unwrap_err();
        assert!(error.to_string().starts_with("`output` is "), "{error}");
    }
    assert_eq!(std::fs::read(at("model.safetensors")).unwrap(), b"learnt");
    for name in ["page.HTM", "page.html", "."] {
        save_report(&at(name), &[about("a", 1)]).unwrap();
    }
    assert!(at("page.HTM").exists() && at("page.html").exists() && at("report.html").exists());
}

#[test]
fn many_classes_are_listed() {
    let mut run = about("a", 1);
    run.test = Ok(tested(21));
    let page = report(&[run]);
    assert!(!page.contains("Confusion matrix"));
    assert!(
        page.contains("<td class=\"n\">3<td class=\"n\">30.0%<td>&lt;class 0&gt;"),
        "the confusions, by their number"
    );
}

#[test]
fn augmented_images_are_shown_where_there_are_any() {
    let mut run = about("a", 1);
    let training = recipe("quick").unwrap().training;
    let train = towers_cifar::synthetic(1, 3, 0).train;
    run.show_augmentation(&training, train.clone()).unwrap();
    assert!(run.augmented.as_ref().is_some_and(|strip| strip.dimensions() == (3 * 34 - 2, 3 * 34 - 2)));
    let page = report(&[run]);
    assert_self_contained(&page);
    assert!(page.contains("Augmented training images"));
    let mut plain = about("b", 1);
    let without = towers_config::Training { augmentation: Default::default(), ..training };
    plain.show_augmentation(&without, train).unwrap();
    assert!(!report(&[plain]).contains("Augmented training images"));
}

#[test]
fn two_classes_have_curves_of_their_ranking() {
    let mut run = about("a", 1);
    let scores = vec![(0.9, true), (0.4, false), (0.3, true), (-1.0, false)];
    run.test = Ok(Tested { ranking: Some(Ranking::new(scores)), ..tested(2) });
    let page = report(&[run]);
    assert_self_contained(&page);
    for expected in [
        "ROC curve of &lt;class 1&gt;, area 0.7500",
        "Precision over recall of &lt;class 1&gt;, average 0.8333",
        "<title>false positive rate 0.500, network: 1.00</title>",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(!page.contains("Most confused pairs"), "the matrix has them");
}

#[test]
fn runs_stand_side_by_side() {
    let (first, mut second) = (about("a", 1), about("b", 2));
    second.without_test("There is no <model>.");
    let page = report(&[first, second]);
    assert_self_contained(&page);
    assert!(page.contains("<tr class=\"differ\"><th>seed<td>1<td>2"), "what differs is marked");
    assert_eq!(page.matches("class=\"differ\"><th>seed").count(), 2, "above, and among all options");
    assert_eq!(page.matches("class=\"changed\"").count(), 0);
    assert!(page.contains("There is no &lt;model&gt;.") && page.contains("The network was not tested."));
    let mut one = about("a", 1);
    let changed = one.config.iter_mut().find(|(key, _)| key == "changed").unwrap();
    changed.1 = "[\"seed\"]".into();
    let page = page::page(&[one]);
    assert!(
        page.contains("<p>The recipe quick, except for:</p>\n<div class=\"scroll\"><table class=\"settings\">\n<tr><th>seed<td class=\"changed\">1</tr>\n</table>"),
        "{page}"
    );
}

#[test]
fn what_differs_between_runs_is_a_table() {
    let runs = [about("a", 1), about("b\u{202e}", 2)];
    let rows = comparison(&runs);
    let row = |key: &str| rows.iter().find(|(name, _)| name == key).map(|(_, values)| values.as_slice());
    let both = |values: [&str; 2]| values.map(|value| Some(value.to_owned()));
    assert_eq!(row("seed"), Some(&both(["1", "2"])[..]));
    assert_eq!(row("val_acc"), Some(&both(["0.4000 (best 0.5000 in epoch 2)"; 2])[..]));
    for same in ["started", "recipe", "devices", "parameters", "changed"] {
        assert_eq!(row(same), None);
    }
    let svg = chart(&runs).svg();
    assert!(svg.contains(">a validation</text>") && svg.contains("b\\u202e") && !svg.contains('\u{202e}'));
}

#[test]
fn a_folder_without_a_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(RunReport::read(folder.path(), "a"), Err(Error::Run { .. })));
    let (config, state) = (recipe("quick").unwrap(), state(vec![record(1, [0.0; 4])]));
    save_config(&config, folder.path()).unwrap();
    assert!(report(&[RunReport::read(folder.path(), "not begun").unwrap()]).contains("0 of 4"));
    std::fs::write(folder.path().join("history.csv"), "epoch\n1\n").unwrap();
    assert!(matches!(RunReport::read(folder.path(), "a"), Err(Error::Callback(_))));
    History::new(folder.path()).on_begin(&run(3, &state)).unwrap();
    assert!(RunReport::read(folder.path(), "a").is_ok());
}
