//! Jobs: mpirun with some ranks, always ended by the test that started it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The longest that any job here may take: only a hang takes longer.
const BOUND: Duration = Duration::from_secs(60);

/// Jobs run one at a time: their ranks share few cores already.
static TURN: Mutex<()> = Mutex::new(());

/// The variables for a rank's role, and for the folder of its results.
pub const ROLE: &str = "TOWERS_TEST_ROLE";
pub const FOLDER: &str = "TOWERS_TEST_FOLDER";

/// A running job.
pub struct Job {
    mpirun: Child,
    folder: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// How a job ended.
pub struct Ended {
    pub success: bool,
    pub text: String,
    pub folder: PathBuf,
}

/// Whether mpirun is there; says so if not.
pub fn mpirun_is_there() -> bool {
    let there = version().is_some();
    if !there {
        println!("SKIPPED: there is no mpirun; `cargo xtask test mpi` fetches two");
    }
    there
}

/// What mpirun says about itself.
pub fn version() -> Option<&'static str> {
    static VERSION: LazyLock<Option<String>> = LazyLock::new(|| {
        let output = Command::new("mpirun").arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    VERSION.as_deref()
}

/// Whether it is Open MPI's.
pub fn is_open_mpi() -> bool {
    version().unwrap_or_default().contains("Open MPI")
}

/// The installed mpirun, with the options for a container with few cores.
pub fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    if is_open_mpi() {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    }
    command
}

/// Starts a job whose processes continue after one was lost, if the installed MPI can do so.
pub fn tolerant(role: &str, ranks: usize) -> Option<Job> {
    if !version().is_some_and(|version| version.contains("(Open MPI) 5.")) {
        println!("SKIPPED: processes that continue after a loss: they need mpirun of Open MPI 5");
        return None;
    }
    let mut command = mpirun();
    command.args(["--with-ft", "ulfm", "-n", &ranks.to_string()]).env("OMPI_MCA_async_mpi_finalize", "1");
    as_role(&mut command);
    Some(Job::start_with(command, role))
}

/// The end of mpirun's command line: it starts the test `a_rank` of this test program.
pub fn as_role(command: &mut Command) {
    command.arg(std::env::current_exe().unwrap()).args(["a_rank", "--exact", "--nocapture", "--quiet"]);
}

impl Job {
    /// Starts `ranks` processes with this role.
    pub fn start(role: &str, ranks: usize, variables: &[(&str, &str)]) -> Job {
        let mut command = mpirun();
        command.args(["-n", &ranks.to_string()]).envs(variables.iter().copied());
        as_role(&mut command);
        Job::start_with(command, role)
    }

    /// Starts the ranks with this command.
    pub fn start_with(mut command: Command, role: &str) -> Job {
        let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let folder = folder(role);
        let output = |name: &str| File::create(folder.join(name)).unwrap();
        command.env(ROLE, role).env(FOLDER, &folder).stdin(Stdio::null());
        let mpirun = command.stdout(output("stdout")).stderr(output("stderr")).spawn().unwrap();
        Job { mpirun, folder, _turn: turn }
    }

    /// Waits until all `ranks` have written a mark, and returns their process numbers.
    pub fn wait_for(&mut self, mark: &str, ranks: usize) -> Vec<u32> {
        let number = |job: &Job, rank| {
            let text = fs::read_to_string(mark_file(&job.folder, mark, rank)).ok()?;
            text.parse::<u32>().ok()
        };
        let mut numbers = None;
        self.wait_until(mark, |job| {
            numbers = (0..ranks).map(|rank| number(job, rank)).collect::<Option<Vec<_>>>();
            let ended = numbers.is_none() && job.mpirun.try_wait().unwrap().is_some();
            assert!(!ended, "the job ended before all ranks were at {mark}:\n{}", job.text());
            numbers.is_some()
        });
        numbers.unwrap()
    }

    /// Waits until a rank has printed this.
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait_until(text, |job| job.text().contains(text));
    }

    /// Waits until these ranks are gone.
    pub fn wait_for_end_of(&mut self, processes: &[u32]) {
        self.wait_until("the end of all ranks", |_| !processes.iter().any(|process| is_a_rank(*process)));
    }

    /// Waits for the end of the job.
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        self.wait_until("the end of the job", |job| {
            status = job.mpirun.try_wait().unwrap();
            status.is_some()
        });
        Ended { success: status.unwrap().success(), text: self.text(), folder: self.folder.clone() }
    }

    fn wait_until(&mut self, what: &str, mut there: impl FnMut(&mut Job) -> bool) {
        let began = Instant::now();
        while !there(self) {
            assert!(began.elapsed() < BOUND, "waited in vain for {what}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The output of mpirun and the ranks.
    fn text(&self) -> String {
        let read = |name: &str| fs::read(self.folder.join(name)).unwrap_or_default();
        [read("stdout"), read("stderr")].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

impl Drop for Job {
    /// Ends mpirun, and the ranks, by the process numbers in their marks.
    fn drop(&mut self) {
        if self.mpirun.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("started-")
                && let Ok(number) = fs::read_to_string(entry.path()).unwrap_or_default().parse()
                && is_a_rank(number)
            {
                signal("KILL", number);
            }
        }
        let _ = self.mpirun.kill();
        let _ = self.mpirun.wait();
    }
}

/// Whether this process still runs this test program. Its number may have been reused.
fn is_a_rank(number: u32) -> bool {
    fs::read_link(format!("/proc/{number}/exe")).ok() == std::env::current_exe().ok()
}

/// Sends a signal to one process.
pub fn signal(name: &str, process: u32) {
    let _ = Command::new("kill").args([format!("-{name}"), process.to_string()]).status();
}

/// The file for a rank's process number at a mark.
pub fn mark_file(folder: &Path, mark: &str, rank: usize) -> PathBuf {
    folder.join(format!("{mark}-{rank}"))
}

/// An empty folder for one job.
fn folder(role: &str) -> PathBuf {
    static COUNT: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);
    let mut counts = COUNT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let count = counts.get_or_insert_default().entry(role.to_owned()).or_default();
    *count += 1;
    // With the test's name, since a runner may start one process for each test.
    let test = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mpi-{test}-{role}-{count}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}
