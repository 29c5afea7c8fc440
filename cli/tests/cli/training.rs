use super::Place;

/// A run that takes about a second.
const SMALL: &str = "train --quick --dataset synthetic --limit-train 300 --limit-test 60 --no-progress";

/// The figures of `column`, from `history.csv`.
fn history(place: &Place, run: &str, column: &str) -> Vec<f64> {
    let csv = place.read(&format!("{run}/history.csv"));
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(head, ["epoch", "loss", "acc", "val_loss", "val_acc", "lr", "seconds", "images_per_second"]);
    let k = head.iter().position(|name| *name == column).unwrap();
    lines.map(|line| line.split(',').nth(k).unwrap().parse().unwrap()).collect()
}

/// `--quick` with another recipe keeps that recipe's length, and can't resume a run of another recipe.
#[test]
fn quick_beside_another_recipe() {
    let place = Place::new();
    let file = "[data]\ndataset = \"synthetic\"\nlimit_train = 60\nlimit_test = 20\n";
    let recipe = place
        .run("recipes quick")
        .ends(0)
        .out()
        .replace("epochs = 4", "epochs = 2")
        .replace("\"quick\"", "\"mine\"");
    place.write("mine.toml", format!("{recipe}\n{file}"));
    let line = "train --quick --recipe mine.toml --no-progress";
    let says = "--quick leaves network and epochs to --recipe mine: small_cnn, 2 epochs; for a short trial";
    place.run(line).ends(0).complains(says);
    let short = place.run(&format!("{line} --epochs 1")).ends(0);
    assert!(!short.err().contains("--quick"), "{}", short.err());
    place.refuses(
        "train --quick --resume",
        "--quick is for runs of the recipe quick, but this run is of mine; leave it out, or name another",
    );
    place.run("train --resume --epochs 2").ends(0);
    place.run(&format!("{SMALL} --epochs 1 --output q")).ends(0);
    let again = place.run("train --quick --resume q --epochs 2 --no-progress").ends(0);
    assert!(!again.err().contains("--quick"), "{}", again.err());
}

/// With a learning rate of 0, equal batches of two epochs have equal losses.
#[test]
fn samples_are_shuffled_unless_told_otherwise() {
    let place = Place::new();
    place.write("flat.toml", "[[layer]]\nclass = 'Flatten'\n[[layer]]\nclass = 'Dense'\n");
    let train = format!("{SMALL} --model flat.toml --no-augmentation --lr 0 --epochs 2 --log-every 1");
    let losses = |flag: &str, run: &str| {
        place.run(&format!("{train} --output {run} {flag}")).ends(0);
        let steps = place.read(&format!("{run}/history-steps.jsonl"));
        let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].clone();
        let losses = Vec::from_iter(steps.lines().map(loss));
        let (first, second) = losses.split_at(losses.len() / 2);
        assert!(first.len() > 1 && first.len() == second.len(), "{losses:?}");
        (first.to_vec(), second.to_vec())
    };
    let (first, second) = losses("--shuffle false", "sorted");
    assert_eq!(first, second);
    let drawn = losses("", "drawn");
    assert!(drawn.0 != drawn.1 && drawn.0 != first);
    assert_eq!(losses("--shuffle", "told"), drawn);
    place.refuses("train --resume sorted --epochs 3 --shuffle true", "--shuffle can't change");
}

/// The main task without a network: a loud warning, synthetic images, half of which are enough for 90% in two epochs, all files
/// present.
#[test]
fn quick_learns_the_synthetic_set_in_two_epochs() {
    let place = Place::new();
    let ran = place.run("train --quick --offline --epochs 2 --limit-train 5000").ends(0);
    let ran = ran.complains("SYNTHETIC").says("Epoch 1/2\n - ").says("s - loss: ").says(" - val_acc: ");
    ran.says("done: runs/quick-1");
    let acc = history(&place, "runs/quick-1", "val_acc");
    assert!(acc[1] >= 0.9, "{acc:?}");
    for file in [
        "config.json",
        "history.csv",
        "history.jsonl",
        "history-steps.jsonl",
        "curves.svg",
        "curves.png",
        "checkpoints",
        "model.safetensors",
    ] {
        assert!(place.exists(&format!("runs/quick-1/{file}")), "{file}");
    }
    assert_eq!(place.last_epoch("runs/quick-1")["epoch"], 2);
    assert!(place.read("runs/quick-1/curves.svg").contains("small_cnn on synthetic"));
}

