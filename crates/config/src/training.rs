use crate::augmentation;
use crate::class_weight::{self, ClassWeight};
use crate::data_limit::DataLimit;
use crate::forms::MOST;
use crate::forms::{self, of_optim};
use crate::precision;
use crate::{ColorMode, ImageSize, Preprocessing, Resizing};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use towers_augment::{ImageDataGenerator, LoaderOptions};
use towers_callbacks::ReduceLrOnPlateau;
use towers_dataset::{Limit, Resize};
use towers_models::Architecture;
use towers_optim::{Curve, Ema, LinearScaling, Optimizer, ParamGroup, Sam, Schedule, Sgd};
use towers_options::{Kind, Refused, Table, options};
use towers_program::Precision;

options! {
    /// The options that decide the bits of a run. They are the same on all ranks and after a resume, except
    /// for `epochs`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Training {
        [""]
        /// The network: a name, or the name of your own one, whose layers are in `layer`; for the flag also a file with layers, or a run
        model: String = "minigooglenet".to_owned(), Kind::Text, "--model NAME|FILE", with brief("The network: a name, or a file of Keras, ONNX or TOML");
        /// The layers of a network of your own, as tables [[layer]] with Keras' names
        layer: Architecture = Architecture::default(), Kind::List(&LAYER, None);
        /// Passes over the training data; by default those of the recipe
        epochs: u64 = 70, Kind::Whole(1), "--epochs N", with brief("Passes over the training images");
        /// Measure the validation data after every N-th epoch, and after the last
        validate_every: u64 = 1, Kind::Whole(1), "--validate-every N", with alias("validation-freq");
        /// Samples per batch of each replica, or of each virtual replica; auto for the largest power of two that fits into memory
        batch_size: usize = 64, Kind::Whole(1), "--batch-size N|auto", with alias("batch"), with conflict("global_batch_size"), with brief("Images per batch of each replica");
        /// Samples per batch over all replicas
        global_batch_size: Option<usize> = None, Kind::Whole(1), "--global-batch-size N";
        /// Add up the gradients of N batches before each step of the optimizer: a batch N times as large, in the memory of one
        gradient_accumulation: usize = 1, Kind::Between(1, MOST as u64), "--gradient-accumulation N", with alias("accumulate-grad-batches"), with brief("Batches whose gradients are added up for a step");
        /// Take the training samples in a new order each epoch, as Keras' fit does; with false in the order of the set
        shuffle: bool = true, Kind::Switch, "--shuffle BOOL";
        /// Take as many samples of each class in an epoch; those of rare classes are repeated, with other random steps each time
        sampler: Option<Sampler> = None, Kind::OneOf(&["balanced"]), "--sampler NAME";
        /// Train and validate on the same N batches: a network that can't learn them has a fault
        overfit_batches: Option<usize> = None, Kind::Whole(1), "--overfit-batches N";
        /// Leave out the short batch at the end of an epoch
        drop_last: bool = true, Kind::Switch;
        /// The preprocessing of pixels, in training and in evaluation: by the training images' own mean, or as Keras' caffe, tf, torch
        preprocessing: Preprocessing = Preprocessing::SubtractPixelMean, PREPROCESSING, "--preprocessing NAME";
        /// The random seed; 1 in the built-in recipes
        seed: u64 = 1, Kind::Whole(0), "--seed N";
        ["Optimizer"]
        /// The optimizer: sgd, rmsprop, adam, adamw, nadam, lion, lars, lamb or muon, with options: sgd:momentum=0.9,nesterov or adamw:weight-decay=0.01
        optimizer: Optimizer = Sgd::keras().momentum(0.9).into(), Kind::form(of_optim::<Optimizer>, "an optimizer, as in sgd:momentum=0.9"), "--optimizer SPEC", with brief("As in sgd:momentum=0.9 or adamw:weight-decay=0.01");
        /// The base learning rate, which the schedule changes
        lr: f64 = 5e-3, LR, "--lr X", with alias("learning-rate"), with brief("The base learning rate");
        /// The schedule: constant, poly, time, step, milestones, exponential, cosine, cosine-restarts, triangle or one-cycle, with options: cosine+warmup:epochs=5
        schedule: Schedule = Curve::poly(1.0).into(), Kind::form(of_optim::<Schedule>, "a schedule, as in cosine+warmup:epochs=5"), "--schedule SPEC", with alias("lr-schedule"), with brief("As in constant, poly or cosine+warmup:epochs=5");
        /// Scale the learning rate with the batch size: linear (--lr is for one replica's batch), or linear:base=256 (--lr is for batches of 256)
        lr_scaling: Option<LinearScaling> = None, Kind::form(forms::scaling, "a table of base_batch and warmup_epochs"), "--lr-scaling RULE";
        /// Label smoothing: the share of each target that is spread over all classes, from 0 to below 1
        label_smoothing: f64 = 0.0, Kind::Such(|share| (0.0..1.0).contains(&share), "a number of at least 0 and below 1"), "--label-smoothing X";
        /// Weigh the training loss by class, as Keras' fit: balanced, CLASS=WEIGHT,..., or a file of JSON or of lines CLASS,WEIGHT
        class_weight: Option<ClassWeight> = None, Kind::form(class_weight::read, ClassWeight::ACCEPTED), "--class-weight WEIGHTS";
        /// Separate rules for the parameters whose names match PATTERN: '*/beta:lr-multiplier=64,l2=2e-5', 'conv2d/bias:epochs=3'; may be repeated
        param_groups: Vec<ParamGroup> = Vec::new(), Kind::List(&GROUP, None), "--param-group PATTERN:OPTIONS";
        /// No weight decay on biases, norms and other parameters of one dimension, as by default in timm
        no_bias_decay: bool = false, Kind::Switch, "--no-bias-decay";
        /// Multiply the learning rate with X for each block of the network between a layer and the last one, as timm and BEiT
        layer_decay: Option<f64> = None, Kind::Such(|decay| decay > 0.0 && decay <= 1.0, "a number above 0, at most 1"), "--layer-decay X";
        /// A moving average that replaces the weights: momentum=0.99; or every=5,overwrite-frequency=5 for Lookahead
        ema: Option<Ema> = None, Kind::form(of_optim::<Ema>, "options of an average, as in momentum=0.99"), "--ema OPTIONS";
        /// Sharpness-aware minimization: step by the gradients at a distance of RHO up the slope, with two passes a step: 0.05; or 2,adaptive for ASAM
        sam: Option<Sam> = None, Kind::form(of_optim::<Sam>, "a distance, as in 0.05 or 2,adaptive"), "--sam RHO[,adaptive]";
        ["Fine-tuning"]
        /// Begin with the weights of FILE: a run, a model.safetensors, a checkpoint, or weights of Keras or PyTorch
        weights: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--weights FILE", with brief("Begin with the weights of a run or a file");
        /// SHA-256 of the file of `weights`, as the run has read it
        weights_sha256: Option<String> = None, Kind::Text;
        /// With --weights, begin the last layer anew, for other classes
        new_head: bool = false, Kind::Switch, "--new-head", with brief("Begin the last layer anew, for other classes");
        /// Freeze the parameters or layers whose names match PATTERN, as in 'conv*'; may be repeated
        freeze: Vec<String> = Vec::new(), Kind::List(&Kind::Text, None), "--freeze PATTERN";
        /// With --freeze, only in the first N epochs: a new head alone, then all layers, in one run
        freeze_epochs: Option<u64> = None, Kind::Whole(1), "--freeze-epochs N";
        ["Several replicas"]
        /// Split every batch into V fixed shards, so that results do not depend on the number of devices
        virtual_replicas: Option<usize> = None, Kind::Between(1, MOST as u64), "--virtual-replicas V";
        /// Synchronize batch normalization: use the statistics of all replicas' samples, so that N replicas compute the same as one
        sync_batch_norm: bool = false, Kind::Switch, "--sync-batch-norm";
        /// Split the batch of every replica into M micro-batches; by default two per stage
        micro_batches: Option<usize> = None, Kind::Between(1, MOST as u64), "--micro-batches M", with conflict("virtual_replicas");
        ["Callbacks"]
        /// Reduce the learning rate when METRIC no longer improves: val_loss:factor=0.5,patience=3; also min_delta, mode, cooldown, min_lr
        reduce_lr_on_plateau: Option<ReduceLrOnPlateau> = None, Kind::form(forms::plateau, "METRIC[:OPTIONS]"), "--reduce-lr-on-plateau METRIC[:OPTIONS]";
        +
        /// The augmentation of training images.
        augmentation: ImageDataGenerator;
        /// The data.
        data: DataSet;
        /// The arithmetic.
        arithmetic: Arithmetic, as "devices";
    }
}

