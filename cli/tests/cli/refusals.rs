use super::folders::draw;
use super::{Place, TRAIN};

/// Bad usage: status 2, one sentence that names the flag, no files left behind. The crates test their own errors.
/// This tests the errors of the command line itself.
#[test]
fn bad_values_name_the_option() {
    let place = Place::new();
    for (args, says) in [
        (
            "fetch --data-url a.tar.gz",
            "--data-url is `a.tar.gz`, but must be the http:// or https:// address",
        ),
        ("train --power 2 --schedule cosine", "--power"),
        (
            "train --patience 3",
            "--patience is given, but must be left out without --early-stop METRIC[:OPTIONS]",
        ),
        ("train --batch-size -5", "--batch-size is -5, but must be a whole number, 1 or more"),
        ("train --lr 0.1 --lr nan --epochs 1 --epochs 2", "--lr is nan, but must be a number"),
        ("train --learning-rate fast", "--lr is fast, but must be a number"),
        (
            "launch --processes 1 -- towers train --quick",
            "launch starts towers by itself; leave the name out: towers launch --processes 2 -- train --quick",
        ),
        ("preview --dataset synthetic --columns 0", "--columns is 0"),
        ("preview --dataset synthetic --samples 1000 --columns 1000 --zoom 64", "pixels"),
        ("preview --seed -1", "invalid value '-1' for '--seed <N>': it takes a whole number, 0 or more"),
        ("evaluate --batch-size 0", "--batch-size is 0"),
        ("predict a.png --top 0", "--top is 0"),
        ("bench --repeats 0", "--repeats is 0"),
        ("bench --seconds nan", "--seconds is NaN"),
        ("evaluate --tta=flpi", "did you mean `flip`?"),
        ("bench --mode trian", "'train'"),
        ("nonsense", "nonsense"),
        ("train --tta=flip", "tip: it belongs to towers evaluate and towers predict"),
        ("train --arch resnet18", "tip: a network is named by --model NAME|FILE"),
        ("train --dropout 0.5", "unexpected argument '--dropout' found\n\nUsage: towers train [OPTIONS]\n"),
        ("train --output-dir a", "a similar argument exists: '--output'"),
        ("train --weight-decay 1e-4", "tip: it is an option of the optimizer"),
        // A flag that would change nothing is not there.
        ("export --output a.onnx --limit-test 3", "unexpected argument '--limit-test'"),
        ("evaluate --limit-train 3", "unexpected argument '--limit-train'"),
        ("bench roofline --batch 3", "unexpected argument '--batch'"),
        ("bench --recipe quick --profile --json", "tip: it is a command: towers bench profile"),
        ("bench --roofline", "tip: it is a command: towers bench roofline"),
        ("bench --first-step", "tip: it is a command: towers bench first-step"),
    ] {
        let ran = place.refuses(args, says);
        assert!(!ran.err().contains("panicked"), "{args}: {}", ran.err());
    }
    assert!(!place.exists("runs"));
    assert!(!place.run("train --arch resnet18").ends(2).err().contains("'--mode'"));
}

/// The usage in an error is that of the help, however many flags were given.
#[test]
fn usage_fits_a_line() {
    let place = Place::new();
    for (args, usage) in [
        ("train --virtual-replicas 2 --micro-batches 2 --recipe quick --seed 1", "train [OPTIONS]"),
        ("evaluate --json --threads 1 --model a b", "evaluate [OPTIONS] [RUN]"),
        ("predict --json --top 2", "predict [OPTIONS] <IMAGE|DIR>..."),
        ("export a --offline", "export [OPTIONS] --output <FILE> [RUN]"),
        ("report --batch-size 1 --x", "report [OPTIONS] [RUN]..."),
        ("fetch --offline --x", "fetch [OPTIONS]"),
        ("preview --zoom 2 --x", "preview [OPTIONS]"),
        ("devices --x", "devices"),
        ("recipes quick --x", "recipes [NAME|FILE.toml]"),
        ("bench --json --x", "bench [OPTIONS]"),
        ("bench profile --json --batch 3 --x", "bench profile [OPTIONS]"),
        ("launch --verbose --processes 2 --gpus 2 -- a", "launch [OPTIONS] -- <COMMAND>..."),
    ] {
        place.refuses(args, &format!("\nUsage: towers {usage}\n"));
    }
}

