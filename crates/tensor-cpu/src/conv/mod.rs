//! Convolutions: forward and both backward passes.

mod plain;

use crate::Cpu;
use tensor_backend::{Activation, Conv2d, Shape, View, ViewMut, Write};

pub(crate) fn prepare(_cpu: &Cpu, _conv: &Conv2d, _x: Shape, _y: Shape, _training: bool) {}

pub(crate) use plain::{backward_data, backward_filter, forward};
