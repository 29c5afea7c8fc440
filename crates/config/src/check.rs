//! Checks of options against each other, and against the replicas and the images of a run.

use crate::config::refuse;
use crate::{
    ClassWeight, ColorMode, Config, DeviceKind, DeviceWeights, Devices, Error, ImageSize, Preprocessing,
    Result, Training, cuts, placement, training,
};
use towers_models::Model;
use towers_optim::{Clip, ParamGroup, Per};
use towers_options::{Message, message};
use towers_program::Precision;
use towers_trained::standardization;

/// The network of a configuration that was [checked](Config::checked) as a whole.
#[derive(Clone, Debug)]
pub struct Checked(Model);

impl Checked {
    /// The same for pictures with any number of classes each.
    #[must_use]
    pub fn multi_label(self) -> Self {
        Checked(self.0.multi_label())
    }

    /// The network, with the configured parameters frozen.
    pub fn into_model(self) -> Model {
        self.0
    }
}

impl Config {
    /// Checks options against each other, before the data are read: for a number of classes that its network can tell apart.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and the accepted values.
    pub fn check(&self) -> Result<()> {
        self.training.data.check_source()?;
        match self.checked(self.training.data.image(), self.some_classes()) {
            Err(Error::Network(towers_layers::Error::Images { network, given, smallest })) => refuse(
                "data.image_size",
                given,
                format!("at least {smallest} (height x width) with the network {network}"),
            ),
            checked => checked.map(drop),
        }
    }

    /// The network for images of this height, width and channels and this number of classes, once all options are checked
    /// against each other, and against it.
    ///
    /// # Errors
    /// As [`check`](Self::check); [`Error::Network`] for images that are too small for the network.
    pub fn checked(&self, image: [usize; 3], classes: usize) -> Result<Checked> {
        self.check_name()?;
        self.check_options(image)?;
        self.fitting(self.network(image, classes)?)
    }

