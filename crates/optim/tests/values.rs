//! Golden values of optimizers and their comparison, here and in the tests of `program`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

pub fn load(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub fn golden() -> Value {
    load(include_str!("../../../tests/golden/optim.json"))
}

pub fn keras2() -> Value {
    load(include_str!("../../../tests/golden/optim_keras2.json"))
}

pub fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

pub fn f32s(value: &Value) -> Vec<f32> {
    floats(value).into_iter().map(|x| x as f32).collect()
}

pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Ten steps in f32 lose a few units in the last place of the largest number on the way.
pub fn assert_close(got: &[f32], expected: &[f32], what: &str) {
    assert_within(2e-7, got, expected, what);
}

pub fn assert_within(absolute: f32, got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (k, (got, expected)) in got.iter().zip(expected).enumerate() {
        let tolerance = 2e-6 * expected.abs() + absolute;
        assert!((got - expected).abs() <= tolerance, "{what}: element {k} is {got}, not {expected}");
    }
}
