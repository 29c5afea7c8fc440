use super::Place;

/// A run that takes about a second.
const SMALL: &str =
    "train --quick --dataset synthetic --limit-train 100 --limit-test 40 --no-progress --output run";

fn files(place: &Place, folder: &str) -> Vec<String> {
    let folder = std::fs::read_dir(place.path().join(folder)).unwrap();
    let mut names: Vec<String> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn all_callbacks_of_keras_in_one_run() {
    let place = Place::new();
    let flags = "--epochs 3 --checkpoint-path best/w-{epoch:02d}-{val_acc:.2f}.safetensors --save-weights-only \
                 --reduce-lr-on-plateau val_loss:factor=0.5,patience=1,min_delta=100 --terminate-on-nan \
                 --early-stop val_acc:patience=9,restore_best_weights --csv-log log.csv --csv-separator ; \
                 --tensorboard logs --histogram-freq 3 --tensorboard-images 4";
    place.prints(&format!("{SMALL} {flags}"), "done: run");
    let history = place.read("run/history.csv");
    let rows: Vec<Vec<&str>> = history.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("w-{:0>2}-{:.2}.safetensors", row[0], row[4].parse::<f64>().unwrap()))
        .collect();
    assert_eq!(files(&place, "run/best"), names);
    let evaluated = place.run(&format!("evaluate --json --model run/best/{}", names[2])).ends(0).out();
    let evaluated: serde_json::Value = serde_json::from_str(&evaluated).unwrap();
    assert_eq!((evaluated["samples"].as_u64(), evaluated["dataset"].as_str()), (Some(40), Some("synthetic")));
    let difference = evaluated["acc"].as_f64().unwrap() - rows[2][4].parse::<f64>().unwrap();
    assert!(difference.abs() < 1e-6, "the test images of the run: {difference}");
    let csv = place.read("log.csv");
    assert!(csv.starts_with("epoch;accuracy;learning_rate;loss;val_accuracy;val_loss\r\n0;"), "{csv}");
    assert_eq!(csv.lines().count(), 4);
    let (second, third): (f64, f64) = (rows[1][5].parse().unwrap(), rows[2][5].parse().unwrap());
    assert!(third < second / 2.0, "the second epoch was a plateau: {second}, {third}");
    assert!(!files(&place, "logs/train").is_empty());
    // The learning rate at plateaus belongs to the run.
    place.prints("train --resume run --epochs 4", "Epoch 4/4");
    place.refuses(
        "train --resume run --epochs 5 --reduce-lr-on-plateau val_loss:factor=0.1",
        "--reduce-lr-on-plateau: factor can't change",
    );
}

#[cfg(unix)]
#[test]
fn a_command_follows_every_epoch() {
    let place = Place::new();
    // The test splits arguments at blanks.
    place.write(
        "tell.sh",
        "echo \"epoch $TOWERS_EPOCH: $TOWERS_VAL_ACC\"; test -f \"$TOWERS_RUN/config.json\"",
    );
    let told = place.run(&format!("{SMALL} --epochs 2 --epoch-command .${{IFS}}./tell.sh")).ends(0);
    for row in place.read("run/history.csv").lines().skip(1) {
        let row = Vec::from_iter(row.split(','));
        let line = format!("epoch {}: {}\n", row[0], row[4]);
        assert!(told.err().contains(&line) && !told.out().contains(&line), "{line}: {}", told.err());
    }
    assert!(!told.err().contains("warning: --epoch-command"), "{}", told.err());
    // A checkpoint or a recipe runs nothing by itself.
    let resumed = place.run("train --resume run --epochs 3 --no-progress").ends(0);
    resumed.complains("warning: the run had --epoch-command '.${IFS}./tell.sh'; give it again to run it");
    place.write("told.toml", "like = 'quick'\n[epoch_command]\ncommand = 'true'\n");
    place.refuses("train --recipe told.toml", "a file must not choose a program to run");
    // A failure is told once.
    let failed = place.run("train --resume run --epochs 5 --no-progress --epoch-command false").ends(0);
    let says = "--epoch-command is `false`, which ended with exit status: 1, but must be a command that ends with status 0; \
                the run goes on without it";
    assert_eq!(failed.complains(says).err().matches("which ended with").count(), 1);
    assert_eq!(place.read("run/history.csv").lines().count(), 6);
}

