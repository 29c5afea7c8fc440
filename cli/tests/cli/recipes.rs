//! The recipe of a run: the one that is named, or the one that suits a network or pictures of a user's own.

use crate::Place;
use crate::folders::draw;
use serde_json::Value;
use std::path::Path;

const LITTLE: &str = "--limit-train 40 --limit-test 10 --epochs 1 --no-progress";

/// A place with models of Keras, compiled and not.
fn with_models() -> Place {
    let place = Place::new();
    for file in ["compiled.keras", "compiled.tf215.h5", "small_cnn.keras"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras");
        std::fs::copy(golden.join(file), place.path().join(file)).unwrap();
    }
    place
}

fn config(place: &Place, run: &str) -> Value {
    serde_json::from_str(&place.read(&format!("{run}/config.json"))).unwrap()
}

#[test]
fn a_network_of_ones_own_gets_a_recipe_that_trains_it() {
    let place = with_models();
    let train = format!("train --model small_cnn.keras --dataset synthetic {LITTLE}");
    let says = "recipe adam, for a network of your own: adam, cosine rate 0.001, epochs 1, pictures shifted and mirrored";
    place.run(&format!("{train} --output a")).ends(0).complains(says);
    let a = config(&place, "a");
    assert_eq!((&a["recipe"], &a["preprocessing"]), (&"adam".into(), &"divide-by-255".into()));
    assert_eq!((&a["optimizer"], a["lr"].as_f64()), (&"adam".into(), Some(0.001)));
    // A recipe that is named counts, and nothing is said.
    let named = place.run(&format!("{train} --recipe quick --output b")).ends(0);
    assert!(!named.err().contains("for a network of your own"), "{}", named.err());
    assert_eq!(config(&place, "b")["recipe"], "quick");
    // `--model RUN` and `--weights RUN` bring a network too.
    for flag in ["--model a", "--weights a"] {
        let line = format!("train {flag} --dataset synthetic {LITTLE}");
        place.run(&line).ends(0).complains("recipe adam, for a network of your own");
    }
}

#[test]
fn a_compiled_model_keeps_its_optimizer() {
    let place = with_models();
    let train = format!("train --dataset synthetic {LITTLE} --image-size 8");
    let train = train.replace("--dataset synthetic", "--dataset pets");
    for class in ["cat", "dog"] {
        draw(&place, &format!("pets/train/{class}"), [9; 3], 0..20);
        draw(&place, &format!("pets/test/{class}"), [9; 3], 0..2);
    }
    let says =
        "the optimizer is that of the model's compile: sgd:momentum=0.8,nesterov=true, constant rate 0.02";
    let ran = place.run(&format!("{train} --model compiled.keras --output a")).ends(0).complains(says);
    ran.complains("recipe adam, for a network of your own: epochs 1, pictures");
    let a = config(&place, "a");
    assert_eq!([&a["optimizer"], &a["schedule"]], ["sgd:momentum=0.8,nesterov=true", "constant"]);
    assert_eq!(a["lr"].as_f64(), Some(0.02));
    assert!(a["changed"].as_array().unwrap().contains(&"optimizer".into()), "{a}");
    // Flags count more, and a recipe that is named has an optimizer.
    let lr = place.run(&format!("{train} --model compiled.keras --lr 0.5 --output b")).ends(0);
    lr.complains("nesterov=true, constant rate 0.5");
    let adam = place.run(&format!("{train} --model compiled.keras --optimizer adamw --output c")).ends(0);
    assert!(!adam.err().contains("the model's compile"), "{}", adam.err());
    place.run(&format!("{train} --model compiled.keras --recipe quick --output d")).ends(0);
    assert_eq!(config(&place, "d")["optimizer"], "sgd:momentum=0.9,nesterov=true");
    // A resumed run keeps its rate.
    place.run("train --resume b --epochs 2 --model compiled.keras --image-size 8 --no-progress").ends(0);
    assert_eq!(config(&place, "b")["lr"].as_f64(), Some(0.5));
    let says = "the optimizer is that of the model's compile: adam:clipnorm=1, cosine rate 0.003, but without its schedule \
                ExponentialDecay";
    place.run(&format!("{train} --model compiled.tf215.h5 --output e")).ends(0).complains(says);
}

#[test]
fn pictures_of_ones_own_get_a_recipe_for_few() {
    let place = Place::new();
    for class in ["cat", "dog"] {
        draw(&place, &format!("pets/train/{class}"), [9; 3], 0..20);
        draw(&place, &format!("pets/test/{class}"), [9; 3], 0..2);
    }
    let ran = place.run("train --dataset pets --epochs 1 --no-progress --output run").ends(0);
    ran.complains("recipe adam, for pictures of your own: adam, cosine rate 0.001, epochs 1")
        .complains("adam: small_cnn on pets");
    assert_eq!(config(&place, "run")["drop_last"], false);
    // The tutorial's recipe stays that of CIFAR-10 and of images that are drawn.
    let ran = place.run(&format!("train --dataset synthetic --batch-size 8 {LITTLE} --output other")).ends(0);
    ran.complains("minigooglenet: minigooglenet on synthetic");
}

/// Keras writes `keras_cnn`, and its recipe is called `keras-cnn`: both are right everywhere.
#[test]
fn names_with_a_hyphen_and_an_underscore_are_one() {
    let place = Place::new();
    for name in ["keras-cnn", "keras_cnn"] {
        let train = format!("train --dataset synthetic {LITTLE} --output {name}-");
        place.run(&format!("{train}r --recipe {name}")).ends(0).complains("keras-cnn: keras_cnn on");
        place
            .run(&format!("{train}m --recipe quick --model {name}"))
            .ends(0)
            .complains("quick: keras_cnn on");
        place.write("like.toml", format!("like = '{name}'\nmodel = '{name}'\n"));
        for (command, says) in [
            (format!("recipes {name}"), "recipe = \"keras-cnn\""),
            ("recipes like.toml".to_owned(), "model = \"keras_cnn\""),
            (format!("summary {name}"), "Model: \"keras_cnn\""),
            (format!("program --model {name} --batch 2"), "&conv2d_3/kernel"),
            (format!("bench --recipe {name} --model {name} --seconds 0 --repeats 1 --batch 2"), "keras_cnn"),
        ] {
            place.prints(&command, says);
        }
    }
}

/// Keras' momentum of 0.99 needs some 300 steps, and a few pictures give few.
#[test]
fn averages_that_have_not_settled_are_told() {
    let place = Place::new();
    let layers = "[[layer]]\nclass = 'Conv2D'\nfilters = 4\nkernel_size = 3\n[[layer]]\nclass = 'BatchNormalization'\n\
                  [[layer]]\nclass = 'Flatten'\n[[layer]]\nclass = 'Dense'\n";
    place.write("net.toml", format!("like = 'quick'\n{layers}"));
    let train = "train --recipe net.toml --dataset synthetic --limit-train 40 --limit-test 10 --batch-size 4 --no-progress";
    let ran = place.run(&format!("{train} --epochs 2 --output a")).ends(0);
    ran.complains(
        "(momentum 0.99) take 299 steps to settle, and this run has 20: validation and the saved network",
    );
    let ran = place.run(&format!("{train} --epochs 30 --output b")).ends(0);
    assert!(!ran.err().contains("to settle"), "{}", ran.err());
    ran.says("take 299 steps to settle: before epoch 30 validation is worse than the training");
    let ran = place.run(&format!("{train} --epochs 1 --weights a --output c")).ends(0);
    assert!(!format!("{}{}", ran.out(), ran.err()).contains("to settle"), "they have settled before");
}