options! {
    /// The training data of a run.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DataSet {
        ["Data"]
        /// The data: auto (CIFAR-10), cifar10, cifar100, mnist, fashion-mnist, synthetic, an .npz file of NumPy's, or a folder of class folders with pictures
        dataset: String = "auto".to_owned(), Kind::Text, "--dataset NAME|DIR|FILE", with brief("auto (CIFAR-10), mnist, synthetic, or a folder of class folders");
        /// A CSV file with the class of each picture, in columns such as image and label; --dataset is then the folder of the pictures, by default that of the file
        labels: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--labels FILE", with brief("A CSV file with the class of each picture");
        /// The columns of --labels with the pictures and with their classes, as in image,label; with more names, each further column is a class with 0 and 1
        label_columns: Vec<String> = Vec::new(), Kind::List(&Kind::Text, Some(',')), "--label-columns PATH,LABEL";
        /// The separator of the classes of a picture in --labels, such as a space; by default |
        label_separator: Option<String> = None, Kind::Text, "--label-separator SEP";
        /// The class folders to train on, in place of --dataset; the classes are those of this folder
        train_dir: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--train-dir DIR";
        /// The class folders to validate on, with --train-dir; without this and --test-dir, pictures are held back from training
        val_dir: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--val-dir DIR";
        /// The class folders to test on, with --train-dir
        test_dir: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--test-dir DIR";
        /// Scale the pictures of class folders, or the images of MNIST, to N x N, or to height x width, as in 48x40; by default 32, or 28
        image_size: Option<ImageSize> = None, Kind::form(forms::image_size, ImageSize::ACCEPTED), "--image-size N|HxW", with alias("crop"), with brief("Scale the pictures of a folder to N x N");
        /// The channels of the images: rgb or grayscale, as Keras names them; by default those of the model's file or of the data
        color_mode: Option<ColorMode> = None, Kind::OneOf(&ColorMode::NAMES), "--color-mode MODE";
        /// How pictures of class folders get that size: stretch, or shorter-side[:N] and a crop of the middle, as torchvision evaluates
        resize: Resizing = Resizing::default(), Kind::form(forms::resize, Resize::ACCEPTED), "--resize HOW";
        /// The names of the classes: a text with one a line, or Keras' imagenet_class_index.json; by default those of the folders
        class_names: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes"), "--class-names FILE";
        /// Use only the first N training samples, or P% of them; of class folders, as many of each class as can be
        limit_train: Option<DataLimit> = None, Kind::form(forms::limit, Limit::ACCEPTED), "--limit-train N|P%";
        /// Leave out pictures of class folders that can't be decoded, and list them in the run's unreadable.txt
        skip_unreadable: bool = false, Kind::Switch, "--skip-unreadable";
    }
}

