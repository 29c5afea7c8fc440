//! From the flags of `towers train` to a configuration.

use crate::args::TrainArgs;
use crate::error::usage;
use crate::print::note;
use crate::spelling::flag_of;
use std::path::Path;
use towers_augment::ImageDataGenerator;
use towers_config::Compiled;
use towers_config::{Architecture, Config, DataLimit, Training, default_recipe, find_recipe};

impl TrainArgs {
    /// The configuration of a new run.
    pub fn config(&self) -> anyhow::Result<Config> {
        let (name, why) = self.recipe_name();
        let recipe = find_recipe(name)?;
        let mut config = recipe.clone();
        let (notes, compiled) = self.apply(&mut config, why.is_some())?;
        if let Some(why) = why {
            note(chosen(&config, why, compiled));
        }
        notes.iter().for_each(note);
        config.note_changes(&recipe);
        Ok(config)
    }

    /// The recipe of a new run, and why, if no flag names it and it is not the tutorial's.
    fn recipe_name(&self) -> (&str, Option<&'static str>) {
        match &self.recipe {
            Some(name) => (name, None),
            None if self.quick => ("quick", None),
            None => {
                let weights = self.options.get("weights").filter(|file| Path::new(file).exists());
                let dataset = self.options.data().map(|(_, data)| data);
                default_recipe(self.options.get("model"), weights, dataset)
            }
        }
    }

    /// Whether the recipe is a run: its folder, or its `config.json`.
    pub fn repeats_run(&self) -> bool {
        self.recipe.as_deref().map(Path::new).is_some_and(|recipe| {
            recipe.is_dir() || recipe.extension().is_some_and(|ending| ending == "json")
        })
    }

    /// Overrides the options whose flags are given. If `compiled`, a network from a file brings its optimizer. Returns
    /// sentences for the user, and whether the optimizer is that of a compiled model.
    pub fn apply(&self, config: &mut Config, compiled: bool) -> anyhow::Result<(Vec<String>, bool)> {
        if self.forget_outputs {
            config.outputs.forget_outside();
        }
        if self.no_augmentation {
            config.training.augmentation = without_random_steps(&config.training.augmentation);
        }
        self.options.apply(config)?;
        let (mut notes, mut is_compiled) = (Vec::new(), false);
        let named = self.options.has("preprocessing").then_some(config.training.preprocessing);
        if let Some(model) = self.model(config) {
            config.training.model = model;
            config.training.layer = Architecture::default();
            let file = config.read_layers(Path::new(""), !self.options.has("data.image_size"))?;
            notes = file.notes.iter().map(|note| note.spelled(flag_of)).collect();
            if let Some(of_model) = file.compiled.filter(|_| compiled && !self.options.has("optimizer")) {
                is_compiled = of_model.is_ok();
                notes.push(self.take_compiled(config, of_model));
            }
        }
        // Before what a network says of its pixels.
        config.training.preprocessing = named.unwrap_or(config.training.preprocessing);
        self.apply_short_forms(config)?;
        if self.options.has("devices.pipeline_stages") && !self.options.has("devices.split_at") {
            config.placement.devices.split_at.clear();
        }
        if config.stages() > 1 && config.training.virtual_replicas.is_none() {
            // Stored, so that the run can resume with another number of stages.
            config.training.micro_batches = Some(config.batch_parts());
        }
        if let Some(steps) = self.keep.backup_and_restore.flatten() {
            config.outputs.checkpoints.every_steps = steps;
        }
        if let Some(picture) = self.keep.picture() {
            config.outputs.plot = Some(picture.to_owned());
        }
        if let Some(steps) = self.keep.fast_dev_run {
            config.training.epochs = 1;
            config.outputs.max_steps = Some(steps);
            config.outputs.forget_outside();
            let samples = (steps as usize).saturating_mul(config.training.batch_size);
            config.placement.files.limit_test = Some(DataLimit(samples.into()));
        }
        config.outputs.make_absolute().map_err(towers_train::Error::from)?;
        config.check()?;
        Ok((notes, is_compiled))
    }

    /// Takes over the optimizer of a model that Keras has compiled, under the flags. Returns a sentence about it.
    fn take_compiled(&self, config: &mut Config, compiled: Result<Compiled, String>) -> String {
        let before = config.training.clone();
        let taken = compiled.and_then(|compiled| {
            config.take_compiled(&compiled).map_err(|error| error.to_string())?;
            Ok(compiled.left_out)
        });
        let training = &mut config.training;
        if self.options.has("lr") {
            training.lr = before.lr;
        }
        if self.options.has("schedule") {
            training.schedule = before.schedule;
        }
        let Training { optimizer, lr, schedule, .. } = training;
        match taken {
            Err(why) => format!("the model was compiled, but the optimizer is the recipe's: {why}"),
            Ok(left_out) => {
                let but = if left_out.is_empty() { "" } else { ", but without " };
                let left_out = left_out.join(", ");
                format!(
                    "the optimizer is that of the model's compile: {optimizer}, {schedule} rate {lr}{but}{left_out}"
                )
            }
        }
    }

