use super::augmentation;
use super::forms::MOST;
use super::forms::{self, of_optim};
use super::precision;
use crate::{ImageSize, Preprocessing};
use augment::ImageDataGenerator;
use callbacks::ReduceLrOnPlateau;
use optim::{Curve, Ema, LinearScaling, Optimizer, ParamGroup, Schedule, Sgd};
use options::{Kind, Table, options};
use program::Precision;
use serde_json::json;

options! {
    /// What decides the bits of a run. It stays the same when a run is resumed, but for `epochs`, and is the same on all ranks.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Training {
        [""]
        /// The network
        model: String = "minigooglenet".to_owned(), Kind::Text;
        /// Passes over the training data; by default as many as the recipe has
        epochs: u64 = 70, Kind::Whole(1), "--epochs N";
        /// Samples of a batch for each replica, or each virtual replica
        batch_size: usize = 64, Kind::Whole(1), "--batch-size N";
        /// Samples of a batch over all replicas
        global_batch_size: Option<usize> = None, Kind::Whole(1), "--global-batch-size N";
        /// Leave out the short batch at the end of an epoch
        drop_last: bool = true, Kind::Switch;
        /// What happens to pixels first, in training and in evaluation
        preprocessing: Preprocessing = Preprocessing::SubtractPixelMean, PREPROCESSING;
        /// The seed of everything random; 1 in the built-in recipes
        seed: u64 = 1, Kind::Whole(0), "--seed N";
        ["Optimizer"]
        /// sgd, rmsprop, adam or adamw, with options: sgd:momentum=0.9,nesterov or adamw:weight-decay=0.01
        optimizer: Optimizer = Sgd::keras().momentum(0.9).into(), Kind::form(of_optim::<Optimizer>, "an optimizer, as in sgd:momentum=0.9"), "--optimizer SPEC";
        /// The base learning rate, which the schedule changes
        lr: f64 = 5e-3, LR, "--lr X";
        /// constant, poly, time, step, milestones, cosine or triangle, with options: cosine+warmup:epochs=5
        schedule: Schedule = Curve::poly(1.0).into(), Kind::form(of_optim::<Schedule>, "a schedule, as in cosine+warmup:epochs=5"), "--schedule SPEC";
        /// Scale the rate with the batch: linear for K times the rate for a batch K times as large as a replica's, or as in linear:base=256
        lr_scaling: Option<LinearScaling> = None, Kind::form(forms::scaling, "a table of base_batch and warmup_epochs"), "--lr-scaling RULE";
        /// Share of the targets that is spread over all classes, from 0 to below 1
        label_smoothing: f64 = 0.0, Kind::Such(|share| (0.0..1.0).contains(&share), "a number of at least 0 and below 1"), "--label-smoothing X";
        /// Parameters with rules of their own, by their names: '*/beta:lr-multiplier=64,l2=2e-5', 'conv2d/bias:epochs=3'; may be repeated
        param_groups: Vec<ParamGroup> = Vec::new(), Kind::List(&GROUP, None), "--param-group PATTERN:OPTIONS";
        /// A moving average of the weights that takes their place: momentum=0.99; every=5,overwrite-frequency=5 for Lookahead
        ema: Option<Ema> = None, Kind::form(of_optim::<Ema>, "options of an average, as in momentum=0.99"), "--ema OPTIONS";
        ["Several replicas"]
        /// Cut every batch into V fixed shards, so that results do not depend on the number of devices
        virtual_replicas: Option<usize> = None, Kind::Between(1, MOST as u64), "--virtual-replicas V";
        /// Normalize batches with the statistics of all replicas' samples, so that N replicas compute the same as one
        sync_batch_norm: bool = false, Kind::Switch, "--sync-batch-norm";
        /// Cut the batch of every replica into M micro-batches; by default two for each stage
        micro_batches: Option<usize> = None, Kind::Between(1, MOST as u64), "--micro-batches M";
        ["Callbacks"]
        /// Reduce the learning rate when METRIC no longer improves: val_loss:factor=0.5,patience=3; also min_delta, mode, cooldown, min_lr
        reduce_lr_on_plateau: Option<ReduceLrOnPlateau> = None, Kind::form(forms::plateau, "METRIC[:OPTIONS]"), "--reduce-lr-on-plateau METRIC[:OPTIONS]";
        +
        /// What happens to training images.
        augmentation: ImageDataGenerator;
        /// The data.
        data: DataSet;
        /// How numbers are computed.
        arithmetic: Arithmetic, as "devices";
    }
}

options! {
    /// Which data a run is trained on.
    #[derive(Clone, Debug, PartialEq)]
    pub struct DataSet {
        ["Data"]
        /// auto (CIFAR-10), cifar10, cifar100, synthetic, or a folder of class folders with pictures
        dataset: String = "auto".to_owned(), Kind::Text, "--dataset NAME|DIR";
        /// Scale the pictures of class folders to N x N, or to height x width, as in 48x40; 32 by default
        image_size: ImageSize = ImageSize::default(), Kind::form(forms::image_size, ImageSize::ACCEPTED), "--image-size N|HxW";
        /// Only the first N training samples; of class folders, as many of each class
        limit_train: Option<usize> = None, Kind::Whole(1), "--limit-train N";
    }
}

options! {
    /// How numbers are computed: equal bits ask for equal arithmetic.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Arithmetic {
        ["Devices"]
        /// The arithmetic: fp32, bf16 where the processor has AMX, or on GPUs tf32, bf16 or fp16
        precision: Precision = Precision::Fp32, Kind::OneOf(&["fp32", "tf32", "bf16", "fp16"]), "--precision NAME", via "precision";
        /// Only algorithms that give the same bits every time; the CPU has no others
        deterministic: bool = false, Kind::Switch, "--deterministic";
        /// On the CPU, convolutions without Winograd's transforms: slower, and a digit more exact
        no_winograd: bool = false, Kind::Switch, "--no-winograd";
    }
}

const PREPROCESSING: Kind = Kind::OneOf(&["divide-by-255", "subtract-pixel-mean", "standardize"]);
/// Steps are computed in f32.
const LR: Kind = Kind::Such(|lr| (lr as f32).is_finite() && lr >= 0.0, "a number from 0 to 3.4e38");
const GROUP: Kind =
    Kind::form(of_optim::<ParamGroup>, "a pattern with options, as in */beta:lr-multiplier=64");

/// The keys of a configuration that [`Training`] holds.
pub(super) const TABLES: [Table; 5] = [
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