/// A run that is refused before its first step leaves nothing that it made, and takes nothing that it found.
#[test]
fn a_refused_run_leaves_nothing_behind() {
    let place = Place::new();
    let at = |file: &str| place.path().join(file);
    let small =
        "train --recipe minigooglenet --dataset synthetic --limit-train 32 --limit-test 4 --no-progress";
    let says = "but must be at most the 32 training samples: this recipe leaves out short batches; \
                give --batch-size 32 or less, or a recipe with drop_last = false";
    place.refuses(small, says);
    place.refuses(&format!("{small} --replicas 3"), "give --batch-size 10 or less");
    let global = format!("{small} --global-batch-size 33");
    place.refuses(&global, "give --global-batch-size 32 or less");
    // Found at the first step.
    let late = "train --quick --dataset synthetic --limit-train 64 --limit-test 4 --no-progress --tensorboard logs --csv-log a.csv";
    let late = format!("{late} --schedule milestones:at=0,factor=1e308");
    place.refuses(&late, "the learning rate is 1e306, but must be finite and not negative");
    assert!(!place.exists("runs") && !place.exists("logs") && !place.exists("a.csv"));
    let elsewhere = "--output new/run --tensorboard logs --csv-log new/run/csv/log.csv";
    place.refuses(&format!("{small} {elsewhere}"), says);
    assert!(["new", "logs"].iter().all(|folder| !place.exists(folder)));
    std::fs::create_dir(at("mine")).unwrap();
    std::fs::write(at("mine/.notes"), "mine").unwrap();
    place.refuses(&format!("{small} --output mine"), says);
    assert!(place.exists("mine/.notes") && !place.exists("mine/config.json"));
}

/// What can't be written in the end is told at the start, before there is a run.
#[test]
fn a_place_that_can_not_be_written_leaves_no_run() {
    let place = Place::new();
    place.write("file", "in the way");
    place.make_folder("folder.png");
    place.fails(&format!("{TRAIN} --output file/plot.png"), "can't make the folder file");
    place.fails(&format!("{TRAIN} --tensorboard file/logs"), "can't make the folder file/logs");
    place.fails(&format!("{TRAIN} --csv-log file/log.csv"), "file");
    place.refuses(&format!("{TRAIN} --output folder.png"), "--output is folder.png");
    place.refuses(&format!("{TRAIN} --output plot.JPG"), "pictures end in .png or .svg");
    assert!(!place.exists("runs") && !place.exists("plot.JPG"));
}

/// No folder is made for a path that may be misspelt, but those of a run.
#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let place = Place::new();
    for (args, names) in [
        (format!("{TRAIN} --csv-log no/log.csv"), "--csv-log is no/log.csv"),
        (format!("{TRAIN} --output run --csv-log run/../no/log.csv"), "--csv-log is run/../no/log.csv"),
        (format!("{TRAIN} --output no/plot.png"), "--output is no/plot.png"),
        ("preview --dataset synthetic --output no/p.png".to_owned(), "--output is no/p.png"),
        ("preview --dataset synthetic --save-to-dir no/all".to_owned(), "--save-to-dir is no/all"),
        ("export run --output no/net.onnx".to_owned(), "--output is no/net.onnx"),
        ("report run --output no/page.html".to_owned(), "--output is no/page.html"),
    ] {
        let ran = place.refuses(&args, names);
        ran.complains(" does not exist; make it first, or name another");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    place.run(&format!("{TRAIN} --output run --csv-log run/logs/log.csv --tensorboard logs/board")).ends(0);
    assert!(place.exists("run/logs/log.csv") && place.exists("logs/board/train"));
}

/// What a terminal would act on, and what would fill it.
#[test]
fn errors_are_fit_for_a_terminal() {
    let place = Place::new();
    let says = "\\u001b]0;x\\u0007.toml: No such file";
    place.fails("train --recipe \u{1b}]0;x\u{7}.toml", says);
    place.refuses("train --ep\u{9b}ochs 1", "unexpected argument '--ep\\u009bochs' found");
    let (words, word) = ("x ".repeat(50_000), "x".repeat(100_000));
    for text in [
        format!("like = \"{words}\""),
        format!("like = 'quick'\noptimizer = \"{words}\""),
        format!("like = 'quick'\nepochs = \"{words}\""),
        format!("like = 'quick'\n{word} = 1"),
    ] {
        place.write("long.toml", &text);
        let error = place.refuses("recipes long.toml", "[...]").err();
        assert!(error.len() < 1500, "{}", error.len());
    }
}