    /// The network that flags name: that of `--model`, or of `--weights` where no flag names another one.
    fn model(&self, config: &Config) -> Option<String> {
        let Training { model, weights, .. } = &config.training;
        if self.options.has("model") {
            return Some(model.clone());
        }
        let weights = weights.as_ref().filter(|file| self.options.has("weights") && file.exists())?;
        let alone = self.recipe.is_none() && !self.quick;
        alone.then(|| weights.display().to_string())
    }

    /// Applies flags that set a part of an option, or several options.
    fn apply_short_forms(&self, config: &mut Config) -> anyhow::Result<()> {
        if let Some(momentum) = self.momentum {
            config.set_momentum(momentum)?;
        }
        let curve = match (self.power, self.decay) {
            (Some(power), _) => Some(format!("poly:power={power}")),
            (_, Some(decay)) => Some(format!("time:decay={decay}")),
            _ => None,
        };
        if let Some(curve) = curve {
            let schedule = curve.parse().map_err(|error| usage(format!("--power or --decay: {error}")))?;
            config.training.schedule = schedule;
        }
        // Again, now that the schedule is that of `--power`, `--decay` or a compiled model: it decides the default warm-up.
        if let Some(rule) = self.options.get("lr_scaling") {
            config.set_lr_scaling(rule)?;
        }
        if let Some(epochs) = self.warmup_epochs {
            config.set_warmup_epochs(epochs)?;
        }
        Ok(())
    }
}

/// Says which recipe a run takes that names none. A second line is about the optimizer of a compiled network.
fn chosen(config: &Config, why: &str, compiled: bool) -> String {
    let Training { optimizer, lr, schedule, epochs, augmentation, .. } = &config.training;
    let rate = if compiled { String::new() } else { format!("{optimizer}, {schedule} rate {lr}, ") };
    let moves = match *augmentation == without_random_steps(augmentation) {
        true => "",
        false => ", pictures shifted and mirrored (not with --no-augmentation)",
    };
    format!("recipe {}, {why}: {rate}epochs {epochs}{moves}; --recipe NAME names another", config.recipe)
}

/// The augmentation without its random steps. Steps that evaluation also applies stay, and so does the
/// validation split.
pub fn without_random_steps(options: &ImageDataGenerator) -> ImageDataGenerator {
    options.evaluation().validation_split(options.validation_split)
}

#[cfg(test)]
mod tests {
    use crate::args::{Args, Command};
    use crate::error::sentence;
    use clap::Parser;
    use towers_config::{Config, DeviceWeights};

    fn config(flags: &str) -> anyhow::Result<Config> {
        let line = ["towers", "train"].into_iter().chain(flags.split_whitespace());
        match Args::try_parse_from(line)?.command {
            Command::Train(args) => args.config(),
            other => anyhow::bail!("{other:?}"),
        }
    }

    #[test]
    fn flags_override_the_recipe() {
        let base = config("").unwrap();
        assert_eq!(
            (base.recipe.as_str(), base.training.epochs, base.training.batch_size),
            ("minigooglenet", 70, 64)
        );
        assert_eq!(base.training.schedule.to_string(), "poly");
        let flags = "--recipe keras-cnn --epochs 3 --batch-size 8 --lr 0.1 --seed 9 --decay 0.5 --optimizer sgd --momentum 0.5";
        let config = config(flags).unwrap();
        assert_eq!(
            (config.training.model.as_str(), config.training.epochs, config.training.batch_size),
            ("keras_cnn", 3, 8)
        );
        assert_eq!((config.training.lr, config.training.seed), (0.1, 9));
        assert_eq!(config.training.schedule.to_string(), "time:decay=0.5");
        assert_eq!(config.training.optimizer.to_string(), "sgd:momentum=0.5");
    }

