//! In place of the way to other processes: there are none.

use crate::system::RwLock;
use crate::{Result, SumTree};

pub(crate) enum Across {}

type Sums = RwLock<Vec<f32>>;

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

    pub(crate) fn add_up<F>(&self, _: &SumTree, _: usize, _: usize, _: &Sums, _: F) -> Result<()>
    where
        F: FnOnce(&mut [f32]) -> Result<()>,
    {
        match *self {}
    }

    pub(crate) fn broadcast<F>(&self, _: usize, _: usize, _: &Sums, _: F) -> Result<()>
    where
        F: FnOnce(&mut [f32]) -> Result<()>,
    {
        match *self {}
    }

    pub(crate) fn all_gather<F>(&self, _: usize, _: &Sums, _: F) -> Result<()>
    where
        F: FnOnce(&mut [f32]) -> Result<()>,
    {
        match *self {}
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn abort(&self, _: usize, _: &str) -> bool {
        match *self {}
    }
}
