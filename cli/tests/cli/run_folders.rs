//! Run folders: which are taken, what stays in them, and what a resume keeps.

use super::{Place, TRAIN};
use std::fs;

const RUN: &str =
    "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --no-progress --output run";

fn copy_folder(place: &Place, from: &str, to: &str) {
    place.make_folder(to);
    for file in fs::read_dir(place.path().join(from)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), place.path().join(to).join(file.file_name())).unwrap();
    }
}

/// Some of them have the names of a run's files.
#[test]
fn files_of_others_are_not_replaced() {
    let place = Place::new();
    for (file, text) in
        [("config.json", "{\"model\": \"bert\"}"), ("history.csv", "a,b\n"), ("notes", "mine")]
    {
        place.make_folder("my work");
        place.write(&format!("my work/{file}"), text);
        for more in ["", " --backup-and-restore"] {
            let mut command = place.command(&format!("{TRAIN}{more} --output"));
            let output = command.arg("my work").output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{err}");
            let says = format!("my work is not empty and holds no run, but {file}; name a new folder");
            assert!(err.contains(&says) && err.contains("--output 'my work/run'"), "{err}");
        }
        assert_eq!(place.read(&format!("my work/{file}")), text);
        assert_eq!(fs::read_dir(place.path().join("my work")).unwrap().count(), 1);
        place.remove("my work");
    }
    // An empty folder, and an empty volume.
    place.make_folder("run/lost+found");
    place.run(&format!("{RUN} --epochs 1")).ends(0);
}

#[test]
fn copies_of_checkpoints_stay_at_a_resume() {
    let place = Place::new();
    place.run(&format!("{RUN} --epochs 3")).ends(0);
    for copy in ["epoch-0001.bak", "my-good-one"] {
        copy_folder(&place, "run/checkpoints/epoch-0001", &format!("run/checkpoints/{copy}"));
    }
    place.run("train --resume run --epochs 6 --no-progress").ends(0);
    let mut left: Vec<String> = fs::read_dir(place.path().join("run/checkpoints"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    left.sort();
    assert_eq!(left, ["epoch-0001.bak", "epoch-0004", "epoch-0005", "epoch-0006", "my-good-one"]);
}

#[test]
fn an_older_checkpoint_is_not_taken_without_a_word() {
    let place = Place::new();
    place.run(&format!("{RUN} --epochs 2")).ends(0);
    place.write("run/checkpoints/epoch-0002/state.json", "{}");
    let says = "warning: a checkpoint was skipped: ";
    for args in [
        "evaluate run/checkpoints",
        "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --epochs 1 --no-progress --weights run/checkpoints",
    ] {
        let ran = place.run(args).ends(0).complains(says);
        assert!(ran.err().contains("epoch-0001 is taken instead"), "{}", ran.err());
        assert_eq!(ran.err().matches(says).count(), 1, "{}", ran.err());
    }
}

#[test]
fn a_resume_keeps_the_devices_that_were_asked_for() {
    let place = Place::new();
    let options = "--device cpu --threads 1 --pipeline-stages 2 --collective-timeout 17 --mixed-devices --check-device never";
    place.prints(&format!("{RUN} --epochs 1 {options}"), "a pipeline of 2 stages");
    let devices = |place: &Place| {
        let config: serde_json::Value = serde_json::from_str(&place.read("run/config.json")).unwrap();
        config["devices"].clone()
    };
    let before = devices(&place);
    let ran = place.prints("train --resume run --epochs 2 --no-progress", "a pipeline of 2 stages");
    assert!(devices(&place) == before && !ran.err().contains("continues with"), "{}", ran.err());
    let ran = place.run("train --resume run --epochs 3 --no-progress --pipeline-stages 1").ends(0);
    assert!(!ran.out().contains("a pipeline of"), "{}", ran.out());
}

/// GPUs that are named are wanted, also by a recipe.
#[test]
fn gpus_of_a_recipe_are_wanted() {
    let place = Place::new();
    place.write("gpus.toml", "like = \"quick\"\n[devices]\ngpus = [97]\n");
    let line = "train --recipe gpus.toml --dataset synthetic --limit-train 64 --limit-test 20 --epochs 1 --no-progress";
    let ran = place.run(line);
    assert_eq!(ran.1.status.code(), Some(1), "{}{}", ran.out(), ran.err());
    place.run(&format!("{line} --device cpu")).ends(0);
}

#[test]
fn a_curve_over_more_epochs_is_told() {
    let place = Place::new();
    place.run(&format!("{RUN} --epochs 1 --schedule cosine:per=epoch --lr 0.01")).ends(0);
    let ran = place.run("train --resume run --epochs 2 --no-progress").ends(0);
    let says = "warning: the learning rate goes from 1.00e-2 to 5.00e-3, since the schedule cosine:per=epoch runs over \
                all epochs, now 2 and not 1; --schedule cosine:per=epoch,epochs=1 keeps the curve of the run";
    ran.complains(says);
    let on = "train --resume run --epochs 3 --no-progress --schedule cosine:per=epoch";
    place.refuses(&format!("{on},epochs=1"), "can't change");
    let ran = place.run(&format!("{on},epochs=2")).ends(0);
    assert!(!ran.err().contains("the learning rate goes"), "{}", ran.err());
    assert!(place.read("run/config.json").contains("cosine:per=epoch,epochs=2"));
}

/// Whatever is in a folder, the others are listed.
#[test]
fn one_bad_folder_hides_no_others() {
    let place = Place::new();
    place.run(&TRAIN.replace("--no-progress", "--no-progress --output runs/good")).ends(0);
    place.make_folder("runs/bad");
    let long = "x".repeat(70_000);
    place.write(
        "runs/bad/config.json",
        format!("{{\"recipe\":\"{long}\",\"changed\":[\"seed\"],\"seed\":\"{long}\"}}"),
    );
    place.write(
        "runs/bad/status.json",
        format!("{{\"started\":\"{long}\",\"end\":\"{long}\",\"reason\":\"{long}\"}}"),
    );
    let table = place.prints("runs", "runs/good").out();
    assert!(table.contains("runs/bad") && table.lines().all(|line| line.chars().count() < 2000));
    let good = table.lines().find(|line| line.starts_with("runs/good")).unwrap();
    let cells: Vec<&str> = good.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert!(cells[4].parse::<u64>().is_ok() && cells[5] == "1", "seconds and processes: {good}");
}

#[test]
fn folders_are_named_after_the_network() {
    let place = Place::new();
    let line = TRAIN.replace("--quick", "--quick --model keras_cnn");
    place.prints(&line, "done: runs/keras_cnn-1");
    place.fails("report nothing", "nothing: there is no run here; name a run's folder");
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_told() {
    let place = Place::new();
    std::os::unix::fs::symlink("/no/such/disk", place.path().join("runs")).unwrap();
    place.fails(TRAIN, "can't make the folder runs; runs is a link to /no/such/disk, which is not there");
}

/// Neither other columns nor another separator.
#[test]
fn a_log_is_added_to_a_log_alone() {
    let place = Place::new();
    place.write("mine.csv", "epoch;loss\n");
    let ran =
        place.fails(&format!("{TRAIN} --csv-log mine.csv --csv-append"), "its first line is `epoch;loss`");
    ran.complains("name another file, or give --csv-separator as there");
    assert_eq!(place.read("mine.csv"), "epoch;loss\n");
}