    /// As [`checked`](Self::checked), with a network of the caller's and any name in the configuration.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn checked_with(&self, model: Model, image: [usize; 3]) -> Result<Checked> {
        self.check_options(image)?;
        self.fitting(model)
    }

    /// Freezes parameters of a network, and checks that it has the layers and parameters which options name.
    fn fitting(&self, model: Model) -> Result<Checked> {
        let model = self.frozen(model)?;
        if self.stages() > 1 {
            cuts::check_cuts(self.stages(), &self.placement.devices.split_at, &model)?;
        }
        self.check_groups(model.graph())?;
        Ok(Checked(model))
    }

    /// A number of classes that the network can tell apart, before that of the data is known: 10, or 2 for one sigmoid output.
    pub fn some_classes(&self) -> usize {
        if self.training.layer.ends_in_sigmoid() { 2 } else { 10 }
    }

    /// Checks that the network is a built-in one, or one with layers and any name.
    pub(crate) fn check_name(&self) -> Result<()> {
        let Training { model, layer, .. } = &self.training;
        match towers_models::NAMES.contains(&model.as_str()) {
            true => Ok(()),
            false if layer.is_empty() => Err(towers_trained::Error::unknown_network(
                "model",
                &towers_callbacks::shortened(model),
                OR_FILE,
            )
            .into()),
            false if is_plain(model) => Ok(()),
            false => refuse(
                "model",
                format!("`{}`", towers_callbacks::shortened(model)),
                "a name of at most 100 characters",
            ),
        }
    }

    /// Checks that each of `replicas` replicas has work, and that they can share statistics if they should.
    ///
    /// # Errors
    /// [`Error::Option`] if a batch has fewer samples than replicas; if there are fewer virtual replicas, or
    /// more with [`sync_batch_norm`](Training::sync_batch_norm); if the weights are for another number of
    /// replicas; if there are more micro-batches than samples of a replica.
    pub fn check_replicas(&self, replicas: usize) -> Result<()> {
        self.check_weights(replicas)?;
        let Training { global_batch_size, virtual_replicas, sync_batch_norm, .. } = self.training;
        if let Some(batch) = global_batch_size.filter(|batch| *batch < replicas) {
            let accepted = format!("at least {replicas}: a sample for each of the {replicas} replicas");
            return refuse("global_batch_size", batch, accepted);
        }
        let each = (self.global_batch(replicas) / replicas.max(1)).max(1);
        let each = each / self.training.gradient_accumulation;
        if virtual_replicas.is_none() && self.batch_parts() > each {
            let accepted = format!("at most {each}, the number of samples in a replica's batch");
            return refuse("micro_batches", self.batch_parts(), accepted);
        }
        match virtual_replicas {
            Some(shards) if sync_batch_norm && shards != replicas => refuse(
                "virtual_replicas",
                shards,
                message!(
                    "left out with ",
                    ["sync_batch_norm"],
                    ", or {replicas}, one a replica: shards that a replica passes one after the other can't share statistics"
                ),
            ),
            Some(shards) if shards < replicas => refuse(
                "virtual_replicas",
                shards,
                format!("at least {replicas}, or some of the {replicas} replicas would have nothing to do"),
            ),
            _ => Ok(()),
        }
    }

    /// Checks that there is one weight for each replica, and that each replica gets samples of a whole batch.
    fn check_weights(&self, replicas: usize) -> Result<()> {
        let DeviceWeights::Given(weights) = &self.placement.device_weights else { return Ok(()) };
        if weights.len() != replicas {
            let accepted = match replicas {
                1 => "auto, even, or one number for the one replica".to_owned(),
                _ => format!("auto, even, or one number for each of the {replicas} replicas"),
            };
            return refuse("device_weights", weights, accepted);
        }
        let batch = self.global_batch(replicas);
        let idle = weights.share_out(batch).iter().position(|share| *share == 0);
        match idle.filter(|_| self.training.virtual_replicas.is_none() && batch >= replicas) {
            Some(replica) => {
                let accepted = format!("less uneven: replica {replica} would get none of a batch of {batch}");
                refuse("device_weights", weights, accepted)
            }
            None => Ok(()),
        }
    }

    /// Checks the options for images of this height, width and channels.
    pub(crate) fn check_options(&self, image: [usize; 3]) -> Result<()> {
        ImageSize::of(image).check()?;
        if ColorMode::of(image[2]).is_none() {
            let accepted = "3: red, green and blue, or 1: grey";
            return Err(Error::about("the number of channels of the images", image[2], accepted));
        }
        self.training.preprocessing.check(image)?;
        self.check_values()?;
        let Training { augmentation, preprocessing, schedule, optimizer, ema, sam, .. } = &self.training;
        augmentation.validate(image)?;
        standardization::check(augmentation, image)?;
        if let (Some(factor), Preprocessing::Standardize) = (augmentation.rescale, preprocessing) {
            let accepted = "left out with this recipe, which standardizes values whatever their scale";
            return refuse("augmentation.rescale", factor, accepted);
        }
        let Devices { device, gpus, .. } = &self.placement.devices;
        if let (DeviceKind::Cpu, Some(gpus)) = (device, gpus.as_ref().filter(|gpus| !gpus.is_empty())) {
            let accepted = message!(
                "left out with ",
                ["devices.device"],
                " cpu; ",
                ["devices.replicas"],
                " are replicas on the CPU"
            );
            return refuse("devices.gpus", format!("{gpus:?}"), accepted);
        }
        self.check_stages()?;
        self.check_accumulation()?;
        self.check_sync()?;
        if let (Some(micro), Some(_)) = (self.training.micro_batches, self.training.virtual_replicas) {
            let accepted =
                message!("left out with ", ["virtual_replicas"], ", whose shards are the micro-batches");
            return refuse("micro_batches", micro, accepted);
        }
        if self.training.sampler.is_some() && !self.training.shuffle {
            return refuse(
                "shuffle",
                "false",
                message!("left out with ", ["sampler"], ", which draws an order"),
            );
        }
        if self.training.overfit_batches.is_some() && augmentation.validation_split > 0.0 {
            let accepted =
                message!("left out with ", ["augmentation.validation_split"], ", which holds samples back");
            return refuse("overfit_batches", "given", accepted);
        }
        self.training.class_weight.as_ref().map_or(Ok(()), ClassWeight::check)?;
        if self.training.new_head && self.training.weights.is_none() {
            return refuse(
                "new_head",
                "given",
                message!("left out without ", ["weights"], ": a new network begins anew as a whole"),
            );
        }
        if let (Some(epochs), []) = (self.training.freeze_epochs, self.training.freeze.as_slice()) {
            let accepted = message!("left out without ", ["freeze"], ", which names the layers");
            return refuse("freeze_epochs", epochs, accepted);
        }
        schedule.validate()?;
        self.check_lr_scaling()?;
        optimizer.validate()?;
        self.training.param_groups.iter().try_for_each(ParamGroup::validate)?;
        self.check_decay()?;
        ema.map_or(Ok(()), |ema| ema.validate())?;
        sam.map_or(Ok(()), |sam| sam.validate())?;
        if let Some(plateau) = &self.training.reduce_lr_on_plateau {
            self.outputs.check_metric("reduce_lr_on_plateau.monitor", &plateau.monitor)?;
        }
        Ok(self.outputs.check()?)
    }

    /// Checks each value against the table of options.
    fn check_values(&self) -> Result<()> {
        let Config { training, placement, .. } = self;
        let [root, _, data, arithmetic, plateau] = &training::TABLES;
        towers_options::check(training, root)?;
        towers_options::check(&training.data, data)?;
        towers_options::check(&training.arithmetic, arithmetic)?;
        training
            .reduce_lr_on_plateau
            .as_ref()
            .map_or(Ok(()), |options| towers_options::check(options, plateau))?;
        let [root, files, devices] = &placement::TABLES;
        towers_options::check(placement, root)?;
        towers_options::check(&placement.files, files)?;
        Ok(towers_options::check(&placement.devices, devices)?)
    }

    fn check_stages(&self) -> Result<()> {
        let devices = &self.placement.devices;
        if devices.stages() == 1 && !devices.split_at.is_empty() {
            let accepted = message!("left out, or given with ", ["devices.pipeline_stages"]);
            return refuse("devices.split_at", devices.split_at.join(","), accepted);
        }
        if devices.stages() > 1 && self.training.arithmetic.precision == Precision::Fp16 {
            let accepted = message!(
                "left out with ",
                ["devices.precision"],
                " fp16, whose loss scale stages don't agree on; use bf16"
            );
            return refuse("devices.pipeline_stages", devices.stages(), accepted);
        }
        if let (2.., Some(Clip::GlobalNorm(_))) = (devices.stages(), self.training.optimizer.clip) {
            let accepted = message!(
                "without `global-clipnorm` with ",
                ["devices.pipeline_stages"],
                ", since no stage has all gradients; clipnorm and clipvalue are supported"
            );
            return refuse("optimizer", self.training.optimizer, accepted);
        }
        if let (2.., Some(sam)) = (devices.stages(), self.training.sam) {
            let accepted = message!(
                "left out with ",
                ["devices.pipeline_stages"],
                ", since no stage has all gradients; replicas and ",
                ["micro_batches"],
                " are supported"
            );
            return refuse("sam", sam, accepted);
        }
        Ok(())
    }

    /// Checks that batches are accumulated in one way.
    fn check_accumulation(&self) -> Result<()> {
        let Training { gradient_accumulation: count, global_batch_size, virtual_replicas, .. } =
            self.training;
        let accepted = match (global_batch_size, virtual_replicas) {
            _ if count == 1 => return Ok(()),
            (Some(_), _) => {
                message!("left out with ", ["global_batch_size"], ", which ", ["micro_batches"], " splits")
            }
            (_, Some(_)) => message!(
                "left out with ",
                ["virtual_replicas"],
                ", whose gradients are added up too: give more"
            ),
            _ => return Ok(()),
        };
        refuse("gradient_accumulation", count, accepted)
    }

    /// Checks whether batch normalization can be synchronized, if it should be.
    fn check_sync(&self) -> Result<()> {
        if !self.training.sync_batch_norm || self.micro_batches() == 1 {
            return Ok(());
        }
        let option = match self.training.gradient_accumulation {
            1 if self.stages() > 1 => "devices.pipeline_stages",
            1 => "micro_batches",
            _ => "gradient_accumulation",
        };
        let accepted = message!(
            "left out with ",
            [option],
            ": micro-batches pass one after the other, so they can't share statistics"
        );
        refuse("sync_batch_norm", "given", accepted)
    }

    /// Warnings about options that are allowed, but hardly meant.
    pub fn warnings(&self) -> Vec<Message> {
        let Training { schedule, lr_scaling, epochs, augmentation, freeze_epochs, .. } = &self.training;
        let unsaved = [
            (
                "augmentation.compose",
                augmentation.compose.as_ref().is_some_and(|compose| compose.texts().is_none()),
                "a resume needs it again",
            ),
            (
                "augmentation.preprocessing_function",
                augmentation.preprocessing_function.is_some(),
                "a resume needs it again, and the saved network does not apply it",
            ),
        ];
        let unsaved = unsaved.into_iter().filter(|(_, is_given, _)| *is_given);
        let unsaved = unsaved.map(|(key, _, then)| message!([key], " can't be saved with the run: {then}"));
        let of_schedule =
            schedule.warmup.filter(|warmup| warmup.per == Per::Epoch).map(|warmup| warmup.length);
        let of_scaling = lr_scaling.map(|scaling| scaling.warmup_epochs);
        let longest = of_schedule.max(of_scaling).filter(|length| length > epochs);
        let message = |length| {
            message!(
                "the warm-up takes {length} epochs of {epochs}: the learning rate never reaches its full value"
            )
        };
        let frozen = freeze_epochs.filter(|frozen| frozen >= epochs).map(|frozen| {
            message!(
                ["freeze_epochs"],
                " is {frozen} of {epochs} epochs: the layers of ",
                ["freeze"],
                " never train"
            )
        });
        longest.map(message).into_iter().chain(unsaved).chain(frozen).collect()
    }
}

