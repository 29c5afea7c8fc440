//! The builder of a run.

use crate::run::stop_flag::StopFlag;
use crate::{Config, Observer, Result, Resume};
use towers_config::Checked;
use towers_dataset::Dataset;
use towers_models::Model;
use towers_program::Device;

pub(crate) type Observers<'o> = &'o mut [Box<dyn Observer>];

/// Writes the key of an option for a message, as a file or a command line has it.
pub(crate) type Spelling = fn(&str) -> String;

/// The training of a network on data, as a configuration says, with one replica per device, from the start or from a
/// checkpoint.
///
/// The observers see the first replica. Every replica reads its own share of every batch. Gradients are added
/// along a fixed tree, so a run repeats bit for bit with any number of threads. With
/// [`virtual_replicas`](towers_config::Training::virtual_replicas) the number of devices changes no bit either.
///
/// ```
/// use towers_config::recipe;
/// use towers_layers::{Conv2D, Dense, Flatten, Graph, MaxPooling2D};
/// use towers_models::Model;
/// use towers_train::Training;
///
/// let mut graph = Graph::new("mine", [32, 32, 3]);
/// let x = graph.add(Conv2D::new(8, 3).strides(2), graph.input())?;
/// let x = graph.add(MaxPooling2D::new(2), x)?;
/// let x = graph.add(Flatten, x)?;
/// let logits = graph.add(Dense::new(10), x)?;
///
/// let mut config = recipe("quick")?;
/// (config.training.model, config.training.epochs, config.placement.devices.replicas) = ("mine".into(), 1, 2);
/// let data = towers_cifar::synthetic(1, 200, 50);
/// let outcome = Training::new(&config, data).model(Model::new(graph, logits)).run()?;
/// assert_eq!(outcome.state.step, 2);
/// # Ok::<(), towers_train::Error>(())
/// ```
#[must_use = "a training begins with `run`"]
pub struct Training<'a> {
    pub(crate) config: &'a Config,
    pub(crate) data: Dataset,
    model: Option<Model>,
    pub(super) devices: Option<&'a [Device]>,
    pub(crate) resume: Option<&'a Resume>,
    pub(super) observers: Observers<'a>,
    pub(crate) stop: StopFlag,
    pub(crate) spelling: Spelling,
}

impl<'a> Training<'a> {
    /// The training of the configured network on the configured devices.
    pub fn new(config: &'a Config, data: Dataset) -> Self {
        let spelling = |key: &str| format!("`{key}`");
        let (stop, observers) = (StopFlag::default(), &mut [][..]);
        Training { config, data, model: None, devices: None, resume: None, observers, stop, spelling }
    }

    /// Another network than the configured one, with any name in the configuration. Replicas, checkpoints, resume and observers
    /// work the same way. [`Trained::with_model`](towers_trained::Trained::with_model) opens it again; the command line knows only
    /// the networks of [`models`](towers_models).
    pub fn model(self, model: Model) -> Self {
        Training { model: Some(model), ..self }
    }

    /// Devices that the caller opened, in place of the configured ones: one replica on each, or one on as many as it has
    /// pipeline stages.
    pub fn devices(self, devices: &'a [Device]) -> Self {
        Training { devices: Some(devices), ..self }
    }

    /// Continues from a checkpoint.
    pub fn resume(self, resume: impl Into<Option<&'a Resume>>) -> Self {
        Training { resume: resume.into(), ..self }
    }

    /// The observers, such as those of [`towers_callbacks::from_config`].
    pub fn observers(self, observers: &'a mut [Box<dyn Observer>]) -> Self {
        Training { observers, ..self }
    }

    /// Stops when this flag is raised.
    pub fn stop(self, stop: &StopFlag) -> Self {
        Training { stop: stop.clone(), ..self }
    }

    /// The spelling of options in warnings: by default keys in backticks, as in files.
    pub fn spelling(self, spelling: fn(&str) -> String) -> Self {
        Training { spelling, ..self }
    }

    /// Checks the configuration, and builds the network.
    pub(crate) fn network(&mut self) -> Result<Checked> {
        let image = self.data.train.shape();
        let network = match self.model.take() {
            Some(model) => self.config.checked_with(model, image)?,
            None => self.config.checked(image, self.data.classes.len())?,
        };
        Ok(if self.data.is_multi_label() { network.multi_label() } else { network })
    }
}
