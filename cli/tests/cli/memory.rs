//! A limit of memory: a group of processes where one can be made, as for root, or else `ulimit`.

use super::{Place, Ran};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The first and the second version of groups.
const GROUPS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// A limit of this many bytes.
struct Limit {
    bytes: u64,
    group: Option<PathBuf>,
}

impl Limit {
    fn new(bytes: u64) -> Self {
        let group = GROUPS.iter().find_map(|(root, file)| {
            let group = PathBuf::from(root).join(format!("towers-test-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            // A group of the second version has the file only where its parent shares out memory.
            let is_limited =
                group.join(file).exists() && fs::write(group.join(file), bytes.to_string()).is_ok();
            if !is_limited {
                let _ = fs::remove_dir(&group);
            }
            is_limited.then_some(group)
        });
        if group.is_none() {
            println!("SKIPPED: memory: no group of processes can be made, so `ulimit -d` stands in for it");
        }
        Limit { bytes, group }
    }

    /// Runs the program within the limit.
    fn run(&self, place: &Place, args: &str) -> Ran {
        let enter = match &self.group {
            Some(group) => format!("echo $$ > {}/cgroup.procs", group.display()),
            None => format!("ulimit -d {}", self.bytes >> 10),
        };
        let program = place.command(args);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter} && exec \"$0\" \"$@\"")]).arg(program.get_program());
        command.args(program.get_args()).current_dir(place.path()).env("HOME", place.path());
        Ran(args.to_owned(), command.output().unwrap())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.group.iter().for_each(|group| _ = fs::remove_dir(group));
    }
}

/// The advice counts the program, its data, and the copy that a checkpoint is written from.
#[test]
fn the_batch_that_would_fit_fits() {
    let (place, limit) = (Place::new(), Limit::new(400 << 20));
    let train = |batch: usize, run: &str| {
        let flags = "--device cpu --threads 1 --epochs 1 --limit-test 10 --no-progress";
        let size = format!("--batch-size {batch} --limit-train {batch} --output {run}");
        limit.run(&place, &format!("train --recipe resnet18 --dataset synthetic {flags} {size}"))
    };
    let refused = train(200, "large").ends(1).err();
    let (_, advice) = refused.split_once("; --batch-size ").unwrap_or_else(|| panic!("{refused}"));
    let fits = advice.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap();
    train(fits, "small").ends(0);
}
