//! `towers train -h`: the flags that most runs need, on one screen. `--help` explains all.

use clap::Command;
use towers_config::tables;

/// The flags of the short help that are no options of a run, each with its text on one line. Those of options are in their table.
const FLAGS: [(&str, &str); 6] = [
    ("recipe", "A name of `towers recipes`, a file, or a run to repeat"),
    ("quick", "A two-minute trial of a small network"),
    ("output", "The run's folder, or a picture for its curves"),
    ("resume", "Continue the newest run, or that in DIR"),
    ("tui", "A live view in the terminal"),
    ("serve", "The live view as a web page"),
];

/// The short help of a flag.
fn brief(id: &str) -> Option<&'static str> {
    let mut options = tables().iter().flat_map(|table| table.options);
    let option = options.find(|option| option.flag().is_some_and(|flag| flag.strip_prefix("--") == Some(id)));
    let own = FLAGS.iter().find(|(flag, _)| *flag == id).map(|(_, help)| *help);
    own.or_else(|| option?.brief)
}

/// The command with these flags alone in its help.
pub fn shortened(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_long().and_then(brief) {
        Some(short) => arg.help(short),
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
            assert!(train.get_arguments().any(|arg| arg.get_long() == Some(flag)), "{flag}");
        }
        let short = shortened(train).render_help().to_string();
        assert!(short.lines().count() <= 42 && short.lines().all(|line| line.len() <= 100), "{short}");
    }
}
