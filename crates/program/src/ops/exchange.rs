//! What crosses the border of a replica or a stage. The caller runs these; a device never does.

use super::operands;
use crate::rule::Rule;
use crate::{Arena, Result, Shape};

/// Two runs of numbers, one behind the other. Reads both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Join;

/// A run of numbers of all replicas, one behind the other. Reads this replica's run, which lies inside of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gather {
    /// This replica's number, from 0.
    pub rank: usize,
    /// How many replicas there are.
    pub replicas: usize,
}

/// The sum of a run over all replicas. Reads this replica's run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumOverReplicas;

/// The gradient of a stage's output, which the next stage computed. Reads the output, for its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receive;

impl Rule for Join {
    fn name(&self) -> &'static str {
        "join"
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [a, b] = operands(self.name(), shapes)?;
        Ok(vec![Shape::vectors(1, a.len() + b.len())])
    }

    fn arena(&self, _: usize) -> Arena {
        Arena::Statistics
    }
}

impl Rule for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn options(&self) -> String {
        format!("rank {} of {}", self.rank, self.replicas)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [own] = operands(self.name(), shapes)?;
        Ok(vec![own.with_c(own.c.saturating_mul(self.replicas))])
    }

    fn arena(&self, _: usize) -> Arena {
        Arena::Statistics
    }
}

impl Rule for SumOverReplicas {
    fn name(&self) -> &'static str {
        "sum_over_replicas"
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [own] = operands(self.name(), shapes)?;
        Ok(vec![own])
    }

    fn arena(&self, _: usize) -> Arena {
        Arena::Statistics
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

impl Rule for Receive {
    fn name(&self) -> &'static str {
        "receive"
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [y] = operands(self.name(), shapes)?;
        Ok(vec![y])
    }
}
