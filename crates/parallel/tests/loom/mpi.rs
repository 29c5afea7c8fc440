//! In place of the way to other processes: there are none.

use crate::system::RwLock;
use crate::{Result, SumTree};

pub(crate) enum Across {}

impl Across {
    pub(crate) fn first(&self) -> usize {
        match *self {}
    }

    pub(crate) fn world(&self) -> usize {
        match *self {}
    }

    pub(crate) fn within(&self, _: usize) -> Option<usize> {
        match *self {}
    }

    pub(crate) fn add_up(
        &self,
        _: &SumTree,
        _: usize,
        _: usize,
        _: &RwLock<Vec<f32>>,
        _: impl FnOnce(&mut [f32]),
    ) -> Result<()> {
        match *self {}
    }

    pub(crate) fn broadcast(&self, _: &mut Vec<f32>, _: usize) -> Result<()> {
        match *self {}
    }

    pub(crate) fn all_gather(&self, _: &mut Vec<f32>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn abort(&self, _: usize, _: &str) -> bool {
        match *self {}
    }
}
