//! The README and the pages of `docs`: every command in them runs, on few and synthetic images where it
//! trains.
//!
//! [`ELSEWHERE`] names the commands that can't run here, with the reason. So no command of a page is left out
//! by mistake.

use crate::{Place, Ran};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Other programs, and commands of Cargo that run these tests.
const ELSEWHERE: [(&str, &str); 17] = [
    ("git clone", "it needs a network"),
    ("towers train --dataset mnist", "it needs a network; `grey.rs` trains on files of this format"),
    ("towers train --dataset fashion-mnist", "it needs a network; `grey.rs` trains on files of this format"),
    ("cargo build", "Cargo runs the tests; it is locked while they run"),
    ("cargo install", "it changes the machine"),
    ("cargo test", "that is what runs now"),
    ("cargo run", "Cargo is locked while tests run; examples are built with the tests"),
    ("cargo xtask", "`xtask` checks its commands in its own tests"),
    ("mdbook", "it is a program of others"),
    ("mlflow ui", "it is a program of others"),
    ("torchrun", "it needs several GPUs"),
    ("mpirun", "it needs an MPI; the step `mpi` tests it"),
    (
        "towers launch",
        "it needs several GPUs or an MPI; `launch.rs` and `processes.rs` test it with emulated ones",
    ),
    ("sbatch", "it needs SLURM"),
    ("kubectl", "it needs Kubernetes"),
    ("python3", "it is a program of others"),
    ("pip install", "it needs a network"),
];

/// A command as a page shows it.
struct Shown {
    page: String,
    line: usize,
    words: Vec<String>,
    /// The file of its redirected output.
    into: Option<String>,
}

/// All commands in blocks marked as shell.
fn shown(page: &str, text: &str) -> Vec<Shown> {
    let (mut commands, mut shell, mut code) = (Vec::new(), false, false);
    let mut begun: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            code = !code;
            shell = code && ["sh", "bash", "console"].contains(&language);
            continue;
        }
        if !shell {
            continue;
        }
        let line = line.split(" #").next().unwrap_or_default().trim();
        let (first, mut whole) = begun.take().unwrap_or((number, String::new()));
        whole = format!("{whole} {}", line.trim_end_matches('\\'));
        if line.ends_with('\\') {
            begun = Some((first, whole));
            continue;
        }
        for command in whole.split("&&") {
            let (command, into) = match command.split_once('>') {
                Some((command, file)) => (command, Some(file.trim().to_owned())),
                None => (command, None),
            };
            let is_variable = |word: &&str| {
                word.split('=')
                    .next()
                    .is_some_and(|name| name.chars().all(|c| c == '_' || c.is_ascii_uppercase()))
            };
            let words = command.split_whitespace().skip_while(is_variable);
            // A shell takes quotes away.
            let words: Vec<String> = words.map(|word| word.trim_matches('\'').to_owned()).collect();
            if words.first().is_some_and(|word| word != "cd" && word != "#") {
                commands.push(Shown { page: page.to_owned(), line: first, words, into });
            }
        }
    }
    commands
}

impl Shown {
    fn text(&self) -> String {
        self.words.join(" ")
    }

    /// The arguments of `towers`, if the command runs it.
    fn of_towers(&self) -> Option<Vec<String>> {
        match self.words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["towers", "launch", ..] => None,
            // These are fetched.
            ["towers", "train", "--dataset", "mnist" | "fashion-mnist", ..] => None,
            ["towers", ref rest @ ..] => Some(rest.iter().map(|&word| word.to_owned()).collect()),
            ["cargo", "xtask", "train-cifar", ref rest @ ..] => {
                Some(["train"].iter().chain(rest).map(|&word| word.to_owned()).collect())
            }
            _ => None,
        }
    }

    fn skipped(&self, why: &str) {
        println!("SKIPPED: `{}` of {}: {why}", self.text(), self.page);
    }
}

/// Additional flags, so that a command is quick.
fn little(args: &[String]) -> Vec<&'static str> {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    // As many images as one batch at least: some recipes leave out a shorter one.
    let is_large = has("64") && has("resnet18");
    let (images, own) = match args.iter().any(|arg| arg.contains("batch-size")) {
        true => ("64", 4),
        false if is_large => ("6", 5),
        false => ("24", 5),
    };
    let few = [
        ["--limit-train", images],
        ["--limit-test", "10"],
        ["--epochs", "1"],
        ["--dataset", "synthetic"],
        ["--batch-size", "6"],
    ];
    let range = [["--limit-train", "90"], few[1], few[3], few[4]];
    let bench = [["--seconds", "0"], ["--batch", "2"], ["--repeats", "1"]];
    let more: &[[&str; 2]] = match args.first().map(String::as_str) {
        // A resumed run knows its data.
        Some("train") if has("--resume") => &[],
        Some("train") => &few[..own],
        Some("lr-find") => &range,
        Some("preview" | "fetch") => &few[3..4],
        // A run knows its data too; weights of other programs don't.
        Some("evaluate") if args.iter().any(|arg| arg.ends_with(".keras") || arg.ends_with(".onnx")) => {
            &[few[1], few[3]]
        }
        Some("bench") if has("profile") => &bench[..2],
        Some("bench") => &bench,
        Some("selftest") => &[["--only", "pooling,small_cnn,sums"]],
        _ => &[],
    };
    let has_data = has("--labels") || has("--train-dir");
    let is_given = |flag: &str| has(flag) || (flag == "--dataset" && has_data);
    let more = more.iter().filter(|[flag, _]| !is_given(flag)).flatten().copied();
    let trains = args.first().is_some_and(|command| command == "train");
    let quiet = (trains && !has("--no-progress") && !has("--tui")).then_some("--no-progress");
    more.chain(quiet).collect()
}

