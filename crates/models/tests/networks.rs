//! The networks have exactly the published sizes, and their summaries read as Keras'.
#![allow(clippy::unwrap_used)]

use towers_layers::Mode;
use towers_models::{
    Model, airbench94, airbench94_muon, by_name, by_name_for, keras_cnn, minigooglenet, resnet18,
};

#[test]
fn parameter_counts() {
    let summary = minigooglenet(10).unwrap().summary();
    assert_eq!((summary.trainable, summary.trainable + summary.non_trainable), (1_652_826, 1_656_250));
    let summary = keras_cnn(10).unwrap().summary();
    assert_eq!((summary.trainable, summary.non_trainable), (1_250_858, 0));
    let summary = resnet18(10).unwrap().summary();
    assert_eq!((summary.trainable, summary.non_trainable), (11_173_962, 2 * 4_800));
    for network in [airbench94(10), airbench94_muon(10)] {
        let summary = network.unwrap().summary();
        assert_eq!((summary.trainable, summary.non_trainable), (1_971_352, 24 * 12 + 3 * 1_152));
    }
}

/// PyTorch's counts for the same networks.
#[test]
fn multiply_adds_of_an_image() {
    let multiply_adds =
        |model: Model| model.graph().work().iter().map(|work| work.multiply_adds).sum::<usize>();
    assert_eq!(multiply_adds(keras_cnn(10).unwrap()), 20_741_120);
    assert_eq!(multiply_adds(minigooglenet(10).unwrap()), 234_597_920);
    assert_eq!(multiply_adds(resnet18(10).unwrap()), 555_422_720);
    assert_eq!(multiply_adds(airbench94(10).unwrap()), 118_147_360);
}

/// The same trainable parameters, and no averages.
#[test]
fn resnet18_with_group_normalization() {
    let [batch, group] =
        [resnet18(10), towers_models::resnet18_group_norm(10)].map(|model| model.unwrap().summary());
    assert_eq!((group.trainable, group.non_trainable), (batch.trainable, 0));
    assert!(group.rows.iter().all(|row| !row.kind.starts_with("BatchNormalization")));
}

#[test]
fn shapes_of_resnet18() {
    let summary = resnet18(10).unwrap().summary();
    let shapes: Vec<&str> =
        summary.rows.iter().filter(|row| row.name.starts_with("add")).map(|row| row.shape.as_str()).collect();
    let stage = |side, channels| format!("(None, {side}, {side}, {channels})");
    let expected =
        [(32, 64), (16, 128), (8, 256), (4, 512)].map(|(side, c)| [stage(side, c), stage(side, c)]);
    assert_eq!(shapes, expected.concat());
    let of_kind = |kind: &str| summary.rows.iter().filter(|row| row.kind.starts_with(kind)).count();
    assert_eq!((of_kind("Conv2D"), of_kind("BatchNormalization"), of_kind("Add")), (20, 20, 8));
}

#[test]
fn shapes_of_minigooglenet() {
    let summary = minigooglenet(10).unwrap().summary();
    let shape = |name: &str| summary.rows.iter().find(|row| row.name == name).unwrap().shape.clone();
    assert_eq!(shape("concatenate_1"), "(None, 32, 32, 80)");
    assert_eq!(shape("concatenate_2"), "(None, 15, 15, 160)");
    assert_eq!(shape("concatenate_7"), "(None, 7, 7, 240)");
    assert_eq!(shape("average_pooling2d"), "(None, 1, 1, 336)");
    assert_eq!(shape("dense"), "(None, 10)");
}