/// The networks that are not built in.
const OR_FILE: &str = ", or a file with layers (.keras, .h5, .json, .onnx, .toml), or a run";

/// Whether a network may have this name, which is shown and written into files.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 100 && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe;

    #[test]
    fn layers_that_stay_frozen_are_told() {
        let mut config = recipe("quick").unwrap();
        (config.training.freeze, config.training.freeze_epochs) = (vec!["conv*".into()], Some(3));
        assert!(config.warnings().is_empty(), "of 4 epochs");
        config.training.epochs = 3;
        let says = "`freeze_epochs` is 3 of 3 epochs: the layers of `freeze` never train";
        assert_eq!(config.warnings().iter().map(Message::to_string).collect::<Vec<_>>(), [says]);
    }

    #[test]
    fn options_that_no_file_holds_are_told() {
        let mut config = recipe("quick").unwrap();
        assert!(config.warnings().is_empty());
        let options = config.training.augmentation.clone();
        let listed = "random-erasing".parse::<towers_augment::Compose>().unwrap();
        config.training.augmentation = options.clone().compose(listed);
        assert!(config.warnings().is_empty());
        let own = towers_augment::Compose::new().then(towers_augment::ImageDataGenerator::new().cutout(2));
        config.training.augmentation = options.compose(own).preprocessing_function(|_| ());
        let says = [
            "`augmentation.compose` can't be saved with the run: a resume needs it again",
            "`augmentation.preprocessing_function` can't be saved with the run: a resume needs it again, and the saved \
             network does not apply it",
        ];
        assert_eq!(config.warnings().iter().map(Message::to_string).collect::<Vec<_>>(), says);
    }

    /// What options say together, on so many replicas.
    #[test]
    fn contradictions_are_refused() {
        let checked = |options: &str, replicas| {
            let mut config = recipe("minigooglenet").unwrap();
            config.set_text("model_checkpoint.path", &["w.safetensors"]).unwrap();
            for (key, value) in options.split(' ').map(|option| option.split_once('=').unwrap()) {
                config.set_text(key, &[value]).unwrap();
            }
            config.check().and_then(|()| config.check_replicas(replicas))
        };
        for (options, replicas, says) in [
            ("virtual_replicas=4", 5, "`virtual_replicas` is 4, but must be at least 5, or some of"),
            ("virtual_replicas=4 sync_batch_norm=true", 2, "`virtual_replicas` is 4, but must be left out"),
            ("micro_batches=2 sync_batch_norm=true", 2, "`sync_batch_norm` is given, but must be left out"),
            ("devices.pipeline_stages=2 sync_batch_norm=true", 2, "left out with `devices.pipeline_stages`"),
            ("micro_batches=2 virtual_replicas=2", 1, "`micro_batches` is 2, but must be left out with `vir"),
            (
                "freeze_epochs=2",
                1,
                "`freeze_epochs` is 2, but must be left out without `freeze`, which names",
            ),
            (
                "micro_batches=65 gradient_accumulation=2",
                1,
                "`micro_batches` is 65, but must be at most 64, the",
            ),
            (
                "gradient_accumulation=2 global_batch_size=64",
                1,
                "`gradient_accumulation` is 2, but must be left out with",
            ),
            (
                "gradient_accumulation=2 virtual_replicas=2",
                1,
                "is 2, but must be left out with `virtual_replicas`, whose",
            ),
            (
                "gradient_accumulation=2 sync_batch_norm=true",
                2,
                "must be left out with `gradient_accumulation`: micro",
            ),
            ("micro_batches=65", 1, "`micro_batches` is 65, but must be at most 64, the number of samples"),
            (
                "devices.device=cpu devices.gpus=2",
                1,
                "`devices.gpus` is [0, 1], but must be left out with `dev",
            ),
            ("devices.split_at=dense", 1, "`devices.split_at` is dense, but must be left out"),
            ("devices.pipeline_stages=2 devices.precision=fp16", 1, "left out with `devices.precision` fp16"),
            (
                "devices.pipeline_stages=2 optimizer=sgd:global-clipnorm=1",
                1,
                "`optimizer` is sgd:global-clipnorm=1, but must be without `global-clipnorm`",
            ),
            (
                "devices.pipeline_stages=2 sam=0.05",
                1,
                "`sam` is rho=0.05, but must be left out with `devices.pipeline_stages`, since no stage",
            ),
            ("global_batch_size=2", 3, "`global_batch_size` is 2, but must be at least 3: a sample for each"),
            ("preprocessing=standardize augmentation.rescale=50", 1, "`augmentation.rescale` is 50, but"),
            ("checkpoints.save_best=acc early_stop=loss:restore_best_weights", 1, "must be given without"),
            ("model_checkpoint.save_freq=5 model_checkpoint.save_best_only=true", 1, "must be epoch with"),
        ] {
            let error = checked(options, replicas).unwrap_err().to_string();
            assert!(error.contains(says), "{options}: {error}");
        }
        for (options, replicas) in [
            ("virtual_replicas=4 sync_batch_norm=true", 4),
            ("virtual_replicas=4", 3),
            ("micro_batches=64", 2),
            ("micro_batches=64 gradient_accumulation=3", 2),
            ("micro_batches=4 sam=2,adaptive", 2),
        ] {
            checked(options, replicas).unwrap();
        }
    }

    #[test]
    fn weights_must_suit_the_replicas() {
        let mut config = recipe("quick").unwrap();
        config.training.batch_size = 4;
        let says = |config: &Config, weights: &str, replicas| {
            let config = config.with(|config| config.placement.device_weights = weights.parse().unwrap());
            config.check_weights(replicas).err().map_or(String::new(), |error| error.to_string())
        };
        assert!(says(&config, "2,1", 3).ends_with("auto, even, or one number for each of the 3 replicas"));
        assert!(says(&config, "2,1", 1).ends_with("auto, even, or one number for the one replica"));
        assert!(says(&config, "100,1", 2).contains("replica 1 would get none of a batch of 8"));
        assert_eq!(
            [says(&config, "2,1", 2), says(&config, "auto", 7), says(&config, "even", 7)],
            ["", "", ""]
        );
        // Each replica then has one shard.
        config.training.virtual_replicas = Some(2);
        assert_eq!(says(&config, "100,1", 2), "");
    }
}
