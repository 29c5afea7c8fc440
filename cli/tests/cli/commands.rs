use super::Place;
use serde_json::Value;

#[test]
fn evaluate_measures_what_validation_did() {
    let place = Place::new();
    // A network that is very sure, and wrong: most losses are those of a probability below the range of f32.
    let train = "train --recipe quick --dataset synthetic --limit-train 40 --limit-test 30 --epochs 2 --batch-size 8 --lr 3";
    // Plain loops replace the matrix units that bf16 needs.
    for (precision, tolerance) in [("fp32", 1e-5), ("bf16", 1e-2)] {
        let run = |args: &str| {
            let args = format!("{args} --precision {precision}");
            place.run_with(&args, &[("TOWERS_SIMD", "portable")]).ends(0).out()
        };
        run(&format!("{train} --output {precision}"));
        let last = place.last_epoch(precision);
        let evaluated: Value = serde_json::from_str(&run(&format!("evaluate {precision} --json"))).unwrap();
        let [told, loss] = [&last["val_loss"], &evaluated["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!(told > 100.0 && (told - loss).abs() < tolerance * told, "{precision}: {told}, {loss}");
        assert_eq!(last["val_acc"], evaluated["acc"], "{precision}");
    }
}

#[test]
fn lr_find_suggests_a_rate_that_train_takes() {
    let place = Place::new();
    let data = "--quick --dataset synthetic --limit-train 600 --limit-test 20 --batch-size 20";
    let ran = place.run(&format!("lr-find {data} --early-stop val_loss --output losses.svg")).ends(0);
    let ran = ran.complains("has its own rates and saves no run, so it leaves out --schedule, --early-stop");
    let out = ran.out();
    assert!(out.contains("at the steepest descent: ") && out.contains("\nwrote losses.svg\n"), "{out}");
    assert!(place.read("losses.svg").contains("learning rate"));
    let flag = out.lines().last().unwrap();
    place.run(&format!("train {data} {flag} --epochs 1 --no-progress --output run")).ends(0);
    let json = place.run(&format!("lr-find {data} --json")).ends(0).json();
    assert_eq!(flag, format!("--lr {:.2e}", json["suggestion"].as_f64().unwrap()));
    assert_eq!(json["lr"].as_array().unwrap().len(), json["smoothed"].as_array().unwrap().len());
    assert!(place.path().join("lr-find.png").exists() && !place.path().join("runs").exists());
    place.refuses("lr-find --max-lr 1e-8 --quick --dataset synthetic", "--max-lr is ");
    place.refuses("lr-find --steps 5 --quick --dataset synthetic", "--steps is 5, but must be at least 13");
    place.refuses("lr-find --output runs --quick", "--output is runs, but must end in .png or .svg");
}

#[test]
fn evaluate_and_predict_use_what_was_trained() {
    let place = Place::new();
    let flags = "--dataset synthetic --limit-train 400 --limit-test 70 --epochs 1 --save-best val_acc";
    place.run(&format!("train --quick {flags} --no-progress")).ends(0);
    let epoch = place.last_epoch("runs/quick-1");
    let measured = place.run("evaluate --json").ends(0).json();
    assert_eq!((&measured["samples"], &measured["acc"]), (&Value::from(70), &epoch["val_acc"]));
    assert_eq!(measured["test_samples"], 2000);
    place.prints(
        "evaluate",
        "on the first 70 of 2,000 test images of synthetic, as the run was; --limit-test changes that\n",
    );
    place.prints("evaluate --limit-test 2000", "runs/quick-1 on the 2,000 test images of synthetic\n");
    let (loss, val_loss) = (measured["loss"].as_f64(), epoch["val_loss"].as_f64());
    let differ = (loss.unwrap() - val_loss.unwrap()).abs();
    assert!(differ < 1e-4, "{loss:?} {val_loss:?}");
    let confused: Vec<Vec<u64>> = serde_json::from_value(measured["confusion"].clone()).unwrap();
    assert_eq!(confused.iter().flatten().sum::<u64>(), 70);
    let model = place.model("runs/quick-1");
    let to_model = "report runs/quick-1 --output runs/quick-1/model.safetensors";
    place.refuses(to_model, "but must be a folder, or a file that ends in .html or .htm\n");
    assert_eq!(place.model("runs/quick-1"), model);
    place.prints("report", "report.html");
    let page = place.read("runs/quick-1/report.html");
    for expected in [
        "On the first 70 of 2,000 test images of synthetic: ",
        "Confusion matrix",
        "first layer",
        "<th>seed<td>",
        "<th>processor<td>",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    place.prints(
        "evaluate runs/quick-1/model.safetensors --dataset synthetic --limit-test 10",
        "on the first 10 of 2,000 test images of synthetic\n",
    );
    // The model knows its data without the run's configuration.
    place.write("runs/quick-1/config.json", "{");
    place.prints("evaluate --limit-test 10 --offline", "the first 10 of 2,000 test images of synthetic\n");
    place.prints("evaluate --limit-test 9 --offline", "  checkerboard        no images\n");
    place.fails("report", "config.json: the file is damaged");
    // A folder without a model and a history is no run to report on, however new.
    place.make_folder("runs/quick-2");
    place.write("runs/quick-2/config.json", "{}");
    place.fails("report", "runs/quick-1/config.json");
    place.run("preview --dataset synthetic --recipe quick --samples 2 --columns 3 --output grid.png").ends(0);
    let taken = "no run is named; taking the newest, runs/quick-1\n";
    place.run("export --output net.onnx").ends(0).complains(taken).says("wrote net.onnx");
    let named = place.run("export runs/quick-1 --output net.onnx").ends(0);
    assert_eq!(named.err(), "");
    let predicted = place.run("predict grid.png --json --top 10").ends(0).complains(taken).json();
    let classes = predicted["classes"].as_array().unwrap();
    let sum: f64 = classes.iter().filter_map(|class| class["probability"].as_f64()).sum();
    assert!(classes.len() == 10 && (sum - 1.0).abs() < 1e-4, "{predicted}");
}

/// Unreadable files are reported and skipped; a folder stands for all pictures below it. More than a batch of
/// them is printed in order.
#[test]
fn predict_goes_on_behind_a_bad_picture() {
    let place = Place::new();
    let at = |file: &str| place.path().join(file);
    place.run("preview --dataset synthetic --recipe quick --samples 1 --columns 1 --output cat.png").ends(0);
    for folder in ["pets/more", "empty", "odd.png"] {
        std::fs::create_dir_all(at(folder)).unwrap();
    }
    let copy = |file: &str| _ = std::fs::copy(at("cat.png"), at(file)).unwrap();
    (0..70).for_each(|k| copy(&format!("pets/more/{k:02}.png")));
    ["pets/a.JPG", "pets/z.jpeg", "pets/.hidden.png", "pets/more/notes.txt"].into_iter().for_each(copy);
    std::fs::write(at("pets/bad.png"), "no picture").unwrap();
    let keras =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras/small_cnn.keras");
    let keras = keras.display();
    let ran = place.run(&format!("predict gone.png pets empty cat.png odd.png --model {keras} --json"));
    let ran = ran.ends(1).complains("gone.png: ").complains("pets/bad.png: ");
    let ran = ran.complains("error: empty: the folder has no picture: .bmp, .gif, ");
    let ran = ran.complains("error: odd.png: the folder has no ").complains("passed over 1 file ");
    let ran = ran.complains("4 files or folders could not be read\n");
    let ran = ran.complains("preprocessing is assumed to be divide-by-255");
    assert_eq!(ran.err().lines().count(), 7, "{}", ran.err());
    let image = |line: &str| -> String {
        let object: Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["classes"].as_array().map(Vec::len), Some(3));
        // JSON doubles the backslashes of Windows; the captured output has slashes instead.
        object["image"].as_str().unwrap().replace("//", "/")
    };
    let images: Vec<_> = ran.out().lines().map(image).collect();
    let below = (0..70).map(|k| format!("pets/more/{k:02}.png"));
    let expected = ["pets/a.JPG".to_owned()].into_iter().chain(below);
    let expected: Vec<_> = expected.chain(["pets/z.jpeg", "cat.png"].map(str::to_owned)).collect();
    assert_eq!(images, expected);
    std::fs::remove_file(at("pets/bad.png")).unwrap();
    let told = |flags: &str| place.run(&format!("predict pets --model {keras} {flags}")).ends(0).out();
    assert_eq!(told("").lines().count(), 72);
    let table = told("--csv --top 2");
    assert_eq!(table.lines().count(), 73);
    assert_eq!(table.lines().next(), Some("image,class,probability,class_2,probability_2"));
    let first: Vec<&str> = table.lines().nth(1).unwrap().split(',').collect();
    assert!(first[0].ends_with("a.JPG") && first[2].parse::<f32>().unwrap() > 0.1, "{first:?}");
    assert_eq!(told("--csv --top 2 --replicas 2"), table);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        std::fs::rename(at("cat.png"), at("pets").join(std::ffi::OsStr::from_bytes(b"\xff.png"))).unwrap();
        assert!(told("--json").contains("pets/\u{fffd}.png"));
    }
}

/// Options of every kind in one run, whose evaluation needs values measured on its training images.
#[test]
fn flags_of_the_augmentation_train_evaluate_and_preview() {
    let place = Place::new();
    let flags = "--rotation-range 15 --zoom-range 0.8,1.1 --width-shift-range 3 --horizontal-flip false --alternating-flip \
                 --brightness-range 0.8,1.2 --rand-augment --random-resized-crop 0.5,1 --featurewise-std-normalization \
                 --compose color-jitter:hue=0.1,p=0.8+random-erasing:value=random";
    let data = "--dataset synthetic --limit-train 200";
    let few = "--limit-test 10 --epochs 1 --no-progress";
    place.run(&format!("train --quick --validation-split 0.2 {few} {data} {flags}")).ends(0);
    assert!(place.last_epoch("runs/quick-1")["val_loss"].as_f64().is_some_and(f64::is_finite));
    for tta in ["", "--tta", "--tta=flip-translate"] {
        let measured = place.run(&format!("evaluate --json {tta}")).ends(0).json();
        assert!(measured["loss"].as_f64().is_some_and(|loss| loss < 20.0), "{tta}: {measured}");
    }
    place.run("train --resume runs/quick-1 --epochs 2 --no-progress --rotation-range 15").ends(0);
    place.refuses(
        "train --resume runs/quick-1 --rotation-range 9",
        "--rotation-range can't change when a run is resumed: the run has 15.0, this command line 9.0;",
    );
    place.refuses(
        "train --resume runs/quick-1 --compose random-erasing",
        "--compose can't change when a run is resumed",
    );
    place.refuses("train --quick --compose random-erase", "did you mean `random-erasing`?");
    place.prints(
        &format!("preview {data} --samples 3 --columns 4 {flags} --save-to-dir all --save-prefix x"),
        "9 pictures into all",
    );
    assert!(place.exists("all/x_2_2.png"));
}

#[test]
fn bench_prints_the_contracts_fields() {
    let place = Place::new();
    let result = place
        .run("bench --recipe keras-cnn --batch 4 --seconds 0.01 --repeats 1 --mode infer --json")
        .ends(0)
        .json();
    assert_eq!((&result["model"], &result["mode"]), (&Value::from("keras_cnn"), &Value::from("infer")));
    assert_eq!(result["image"], Value::from(vec![32, 32, 3]));
    for field in ["batch", "images_per_s", "peak_rss_mb", "device", "threads", "precision"] {
        assert!(!result[field].is_null() || field == "peak_rss_mb", "{field}: {result}");
    }
    place.prints("bench --recipe quick --batch 4 --seconds 0.01 --repeats 1", "images/s on the cpu");
    let larger = "like = 'quick'\n[data]\nimage_size = '48x40'\n";
    place.write("larger.toml", larger);
    let both =
        ["", "--replicas 2"].map(|flags| format!("{flags} --batch 4 --seconds 0.01 --repeats 1 --json"));
    for flags in both {
        let result = place.run(&format!("bench --recipe larger.toml {flags}")).ends(0).json();
        assert_eq!(result["image"], Value::from(vec![48, 40, 3]), "{flags}");
    }
}

#[test]
fn program_prints_every_op_with_its_place() {
    let place = Place::new();
    let train = place.run("program --recipe quick --batch 4").ends(0);
    train
        .says("conv2d 3x3")
        .says("@conv2d/kernel@0")
        .says("batch_norm_recompute")
        .says("statistics, for a batch of 4");
    place.prints("program --recipe quick --mode infer", "fold").says("conv2d_batch_norm");
    let sync = place.run("program --recipe quick --replicas 2 --sync-batch-norm").ends(0);
    sync.says("all_gather rank 0 of 2").says("all_reduce");
    place.prints("program --recipe quick --pipeline-stages 2", "stage 2 of 2").says("receive");
}

#[test]
fn a_timeline_is_a_file_of_events() {
    let place = Place::new();
    place.prints("program --recipe quick --batch 4 --replicas 2 --device cpu --timeline t.json", "t.json");
    let text = std::fs::read_to_string(place.path().join("t.json")).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut events = trace["traceEvents"].as_array().unwrap().iter();
    assert!(events.any(|event| event["name"] == "conv2d_weight_gradient"));
    place.refuses("program --timeline nowhere/t.json", "the folder nowhere does not exist");
    place.refuses("program --mode infer --timeline t.json", "--mode");
}

#[test]
fn bench_tells_when_the_first_step_was_taken() {
    let place = Place::new();
    let at = place.run("bench first-step --recipe quick --batch 4 --json").ends(0).json();
    let names = ["started_s", "opened_s", "built_s", "initialized_s", "began_s", "ended_s"];
    let times = names.map(|name| at[name].as_f64().unwrap_or(f64::NAN));
    assert!(times[0] >= 0.0 && times.is_sorted(), "{at}");
    place.prints("bench first-step --recipe quick", "the first training step begins");
    place.refuses("bench first-step --mode infer", "unexpected argument '--mode'");
}

#[test]
fn bench_tells_what_replicas_wait_for() {
    let place = Place::new();
    let line = "bench --recipe quick --batch 4 --replicas 2 --threads 2 --seconds 0.01 --repeats 1";
    let result = place.run(&format!("{line} --json")).ends(0).json();
    assert_eq!((&result["replicas"], &result["batch"]), (&Value::from(2), &Value::from(4)));
    let time = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
    assert!(time("slowest_s") > 0.0 && time("slowest_s") <= time("step_s"), "{result}");
    assert!((time("slowest_s") + time("exchange_s") - time("step_s")).abs() < 1e-9, "{result}");
    place.prints(line, "2 replicas, batch 4 each").says("the slowest replica computes");
}

#[test]
fn a_recipe_is_printed_changed_and_given_back() {
    let place = Place::new();
    place.prints("recipes", "resnet18").says("keras-cnn");
    let printed = place.run("recipes quick").ends(0).out();
    let write = |file: &str, text: &str| std::fs::write(place.path().join(file), text).unwrap();
    write("mine.toml", &printed.replace("epochs = 4", "epochs = 1").replace("recipe = \"quick\"", ""));
    let again = place.run("recipes mine.toml").ends(0).out();
    assert!(again.contains("epochs = 1") && again.contains("horizontal_flip = true"), "{again}");
    place
        .run("train --recipe mine.toml --dataset synthetic --limit-train 50 --limit-test 50 --no-progress")
        .ends(0);
    let config: Value = serde_json::from_str(&place.read("runs/mine-1/config.json")).unwrap();
    assert_eq!(
        (&config["epochs"], &config["recipe"], &config["model"]),
        (&1.into(), &"mine".into(), &"small_cnn".into())
    );
    place.run("train --recipe mine.toml --resume runs/mine-1 --epochs 2 --no-progress").ends(0);
    place.refuses("train --recipe quick --resume runs/mine-1 --epochs 3", "--recipe");
    write("bad.toml", "like = 'quick'\nepoch = 1");
    place.refuses("train --recipe bad.toml", "did you mean `epochs`?");
    place.fails("train --recipe missing.toml", "can't read missing.toml");
    place.refuses("recipes resnet", "did you mean `resnet18`?");
}

#[test]
fn devices_says_what_there_is_and_why_not_more() {
    let ran = Place::new().run("devices").ends(0).says("cpu: ").says("cuda: none");
    assert!(ran.out().matches("the NVIDIA driver can't be loaded").count() < 2, "{}", ran.out());
}

/// `-h` and `--help` print the same page, and related flags are together.
#[test]
fn help_is_short_and_in_groups() {
    let place = Place::new();
    for command in ["evaluate", "predict", "export", "report", "preview", "bench", "launch"] {
        let long = place.run(&format!("{command} --help")).ends(0).out();
        assert_eq!(long, place.run(&format!("{command} -h")).ends(0).out(), "{command}");
    }
    // The flags of `train` fill several screens.
    let [short, help] = ["-h", "--help"].map(|flag| place.run(&format!("train {flag}")).ends(0).out());
    assert!(short.lines().count() <= 42 && help.lines().count() > 100, "{short}");
    assert!(!short.contains("--csv-log") && help.contains("--csv-log"), "{short}");
    short.lines().filter(|line| line.starts_with(' ')).for_each(|line| {
        let flag = line.split_whitespace().find(|word| word.starts_with("--")).unwrap();
        assert!(help.contains(flag.trim_end_matches(']')), "{flag}");
    });
    let headings: Vec<&str> =
        help.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    let expected = [
        "Options",
        "Optimizer",
        "Fine-tuning",
        "Data",
        "Augmentation",
        "Several replicas",
        "Devices",
        "Output",
        "Callbacks",
    ];
    assert_eq!(headings, expected.map(|heading| format!("{heading}:")), "{help}");
}

#[test]
fn fetch_knows_the_synthetic_set() {
    let ran = Place::new().run("fetch --dataset synthetic").ends(0);
    ran.says("10000 training and 2000 test images of 10 classes");
}

/// Each is made of the declared flags.
#[test]
fn shells_complete_flags_and_there_are_manual_pages() {
    let place = Place::new();
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        place.prints(&format!("completions {shell}"), "early-stop");
    }
    let script = place.run("completions bash").ends(0).out();
    place.write("towers.bash", script);
    // Bash completes a value of `--precision` and a command.
    let ask = |words: &str, cursor: usize| {
        let line = format!(
            "source towers.bash; COMP_WORDS=({words}); COMP_CWORD={cursor}; _towers towers ${{COMP_WORDS[{cursor}]}} \
             ${{COMP_WORDS[{}]}}; echo ${{COMPREPLY[@]}}",
            cursor - 1
        );
        std::process::Command::new("bash").args(["-c", &line]).current_dir(place.path()).output()
    };
    match ask("towers train --precision bf", 3) {
        Ok(output) => {
            assert_eq!(String::from_utf8_lossy(&output.stdout), "bf16\n", "{output:?}");
            let nested = ask("towers bench profile --precision bf", 4).unwrap();
            assert_eq!(String::from_utf8_lossy(&nested.stdout), "bf16\n", "{nested:?}");
            let commands = ask("towers eval", 1).unwrap();
            assert_eq!(String::from_utf8_lossy(&commands.stdout), "evaluate\n", "{commands:?}");
        }
        Err(why) => println!("SKIPPED: the script for bash: {why}"),
    }
    place.prints("man train", ".TH towers-train 1");
    place.prints("man", "towers\\-evaluate");
    place.refuses("man tran", "did you mean `train`?");
}