/// Failures: status 1, one sentence and, where one helps, a hint.
#[test]
fn failures_say_what_to_do() {
    let place = Place::new();
    place.fails("train --offline", "error: ").complains("hint: --data-dir");
    assert!(!place.exists("runs"), "a run without data leaves nothing behind");
    for args in ["train --quick --dataset synthetic --device cpu", "devices"] {
        let says = "TOWERS_SIMD is `avx521`, but must be one of portable, neon, avx2, avx512; did you mean `avx512`?";
        place.run_with(args, &[("TOWERS_SIMD", "avx521")]).ends(2).complains(says);
    }
    if place.run("devices").ends(0).out().contains("cuda: none") {
        let ran = place.fails("train --gpus 3 --quick", "--device cpu");
        ran.complains(
            "hint: to compute on the CPU, give --device cpu in place of --gpus; for several replicas there",
        );
    }
    place.fails("train --resume", "no run");
    place.fails("evaluate", "no run");
    place.write("notes.txt", "no picture");
    place.write("model.safetensors", "no model");
    place.fails("predict notes.txt --model model.safetensors", "model.safetensors");
    place.fails("evaluate nowhere", "there is no model here");
}

/// Advice for words that users of other programs may try, instead of clap's own guesses.
#[test]
fn what_was_meant_is_told() {
    let place = Place::new();
    for (line, says) in [
        ("evaluate run --tta flip", "a value is joined to this flag: --tta=flip"),
        ("train --output a --backup-and-restore 50", "is joined to this flag: --backup-and-restore=50"),
        ("import cnn.keras", "towers export FILE --output model.safetensors"),
        ("launch train --quick", "comes after `--`, as in towers launch --processes 2 -- train"),
        ("launch -n 2 -- train", "comes after `--`, as in towers launch --processes 2 -- train"),
        ("launch --proceses 2 -- train", "a similar argument exists: '--processes'"),
    ] {
        place.refuses(line, says);
    }
    let error = place.run("recipes quick --output mine.toml").ends(2).err();
    assert!(error.contains("unexpected argument '--output'") && !error.contains("-- --output"), "{error}");
    place.write("notes.txt", "no picture");
    place.fails("evaluate notes.txt", "notes.txt: this is no model; name a run's folder");
    place.fails("predict notes.txt run", "error: no --model names the network: there is no run in");
    place.refuses("preview --dataset synthetic --output p.jpg", "but must be a file that ends in .png");
    place
        .fails(&format!("{TRAIN} --output notes.txt"), "can't make the folder notes.txt, since it is a file");
    place.fails(
        &format!("{TRAIN} --output notes.txt/a/b"),
        "folder notes.txt/a/b; there is a file in the way",
    );
    place.run(&format!("{TRAIN} --output run")).ends(0);
    for inside in ["run/checkpoints", "run/checkpoints/epoch-0001", "run/model.safetensors"] {
        place.fails(&format!("train --resume {inside}"), "name that: --resume run\n");
    }
    // A run that wrote where nothing can be written now.
    place.make_folder("logs");
    place.run(&format!("{TRAIN} --output logged --csv-log logs/a.csv")).ends(0);
    place.remove("logs");
    place.write("logs", "in the way");
    let resumed = place.run("train --resume logged --epochs 2 --no-progress").ends(1);
    resumed
        .complains("can't make the folder logs, since it is a file")
        .complains("; the run wrote there before: ")
        .complains("--forget-outputs");
    let other = place.run("train --resume logged --epochs 2 --no-progress --csv-log notes.txt/a.csv").ends(1);
    assert!(!other.err().contains("wrote there before"), "{}", other.err());
    other.complains("can't make the folder notes.txt, since it is a file");
    let here = place.run("train --resume logged --epochs 2 --no-progress --csv-log .").ends(2);
    here.complains("--csv-log is ., but must be a file, not a folder");
    place.run("train --resume logged --epochs 2 --no-progress --forget-outputs").ends(0);
}

/// On Linux a device that is always full stands for a disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure_and_no_bad_usage() {
    let place = Place::new();
    place.fails(&format!("{TRAIN} --output run --csv-log /dev/full"), "can't write /dev/full: No space left");
    assert!(!place.exists("run"));
    place.run(&format!("{TRAIN} --output run")).ends(0);
    place.fails("report run --output /dev/full", "can't write /dev/full: No space left");
    place.run("report run --output page.html").ends(0);
    assert!(place.exists("page.html"));
    place.write("file", "in the way");
    place.fails("preview --dataset synthetic --save-to-dir file", "can't ");
}

