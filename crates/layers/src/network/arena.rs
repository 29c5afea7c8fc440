use super::graph::{Graph, elements};
use crate::parameter::ParamPlace;
use crate::{Initializer, ParamSpec, Result, Role};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use towers_program::{Device, Span, Storage};

/// Every trainable tensor starts on a cache line: a multiple of 16 elements.
const ALIGN: usize = 16;

/// More threads than this draw the first values no faster.
const MOST_THREADS: usize = 16;

/// One parameter tensor: its name, shape and place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Slot {
    /// `LAYER/PARAMETER`, e.g. `conv2d_1/kernel`.
    pub name: String,
    /// The number of its layer, as in [`Graph::work`].
    pub layer: usize,
    /// As Keras lays it out.
    pub shape: Vec<usize>,
    /// How it changes, which decides its place: in `params` before or after the end of the trainable ones, or
    /// in `running`.
    pub role: Role,
    /// The place in its arena.
    pub span: Span,
    /// For running averages: where in `grads` the forward pass leaves the sums.
    pub sums: Span,
    /// The first values.
    pub init: Initializer,
}

/// The places of a network's parameters, and of all that its passes leave in the gradients' arena.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    pub(super) slots: Vec<Slot>,
    pub(super) averages: Vec<Averages>,
    pub(super) trainable: Span,
    pub(super) metrics: Span,
    signal: Span,
    /// The numbers of elements of parameters and of running averages.
    params: usize,
    running: usize,
}

/// The flat memory of a network's parameters.
///
/// `params` holds first the trainable and then the frozen parameters, so the optimizer updates one run.
/// `grads` holds first the gradients, laid out as `params`. The sums for the running averages and the two
/// metrics follow, since replicas add them up too. So one all-reduce of `grads` is all that replicas exchange
/// in a step.
#[derive(Debug)]
pub struct Arena {
    /// Parameters: trainable ones, then frozen ones.
    pub params: Storage,
    /// Gradients, sums, metrics.
    pub grads: Storage,
    /// Running averages.
    pub running: Storage,
    /// The run of `params`, and of the same places in `grads`, that the optimizer updates.
    pub trainable: Span,
    /// The run of `grads` with the sum of the losses and the number of correct answers.
    pub metrics: Span,
    /// One number at the end of `grads` that no pass touches, for a signal that replicas add up with the
    /// rest, such as a request to stop.
    pub signal: Span,
    slots: Vec<Slot>,
    pub(super) averages: Vec<Averages>,
}

/// Running averages with one momentum, as one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Averages {
    pub(super) momentum: f32,
    /// In `grads`.
    pub(super) sums: Span,
    /// In `running`.
    pub(super) running: Span,
}

/// Takes the next `len` elements, or a few more, so that the tensor after it is aligned.
fn take(end: &mut usize, len: usize, align: usize) -> Span {
    let span = Span::new(*end, len);
    *end = end.saturating_add(len.checked_next_multiple_of(align).unwrap_or(usize::MAX));
    span
}

impl Slots {
    pub(super) fn new(graph: &Graph) -> Self {
        let (mut trainable, mut frozen, mut running) = (0, 0, 0);
        let mut slots: Vec<Slot> = specs(graph)
            .map(|(number, layer, ParamSpec { name, shape, init, role })| {
                let len = elements(&shape);
                let span = match role {
                    Role::Trainable => take(&mut trainable, len, ALIGN),
                    Role::Frozen => take(&mut frozen, len, ALIGN),
                    Role::Running { .. } => take(&mut running, len, 1),
                };
                let (name, sums) = (format!("{layer}/{name}"), Span::new(0, 0));
                Slot { name, layer: number, shape, role, span, sums, init }
            })
            .collect();
        for slot in slots.iter_mut().filter(|slot| slot.role == Role::Frozen) {
            slot.span.offset += trainable;
        }
        let params = trainable + frozen;
        // The sums and their averages have the same order, so a normalization writes its two sums as one run,
        // and a step moves all averages at once.
        let mut end = params;
        let mut averages: Vec<Averages> = Vec::new();
        for slot in slots.iter_mut().filter(|slot| slot.role.is_running()) {
            slot.sums = take(&mut end, slot.span.len, 1);
            let Role::Running { momentum } = slot.role else { continue };
            match averages.last_mut() {
                Some(last) if last.momentum == momentum && last.running.end() == slot.span.offset => {
                    last.sums.len += slot.span.len;
                    last.running.len += slot.span.len;
                }
                _ => averages.push(Averages { momentum, sums: slot.sums, running: slot.span }),
            }
        }
        let metrics = Span::new(end, 2);
        let signal = Span::new(metrics.end(), 1);
        let trainable = Span::new(0, trainable);
        Slots { slots, averages, trainable, metrics, signal, params, running }
    }

    /// The places of the parameters of layer `layer`, in the layer's order.
    pub(super) fn of(&self, layer: usize) -> Vec<ParamPlace> {
        let own = self.slots.iter().filter(|slot| slot.layer == layer);
        own.map(|&Slot { span, sums, .. }| ParamPlace { span, sums }).collect()
    }
}