/// A folder with everything that the pages assume: two runs, pictures, class folders, tables of labels, weights of
/// Keras.
fn furnished() -> Place {
    let place = Place::new();
    let few = "--limit-train 50 --limit-test 10 --epochs 1 --dataset synthetic --no-progress";
    for run in ["runs/b", "runs/quick-1", "runs/a"] {
        place.run(&format!("train --quick {few} --output {run}")).ends(0);
    }
    place.run("preview --dataset synthetic --output photo.png --samples 1 --columns 1").ends(0);
    let at = |file: &str| place.path().join(file);
    for split in ["train", "test"] {
        for class in ["cat", "dog"] {
            let folder = at(&format!("pets/{split}/{class}"));
            fs::create_dir_all(&folder).unwrap();
            let pictures = if split == "train" { 40 } else { 2 };
            for number in 0..pictures {
                fs::copy(at("photo.png"), folder.join(format!("{number:03}.png"))).unwrap();
            }
        }
    }
    for folder in ["more-pets/cat", "more-pets/dog", "exam/cat"] {
        let folder = at(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(at("photo.png"), folder.join("0.png")).unwrap();
    }
    fs::create_dir_all(at("dog-breed/train")).unwrap();
    (0..40).for_each(|k| {
        fs::copy(at("photo.png"), at(&format!("dog-breed/train/{k}.png"))).unwrap();
    });
    let breeds = (0..40).map(|k| format!("{k},{}\n", if k % 2 == 0 { "dingo" } else { "pug" }));
    place.write("dog-breed/labels.csv", format!("id,breed\n{}", breeds.collect::<String>()));
    place.write("dog-breed/more.csv", "id,breed\n7,pug\n8,dingo\n");
    let species = |class: &str| (0..9).map(|k| format!("{class}/{k:03},{class}\n")).collect::<String>();
    place.write("species.csv", format!("file,species\n{}{}", species("cat"), species("dog")));
    // The content of a picture decides its format, not its name.
    fs::copy(at("photo.png"), at("photo.jpg")).unwrap();
    for name in ["another.png", "cat.png"] {
        fs::copy(at("photo.png"), at(name)).unwrap();
    }
    fs::copy(root().join("tests/golden/keras/small_cnn.keras"), at("cnn.keras")).unwrap();
    fs::copy(root().join("tests/golden/numpy_npz/rgb.npz"), at("scans.npz")).unwrap();
    place.run("export runs/a --output back.py").ends(0);
    place.run("export runs/a --output net.onnx").ends(0);
    let mine = recipes_in("docs/models.md").into_iter().find(|recipe| recipe.starts_with("# mine.toml"));
    place.write("mine.toml", mine.unwrap());
    place
}

fn run(place: &Place, command: &Shown, args: &[String]) -> Ran {
    let (more, mut args) = (little(args), args.to_vec());
    // Resumed runs train for one more epoch, not for as many as the page says.
    if let Some(at) = args.iter().position(|arg| arg == "--epochs") {
        args[at + 1] = if args.iter().any(|arg| arg == "--resume") { "2" } else { "1" }.to_owned();
    }
    let line = args.iter().map(String::as_str).chain(more).collect::<Vec<_>>().join(" ");
    let ran = place.run(&line);
    if let Some(file) = &command.into {
        fs::write(place.path().join(file), ran.out()).unwrap();
    }
    ran
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README and the pages, by name.
fn pages() -> Vec<(String, String)> {
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, text)
    };
    let files = fs::read_dir(root().join("docs")).unwrap().flatten();
    let mut names: Vec<_> = files.map(|file| format!("docs/{}", file.file_name().display())).collect();
    names.retain(|name| name.ends_with(".md"));
    names.push("README.md".to_owned());
    names.sort();
    names.into_iter().map(read).collect()
}

