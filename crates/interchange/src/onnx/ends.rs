//! The images that go into a graph, and what is told of a whole network.

use super::constants::Constant;
use super::proto::{BFLOAT16, Dimension, FLOAT, FLOAT16, ValueInfoProto};
use crate::text::shortened;

/// Whether `x * scale + shift` is for values from 0 to 1: in somebody's own module these names need not be
/// ours.
pub(super) fn is_of_unit(scale: Option<&Constant>, shift: Option<&Constant>) -> bool {
    let floats = |own: Option<&Constant>, default: f32| {
        let floats = own.and_then(Constant::as_floats).filter(|all| !all.is_empty());
        floats.unwrap_or_else(|| [default].into())
    };
    let (scale, shift) = (floats(scale, 1.0), floats(shift, 0.0));
    let least = scale.iter().fold(f32::INFINITY, |least, x| least.min(x.abs()));
    let most = shift.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let is_identity = scale.iter().all(|&x| x == 1.0) && most == 0.0;
    !is_identity && 1.0 / least <= MOST_OF_UNIT && most / least <= MOST_OF_UNIT
}

/// A mean or a deviation above this is none of values from 0 to 1.
const MOST_OF_UNIT: f32 = 1.5;

/// The images that go in.
pub(super) struct Images {
    /// 0 is a number that is left open, here and of rows and columns.
    pub(super) batch: usize,
    /// Height, width and channels.
    pub(super) image: [usize; 3],
    /// Whether the channels are the last axis, as TensorFlow has them.
    pub(super) channels_last: bool,
    pub(super) is_half: bool,
}

pub(super) fn images(input: &ValueInfoProto) -> Result<Images, String> {
    let kind = input.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    let sides: Option<Vec<usize>> = kind.and_then(|kind| kind.shape.as_ref()).map(|shape| {
        let side = |dim: &super::proto::DimensionProto| match dim.value {
            Some(Dimension::Length(n)) => usize::try_from(n).unwrap_or(0),
            _ => 0,
        };
        shape.dim.iter().map(side).collect()
    });
    let (batch, image, channels_last) = match sides.unwrap_or_default()[..] {
        [batch, channels @ (1 | 3), h, w] => (batch, [h, w, channels], false),
        [batch, h, w, channels @ (1 | 3)] => (batch, [h, w, channels], true),
        _ => {
            return Err("its input must be images of (batch, channels, rows, columns) or (batch, rows, columns, channels) \
                        with 1 or 3 channels"
                .to_owned());
        }
    };
    let is_half = match kind.map(|kind| kind.elem_type) {
        Some(FLOAT) => false,
        Some(FLOAT16 | BFLOAT16) => true,
        _ => return Err(format!("its input `{}` must be floats of 32 or 16 bits", shortened(&input.name))),
    };
    Ok(Images { batch, image, channels_last, is_half })
}