options! {
    /// The arithmetic: equal bits need equal arithmetic.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Arithmetic {
        ["Devices"]
        /// The number format: fp32; bf16 if the processor has AMX; on GPUs also tf32, bf16 or fp16
        precision: Precision = Precision::Fp32, Kind::OneOf(&["fp32", "tf32", "bf16", "fp16"]), "--precision NAME", with brief("fp32, tf32, bf16 or fp16"), via "precision";
        /// Compute convolutions on the CPU without Winograd transforms: slower, and about one digit more exact
        no_winograd: bool = false, Kind::Switch, "--no-winograd";
    }
}

/// Which training samples an epoch takes, if not each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// As many of each class.
    Balanced,
}

impl Training {
    /// How the loader goes through the training data: the caller sets the samples of a whole batch.
    pub fn loader_options(&self) -> LoaderOptions {
        let options = LoaderOptions::new().seed(self.seed).shuffle(self.shuffle).drop_last(self.drop_last);
        options.balanced(self.sampler == Some(Sampler::Balanced))
    }
}

const PREPROCESSING: Kind = Kind::OneOf(&Preprocessing::NAMES);
/// Steps are computed in f32.
const LR: Kind = Kind::Such(|lr| (lr as f32).is_finite() && lr >= 0.0, "a number from 0 to 3.4e38");
const LAYER: Kind = Kind::form(|_| Err(Refused::MustBe(LAYER_TABLE.into())), LAYER_TABLE);
const LAYER_TABLE: &str = "a table with a `class` and the options of that class";
const GROUP: Kind =
    Kind::form(of_optim::<ParamGroup>, "a pattern with options, as in */beta:lr-multiplier=64");

/// The keys of a configuration that [`Training`] holds.
pub(crate) const TABLES: [Table; 5] = [
    Table { key: "", options: Training::OPTIONS, begins: None },
    augmentation::TABLE,
    Table { key: "data", options: DataSet::OPTIONS, begins: None },
    Table { key: "devices", options: Arithmetic::OPTIONS, begins: None },
    Table {
        key: "reduce_lr_on_plateau",
        options: ReduceLrOnPlateau::OPTIONS,
        begins: Some(|| json!(ReduceLrOnPlateau::default())),
    },
];

#[cfg(test)]
mod tests {
    #[test]
    fn samples_come_in_a_new_order_or_in_that_of_the_set() {
        let mut training = crate::recipe("quick").unwrap().training;
        training.seed = 7;
        let order = |training: &super::Training, epoch| training.loader_options().order(epoch, &[0; 50]);
        // The order of all runs from before the option.
        let drawn = |epoch| towers_augment::LoaderOptions::new().seed(7).order(epoch, &[0; 50]);
        assert!(training.shuffle && drawn(0) != drawn(1));
        assert_eq!([0, 1].map(|epoch| order(&training, epoch)), [0, 1].map(drawn));
        training.shuffle = false;
        assert_eq!([0, 1].map(|epoch| order(&training, epoch)), [0, 1].map(|_| Vec::from_iter(0..50)));
    }
}
