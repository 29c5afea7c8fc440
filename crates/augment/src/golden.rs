//! Values of torchvision for tests: `tests/golden/augment_compose.py` made them.

use serde_json::Value;

pub(crate) fn golden() -> Value {
    serde_json::from_str(include_str!("../../../tests/golden/augment_compose.json")).unwrap()
}

/// Height, width and channels of the images.
pub(crate) fn shape(golden: &Value) -> [usize; 3] {
    let side = golden["side"].as_u64().unwrap() as usize;
    [side, side, 3]
}

pub(crate) fn bytes(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

pub(crate) fn list<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// FNV-1a in 64 bits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, add))
}

/// How many bytes differ.
pub(crate) fn wrong(got: &[u8], expected: &[u8]) -> usize {
    assert_eq!(got.len(), expected.len());
    got.iter().zip(expected).filter(|(got, expected)| got != expected).count()
}