impl Arena {
    pub(super) fn new(slots: Slots, device: &Device) -> Result<Self> {
        let Slots { slots, averages, trainable, metrics, signal, params, running } = slots;
        Ok(Arena {
            params: device.alloc(params)?,
            grads: device.alloc(signal.end())?,
            running: device.alloc(running)?,
            trainable,
            metrics,
            signal,
            slots,
            averages,
        })
    }

    /// An arena that shares parameters and running averages, with gradients of its own.
    pub(super) fn share(&self, device: &Device) -> Result<Self> {
        Ok(Arena {
            params: self.params.share(),
            grads: device.alloc(self.grads.len())?,
            running: self.running.share(),
            trainable: self.trainable,
            metrics: self.metrics,
            signal: self.signal,
            slots: self.slots.clone(),
            averages: self.averages.clone(),
        })
    }

    /// The parameters, in the order of the layers.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The names and places of the trainable parameters, each place with the elements that nothing uses before the next
    /// one: together they are all of `trainable`.
    ///
    /// ```
    /// use towers_layers::{Dense, Flatten, Graph, Mode};
    ///
    /// let mut graph = Graph::new("linear", [1, 1, 3]);
    /// let x = graph.add(Flatten, graph.input())?;
    /// let logits = graph.add(Dense::new(2), x)?;
    /// let network = graph.build(logits, &towers_tensor_cpu::device(1), 1, Mode::Training)?;
    /// let runs: Vec<_> = network.arena().trainable_runs().map(|(name, at)| (name, at.range())).collect();
    /// assert_eq!(runs, [("dense/kernel", 0..16), ("dense/bias", 16..32)]);
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    pub fn trainable_runs(&self) -> impl Iterator<Item = (&str, Span)> {
        let trainable = self.slots.iter().filter(|slot| slot.role == Role::Trainable);
        trainable.map(|slot| {
            let Span { offset, len } = slot.span;
            (slot.name.as_str(), Span::new(offset, len.next_multiple_of(ALIGN)))
        })
    }

    /// The memory that holds `slot`.
    pub fn storage(&self, slot: &Slot) -> &Storage {
        if slot.role.is_running() { &self.running } else { &self.params }
    }

    /// Copies `values` into `slot`.
    ///
    /// # Errors
    /// If their number is not the slot's.
    pub fn load(&mut self, device: &Device, slot: &Slot, values: &[f32]) -> Result<()> {
        towers_program::Error::check_len("load", "a parameter", Span::new(0, values.len()), slot.span.len)?;
        let storage = if slot.role.is_running() { &mut self.running } else { &mut self.params };
        Ok(device.upload(values, storage, slot.span.offset)?)
    }

    /// Sets every parameter to its first values: a pure function of the seed.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn init(&mut self, device: &Device, seed: u64) -> Result<()> {
        // The values depend on the tensor alone, so several threads may draw: millions of numbers take as
        // long as a step. The largest tensors come first, so that all threads end together.
        let (mut slots, next) = (self.slots.clone(), AtomicUsize::new(0));
        slots.sort_by_key(|slot| core::cmp::Reverse(slot.span.len));
        let threads = device.threads().clamp(1, MOST_THREADS);
        let draw = || {
            let k = next.fetch_add(1, Relaxed);
            let slot = slots.get(k)?;
            Some((k, slot.init.values(seed, &slot.name, &slot.shape)))
        };
        let send = |sender: SyncSender<_>| {
            while let Some(drawn) = draw() {
                if sender.send(drawn).is_err() {
                    break;
                }
            }
        };
        let mut load = |(k, values): (usize, Vec<f32>)| self.load(device, &slots[k], &values);
        thread::scope(|scope| {
            // The queue is short, since waiting values take memory.
            let (sender, drawn) = sync_channel(0);
            for sender in vec![sender; threads] {
                // If a thread can't be started, the others draw its tensors.
                if thread::Builder::new().spawn_scoped(scope, || send(sender)).is_err() {
                    break;
                }
            }
            drawn.into_iter().try_for_each(&mut load)
        })?;
        // Without any thread, nothing is drawn yet.
        while let Some(drawn) = draw() {
            load(drawn)?;
        }
        Ok(())
    }
}

impl Graph {
    /// The parameters with their names, as in [`Slot::name`], in the order of the layers.
    pub fn params(&self) -> impl Iterator<Item = (String, ParamSpec)> {
        specs(self).map(|(_, layer, spec)| (format!("{layer}/{}", spec.name), spec))
    }

    /// The names of the trainable parameters, in the order of the layers.
    pub fn trained(&self) -> Vec<String> {
        let trained = self.params().filter(|(_, spec)| spec.role == Role::Trainable);
        trained.map(|(name, _)| name).collect()
    }
}

/// The parameters of every layer, with the layer's number in [`Graph::work`] and its name.
pub(super) fn specs(graph: &Graph) -> impl Iterator<Item = (usize, &str, ParamSpec)> {
    let layers = graph.nodes.iter().filter(|node| !node.layer.only_joins());
    layers.enumerate().flat_map(|(number, node)| {
        node.params(&graph.shapes).into_iter().map(move |spec| (number, node.name.as_str(), spec))
    })
}
