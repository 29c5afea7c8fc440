use crate::{CapturedGraph, Device, Error, ReplayArgs, Result};
use core::fmt::Display;

/// Runs work that repeats from step to step, as a captured graph where possible.
///
/// On a GPU the first call of a key runs its work. The second call captures it as a CUDA graph. From then on
/// a single call replays the graph. It is captured later if an algorithm of a library can't be captured and
/// must be replaced first. On other devices it runs every time. For one key the work must be the same ops on
/// the same memory with the same numbers, except for those of the [`ReplayArgs`]. The memory must live as
/// long as the cache: a replay without it is refused.
///
/// ```
/// use towers_program::{Error, GraphCache, Span, ReplayArgs};
///
/// let device = towers_tensor_cpu::device(1);
/// let mut x = device.alloc(3)?;
/// let mut graphs = GraphCache::default();
/// for step in 0..3 {
///     let args = ReplayArgs { step, ..ReplayArgs::default() };
///     graphs.run::<Error>(&device, "fill", &args, || device.fill(1.0, &mut x, Span::new(0, 3)))?;
/// }
/// assert_eq!(x.to_vec(&device, 0, 3)?, [1.0; 3]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct GraphCache<K> {
    known: Vec<(K, State)>,
    refusal: Option<String>,
}

#[derive(Debug)]
enum State {
    /// It ran once, so all memory is reserved and all choices are made.
    Ran,
    Captured(Box<dyn CapturedGraph>),
    /// The driver refused to capture it: it runs every time.
    Refused,
}

/// Whether work is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaptureStatus {
    /// It is, or it runs for the first time, or the device captures no graphs.
    Yes,
    /// It runs once more: an algorithm of a library that can't be captured was replaced.
    NotYet,
    /// It runs every time.
    Never,
}

impl<K> Default for GraphCache<K> {
    fn default() -> Self {
        GraphCache { known: Vec::new(), refusal: None }
    }
}

impl<K: PartialEq> GraphCache<K> {
    /// Runs the work of `key`: by a replay if it is captured, else by `work`.
    ///
    /// # Errors
    /// The errors of `work`, and of the device.
    pub fn run<E: From<Error> + Display>(
        &mut self,
        device: &Device,
        key: K,
        args: &ReplayArgs,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        if !device.captures_graphs() {
            return work();
        }
        self.prepare(device, &key, &mut work);
        match self.state(&key) {
            Some(State::Captured(graph)) => Ok(graph.replay(args)?),
            // Work that could not be captured because it fails by itself fails here too, with the reason.
            Some(State::Ran | State::Refused) => work(),
            None => {
                work()?;
                self.known.push((key, State::Ran));
                Ok(())
            }
        }
    }

    /// Captures the work of `key` if it has run once. [`run`](GraphCache::run) does so by itself otherwise.
    pub fn prepare<E: From<Error> + Display>(
        &mut self,
        device: &Device,
        key: &K,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> CaptureStatus {
        let Some(state) = self.state(key) else { return CaptureStatus::Yes };
        match state {
            State::Captured(_) => return CaptureStatus::Yes,
            State::Refused => return CaptureStatus::Never,
            State::Ran => {}
        }
        match device.capture(&mut || work().map_err(|why| why.to_string())) {
            Ok(Some(graph)) => {
                *state = State::Captured(graph);
                CaptureStatus::Yes
            }
            Ok(None) => {
                self.forget(key);
                CaptureStatus::NotYet
            }
            Err(why) => {
                self.refuse(key, why.to_string());
                CaptureStatus::Never
            }
        }
    }

    /// Makes the work of `key` run once more before it is captured.
    pub fn forget(&mut self, key: &K) {
        self.known.retain(|(known, _)| known != key);
    }

    /// Makes the work of `key` run every time from now on.
    pub fn refuse(&mut self, key: &K, why: String) {
        if let Some(state) = self.state(key) {
            *state = State::Refused;
            self.refusal.get_or_insert(why);
        }
    }

    fn state(&mut self, key: &K) -> Option<&mut State> {
        self.known.iter_mut().find_map(|(known, state)| (known == key).then_some(state))
    }

    /// The size of all captured graphs, as [`CapturedGraph::size`].
    pub fn size(&self) -> [usize; 2] {
        let sizes = self.known.iter().filter_map(|(_, state)| match state {
            State::Captured(graph) => Some(graph.size()),
            State::Ran | State::Refused => None,
        });
        sizes.fold([0; 2], |[works, chain], [more, longest]| [works + more, chain + longest])
    }

    /// Why some work runs every time although the device captures graphs. `None` if nothing was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}
