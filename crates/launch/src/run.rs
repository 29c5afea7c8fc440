use crate::heard::Heard;
use crate::job::Job;
use crate::launch::{End, Launch, MOST_PROCESSES};
use crate::processes::{Outcome, Processes};
use crate::status::{BAD_USAGE, INCOMPLETE};
use crate::{Error, Result};

impl Launch {
    /// Starts the processes and waits for their end. When one fails, the others are asked to end (SIGTERM), and killed
    /// after [`grace`](Self::grace).
    ///
    /// This program hears [`signals`](crate::signals) from then on, and passes them to the processes. A second Ctrl-C kills the
    /// processes.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for invalid settings, and for refusals of the system. All processes have ended then.
    pub fn run(&self) -> Result<End> {
        if !(1..=MOST_PROCESSES).contains(&self.processes) {
            return Err(Error::Processes(self.processes));
        }
        let job = Job::new(self)?;
        let mut heard = Heard::listen()?;
        for restart in 0.. {
            let mut processes = Processes::start(&job, restart)?;
            let failure = match processes.supervise(&mut heard, self.grace)? {
                Outcome::Done => break,
                Outcome::Interrupted { killed } => return Ok(End::Interrupted { killed }),
                Outcome::Failed(failure) => failure,
            };
            let status = failure.status;
            if status != INCOMPLETE {
                failure.report(self);
            }
            // Another start would not help after bad usage, and is not wanted after Ctrl-C.
            let unwanted = status == BAD_USAGE || heard.stops();
            if unwanted || restart >= self.restarts {
                return Ok(End::Failed { status });
            }
            (self.tell)(&format!("restarting all processes (restart {} of {})", restart + 1, self.restarts));
        }
        Ok(End::Done)
    }
}
