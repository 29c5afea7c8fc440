use crate::spelling::hint;
use crate::{
    CheckpointOptions, Config, DataOptions, DeviceOptions, DeviceWeights, Error, Preprocessing, Result,
};
use augment::{FillMode, ImageDataGenerator};
use optim::{Curve, Ema, ParamGroup, Per, Rmsprop, Sgd};
use program::WeightDecay;

/// The recipes that [`recipe`] knows, each with its source.
pub const RECIPES: [(&str, &str); 8] = [
    (
        "minigooglenet",
        "MiniGoogLeNet as in A. Rosebrock's Keras multi-GPU tutorial: SGD 5e-3, poly decay, 70 epochs",
    ),
    (
        "keras-cnn",
        "Keras' cifar10_cnn as in the Keras-MXNet multi-GPU tutorial: RMSprop 1e-4, decay 1e-6, 50 epochs",
    ),
    (
        "slice-batch",
        "three towers and 160 epochs, as in the tutorial that slices batches by hand; it names no network: here keras-cnn's",
    ),
    (
        "mirrored",
        "gradient descent at 0.1, 10 epochs, the best by val_acc, as in DataFlair's tutorial; it names no network: here small_cnn",
    ),
    (
        "resnet18",
        "ResNet-18 for 32x32 images as in kuangliu/pytorch-cifar: SGD 0.1, weight decay 5e-4, cosine, 200 epochs",
    ),
    (
        "resnet18-group-norm",
        "resnet18 with group normalization, of 32 groups, in place of batch normalization",
    ),
    (
        "airbench94",
        "94% within 10 epochs, as in K. Jordan's cifar10-airbench: Nesterov SGD and Lookahead, alternating flips; --tta=flip-translate",
    ),
    ("quick", "a small network and few epochs: the two-minute trial behind --quick"),
];

/// The recipe called `name`.
///
/// # Errors
/// [`Error::Option`] for a name that is not among [`RECIPES`].
pub fn recipe(name: &str) -> Result<Config> {
    match name {
        "minigooglenet" => Ok(minigooglenet()),
        "keras-cnn" => Ok(keras_cnn()),
        "slice-batch" => Ok(slice_batch()),
        "mirrored" => Ok(mirrored()),
        "resnet18" => Ok(resnet18()),
        "resnet18-group-norm" => Ok(resnet18_group_norm()),
        "airbench94" => Ok(airbench94()),
        "quick" => Ok(quick()),
        _ => Err(Error::Option {
            option: "--recipe",
            value: format!("`{name}`"),
            accepted: format!(
                "one of {}, or a file FILE.toml{}",
                RECIPES.map(|(name, _)| name).join(", "),
                hint(name, RECIPES.map(|(name, _)| name))
            ),
        }),
    }
}

/// The augmentation of both tutorials: shifts by up to a tenth of the size, horizontal flips.
fn shift_and_flip() -> ImageDataGenerator {
    ImageDataGenerator::new().width_shift_range(0.1).height_shift_range(0.1).horizontal_flip(true)
}

fn minigooglenet() -> Config {
    Config {
        recipe: "minigooglenet".to_owned(),
        model: "minigooglenet".to_owned(),
        epochs: 70,
        batch_size: 64,
        global_batch_size: None,
        virtual_replicas: None,
        sync_batch_norm: false,
        micro_batches: None,
        device_weights: DeviceWeights::Even,
        drop_last: true,
        lr: 5e-3,
        schedule: Curve::poly(1.0).into(),
        lr_scaling: None,
        optimizer: Sgd::keras().momentum(0.9).into(),
        param_groups: Vec::new(),
        ema: None,
        label_smoothing: 0.0,
        preprocessing: Preprocessing::SubtractPixelMean,
        augmentation: shift_and_flip(),
        seed: 1,
        data: DataOptions::default(),
        devices: DeviceOptions::default(),
        checkpoints: CheckpointOptions::default(),
        model_checkpoint: None,
        early_stop: None,
        reduce_lr_on_plateau: None,
        terminate_on_nan: false,
        csv_log: None,
        tensorboard: None,
        plot: None,
    }
}

fn keras_cnn() -> Config {
    Config {
        recipe: "keras-cnn".to_owned(),
        model: "keras_cnn".to_owned(),
        epochs: 50,
        batch_size: 32,
        drop_last: false,
        lr: 1e-4,
        schedule: Curve::time(1e-6).into(),
        optimizer: Rmsprop::keras2().into(),
        preprocessing: Preprocessing::DivideBy255,
        ..minigooglenet()
    }
}

