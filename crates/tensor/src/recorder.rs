use crate::{Device, Error, Result, Turn};
use core::fmt::Display;
use tensor_cuda::{Cuda, Recording};

/// Plays work that repeats from step to step.
///
/// On a GPU the work of each key is run once, written down at its second turn as a CUDA graph (or at a later one, if an algorithm of
/// a library must give way first because it can't be), and from then on done again at the cost of one call; on other devices it runs
/// every time. For one key the work must be the same ops on the same memory with the same numbers, but for those of the [`Turn`]; and
/// whoever owns that memory keeps it as long as the recorder.
///
/// ```
/// use tensor::{Backend, Device, Error, Recorder, Span, Turn};
///
/// let device = Device::cpu(1);
/// let mut x = device.alloc(3)?;
/// let mut recorder = Recorder::default();
/// for step in 0..3 {
///     let turn = Turn { step, ..Turn::default() };
///     recorder.play::<Error>(&device, "fill", &turn, || device.fill(1.0, &mut x, Span::new(0, 3)))?;
/// }
/// assert_eq!(x.to_vec(&device, 0, 3)?, [1.0; 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder<K> {
    known: Vec<(K, State)>,
    refusal: Option<String>,
}

#[derive(Debug)]
enum State {
    /// It ran once, so all memory is reserved and all choices are made.
    Ran,
    Recorded(Recording),
    /// The driver refused to write it down: it runs every time.
    Refused,
}

impl<K> Default for Recorder<K> {
    fn default() -> Self {
        Recorder { known: Vec::new(), refusal: None }
    }
}

impl<K: PartialEq> Recorder<K> {
    /// Does the work of `key` once more: `work` is called only where it isn't recorded.
    ///
    /// # Errors
    /// Those of `work`, and what the device says.
    pub fn play<E: From<Error> + Display>(
        &mut self,
        device: &Device,
        key: K,
        turn: &Turn,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let Device::Cuda(cuda) = device else { return work() };
        let Some((_, state)) = self.known.iter_mut().find(|(known, _)| *known == key) else {
            work()?;
            self.known.push((key, State::Ran));
            return Ok(());
        };
        match state {
            State::Recorded(recording) => return Ok(recording.replay(turn)?),
            State::Refused => return work(),
            State::Ran => {}
        }
        let dropped = cuda.dropped_algorithms();
        match write_down(cuda, &mut work) {
            Ok(recording) => {
                recording.replay(turn)?;
                *state = State::Recorded(recording);
            }
            Err(why) => {
                // Without the algorithm that could not be written down, the next turn writes it down.
                let another = cuda.dropped_algorithms() > dropped;
                // An op that fails by itself fails here too, and says why.
                work()?;
                if !another {
                    *state = State::Refused;
                    self.refusal = Some(why.to_string());
                }
            }
        }
        Ok(())
    }

    /// Of all that is recorded: the pieces of work, and those of the longest chain, as [`Recording::size`] says.
    pub fn size(&self) -> [usize; 2] {
        let sizes = self.known.iter().filter_map(|(_, state)| match state {
            State::Recorded(recording) => Some(recording.size()),
            State::Ran | State::Refused => None,
        });
        sizes.fold([0; 2], |[works, chain], [more, longest]| [works + more, chain + longest])
    }

    /// Why some work runs every time although the device can record; `None` where nothing was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

/// Has `work` written down and not done.
fn write_down<E: Display>(cuda: &Cuda, work: &mut impl FnMut() -> Result<(), E>) -> Result<Recording> {
    cuda.begin_recording()?;
    let Err(why) = work() else { return cuda.end_recording() };
    cuda.abandon_recording();
    Err(Error::Device { device: "cuda".into(), message: format!("an op can't be recorded: {why}") })
}
