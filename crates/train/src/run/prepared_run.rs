//! A prepared run: its checked options, its data, its network or stages, and the state that all replicas
//! share.

use crate::data::split as validation_split;
use crate::data::{Labelling, compare, described, digest_seen};
use crate::run::early_warnings::Seen;
use crate::run::first_values::FirstValues;
use crate::run::measured::tally;
use crate::run::pipeline::split as split_stages;
use crate::run::run_data::RunData;
use crate::run::training::{Spelling, Training};
use crate::{Config, Error, Observer, Result, Resume};
use std::collections::BTreeMap;
use std::sync::Mutex;
use towers_augment::ImageDataGenerator;
use towers_checkpoint::Tensors;
use towers_config::{Checked, cut_names, samples};
use towers_dataset::{Dataset, Split};
use towers_models::Model;
use towers_options::{Message, message};
use towers_program::Device;
use towers_trained::{Input, InputFit, Task, check_labels, standardization};

/// Refuses a network for images of another size, or with another number of classes; and data of a single
/// class.
fn check_fit(model: &Model, data: &Dataset) -> Result<()> {
    if data.classes.len() == 1 {
        let accepted = "at least 2: a softmax of one score is 1 for any picture";
        return Err(Error::about("the number of classes", 1, accepted));
    }
    let own = Task::of(model);
    let wanted = Task { image: data.train.shape(), classes: data.classes.len() };
    if own != wanted {
        return Err(Error::about("the network", own, format!("{wanted}: those of the data")));
    }
    let several = |split: &Split| split.multi_hot.is_some();
    if data.validation.as_ref().is_some_and(|split| several(split) != data.is_multi_label()) {
        let accepted = "as those to train on: one a picture, or several";
        return Err(Error::about("the labels of the validation data", "of another kind", accepted));
    }
    match (model.is_multi_label(), data.is_multi_label()) {
        (true, false) => Err(Error::about(
            "the last layer of the network",
            "a sigmoid for each class, for several labels a picture",
            "a softmax, since each picture of the data has one label",
        )),
        _ => Ok(()),
    }
}

/// Tells observers how far the reading of a split's pictures is, if they are in files. The function that this gives is
/// called with the pixels of some images at a time, in any number of passes.
fn tell(split: &Split, observers: &mut [Box<dyn Observer>]) -> impl FnMut(&[u8]) -> Result<()> {
    let (image, all, in_files) =
        (split.shape().iter().product::<usize>(), split.len(), split.files.is_some());
    let mut done = 0;
    move |images| {
        if !in_files {
            return Ok(());
        }
        let mut tell = |done| observers.iter_mut().try_for_each(|observer| observer.on_read(done, all));
        if done == 0 || done == all {
            done = 0;
            tell(done)?;
        }
        done += images.len() / image;
        Ok(tell(done)?)
    }
}

/// The preprocessing of images and the augmentation: those of the resumed run, else those of the weights, else
/// measured on the training images, all of which `fit` has seen, if it is there.
fn preprocess(
    config: &Config,
    resume: Option<&Resume>,
    first_values: Option<&FirstValues>,
    fit: Option<InputFit>,
    train: &Split,
    observers: &mut [Box<dyn Observer>],
) -> Result<(Input, ImageDataGenerator)> {
    let (own, augmentation) = (config.training.preprocessing, config.training.augmentation.clone());
    let known = match resume {
        Some(resume) => Some(resume.preprocessing()?),
        None => first_values.and_then(|values| values.preprocessing.clone()),
    };
    if let Some((input, options)) = known {
        return Ok((input, augmentation.evaluated_as(&options)));
    }
    let kind = first_values.and_then(|values| values.kind).unwrap_or(own);
    let mut tell = tell(train, observers);
    let fit = match fit.filter(|_| kind == own) {
        Some(fit) => fit,
        None => {
            let mut fit = InputFit::new(kind, train.shape());
            fit.add_all(train, &mut tell)?;
            fit
        }
    };
    let input = fit.input()?;
    let options = input.options(augmentation);
    Ok((input, standardization::fit(options, train, tell)?))
}

/// Copies of the tensors of the first replica's other stages, for checkpoints: by the number of the stage, its
/// parameters, and each kind of tensors that only training needs.
pub(super) type StageTensors = BTreeMap<usize, (Tensors, Vec<Tensors>)>;

/// The state that all replicas of a run share.
pub(crate) struct PreparedRun<'a> {
    pub(crate) config: &'a Config,
    /// The spelling of options in warnings.
    pub(crate) spelling: Spelling,
    /// Replicas of all processes.
    pub(super) world: usize,
    /// Samples of a whole batch: at most those of the data.
    pub(super) batch: usize,
    /// Whether it resumes from a checkpoint.
    pub(super) resumes: bool,
    /// The network.
    pub(super) model: Model,
    /// The network, or its stages.
    pub(crate) stages: Vec<Model>,
    /// The cuts: the last layer of each stage except the last.
    pub(super) cuts: String,
    pub(super) stage_tensors: Mutex<StageTensors>,
    pub(crate) data: RunData,
    /// The weights that a new run begins with, unless they are random.
    pub(crate) first_values: Option<FirstValues>,
    /// Sentences about the data.
    pub(super) notes: Vec<Message>,
    pub(super) warnings: Vec<Message>,
    /// For each observer, the number of steps between snapshots in an epoch. All stages of a pipeline need
    /// it, since they pass their tensors on.
    pub(super) snapshots: Vec<Option<u64>>,
}