/// Runs the commands of a page in their order. Returns the commands of `towers` that ran, with their output.
/// Those in `before` ran on another page.
fn follow(
    place: &Place,
    page: &str,
    text: &str,
    no_gpu: bool,
    before: &[(String, String)],
) -> Vec<(String, String)> {
    let mut ran = Vec::new();
    for command in shown(page, text) {
        if before.iter().any(|(text, _)| *text == command.text()) {
            continue;
        }
        let Some(args) = command.of_towers() else {
            let known = ELSEWHERE.iter().find(|(start, _)| command.text().starts_with(start));
            let (_, why) = known.unwrap_or_else(|| {
                panic!("{page}:{}: nobody knows how to test `{}`", command.line, command.text())
            });
            command.skipped(why);
            continue;
        };
        if no_gpu && args.iter().any(|arg| ["--gpus", "-g", "cuda"].contains(&arg.as_str())) {
            command.skipped("there is no GPU");
            continue;
        }
        let done = run(place, &command, &args);
        let (status, err) = (done.1.status.code(), done.err());
        assert_eq!(status, Some(0), "{page}:{}: {}\n{err}", command.line, command.text());
        ran.push((command.text(), done.out()));
    }
    ran
}

fn has_no_gpu() -> bool {
    Place::new().run("devices").ends(0).out().contains("cuda: none")
}

#[test]
fn every_command_of_the_pages_runs() {
    let (place, no_gpu, mut ran) = (furnished(), has_no_gpu(), Vec::new());
    for (page, text) in pages() {
        let more = follow(&place, &page, &text, no_gpu, &ran);
        ran.extend(more);
    }
    assert!(ran.len() > 25, "only {} commands were found", ran.len());
}

/// Each tutorial, in an empty folder.
#[test]
fn tutorials_end_in_their_plots_and_numbers() {
    let no_gpu = has_no_gpu();
    let follow = |number: usize| {
        let page = format!("docs/tutorials/{number}.md");
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let place = Place::new();
        for (before, block) in text.split("```toml\n").zip(text.split("```toml\n").skip(1)) {
            let name = before.rsplit('`').nth(1).unwrap();
            place.write(name, block.split("```").next().unwrap());
        }
        let ran = follow(&place, &page, &text, no_gpu, &[]);
        (place, ran)
    };
    // The accuracy on the test images is that of the run's best epoch.
    let accuracy = |run: &str, place: &Place, (_, out): &(String, String)| {
        let history = fs::read_to_string(place.path().join(run).join("history.jsonl")).unwrap();
        let epochs = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let best = epochs.map(|epoch| epoch["val_acc"].as_f64().unwrap()).fold(0.0, f64::max);
        assert!(out.contains(&format!("acc: {best:.4}")), "{best} is not in {out}");
    };

    let (place, _) = follow(1);
    for plot in ["single_gpu.png", "multi_gpu.png"] {
        assert!(fs::read(place.path().join(plot)).unwrap().starts_with(b"\x89PNG"), "{plot}");
    }
    let (place, ran) = follow(2);
    accuracy("runs/cnn-1", &place, ran.last().unwrap());
    let (_, ran) = follow(3);
    let [.., one, three] = &ran[..] else { panic!("{ran:?}") };
    assert!(one.1.contains(" images/s") && three.1.contains("3 replicas"), "{one:?} {three:?}");
    let (place, ran) = follow(4);
    accuracy("runs/mirrored-1", &place, ran.last().unwrap());
}

/// The text with each number, with its sign and its exponent, as `#`.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for ch in text.chars() {
        let inside = out.ends_with('#');
        match ch {
            '0'..='9' if inside => {}
            '0'..='9' => out.push('#'),
            // A decimal point is a part of the number.
            '.' if inside => {}
            ch => out.push(ch),
        }
    }
    out
}

/// The README's sample is the output of a run, except for the numbers.
#[test]
fn the_readme_shows_what_a_run_prints() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = text.split("```text\n").nth(1).and_then(|block| block.split("```").next()).unwrap();
    let place = Place::new();
    let few = "--dataset synthetic --limit-train 100 --limit-test 20 --threads 2 --device cpu --no-progress";
    let printed = place.run(&format!("train --quick {few}")).ends(0).out();
    let lines = |text: &str| without_numbers(text).lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(shown), lines(&printed));
}

/// The recipe files that a page shows.
fn recipes_in(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let blocks = text.split("```").filter_map(|block| block.strip_prefix("toml\n"));
    let blocks: Vec<String> = blocks.map(str::to_owned).collect();
    assert!(!blocks.is_empty(), "{page}");
    blocks
}

#[test]
fn recipe_files_of_the_pages_are_recipes() {
    let place = Place::new();
    for block in ["docs/recipes.md", "docs/models.md"].into_iter().flat_map(recipes_in) {
        place.write("shown.toml", block);
        place.run("recipes shown.toml").ends(0);
    }
}

#[test]
fn commands_are_found_in_pages() {
    let page = "text `towers no`\n```sh\ntowers train --x 1   # why\nA_B=1 mpirun -n 2 \\\n    towers train\ncd x && towers devices >out\n```\n\
                ```text\ntowers not\n```\n";
    let found: Vec<_> = shown("p.md", page).into_iter().map(|c| (c.line, c.text(), c.into)).collect();
    let expected = [
        (3, "towers train --x 1".to_owned(), None),
        (4, "mpirun -n 2 towers train".to_owned(), None),
        (6, "towers devices".to_owned(), Some("out".to_owned())),
    ];
    assert_eq!(found, expected);
}