/// The tutorial that slices batches by hand tells the times of 160 epochs, on one GPU and on three.
fn slice_batch() -> Config {
    Config {
        recipe: "slice-batch".to_owned(),
        epochs: 160,
        devices: DeviceOptions { replicas: 3, ..DeviceOptions::default() },
        ..keras_cnn()
    }
}

/// Its optimizer is that of the part on model parallelism, `GradientDescentOptimizer(learning_rate=0.1)`; its callback is
/// `ModelCheckpoint(monitor='val_acc', mode='max', save_best_only=True)`.
fn mirrored() -> Config {
    Config {
        recipe: "mirrored".to_owned(),
        model: "small_cnn".to_owned(),
        epochs: 10,
        batch_size: 50,
        drop_last: false,
        lr: 0.1,
        schedule: Curve::Constant.into(),
        optimizer: Sgd::keras().into(),
        preprocessing: Preprocessing::DivideBy255,
        augmentation: ImageDataGenerator::new(),
        checkpoints: CheckpointOptions {
            every_epochs: 0,
            save_best: Some("val_acc".to_owned()),
            ..CheckpointOptions::default()
        },
        ..minigooglenet()
    }
}

/// That of K. Liu's pytorch-cifar, which names 93.02% as its accuracy. There the three channels are divided by 0.2023, 0.1994 and
/// 0.2010, here by one number: the normalizations behind the first convolution take such a factor away.
fn resnet18() -> Config {
    let sgd = Sgd::pytorch().momentum(0.9).weight_decay(WeightDecay::Coupled(5e-4));
    let crop = ImageDataGenerator::new().random_crop(4).fill_mode(FillMode::Constant);
    Config {
        recipe: "resnet18".to_owned(),
        model: "resnet18".to_owned(),
        epochs: 200,
        batch_size: 128,
        drop_last: false,
        lr: 0.1,
        schedule: Curve::Cosine { alpha: 0.0, per: Per::Epoch, epochs: None }.into(),
        optimizer: sgd.into(),
        preprocessing: Preprocessing::Standardize,
        augmentation: crop.horizontal_flip(true),
        ..minigooglenet()
    }
}

/// That of `resnet18`: the two differ in their normalization alone.
fn resnet18_group_norm() -> Config {
    let (recipe, model) = ("resnet18-group-norm".to_owned(), "resnet18_group_norm".to_owned());
    Config { recipe, model, ..resnet18() }
}

/// That of airbench94.py of K. Jordan's cifar10-airbench, which names 94.01% as the mean of its accuracies, with six views of each test
/// image. There losses are added up, rates are per 1024 samples and are divided by what momentum adds to steps; here losses are
/// averaged, so that the rate comes to 11.5 / (1 + 1 / (1 - 0.85)), and weight decay, which is to act at no rate, to 0.0153 / 11.5 of
/// the gradient. There it ends after 9.9 epochs; here with the tenth.
fn airbench94() -> Config {
    const DECAY: f32 = 0.0153 / 11.5;
    const BIASES: f32 = 64.0;
    let norms = ParamGroup::new("batch_normalization*/beta").lr_multiplier(BIASES);
    let translate = ImageDataGenerator::new().random_crop(2).fill_mode(FillMode::Mirror);
    Config {
        recipe: "airbench94".to_owned(),
        model: "airbench94".to_owned(),
        epochs: 10,
        batch_size: 1024,
        lr: 1.5,
        schedule: Curve::Triangle { start: 0.2, peak: 0.23, end: 0.07, epochs: None }.into(),
        optimizer: Sgd::pytorch().momentum(0.85).nesterov().weight_decay(WeightDecay::Coupled(DECAY)).into(),
        param_groups: vec![
            norms.weight_decay(WeightDecay::Coupled(DECAY / BIASES)),
            ParamGroup::new("whitening/bias").epochs(3),
        ],
        ema: Some(Ema { momentum: 0.95, every: 5, power: 3.0, overwrite_frequency: Some(5) }),
        label_smoothing: 0.2,
        preprocessing: Preprocessing::DivideBy255,
        augmentation: translate
            .alternating_flip(true)
            .featurewise_center(true)
            .featurewise_std_normalization(true),
        ..minigooglenet()
    }
}

fn quick() -> Config {
    Config {
        recipe: "quick".to_owned(),
        model: "small_cnn".to_owned(),
        epochs: 4,
        // Divides both data sets: a short last batch would shake the running statistics of the normalizations.
        batch_size: 50,
        drop_last: false,
        lr: 0.01,
        schedule: Curve::cosine().into(),
        optimizer: Sgd::keras().momentum(0.9).nesterov().into(),
        preprocessing: Preprocessing::DivideBy255,
        ..minigooglenet()
    }
}