/// All files name them, options watch them, and `evaluate` computes the same.
#[test]
fn a_run_measures_what_it_is_told() {
    let place = Place::new();
    let flags = "--epochs 2 --metrics f1,top3_acc --save-best val_f1 --csv-log log.csv";
    place.prints(&format!("{SMALL} {flags}"), " - val_f1: ");
    let history = place.read("run/history.csv");
    let (header, last) = (history.lines().next().unwrap(), history.lines().last().unwrap());
    assert_eq!(header, "epoch,loss,acc,val_loss,val_acc,val_f1,val_top3_acc,lr,seconds,images_per_second");
    let log = place.read("log.csv");
    let columns = "epoch,accuracy,learning_rate,loss,val_accuracy,val_f1,val_loss,val_top3_acc";
    assert_eq!(log.lines().next(), Some(columns));
    assert!(place.read("run/curves.svg").contains("Macro F1"));
    let evaluated = place.run("evaluate --json --model run/checkpoints/epoch-0002").ends(0).out();
    let evaluated: serde_json::Value = serde_json::from_str(&evaluated).unwrap();
    let f1: f64 = last.split(',').nth(5).unwrap().parse().unwrap();
    assert!((evaluated["f1"].as_f64().unwrap() - f1).abs() < 1e-9, "{f1}, not {}", evaluated["f1"]);
    place.prints("evaluate --model run", " - balanced_acc: ");
    // A resume may measure more; the epochs before lack it.
    let more = "train --resume run --epochs 3 --metrics f1,top3_acc,recall";
    place.run(more).ends(1).complains("its first line is `epoch,accuracy,");
    place.prints(&format!("{more} --csv-log more.csv"), " - val_recall: ");
    let history = place.read("run/history.csv");
    let recalls = Vec::from_iter(history.lines().map(|line| line.split(',').nth(7).unwrap().is_empty()));
    assert_eq!(
        (recalls, history.contains("val_top3_acc,val_recall")),
        (vec![false, true, true, false], true)
    );
}

#[test]
fn metrics_that_are_not_measured_are_refused() {
    let place = Place::new();
    place.refuses(&format!("{SMALL} --metrics f11"), "did you mean `f1`?");
    place.refuses(&format!("{SMALL} --early-stop val_f1"), "or val_f1 with `f1` in --metrics");
    place.refuses(&format!("{SMALL} --metrics auc"), "needs two classes, and there are 10");
    place.refuses(
        &format!("{SMALL} --save-best val_f3"),
        "val_recall, val_f1, val_mcc, val_auc, val_exact_acc; did you mean",
    );
    assert!(!place.path().join("run").exists());
}