#[test]
fn the_summary_of_keras_cnn() {
    let printed = keras_cnn(10).unwrap().summary().to_string();
    let expected = "\
Model: \"keras_cnn\"
_______________________________________________________________
Layer (type)                    Output Shape        Param #
===============================================================
input (Input)                   (None, 32, 32, 3)   0
conv2d (Conv2D)                 (None, 32, 32, 32)  896
conv2d_1 (Conv2D)               (None, 30, 30, 32)  9,248
max_pooling2d (MaxPooling2D)    (None, 15, 15, 32)  0
dropout (Dropout)               (None, 15, 15, 32)  0
conv2d_2 (Conv2D)               (None, 15, 15, 64)  18,496
conv2d_3 (Conv2D)               (None, 13, 13, 64)  36,928
max_pooling2d_1 (MaxPooling2D)  (None, 6, 6, 64)    0
dropout_1 (Dropout)             (None, 6, 6, 64)    0
flatten (Flatten)               (None, 2304)        0
dense (Dense)                   (None, 512)         1,180,160
dropout_2 (Dropout)             (None, 512)         0
dense_1 (Dense)                 (None, 10)          5,130
===============================================================
Total params: 1,250,858
Trainable params: 1,250,858
Non-trainable params: 0";
    assert_eq!(printed, expected, "\n{printed}");
}

#[test]
fn every_name_builds_for_ten_and_a_hundred_classes() {
    for name in towers_models::NAMES {
        for classes in [10, 100] {
            let summary = by_name(name, classes).unwrap().unwrap().summary();
            assert_eq!(summary.rows.last().unwrap().shape, format!("(None, {classes})"));
        }
    }
    assert!(by_name("no such network", 10).is_none());
}

#[test]
fn every_network_takes_images_of_other_sizes() {
    for name in towers_models::NAMES {
        for image in [[48, 40, 3], [25, 64, 3], [96, 33, 3]] {
            let model = by_name_for(name, image, 7).unwrap().unwrap();
            assert_eq!(model.image(), image, "{name}");
            assert_eq!(model.summary().rows.last().unwrap().shape, "(None, 7)", "{name}");
        }
    }
}

/// The named size works, and no smaller one does on either side.
#[test]
fn what_is_too_small_is_told_with_what_is_not() {
    for (name, smallest) in [
        ("airbench94", 25),
        ("airbench94_muon", 25),
        ("keras_cnn", 10),
        ("minigooglenet", 7),
        ("small_cnn", 8),
    ] {
        assert!(by_name_for(name, [smallest, smallest, 3], 10).unwrap().is_ok(), "{name}");
        for (h, w) in [(smallest - 1, 64), (64, smallest - 1)] {
            let error = by_name_for(name, [h, w, 3], 10).unwrap().unwrap_err().to_string();
            let says = format!(
                "{name} can't take images of {h}x{w} (height x width): it needs at least {smallest}x{smallest}"
            );
            assert_eq!(error, says);
        }
    }
    assert!(by_name_for("resnet18", [1, 1, 3], 10).unwrap().is_ok());
}

/// A map of 7x7 is pooled as in the paper, any other one by its mean. The parameters are the same.
#[test]
fn minigooglenet_averages_over_all_of_an_image() {
    let rows = |image| by_name_for("minigooglenet", image, 10).unwrap().unwrap().summary();
    let (small, large) = (rows([32, 32, 3]), rows([64, 48, 3]));
    assert_eq!(small.trainable, large.trainable);
    let pooling = |summary: &towers_layers::Summary| {
        let row = summary.rows.iter().find(|row| row.kind.ends_with("AveragePooling2D")).unwrap();
        (row.kind.clone(), row.shape.clone())
    };
    assert_eq!(pooling(&small), ("AveragePooling2D".into(), "(None, 1, 1, 336)".into()));
    assert_eq!(pooling(&large).0, "GlobalAveragePooling2D");
}

/// The height and width of the last convolutional activation, before any pooling behind it.
#[test]
fn every_network_has_class_activation_maps() {
    let device = towers_tensor_cpu::device(1);
    for (name, size) in
        towers_models::NAMES.into_iter().zip([[3, 3], [3, 3], [13, 13], [7, 7], [4, 4], [4, 4], [8, 8]])
    {
        let network = by_name(name, 10).unwrap().unwrap().build(&device, 1, Mode::Inference).unwrap();
        assert_eq!(network.grad_cam(1).unwrap().unwrap().map_size(), size, "{name}");
    }
}
