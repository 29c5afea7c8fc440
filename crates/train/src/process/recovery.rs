//! What the processes that are left do when others were lost: they take the most advanced state among them, and
//! continue from there. No checkpoint is read.

use crate::mpi::Mpi;
use crate::run::{End, Outcome};
use crate::{Error, Result, Resume};
use towers_callbacks::TrainState;
use towers_checkpoint::Tensors;

/// What a process keeps of a run when its replicas have ended.
pub(super) struct Kept {
    /// The state after the last whole step.
    pub(super) resume: Resume,
    /// How the run ended, if that is decided.
    pub(super) end: Option<End>,
    /// Whether all replicas have finished, and so all files are written.
    pub(super) finished: bool,
}

/// How a run continues.
pub(super) enum Next {
    /// From here, with a warning for the user.
    Continue {
        kept: Option<Box<Kept>>,
        warning: String,
    },
    Done(Box<Outcome>),
}

/// The numbers by which processes compare what they have: epochs, steps of the epoch, and whether the replicas
/// have finished.
const FIGURES: usize = 3;

/// Comes together with the processes that are left. The run began at `resume`: there is nothing else as long as
/// this process has no network.
pub(super) fn regroup(mpi: &mut Mpi, resume: Option<&Resume>, mut kept: Option<Box<Kept>>) -> Result<Next> {
    let mut lost = Vec::new();
    let all = loop {
        lost.extend(mpi.regroup()?);
        match take_most_advanced(mpi, resume, &mut kept) {
            // One more was lost.
            Err(Error::Parallel(towers_parallel::Error::Lost)) => {}
            taken => break taken?,
        }
    };
    if all.iter().any(|figures| figures[2] > 0.0)
        && let Some(Kept { end: Some(end), resume, .. }) = kept.as_deref()
    {
        let outcome = Outcome { end: end.clone(), state: resume.state.clone() };
        return Ok(Next::Done(Box::new(outcome)));
    }
    let names: Vec<String> = lost.iter().map(usize::to_string).collect();
    let (s, were) = if names.len() == 1 { ("", "was") } else { ("s", "were") };
    let left = if all.len() == 1 {
        "one process continues".into()
    } else {
        format!("{} processes continue", all.len())
    };
    let step = kept.as_ref().map(|kept| &kept.resume).or(resume).map_or(0, |resume| resume.state.step);
    let warning = format!("rank{s} {} {were} lost; {left} after step {step}", names.join(", "));
    Ok(Next::Continue { kept, warning })
}

/// Takes the state of the most advanced process, if they differ. Returns the figures of all.
fn take_most_advanced(
    mpi: &mut Mpi,
    resume: Option<&Resume>,
    kept: &mut Option<Box<Kept>>,
) -> Result<Vec<[f64; FIGURES]>> {
    let finished = kept.as_ref().is_some_and(|kept| kept.finished);
    let resume = kept.as_ref().map(|kept| &kept.resume).or(resume);
    let (epochs, steps) =
        resume.map_or((0, 0), |resume| (resume.state.epochs_done, resume.state.partial.steps));
    let own: [f64; FIGURES] = [epochs as f64, steps as f64, f64::from(u8::from(finished))];
    let all = mpi.gather(&own)?;
    let all = all.as_chunks().0.to_vec();
    let most = (1..all.len()).fold(0, |most, rank| if all[rank] > all[most] { rank } else { most });
    if all.iter().any(|figures| figures[..2] != all[most][..2]) {
        copy_state(mpi, kept, most)?;
    }
    Ok(all)
}

/// Replaces the state and the tensors of all by those of rank `root`. Their names and shapes are the same.
fn copy_state(mpi: &mut Mpi, kept: &mut Option<Box<Kept>>, root: usize) -> Result<()> {
    let Some(Kept { resume, .. }) = kept.as_deref_mut() else {
        return Err(Error::Device("this process has no network yet, and others have trained theirs".into()));
    };
    let refuse = |error: serde_json::Error| Error::Device(error.to_string().into());
    let text = mpi.broadcast_bytes(&serde_json::to_vec(&resume.state).map_err(refuse)?, root)?;
    let state: TrainState = serde_json::from_slice(&text).map_err(refuse)?;
    let numbers: Vec<f32> = resume.tensors().iter().flat_map(|tensor| tensor.data).copied().collect();
    let numbers = mpi.broadcast_numbers(&numbers, root)?;
    let mut rest = &numbers[..];
    let mut tensors = Tensors::new();
    tensors.metadata_mut().clone_from(resume.tensors().metadata());
    for tensor in resume.tensors().iter() {
        let (values, behind) = rest.split_at(tensor.data.len());
        tensors.insert(tensor.name, tensor.shape.to_vec(), values.to_vec())?;
        rest = behind;
    }
    *resume = Resume::of(&resume.config, &state, tensors);
    Ok(())
}