    #[test]
    fn callbacks_are_spelled_as_in_keras() {
        let config = config(
            "--early-stop val_acc:patience=7,min-delta=0.01,restore_best_weights,start_from_epoch=2 --terminate-on-nan \
             --reduce-lr-on-plateau val_loss:factor=0.5 --checkpoint-path w-{epoch}.safetensors --save-best-only --mode max \
             --monitor val_accuracy --output a --backup-and-restore=50",
        )
        .unwrap();
        let stop = config.outputs.early_stop.unwrap();
        assert_eq!(
            (stop.patience, stop.min_delta, stop.restore_best_weights, stop.start_from_epoch),
            (7, 0.01, true, 2)
        );
        assert_eq!(config.training.reduce_lr_on_plateau.unwrap().factor, 0.5);
        let files = config.outputs.model_checkpoint.unwrap();
        assert_eq!((files.monitor.as_str(), serde_json::json!(files.mode)), ("val_accuracy", "max".into()));
        assert!(files.save_best_only && !files.save_weights_only && config.outputs.terminate_on_nan);
        assert_eq!(config.outputs.checkpoints.every_steps, 50);
        let patience = |flags| self::config(flags).unwrap().outputs.early_stop.unwrap().patience;
        assert_eq!((patience("--early-stop loss"), patience("--early-stop loss --patience 9")), (5, 9));
    }

    #[test]
    fn gpus_make_towers_on_cuda() {
        let config = config("--gpus 0,2,3").unwrap();
        let devices = config.placement.devices;
        assert_eq!((devices.device, devices.gpus), (towers_config::DeviceKind::Cuda, Some(vec![0, 2, 3])));
    }

    #[test]
    fn a_batch_is_that_of_the_virtual_replicas() {
        assert_eq!(config("--batch-size 8").unwrap().global_batch(3), 24);
        let config = config("--batch-size 8 --virtual-replicas 4").unwrap();
        assert_eq!(
            (config.training.virtual_replicas, config.global_batch(1), config.global_batch(3)),
            (Some(4), 32, 32)
        );
    }

    #[test]
    fn rates_are_scaled_for_the_batch_of_one_tower_or_another() {
        let scaling =
            |flags| config(flags).unwrap().training.lr_scaling.map(|s| (s.base_batch, s.warmup_epochs));
        assert_eq!(scaling(""), None);
        assert_eq!(scaling("--lr-scaling linear"), Some((64, 5)));
        assert_eq!(scaling("--lr-scaling linear --batch-size 32 --warmup-epochs 2"), Some((32, 2)));
        assert_eq!(scaling("--lr-scaling linear:base=256 --warmup-epochs 0"), Some((256, 0)));
        assert_eq!(scaling("--lr-scaling linear --schedule cosine+warmup:epochs=5"), Some((64, 0)));
        assert_eq!(scaling("--lr-scaling none"), None);
        let folder = tempfile::tempdir().unwrap();
        let warm = folder.path().join("warm.toml");
        std::fs::write(&warm, "like = 'quick'\nschedule = 'cosine+warmup:epochs=2'").unwrap();
        let warm = format!("--recipe {} --lr-scaling linear", warm.display());
        let powered = format!("{warm} --power 1");
        assert_eq!([scaling(&warm), scaling(&powered)].map(|scaling| scaling.unwrap().1), [0, 5]);
    }

    #[test]
    fn weights_are_given_or_measured() {
        assert_eq!(config("").unwrap().placement.device_weights, DeviceWeights::Even);
        assert_eq!(config("--device-weights auto").unwrap().placement.device_weights, DeviceWeights::Auto);
        let config = config("--device-weights 2,1,1").unwrap();
        assert_eq!(config.placement.device_weights.to_string(), "2,1,1");
    }

