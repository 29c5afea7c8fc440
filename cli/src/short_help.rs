//! `towers train -h`: the flags that most runs need, on one screen. `--help` explains all.

use clap::Command;

/// The flags of the short help, each with its text on one line.
const FLAGS: [(&str, &str); 20] = [
    ("recipe", "A name of `towers recipes`, a file, or a run to repeat"),
    ("quick", "A two-minute trial of a small network"),
    ("model", "The network: a name, or a file of Keras, ONNX or TOML"),
    ("epochs", "Passes over the training images"),
    ("batch_size", "Images per batch of each replica"),
    ("optimizer", "As in sgd:momentum=0.9 or adamw:weight-decay=0.01"),
    ("lr", "The base learning rate"),
    ("schedule", "As in constant, poly or cosine+warmup:epochs=5"),
    ("weights", "Begin with the weights of a run or a file"),
    ("new_head", "Begin the last layer anew, for other classes"),
    ("dataset", "auto (CIFAR-10), mnist, synthetic, or a folder of class folders"),
    ("image_size", "Scale the pictures of a folder to N x N"),
    ("device", "auto, cpu or cuda"),
    ("gpus", "The GPUs: a number, or their ids as in 0,2"),
    ("precision", "fp32, tf32, bf16 or fp16"),
    ("output", "The run's folder, or a picture for its curves"),
    ("resume", "Continue the newest run, or that in DIR"),
    ("tui", "A live view in the terminal"),
    ("serve", "The live view as a web page"),
    ("early_stop", "Stop when METRIC no longer improves"),
];

/// The command with these flags alone in its help.
pub fn shortened(command: Command) -> Command {
    let named = |id: &str| FLAGS.iter().find(|(flag, _)| *flag == id.replace('-', "_"));
    let command = command.mut_args(|arg| match named(arg.get_id().as_str()) {
        Some((_, short)) => arg.help(*short),
        None => arg.hide(true),
    });
    command.after_help("`towers train --help` explains all flags.")
}

#[cfg(test)]
mod tests {
    use super::{FLAGS, shortened};
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn the_short_help_is_one_screen_of_flags_that_exist() {
        let train = Args::command().find_subcommand("train").unwrap().clone();
        for (flag, _) in FLAGS {
            let known = train.get_arguments().any(|arg| arg.get_id().as_str().replace('-', "_") == flag);
            assert!(known, "{flag}");
        }
        let short = shortened(train).render_help().to_string();
        assert!(short.lines().count() <= 42 && short.lines().all(|line| line.len() <= 100), "{short}");
    }
}