impl<'a> PreparedRun<'a> {
    /// The parameters and running averages of the network, and the floating-point operations of a forward pass
    /// of one image.
    pub(super) fn size(&self) -> [u64; 2] {
        self.model.graph().work().iter().fold([0; 2], |[parameters, flops], work| {
            let own = work.trainable + work.non_trainable;
            [parameters + own as u64, flops + 2 * work.multiply_adds as u64]
        })
    }

    /// Prepares a run of `world` replicas, some of them on these devices, the ones of this process. The
    /// configuration was checked, except for the number of replicas. The observers are told how far the reading of
    /// images in files is.
    ///
    /// # Errors
    /// [`Error::Device`] if the devices have too little memory, or compute a wrong first step; the errors of the
    /// data and of the devices.
    pub(crate) fn prepare(
        training: Training<'a>,
        network: Checked,
        world: usize,
        devices: &[Device],
        observers: &mut [Box<dyn Observer>],
    ) -> Result<Self> {
        let Training { config, data, resume, spelling, .. } = training;
        let model = network.into_model();
        let device = devices.first().ok_or_else(no_device)?;
        config.check_replicas(world)?;
        let parts = [Some(&data.train), Some(&data.test), data.validation.as_ref()];
        parts.into_iter().flatten().try_for_each(check_labels)?;
        // Samples that are held back are not measured, and a resumed run has its measurements.
        let measures = resume.is_none() && config.training.augmentation.validation_split == 0.0;
        let new_fit = || InputFit::new(config.training.preprocessing, data.train.shape());
        let mut fit = measures.then(new_fit);
        // A part of the training images may be held back, or all be validated on.
        let own = measures && config.training.overfit_batches.is_none() && !config.outputs.no_warnings;
        let mut seen = own.then(|| Seen::new(data.train.shape().iter().product()));
        let sha256 = {
            let mut tell = tell(&data.train, observers);
            digest_seen(&data.train, |images| {
                fit.iter_mut().for_each(|fit| fit.add(images));
                seen.iter_mut().for_each(|seen| seen.add(images));
                tell(images)
            })?
        };
        let fingerprint = described(&data, sha256);
        let trained_on = resume.and_then(|resume| resume.state.data.as_ref());
        trained_on.map_or(Ok(()), |trained_on| compare(trained_on, &fingerprint))?;
        if data.train.is_empty() || data.validation.as_ref().unwrap_or(&data.test).is_empty() {
            let accepted = "at least 1, for training and for validation";
            return Err(Error::about("the number of samples", 0, accepted));
        }
        check_fit(&model, &data)?;
        tally(&config.outputs.metrics, data.classes.len(), data.is_multi_label())?;
        // A resumed run has its own weights.
        let first_values = match resume {
            None => FirstValues::read(config, &model, &data.classes)?,
            Some(_) => None,
        };
        let data = validation_split(config, data, global_batch(config, resume, world))?;
        let (input, augmentation) =
            preprocess(config, resume, first_values.as_ref(), fit, &data.train, observers)?;
        let (mut notes, mut warnings) = (Vec::new(), Vec::new());
        if config.training.overfit_batches.is_some() {
            let count = data.train.len();
            notes.push(message!(
                "it trains and validates on the same {count} images, for ",
                ["overfit_batches"]
            ));
        }
        let labelling = Labelling::new(config, &data.train, &data.classes, [&mut notes, &mut warnings])?;
        let val_labelling = Labelling::of(&data.test);
        let val_sha256 = {
            let mut tell = tell(&data.test, observers);
            digest_seen(&data.test, |images| {
                seen.iter_mut().for_each(|seen| seen.compare(images));
                tell(images)
            })?
        };
        warnings.extend(seen.and_then(|seen| seen.warning(data.test.len())));
        let batch = global_batch(config, resume, world).min(data.train.len());
        let split_at = &config.placement.devices.split_at;
        let micro_batch = micro_batch(config, batch, world);
        let stages = split_stages(config.stages(), split_at, model.clone(), device, micro_batch)?;
        let mut run = PreparedRun {
            config,
            spelling,
            world,
            batch,
            resumes: resume.is_some(),
            cuts: cut_names(&stages),
            stages,
            model,
            stage_tensors: Mutex::default(),
            data: RunData {
                input,
                augmentation,
                train: samples(data.train)?,
                val: samples(data.test)?,
                classes: data.classes,
                labelling,
                val_labelling,
                dataset: data.name,
                fingerprint,
                val_sha256,
            },
            first_values,
            notes,
            warnings,
            snapshots: Vec::new(),
        };
        run.snapshot_for(observers);
        run.check_memory(device, devices.len() / config.stages())?;
        run.check_devices(devices)?;
        Ok(run)
    }

    /// Makes the snapshots that these observers need.
    pub(crate) fn snapshot_for(&mut self, observers: &[Box<dyn Observer>]) {
        self.snapshots = observers.iter().map(|observer| observer.snapshot_every()).collect();
    }

    /// The most samples that a replica passes at once.
    pub(super) fn micro_batch(&self) -> usize {
        micro_batch(self.config, self.batch, self.world)
    }
}

pub(super) fn no_device() -> Error {
    Error::Device("there is no device to train on".into())
}

fn micro_batch(config: &Config, batch: usize, world: usize) -> usize {
    batch.div_ceil(config.shards(world)).max(1)
}

/// Samples of a whole batch over `world` replicas; a resumed run keeps its own.
pub(super) fn global_batch(config: &Config, resume: Option<&Resume>, world: usize) -> usize {
    resume.map_or(config.global_batch(world), |resume| resume.state.global_batch)
}