    #[test]
    fn a_resumed_run_keeps_its_batch_normalization() {
        let plain = config("").unwrap();
        let synchronized = config("--sync-batch-norm").unwrap();
        assert!(synchronized.training.sync_batch_norm && !plain.training.sync_batch_norm);
        let resumed = |flags: &[&str], saved: &Config| {
            let line = ["towers", "train"].iter().chain(flags);
            let Command::Train(args) = Args::try_parse_from(line).unwrap().command else { panic!("train") };
            let mut resumed = saved.clone();
            args.check_resumed(saved, false)?;
            args.apply(&mut resumed, false).map(|_| resumed.training.sync_batch_norm)
        };
        assert!(resumed(&[], &synchronized).unwrap() && !resumed(&[], &plain).unwrap());
        assert!(resumed(&["--sync-batch-norm"], &synchronized).unwrap());
        let error = resumed(&["--sync-batch-norm"], &plain).unwrap_err().to_string();
        assert!(error.starts_with("--sync-batch-norm can't change when a run is resumed"), "{error}");
        // Neither can the arithmetic.
        for (flag, option) in [
            ("--no-winograd", "--no-winograd"),
            ("--no-augmentation", "--no-augmentation"),
            ("--horizontal-flip=false", "--horizontal-flip"),
            ("--lr-scaling=linear", "--lr-scaling or --warmup-epochs"),
        ] {
            let error = resumed(&[flag], &plain).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{option} can't change when a run is resumed: the run has ")),
                "{error}"
            );
        }
        let error = resumed(&["--momentum", "0.5"], &plain).unwrap_err().to_string();
        let says = "the run has sgd:momentum=0.9, this command line sgd:momentum=0.5; leave it out, or start a new run";
        assert!(error.contains(says), "{error}");
        let free = [
            "--epochs=3",
            "--threads=2",
            "--limit-test=5",
            "--early-stop=loss",
            "--replicas=2",
            "--tensorboard=b",
        ];
        assert!(resumed(&free, &plain).is_ok());
    }

    #[test]
    fn micro_batches_are_fixed_when_a_run_begins() {
        let split = config("--pipeline-stages 3 --split-at concatenate_4,flatten").unwrap();
        assert_eq!((split.stages(), split.training.micro_batches, split.shards(2)), (3, Some(6), 12));
        assert_eq!(split.placement.devices.split_at, ["concatenate_4", "flatten"]);
        assert_eq!(split.global_batch(2), 128);
        let saved = split;
        let line = ["towers", "train", "--pipeline-stages", "1"];
        let Command::Train(args) = Args::try_parse_from(line).unwrap().command else { panic!("train") };
        let mut resumed = saved.clone();
        args.apply(&mut resumed, false).unwrap();
        assert_eq!((resumed.stages(), resumed.shards(1)), (1, 6));
        assert!(args.check_resumed(&saved, false).is_ok());
        assert_eq!(config("--pipeline-stages 2 --virtual-replicas 4").unwrap().shards(1), 4);
    }

    /// The crates test what they refuse. Here is how it is told, and what flags need or exclude.
    #[test]
    fn bad_values_name_the_option() {
        for (flags, names) in [
            ("--batch-size 0", "--batch-size is 0"),
            ("--threads 0", "--threads is 0, but must be at least 1"),
            ("--lr 1e40", "--lr is 1e40, but must be a number from 0 to 3.4e38"),
            ("--gpus -1", "--gpus is `-1`, but must be a number of GPUs, as in 3, or their ids"),
            ("--device cdua", "--device is `cdua`, but must be one of auto, cpu, cuda; did you mean `cuda`?"),
            ("--schedule cosin", "--schedule: the schedule `cosin` is unknown"),
            ("--param-group */bais", "the parameter group `*/bais` takes no parameter: of conv2d/kernel"),
            ("--ema momentum=1", "--ema: ema: momentum is 1, but must be a number from 0 to below 1"),
            ("--optimizer sgd:lr=0.1", "clipvalue, global-clipnorm; give the learning rate by --lr"),
            ("--early-stop val_acc:patient=3", "did you mean `patience`?"),
            ("--early-stop val_acc:mode=mx", "--early-stop: mode is `mx`, but must be one of auto"),
            ("--reduce-lr-on-plateau loss:factor=2", "--reduce-lr-on-plateau: factor is 2, but"),
            ("--checkpoint-path ../w.safetensors", "--checkpoint-path is `../w.safetensors`"),
            ("--checkpoint-path w.safetensors --mode mim", "--mode is `mim`, but must be one of auto"),
            ("--checkpoint-path w.safetensors --save-freq x", "--save-freq is `x`, but must be epoch or"),
            ("--save-best-only", "--save-best-only is given, but must be left out without --checkpoint-path"),
            ("--csv-log a.csv --csv-separator ab", "--csv-separator is `ab`, but must be one character"),
            ("--csv-log a.csv --csv-separator 1", "--csv-separator is `1`"),
            ("--csv-append", "--csv-log"),
            ("--histogram-freq 2", "--tensorboard"),
            ("--mlflow-experiment trials", "--mlflow"),
            ("--mlflow a --mlflow-experiment=", "--mlflow-experiment is ``, but must be a name"),
            ("--backup-and-restore", "--output"),
            ("--backup-and-restore=0 --output a", "--backup-and-restore"),
            ("--gpus 2 --device cpu", "--gpus and --device cpu contradict"),
            ("--split-at dense", "--pipeline-stages"),
            ("--micro-batches 2 --virtual-replicas 2", "cannot be used with"),
            ("--warmup-epochs 3", "--warmup-epochs is 3, but must be left out without --lr-scaling"),
            ("--device-weights -1", "--device-weights is `-1`"),
        ] {
            let error = sentence(&config(flags).unwrap_err());
            assert!(error.contains(names), "{flags}: {error}");
        }
    }
}