/// Only a new run may take synthetic images: a resumed run on CIFAR would otherwise continue on other data.
#[test]
fn quick_goes_on_with_the_images_that_it_began_with() {
    let place = Place::new();
    place.run(&format!("{SMALL} --epochs 1 --output run --checkpoint-path w.safetensors")).ends(0);
    let file = place.path().join("run/w.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    // The file's header has the configuration, as JSON within JSON. It says cifar10 now, with the same
    // length.
    let (said, says) = (br#"\"synthetic\""#, br#"\"cifar10\"  "#);
    let at = bytes.windows(said.len()).position(|part| part == said).unwrap();
    let cifar = [&bytes[..at], says, &bytes[at + said.len()..]].concat();
    std::fs::write(&file, cifar).unwrap();
    let on = "train --quick --resume-from run/w.safetensors --epochs 2 --offline --no-progress --output on";
    let ran = place.fails(on, "no usable CIFAR-10");
    assert!(!ran.err().contains("SYNTHETIC") && !place.exists("on"), "{}", ran.err());
}

#[test]
fn one_epoch_and_one_more_are_two() {
    let place = Place::new();
    let small = format!("{SMALL} --schedule constant");
    place.run(&format!("{small} --epochs 2 --output whole")).ends(0);
    place.run(&format!("{small} --epochs 1 --output parts")).ends(0);
    place.run("train --resume parts --epochs 2").ends(0).complains("resuming from").says("Epoch 2/2");
    for column in ["loss", "acc", "val_loss", "val_acc", "lr"] {
        assert_eq!(history(&place, "whole", column), history(&place, "parts", column), "{column}");
    }
    assert!(place.model("whole") == place.model("parts"), "the models differ");
    // All epochs are done: nothing happens, with a message.
    place.run("train --resume parts").ends(0).complains("epoch 2 of 2 is done; to continue");
}

/// A run is a recipe: its folder, or its `config.json`.
#[test]
fn a_run_is_repeated() {
    let place = Place::new();
    let flags = "--epochs 1 --seed 5 --replicas 2 --device cpu --label-smoothing 0.1 --csv-log log.csv";
    place.run(&format!("{SMALL} {flags} --output first")).ends(0);
    place.remove("log.csv");
    for (recipe, run) in [("first", "second"), ("first/config.json", "third")] {
        place.run(&format!("train --recipe {recipe} --device cpu --no-progress --output {run}")).ends(0);
        assert!(place.model("first") == place.model(run), "{run} has other weights");
    }
    assert!(!place.exists("log.csv"), "the repeated run writes into its own folder only");
    let changed =
        |run: &str| -> String { place.read(&format!("{run}/config.json")).split_whitespace().collect() };
    let expected = r#""changed":["epochs","seed","label_smoothing","#;
    assert!(changed("first").contains(expected), "{}", changed("first"));
    // The recipe is that of the first run, from which the second differs too. Its file of metrics is its own.
    assert!(changed("second").contains(expected), "{}", changed("second"));
    let listed = changed("second");
    let listed = listed.split_once("changed\":[").and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    assert!(listed.contains("devices.replicas") && !listed.contains("csv_log"), "{listed}");
}

#[test]
fn three_towers_on_the_cpu() {
    let place = Place::new();
    let flags = "--epochs 1 --replicas 3 --device cpu --batch-size 10 --virtual-replicas 4 --output towers";
    place.prints(&format!("{SMALL} {flags}"), "3 replicas").says("4 virtual replicas");
    let config = place.read("towers/config.json");
    assert!(config.contains("\"replicas\": 3") && config.contains("\"virtual_replicas\": 4"), "{config}");
}

/// The configuration keeps the given values, so that the same flags fit a run that resumed with other
/// replicas.
#[test]
fn the_same_flags_fit_after_another_number_of_towers() {
    let place = Place::new();
    let line = format!("{SMALL} --device cpu --batch-size 10 --output run --backup-and-restore");
    place.run(&format!("{line} --replicas 2 --epochs 1")).ends(0);
    for epochs in [2, 3] {
        place.prints(&format!("{line} --replicas 1 --epochs {epochs}"), &format!("Epoch {epochs}/"));
        let saved = place.read("run/config.json");
        assert!(
            saved.contains("\"batch_size\": 10") && saved.contains("\"global_batch_size\": null"),
            "{saved}"
        );
        let state = place.read(&format!("run/checkpoints/epoch-000{epochs}/state.json"));
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        // 300 images in batches of 20, on one replica as on two.
        assert_eq!(
            (&state["state"]["global_batch"], &state["state"]["step"]),
            (&20.into(), &(15 * epochs).into())
        );
    }
}

/// Four times the batch, four times the rate, with a linear warm-up from the rate of one replica.
#[test]
fn a_scaled_rate_rises_from_that_of_one_tower() {
    let place = Place::new();
    let scaled = "--replicas 4 --device cpu --batch-size 10 --schedule constant --lr 0.01 --lr-scaling linear --warmup-epochs 2";
    let small = format!("{SMALL} {scaled}");
    let said = "Learning rate 0.01 for batches of 10: 0.04 for batches of 40, reached within 2 epochs\n";
    place.prints(&format!("{small} --epochs 3 --output whole"), said);
    // The rate of the last of eight steps per epoch.
    let rates = history(&place, "whole", "lr");
    let expected = [0.01 + 0.03 * 7.0 / 16.0, 0.01 + 0.03 * 15.0 / 16.0, 0.04];
    assert!(rates.iter().zip(expected).all(|(lr, expected)| (lr - expected).abs() < 1e-9), "{rates:?}");
}

/// The chosen number is that of the run: a rate scales with it, and a resume keeps it.
#[test]
fn a_batch_may_be_as_large_as_fits() {
    let place = Place::new();
    let small = format!("{SMALL} --device cpu --schedule constant --replicas 2 --lr-scaling linear");
    let says = "--batch-size auto: 8; 16 would leave less than 10 steps an epoch\n";
    place.run(&format!("{small} --epochs 1 --batch-size auto --output chosen")).ends(0).complains(says);
    let config: serde_json::Value = serde_json::from_str(&place.read("chosen/config.json")).unwrap();
    assert_eq!((&config["batch_size"], &config["lr_scaling"]["base_batch"]), (&8.into(), &8.into()));
    place.run("train --resume chosen --epochs 2 --batch-size auto").ends(0);
    place.run(&format!("{small} --epochs 2 --batch-size 8 --output given")).ends(0);
    assert!(place.model("chosen") == place.model("given"), "the models differ");
    place.refuses(
        &format!("{SMALL} --batch-size auto --pipeline-stages 2 --device cpu"),
        "must be a number with",
    );
    place.refuses(
        "lr-find --quick --dataset synthetic --batch-size auto",
        "--batch-size is auto, but must be a number",
    );
}

/// Measured weights are printed and kept; another number of replicas needs other weights.
#[test]
fn towers_may_take_unlike_slices() {
    let place = Place::new();
    let small = format!("{SMALL} --device cpu --batch-size 10 --epochs 1");
    place.prints(
        &format!("{small} --replicas 3 --device-weights 2,1,1 --output given"),
        "device weights 2,1,1",
    );
    assert!(place.read("given/config.json").contains("\"device_weights\": \"2,1,1\""));
    let even = "train --resume given --epochs 2 --replicas 2 --device-weights even";
    assert!(!place.run(even).ends(0).out().contains("device weights"));
    let ran = place.run(&format!("{small} --replicas 2 --device-weights auto --output measured"));
    ran.ends(0).says(", as measured");
    assert!(place.read("measured/config.json").contains("\"device_weights\": \"auto\""));
}

#[test]
fn a_run_is_never_overwritten() {
    let place = Place::new();
    place.run(&format!("{SMALL} --epochs 1 --output run")).ends(0);
    let before = place.read("run/history.csv");
    place.refuses(&format!("{SMALL} --epochs 1 --output run"), "already holds a run");
    assert_eq!(before, place.read("run/history.csv"));
    // A run is its trained network, not its config.json.
    place.remove("run/config.json");
    place.refuses(&format!("{SMALL} --epochs 1 --output run"), "already holds a run");
    place.remove("run/checkpoints");
    place.refuses(&format!("{SMALL} --epochs 1 --output run"), "already holds a run");
    assert_eq!(before, place.read("run/history.csv"));
}

/// A run that ended before its first checkpoint can't be resumed, and its folder can be used again.
#[test]
fn a_run_that_learnt_nothing_is_no_obstacle() {
    let place = Place::new();
    place.fails(&format!("{SMALL} --epochs 1 --lr 1e30 --output run"), "try a lower --lr");
    place.fails("train --resume run", "start it again");
    place.run(&format!("{SMALL} --epochs 1 --output run")).ends(0);
}

/// A closed pipe and a full disk for the log do not end a run.
#[cfg(unix)]
#[test]
fn a_run_outlives_its_readers() {
    use std::process::Stdio;
    let place = Place::new();
    let args = format!("{SMALL} --epochs 1 --output closed");
    let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(place.exists("closed/model.safetensors"));
    if let Ok(full) = std::fs::File::options().write(true).open("/dev/full") {
        let mut command = place.command(&format!("{SMALL} --epochs 1 --output full"));
        let also = full.try_clone().unwrap();
        let status = command.stdout(full).stderr(also).status().unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

/// Runs that start together get different folders, and no two ever write into one.
#[test]
fn runs_that_start_together_keep_apart() {
    let place = Place::new();
    let start = |args: &str| place.command(args).stderr(std::process::Stdio::null()).spawn().unwrap();
    let numbered = format!("{SMALL} --epochs 1");
    let named = format!("{SMALL} --epochs 2 --output one");
    let mut children: Vec<_> = [&numbered, &numbered, &numbered].map(|args| start(args)).into();
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));
    for number in 1..=3 {
        assert_eq!(history(&place, &format!("runs/quick-{number}"), "loss").len(), 1);
    }
    let mut children: Vec<_> = [&named, &named, &named].map(|args| start(args)).into();
    let succeeds = |child: &mut std::process::Child| child.wait().unwrap().success();
    let done = children.iter_mut().filter_map(|child| succeeds(child).then_some(())).count();
    assert_eq!(done, 1, "one of them trains, the others are refused");
}

#[test]
fn quick_goes_on_where_the_data_folder_cannot_be_made() {
    let place = Place::new();
    // The data folder is in here, unless another is named.
    place.write(".cache", "");
    let flags = "--data-url http://127.0.0.1:9/x.tar.gz --limit-train 100 --limit-test 50";
    place.run(&format!("train --quick --epochs 1 {flags}")).ends(0).complains("SYNTHETIC");
    // A named data set is meant.
    place.fails(&format!("train --quick --epochs 1 {flags} --data-dir .cache/data"), ".cache/data");
}

/// The table of runs, with every way in which a run ends, and folders that can't be read.
#[test]
fn runs_are_listed() {
    let place = Place::new();
    place.refuses("runs", "there is no folder runs; name the one with your runs");
    place.run(&format!("{SMALL} --epochs 2 --seed 4 --lr 0.02")).ends(0);
    place.run(&format!("{SMALL} --epochs 9 --max-time 1 --limit-train 4000")).ends(0).says("stopped early");
    place.fails(&format!("{SMALL} --epochs 3 --lr 1e30 --limit-train 320"), "try a lower --lr");
    let listed = |args: &str| -> Vec<serde_json::Value> {
        let out = place.run(&format!("runs {args} --json")).ends(0).out();
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let runs = listed("");
    let shown = |key: &str| runs.iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    assert_eq!(shown("run"), ["runs/quick-1", "runs/quick-2", "runs/quick-3"]);
    assert_eq!(shown("end"), ["done", "stopped", "failed"]);
    assert!(
        runs[1]["reason"].as_str().unwrap().starts_with("the time of 1 s is over, at step "),
        "{}",
        runs[1]
    );
    let best = history(&place, "runs/quick-1", "val_acc").into_iter().fold(0.0, f64::max);
    let first = serde_json::json!([
        runs[0]["recipe"],
        runs[0]["epochs"],
        runs[0]["of"],
        runs[0]["best_val_acc"],
        runs[0]["changed"]["seed"]
    ]);
    assert_eq!(first, serde_json::json!(["quick", 2, 2, best, 4]));
    assert!(shown("started").windows(2).all(|pair| pair[0].as_str() <= pair[1].as_str()));
    assert_eq!(listed("runs/quick-2").len(), 1, "one run");
    assert_eq!(listed("--sort end")[0]["end"], "done");

    let compared = "runs --compare runs/quick-1 runs/quick-2";
    let table =
        place.run(&format!("{compared} --picture both.svg")).ends(0).complains("wrote both.svg\n").out();
    let row = |name: &str| -> Vec<&str> {
        let line = table.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {table}")).split_whitespace().collect()
    };
    assert_eq!(row("run"), ["run", "runs/quick-1", "runs/quick-2"]);
    assert_eq!(row("lr"), ["lr", "0.02", "0.01"]);
    assert_eq!(row("max_time"), ["max_time", "none", "1"]);
    assert_eq!(row("processes"), ["processes", "1", "1"]);
    assert!(row("val_acc").contains(&&*format!("{best:.4}")), "{table}");
    assert!(!table.contains("batch_size") && place.read("both.svg").contains("runs/quick-2 validation"));
    place.refuses(&format!("{compared} --picture both.pdf"), "but must end in .png or .svg\n");
    place.refuses(
        &format!("{compared} --picture no/a.png"),
        "--picture is no/a.png, but the folder no does not exist",
    );
    place.refuses("runs --compare runs/quick-1", "2 values required");
    place.fails("runs --compare runs/quick-1 runs/quick-9", "runs/quick-9: there is no run here");

    // Killed, of another version, damaged; and a folder that is no run.
    let status = place.read("runs/quick-1/status.json");
    let started = status
        .lines()
        .filter(|line| !line.contains("end"))
        .collect::<Vec<_>>()
        .join("\n")
        .replace("Z\",", "Z\"");
    place.write("runs/quick-1/status.json", started);
    place.remove("runs/quick-2/status.json");
    place.write("runs/quick-3/history.csv", "no history");
    place.make_folder("runs/notes");
    place.make_folder("runs/empty/checkpoints");
    let table = place.run("runs").ends(0).out();
    let line = |run: &str| {
        table.lines().find(|line| line.starts_with(run)).unwrap_or_else(|| panic!("{run}: {table}"))
    };
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(line("run ").contains("best val_acc") && line("runs/quick-1").contains(" killed "), "{table}");
    assert!(
        line("runs/quick-1").ends_with(
            "epochs=2 seed=4 lr=0.02 data.dataset=synthetic data.limit_train=300 data.limit_test=60"
        ),
        "{table}"
    );
    assert!(line("runs/quick-2").contains("/9  "), "{table}");
    assert!(line("runs/quick-3").contains("unreadable: runs/quick-3/history.csv"), "{table}");
    assert!(line("runs/empty").contains("unreadable: can't read runs/empty/config.json"), "{table}");
}
