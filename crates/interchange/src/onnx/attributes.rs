//! The attributes of a node, as the reader takes them.

use super::proto::{AttributeProto, NodeProto};
use serde_json::{Value, json};

pub(super) fn find<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

pub(super) fn float(node: &NodeProto, name: &str, default: f32) -> f32 {
    find(node, name).and_then(|own| own.f).unwrap_or(default)
}

pub(super) fn int(node: &NodeProto, name: &str, default: i64) -> i64 {
    find(node, name).and_then(|own| own.i).unwrap_or(default)
}

pub(super) fn ints<'n>(node: &'n NodeProto, name: &str) -> &'n [i64] {
    find(node, name).map_or(&[], |own| &own.ints)
}

/// A word, or the empty one.
pub(super) fn word<'n>(node: &'n NodeProto, name: &str) -> &'n str {
    find(node, name).and_then(|own| str::from_utf8(&own.s).ok()).unwrap_or_default()
}

pub(super) fn strides(node: &NodeProto) -> Vec<i64> {
    let strides = ints(node, "strides");
    if strides.is_empty() { vec![1, 1] } else { strides.to_vec() }
}

/// Whether its windows have gaps between their pixels.
pub(super) fn is_dilated(node: &NodeProto) -> bool {
    ints(node, "dilations").iter().any(|&n| n != 1)
}

/// Zeros above and below, to the left and to the right, or one of Keras' words.
pub(super) fn padding(node: &NodeProto) -> Result<Value, String> {
    match (word(node, "auto_pad"), ints(node, "pads")) {
        ("" | "NOTSET" | "VALID", []) => Ok("valid".into()),
        ("" | "NOTSET", &[top, left, bottom, right]) => Ok(json!([[top, bottom], [left, right]])),
        ("SAME_UPPER", _) => Ok("same".into()),
        _ => Err(format!("its node `{}` must have its padding in pads, or auto_pad=SAME_UPPER", node.name)),
    }
}