/// Output files that flags chose belong to the run, and a resume continues them from any folder.
#[test]
fn a_resumed_run_goes_on_with_its_logs() {
    let place = Place::new();
    let flags =
        "--epochs 2 --csv-log log.csv --csv-separator ; --csv-append --tensorboard logs --histogram-freq 1";
    let line = format!("{SMALL} {flags}").replace(" --output run", "");
    std::fs::write(
        place.path().join("log.csv"),
        "epoch;accuracy;learning_rate;loss;val_accuracy;val_loss\r\n0;1;1;1;1;1\r\n",
    )
    .unwrap();
    place.prints(&format!("{line} --output plot.svg"), "done: runs/quick-1");
    let config: serde_json::Value = serde_json::from_str(&place.read("runs/quick-1/config.json")).unwrap();
    assert_eq!(
        (&config["csv_log"]["separator"], &config["tensorboard"]["histogram_freq"]),
        (&";".into(), &1.into())
    );
    let (rows, events) = (|| place.read("log.csv"), || files(&place, "logs/train").len());
    assert_eq!((rows().lines().count(), events()), (4, 1));
    place.remove("plot.svg");
    // From another folder. The run was killed after it wrote the second epoch's row, but before its
    // checkpoint.
    place.make_folder("elsewhere");
    place.remove("runs/quick-1/checkpoints/epoch-0002");
    let resume = "train --resume ../runs/quick-1 --no-progress --epochs 3";
    let resumed = place.command(resume).current_dir(place.path().join("elsewhere")).output().unwrap();
    assert!(resumed.status.success(), "{}", super::text(&resumed.stderr));
    let epochs: Vec<String> =
        rows().lines().map(|row| row.split(';').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(epochs, ["epoch", "0", "0", "1", "2"]);
    assert!(files(&place, "elsewhere").is_empty() && events() == 2 && place.exists("plot.svg"));
    // With other flags.
    let before = rows();
    place
        .run("train --resume runs/quick-1 --epochs 4 --forget-outputs --csv-log new.csv --no-progress")
        .ends(0);
    assert_eq!((rows(), events(), place.read("new.csv").lines().count()), (before, 2, 5));
    // A run resumed into another folder is a new run, and writes none of the first one's files.
    let from =
        place.run(&format!("{SMALL} --epochs 2 --csv-log a.csv --checkpoint-path w-{{epoch}}.safetensors"));
    from.ends(0);
    let before = place.read("a.csv");
    place.run("train --resume-from run/w-1.safetensors --output on --no-progress").ends(0);
    assert!(place.read("a.csv") == before && !place.read("on/config.json").contains("a.csv"));
}

/// As by Keras' `load_model` and `fit(initial_epoch)`: the rest of the run, in another folder.
#[test]
fn a_run_goes_on_from_a_file_of_its_network() {
    let place = Place::new();
    let line = format!("{SMALL} --epochs 3 --checkpoint-path w-{{epoch}}.safetensors");
    place.run(&line).ends(0);
    let read = |file: &str| std::fs::read(place.path().join(file)).unwrap();
    let on = "train --no-progress --resume-from run/w-2.safetensors --output";
    let ran = place.prints(&format!("{on} on"), "Epoch 3/3").says("done: on");
    assert!(!ran.out().contains("Epoch 2/3"), "{}", ran.out());
    assert!(read("on/model.safetensors") == read("run/model.safetensors"));
    assert_eq!(place.read("on/history.csv").lines().count(), 4, "with the epochs before");
    place.refuses(&format!("{on} run"), "run already holds a run");
    place.refuses(&format!("{on} other --lr 0.5"), "--lr can't change");
    let weights = "train --resume-from run/model.safetensors --output other";
    place.fails(weights, "it holds only weights");
}

/// The error ends the run, and the epoch is saved all the same.
#[test]
fn a_file_that_can_not_be_written_costs_no_epoch() {
    let place = Place::new();
    let line = format!("{SMALL} --epochs 1 --checkpoint-path w-{{epoch}}.safetensors");
    place.run(&line).ends(0);
    let in_the_way = place.path().join("run/w-2.safetensors");
    std::fs::create_dir_all(in_the_way.join("folder")).unwrap();
    place.fails("train --resume run --epochs 3 --no-progress", "w-2.safetensors");
    assert_eq!(files(&place, "run/checkpoints"), ["epoch-0001", "epoch-0002", "step-00000005"]);
    let ran = place.prints("train --resume run --no-progress", "Epoch 3/3");
    assert!(!ran.out().contains("Epoch 2/3") && place.exists("run/w-3.safetensors"), "{}", ran.out());
}

/// The same command starts a run, resumes it after a failure, and does nothing once it is done.
#[test]
fn the_same_command_begins_and_goes_on() {
    let place = Place::new();
    let line = format!("{SMALL} --epochs 2 --save-every 0 --keep-last 0 --backup-and-restore=1");
    place.prints(&line, "Epoch 1/2").says("done: run");
    let whole = std::fs::read(place.path().join("run/model.safetensors")).unwrap();
    assert_eq!(files(&place, "run/checkpoints").first().map(String::as_str), Some("epoch-0002"));
    place.run(&line).ends(0).complains("epoch 2 of 2 is done; to continue");
    // As if the run had been killed in the second epoch.
    let checkpoints = files(&place, "run/checkpoints");
    for later in checkpoints.iter().filter(|name| *name != "step-00000002" && *name != "step-00000003") {
        std::fs::remove_dir_all(place.path().join("run/checkpoints").join(later)).unwrap();
    }
    place.run(&line).ends(0).complains("resuming from run/checkpoints/step-00000003");
    assert!(std::fs::read(place.path().join("run/model.safetensors")).unwrap() == whole);
    place.refuses(&line.replace("--output run", ""), "--output");
}

/// A run that early stopping has ended does not change until more is asked for.
#[test]
fn a_run_that_stopped_early_is_done() {
    let place = Place::new();
    let stop = "--early-stop val_loss:patience=2";
    let line = format!("{SMALL} --epochs 20 --lr 0 --backup-and-restore");
    let epochs = || place.read("run/history.csv").lines().count() - 1;
    place.prints(&format!("{line} {stop}"), "stopped early: ");
    assert_eq!(epochs(), 3);
    let model = || std::fs::read(place.path().join("run/model.safetensors")).unwrap();
    let before = model();
    let ran = place.prints(&format!("{line} {stop}"), "stopped early: val_loss has not improved");
    ran.says("it had stopped before; to continue, give a larger --epochs").says("done: run");
    assert!(epochs() == 3 && model() == before);
    place.prints("train --resume run --no-progress", "stopped early: ");
    assert_eq!(epochs(), 3);
    let longer = line.replace("--epochs 20", "--epochs 30");
    place.run(&format!("{longer} {stop}")).ends(0);
    assert_eq!(epochs(), 4, "more epochs than it was to have");
    place.run(&format!("{longer} --early-stop val_loss:patience=5")).ends(0);
    assert_eq!(epochs(), 6, "other options");
}

#[test]
fn a_run_may_end_at_a_loss_that_is_no_number() {
    let place = Place::new();
    let line = format!("{SMALL} --epochs 3 --schedule milestones:at=1,factor=1e30");
    place.fails(&line, "error: the loss became ");
    let ran = place.run(&format!("{} --terminate-on-nan", line.replace("run", "other"))).ends(0);
    ran.says("stopped early: the loss became ").says("done: other");
    assert_eq!(place.read("other/history.csv").lines().count(), 2);
    place.run("evaluate other").ends(0);
    // Without a checkpoint there is nothing to resume, so the folder can be used again. A file of the network
    // counts as a run.
    let none = line.replace("run", "none") + " --terminate-on-nan --save-every 0";
    place.prints(&none, "checkpoints saved before, if any, are kept");
    assert_eq!(place.read("none/history.csv").lines().count(), 2);
    place.fails("train --resume none", "start it again");
    place.run(&format!("{none} --checkpoint-path w-{{epoch}}.safetensors")).ends(0);
    place.refuses(&none, "none already holds a run; choose another --output");
}