#[test]
fn a_resumed_run_stays_what_it_was() {
    let place = Place::new();
    place.run(&format!("{TRAIN} --output run")).ends(0);
    place.refuses("train --resume run --epochs 2 --lr 0.5", "--lr can't change");
    // A recipe's file that was edited since is neither passed over nor taken.
    let recipe = |text: &str| place.write("quick.toml", format!("like = 'quick'\n{text}"));
    let resume = "train --resume run --epochs 2 --recipe quick.toml --no-progress";
    recipe("lr = 0.5");
    place.refuses(resume, "`lr` can't change when a run is resumed: the run has 0.01, quick.toml 0.5; leave --recipe out, or start a new run");
    recipe("[devices]\nno_winograd = true");
    place.refuses(resume, "`devices.no_winograd` can't change");
    recipe("terminate_on_nan = true");
    let says = "warning: quick.toml says terminate_on_nan = true, but the run continues with false: only flags change";
    place.run(&format!("{resume} --threads 1")).ends(0).complains(says);
    place.refuses("train --resume run --epochs 1", "--epochs is 1, but epoch 2 of this run is done");
    place.refuses("train --resume run --output other", "--output");
    // One that another process is writing into, and that has come to no checkpoint yet.
    let lock = std::fs::File::create(place.path().join("run/.lock")).unwrap();
    place.remove("run/checkpoints");
    place.fails("train --resume run", "the run has no checkpoint: it ended before its first one");
    lock.try_lock().unwrap();
    place.fails("train --resume run", "a run is writing into run, and has no checkpoint yet; wait");
    place.write("p.jpg", [0xFF, 0xD8, 0xFF, 0x00]);
    place.fails("predict p.jpg --model run", "p.jpg");
}

/// The error of a value from the environment names the variable.
#[test]
fn bad_values_of_the_environment_name_the_variable() {
    let place = Place::new();
    for (variable, value, says) in [
        (
            "TOWERS_COLLECTIVE_TIMEOUT",
            "soon",
            "invalid value 'soon' for 'TOWERS_COLLECTIVE_TIMEOUT': it must be a whole number from 1 to 604800",
        ),
        ("TOWERS_COLLECTIVE_TIMEOUT", "0", "invalid value '0' for 'TOWERS_COLLECTIVE_TIMEOUT'"),
        (
            "TOWERS_DATA_DIR",
            "",
            "invalid value '' for 'TOWERS_DATA_DIR': it must be the path of a file or folder",
        ),
    ] {
        place.run_with("train --quick --dataset synthetic", &[(variable, value)]).ends(2).complains(says);
    }
    place.refuses("train --collective-timeout=0", "'0' for '--collective-timeout <SECONDS>'");
}

#[cfg(unix)]
fn pipe_at(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Whoever opened a pipe would wait for its writer without end.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let place = Place::new();
    for (pipe, args, says) in [
        ("x.toml", "train --recipe x.toml", "can't read x.toml: it is not a regular file"),
        ("x.safetensors", "evaluate x.safetensors", "x.safetensors"),
        ("x.safetensors", "train --resume-from x.safetensors", "x.safetensors"),
        ("x.keras", "export x.keras --output y.safetensors", "x.keras"),
        ("x.h5", "predict --model x.h5 a.png", "x.h5"),
        ("run/config.json", "report run", "run/config.json: it is not a regular file"),
    ] {
        let path = place.path().join(pipe);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            pipe_at(&path);
        }
        let ran = place.run(args).complains(says);
        assert!([Some(1), Some(2)].contains(&ran.1.status.code()), "{args}");
    }
    place.run(&format!("{TRAIN} --output it")).ends(0);
    let config = place.path().join("it/config.json");
    place.remove("it/config.json");
    pipe_at(&config);
    place.fails("train --resume it --epochs 2", "it/config.json: it is not a regular file");
    place.remove("it/config.json");
    for name in [
        ".lock",
        "status.json",
        "history.csv",
        "history.jsonl",
        "environment.json",
        "curves.svg",
        "checkpoints/.lock",
    ] {
        let _ = std::fs::remove_file(place.path().join("it").join(name));
        pipe_at(&place.path().join("it").join(name));
        // The lock of the checkpoints is taken when the next one is saved. Curves can be drawn again.
        place.fails("train --resume it --epochs 2", &format!("{name}: it is not a regular file"));
        place.run("runs it").ends(0);
        place.remove(&format!("it/{name}"));
    }
}

/// No thread has so large a stack, so that none can be started.
#[cfg(target_os = "linux")]
#[test]
fn without_threads_an_error_says_so_or_the_work_is_done_on_one() {
    let place = Place::new();
    for class in ["cat", "dog"] {
        draw(&place, &format!("pets/{class}"), [9; 3], 0..2);
    }
    place.run(&format!("{TRAIN} --device cpu --output run")).ends(0);
    for (args, status, says) in [
        ("train --quick --dataset synthetic --device cpu", 1, "can't listen for Ctrl-C: Resource temp"),
        ("preview --dataset pets", 1, "can't start a thread to decode"),
        ("predict --model run pets/cat/000.png", 0, ""),
    ] {
        let stack = (1_u64 << 46).to_string();
        let ran = place.run_with(args, &[("RUST_MIN_STACK", &stack)]).ends(status).complains(says);
        assert!(!ran.err().contains("panicked"), "{}", ran.err());
    }
}
