//! Flags and commands of other programs for training, with the way to do the same.

/// Flags of `towers train` in other programs that are not similar to any flag here.
const FLAGS: [(&[&str], &str); 25] = [
    (
        &["--network", "--arch", "--backbone", "--net"],
        "a network is named by --model NAME|FILE, or comes with its recipe, by --recipe NAME",
    ),
    (
        &["--weight-decay", "--wd", "--l2"],
        "it is an option of the optimizer, as in --optimizer sgd:weight-decay=5e-4; --no-bias-decay leaves biases and norms out",
    ),
    (&["--nesterov"], "it is an option of the optimizer, as in --optimizer sgd:momentum=0.9,nesterov"),
    (&["--opt", "--optim"], "give --optimizer SPEC, as in --optimizer adamw:weight-decay=0.01"),
    (
        &["--deterministic"],
        "a run repeats bit for bit without it; for sums in one order on several GPUs give --virtual-replicas N",
    ),
    (
        &["--tta"],
        "it belongs to towers evaluate and towers predict, which show a trained network several views",
    ),
    (
        &["--workers", "--num-workers", "--num_workers", "-j", "--loader-workers"],
        "the threads that read and augment pictures are among those of --threads N, by default one per core",
    ),
    (
        &["--amp", "--fp16", "--bf16", "--mixed-precision", "--half", "--use-amp", "--native-amp"],
        "the number format is that of --precision NAME: bf16 or fp16 instead of mixed precision",
    ),
    (
        &["--pretrained", "--finetune", "--load", "--load-weights", "--checkpoint", "--initial-checkpoint"],
        "a run begins with trained weights by --weights FILE|RUN; none are downloaded. For other classes add --new-head",
    ),
    (
        &[
            "--auto-augment",
            "--aa",
            "--trivial-augment",
            "--aug-mix",
            "--random-erase",
            "--random-erasing",
            "--reprob",
        ],
        "torchvision's augmentations are a list: --compose auto-augment:policy=imagenet+random-erasing:p=0.25",
    ),
    (
        &["--color-jitter", "--colour-jitter", "--brightness", "--saturation", "--hue"],
        "colours are changed by --compose color-jitter:brightness=0.4,contrast=0.4,saturation=0.4,hue=0.1",
    ),
    (
        &["--class-weights", "--weighted-loss", "--balanced"],
        "--class-weight balanced weighs the loss of each class, and --sampler balanced shows rare ones more often",
    ),
    (
        &["--metric", "--topk"],
        "loss and accuracy are always measured; --metrics NAME,... adds others, such as top5_acc and f1",
    ),
    (
        &["--loss", "--criterion"],
        "the data decide: cross-entropy of one class a picture, binary cross-entropy of several; with --label-smoothing X if you like",
    ),
    (
        &["--csv", "--csv-file", "--annotations", "--train-csv", "--label-file"],
        "classes in a table are read by --labels FILE.csv",
    ),
    (
        &["--multilabel", "--multi-label"],
        "a table of --labels FILE.csv with a|b among its labels, or columns of 0 and 1, has several classes a picture",
    ),
    (
        &[
            "--clip-grad",
            "--grad-clip",
            "--clip-norm",
            "--clipnorm",
            "--max-grad-norm",
            "--gradient-clip-val",
        ],
        "clipping is a part of the optimizer: --optimizer sgd:momentum=0.9,global-clipnorm=1, or clipnorm or clipvalue",
    ),
    (
        &["--accumulate", "--grad-accum-steps", "--gradient-accumulation-steps"],
        "give --gradient-accumulation N, which adds up the gradients of N batches for a step",
    ),
    (&["--scheduler", "--sched"], "give --schedule SPEC, as in --schedule cosine+warmup:epochs=5"),
    (
        &["--auto-lr-find", "--auto_lr_find", "--lr-find", "--find-lr"],
        "it is a command: towers lr-find, with the flags of train, suggests a rate for --lr",
    ),
    (
        &["--num-classes", "--classes", "--nb-classes"],
        "the classes are those of the data: the folders in --dataset DIR, or those of --labels FILE.csv; the last layer follows them",
    ),
    (
        &["--data-path", "--data-root", "--imagenet", "--train-data"],
        "pictures come from --dataset DIR, with a folder for each class; or DIR/train and DIR/test with such folders, or --train-dir and --test-dir",
    ),
    (
        &["--val-split", "--test-split", "--val-ratio"],
        "give --validation-split SHARE, the share of the training images to validate on",
    ),
    (
        &["--save-dir", "--out-dir", "--workdir", "--work-dir", "--experiment", "--name"],
        "the run's folder is that of --output DIR",
    ),
    (
        &["--augment", "--augmentation", "--aa", "--auto-augment"],
        "see the part Augmentation of towers help train",
    ),
];

/// Commands of other programs.
const COMMANDS: [(&str, &str); 2] = [
    ("import", "convert weights of Keras or PyTorch by towers export FILE --output model.safetensors"),
    ("test", "towers evaluate measures a trained network; towers predict classifies pictures"),
];

/// The advice for a flag, which may have a value: `--workers=4`.
pub fn flag(word: &str) -> Option<&'static str> {
    let flag = word.split_once('=').map_or(word, |(flag, _)| flag);
    let flag = flag.replace('_', "-");
    FLAGS.iter().find(|(flags, _)| flags.contains(&flag.as_str())).map(|(_, advice)| *advice)
}

/// The advice for a command.
pub fn command(name: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(command, _)| *command == name).map(|(_, advice)| *advice)
}

#[cfg(test)]
mod tests {
    use crate::args::Args;
    use clap::CommandFactory;

    /// Advice names flags that exist, and is not for one that does.
    #[test]
    fn advice_is_about_flags_that_exist() {
        let command = Args::command();
        let flags: Vec<String> = command
            .get_subcommands()
            .flat_map(clap::Command::get_arguments)
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        let of_train = command.find_subcommand("train").unwrap();
        for (others, advice) in super::FLAGS {
            for word in advice.split([' ', ',', ';']).filter(|word| word.starts_with("--")) {
                assert!(flags.iter().any(|flag| flag == word.trim_end_matches('.')), "{word} in {advice}");
            }
            for other in others {
                let known = of_train.get_arguments().any(|arg| arg.get_long() == other.strip_prefix("--"));
                assert!(!known, "{other} is a flag");
            }
        }
        assert!(super::flag("--num_workers=4").is_some_and(|advice| advice.contains("--threads N")));
    }
}
