use crate::{Collective, Error, Nodes, Result, Stage, SumTree};
use std::time::{Duration, Instant};
use towers_layers::Exchange;
use towers_program::ops::Neighbor;
use towers_program::{Device, Layout, Shape, Span, Storage, View, ViewMut, Write};

/// The exchanges of a pass: with the other replicas through their collective, or with the neighbouring
/// stages.
///
/// ```
/// use towers_layers::{Dense, Draws, Flatten, Graph, Mode};
/// use towers_parallel::{Exchanges, run_replicas};
///
/// type Error = Box<dyn std::error::Error + Send + Sync>;
///
/// let mut graph = Graph::new("tiny", [2, 2, 1]);
/// let x = graph.add(Flatten, graph.input())?;
/// let logits = graph.add(Dense::new(3), x)?;
/// let losses = run_replicas(&vec![towers_tensor_cpu::device(1); 2], |mut replica| {
///     let mut network = graph.build(logits, &replica.device, 1, Mode::Training)?;
///     network.set_input(&[1.0; 4], &[replica.rank() as u32])?;
///     let draws = Draws { seed: 0, step: 0, first_sample: replica.rank() as u32 };
///     // Sums of gradients start while the backward pass goes on.
///     let mut exchanges = Exchanges::of_replicas(replica.collective.as_mut()).with_sums(None, &[]);
///     let passed = network.train_pass_with(draws, 0.0, 2, Some(&mut exchanges));
///     exchanges.end::<Error>(passed)?;
///     let buckets = network.buckets();
///     replica.collective.finish_all_reduce(&replica.device, None, &buckets, &mut network.arena_mut().grads)?;
///     Ok::<_, Error>(network.metrics()?.loss_sum)
/// })?;
/// assert_eq!(losses[0], losses[1]);
/// # Ok::<(), Error>(())
/// ```
pub struct Exchanges<'a> {
    way: Way<'a>,
    /// How long the pass has waited for others.
    waited: Duration,
    /// The error of a failed exchange. The pass returns its message alone.
    failure: Option<Error>,
}

enum Way<'a> {
    Replicas {
        collective: &'a mut dyn Collective,
        /// The all-reduces of gradients that start in the pass. Without, the trainer adds up all after it.
        sums: Option<Sums<'a>>,
    },
    Stages(&'a Stage),
}

/// Sums of this pass, after the siblings are added to them.
struct Sums<'a> {
    nodes: Option<Nodes<'a>>,
    siblings: &'a [Storage],
}

/// Adds the run `at` of `from` to that of `to`, on the device. The sum of two f32 has one result, so the host
/// would compute the same bits.
///
/// # Errors
/// The errors of the device.
pub fn add_run(device: &Device, from: &Storage, to: &mut Storage, at: Span) -> towers_program::Result<()> {
    let layout = Layout { offset: at.offset, ..Layout::contiguous(Shape::vectors(1, at.len)) };
    device.copy(View::new(from, layout), ViewMut::new(to, layout), Write::Add)
}

impl<'a> Exchanges<'a> {
    /// Exchanges with the other replicas. Without [sums](Exchanges::with_sums) only batch statistics are
    /// exchanged.
    pub fn of_replicas(collective: &'a mut dyn Collective) -> Self {
        Exchanges::by(Way::Replicas { collective, sums: None })
    }

    /// Also starts the all-reduces of gradients in the pass; see [`Collective::start_all_reduce`]. Before, the
    /// `siblings` are added to the gradients of this pass, from the last one to the first: partial sums of
    /// earlier passes that make one node with it.
    pub fn with_sums(self, nodes: Option<Nodes<'a>>, siblings: &'a [Storage]) -> Self {
        let sums = Some(Sums { nodes, siblings });
        let way = match self.way {
            Way::Replicas { collective, .. } => Way::Replicas { collective, sums },
            stages @ Way::Stages(_) => stages,
        };
        Exchanges { way, ..self }
    }

