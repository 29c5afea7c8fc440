//! The gradient check finds gradients that are slightly wrong.
#![allow(clippy::unwrap_used)]

use towers_layers::{Dense, Flatten, Graph, Rescaling};
use towers_testkit::{Error, GradientCheck, Report};

/// A check of a small network whose gradients a function changes.
fn check(alter: fn(&str, &mut [f64])) -> towers_testkit::Result<Report> {
    let mut graph = Graph::new("wrong", [2, 2, 2]);
    let x = graph.add(Flatten, graph.input()).unwrap();
    let x = graph.add(Dense::new(5), x).unwrap();
    let x = graph.add(Rescaling::new(1.5), x).unwrap();
    let logits = graph.add(Dense::new(3), x).unwrap();
    GradientCheck::new().altered(alter).run(&graph, logits)
}

#[test]
fn the_right_gradient_passes() {
    let report = check(|_, _| {}).unwrap();
    assert!(report.worst.error < 1e-8 && report.kinks == 0, "{report:?}");
    // The input's 16 elements, 40 and 15 weights, 5 and 3 biases.
    assert_eq!(report.checked, 16 + 40 + 15 + 5 + 3);
}

#[test]
fn an_element_off_by_a_hundredth_or_a_millionth_is_named() {
    let alters: [fn(&str, &mut [f64]); 3] = [
        |name, gradients| gradients[1] *= if name == "dense_1/bias" { 1.01 } else { 1.0 },
        |name, gradients| gradients[1] *= if name == "dense_1/bias" { 1.0 + 1e-6 } else { 1.0 },
        |name, gradients| gradients[1] *= if name == "dense_1/bias" { 1.0 - 1e-6 } else { 1.0 },
    ];
    for alter in alters {
        let error = check(alter).unwrap_err();
        let Error::Gradient { worst, wrong: 1, .. } = &error else { panic!("{error}") };
        assert_eq!((worst.name.as_str(), worst.index), ("dense_1/bias", 1), "{error}");
    }
}

#[test]
fn a_wrong_gradient_of_the_input_is_found() {
    let error = check(|name, gradients| {
        if name == "input" {
            gradients.iter_mut().for_each(|gradient| *gradient *= 1.01);
        }
    });
    let error = error.unwrap_err();
    let Error::Gradient { worst, wrong, .. } = &error else { panic!("{error}") };
    assert!(worst.name == "input" && *wrong > 10, "{error}");
}

#[test]
fn nan_is_wrong() {
    let error = check(|name, gradients| {
        if name == "dense/kernel" {
            gradients.fill(f64::NAN);
        }
    });
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("wrong gradient: dense/kernel[") && error.contains("] is NaN"), "{error}");
}