    /// Exchanges with the neighbouring stages.
    pub fn of_stage(stage: &'a Stage) -> Self {
        Exchanges::by(Way::Stages(stage))
    }

    fn by(way: Way<'a>) -> Self {
        Exchanges { way, waited: Duration::ZERO, failure: None }
    }

    /// How long the pass with these exchanges waited for other replicas.
    ///
    /// # Errors
    /// The error of an exchange that failed, or else that of the pass.
    pub fn end<E: From<Error>>(self, passed: Result<(), impl Into<E>>) -> Result<Duration, E> {
        match passed {
            Ok(()) => Ok(self.waited),
            Err(error) => Err(self.failure.map_or_else(|| error.into(), E::from)),
        }
    }

    /// Keeps an error, and gives its message to the pass.
    fn told(&mut self, result: Result<()>) -> towers_program::Result<()> {
        result.map_err(|error| {
            let message = error.to_string();
            self.failure = Some(error);
            towers_program::Error::Device { device: "the connection to the other replicas".into(), message }
        })
    }

    fn meet(&mut self, meet: impl FnOnce(&mut dyn Collective) -> Result<()>) -> towers_program::Result<()> {
        let began = Instant::now();
        let met = match &mut self.way {
            Way::Replicas { collective, .. } => meet(&mut **collective),
            Way::Stages(stage) => Err(Error::NoStage { place: "beside this one", stages: stage.stages() }),
        };
        self.waited += began.elapsed();
        self.told(met)
    }

    fn stage(&self) -> Result<&'a Stage> {
        match &self.way {
            Way::Stages(stage) => Ok(stage),
            Way::Replicas { .. } => Err(Error::NoStage { place: "beside this one", stages: 1 }),
        }
    }
}

impl Exchange for Exchanges<'_> {
    fn all_reduce_start(
        &mut self,
        device: &Device,
        grads: &mut Storage,
        at: Span,
    ) -> towers_program::Result<()> {
        let begun = match &mut self.way {
            Way::Replicas { collective, sums: Some(Sums { nodes, siblings }) } => {
                for sibling in siblings.iter().rev() {
                    add_run(device, sibling, grads, at)?;
                }
                collective.start_all_reduce(device, *nodes, grads, at)
            }
            Way::Replicas { sums: None, .. } | Way::Stages(_) => Ok(()),
        };
        self.told(begun)
    }

    /// Along a tree, so that all collectives give the same bits.
    fn all_reduce(&mut self, device: &Device, data: &mut Storage, at: Span) -> towers_program::Result<()> {
        self.meet(|collective| {
            let tree = SumTree::new(&vec![1; collective.world()]);
            collective.all_reduce(device, Some(Nodes { tree: &tree, earlier: &[] }), data, at)
        })
    }

    fn all_gather(&mut self, device: &Device, data: &mut Storage, at: Span) -> towers_program::Result<()> {
        self.meet(|collective| collective.all_gather(device, data, at))
    }

    fn send(
        &mut self,
        to: Neighbor,
        device: &Device,
        data: &Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        let fill = |tensor: &mut Vec<f32>| {
            tensor.resize(at.shape.len(), 0.0);
            Ok::<_, Error>(device.download(data, at.offset, tensor)?)
        };
        let sent = self.stage().and_then(|stage| stage.send(to, fill));
        self.told(sent)
    }

    fn receive(
        &mut self,
        from: Neighbor,
        device: &Device,
        data: &mut Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        let read = |tensor: &[f32]| {
            towers_program::Error::check_len(
                "receive",
                "the tensor",
                Span::new(0, tensor.len()),
                at.shape.len(),
            )?;
            Ok::<_, Error>(device.upload(tensor, data, at.offset)?)
        };
        let received = self.stage().and_then(|stage| stage.receive(from, read));
        self.told(received)
    }
}
