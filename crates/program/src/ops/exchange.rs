//! Exchanges between replicas or stages. The caller runs these; a device never does.

use super::count;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Kind, Result, Shape, Signature, Step};

/// Two runs of numbers, one behind the other. Reads both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Join;

/// A run of numbers of all replicas, one behind the other. Reads this replica's run, which lies inside of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllGather {
    /// This replica's number, from 0.
    pub rank: usize,
    /// How many replicas there are.
    pub replicas: usize,
}

/// The sum of a run over all replicas. Reads this replica's run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduce;

/// Starts an asynchronous all-reduce of some gradients. Later steps may run at the same time. Reads the
/// gradients of one [bucket](crate::passes::bucket). The result is the run of memory that holds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllReduceStart {
    /// Elements of the run.
    pub len: usize,
}

/// A stage of a pipeline that is next to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbor {
    /// The stage that computes this one's input.
    Previous,
    /// The stage that reads this one's output.
    Next,
}

/// Sends a tensor to another stage. Reads the tensor. The other stage sends its gradient back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Send {
    /// The stage that receives it.
    pub to: Neighbor,
}

/// A tensor that another stage sends. Its gradient is sent back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receive {
    /// The stage that sends it.
    pub from: Neighbor,
    /// Its shape, that of one sample.
    pub shape: Shape,
}

signatures! {
    Join { a: gradient "the first run", b: gradient "the second run" } -> { joined: statistic "the joined run" }
    AllGather { own: statistic "the run" } -> { all: statistic "the runs" }
    AllReduce { own: statistic "the run" } -> { sum: statistic "the sum" }
}

impl Signature for AllReduceStart {
    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::gradient("a gradient").any()] }
    }

    fn results(&self) -> &'static [Kind] {
        const { &[Kind::gradient("the bucket")] }
    }
}

impl Signature for Receive {
    fn operands(&self) -> &'static [Kind] {
        &[]
    }

    fn results(&self) -> &'static [Kind] {
        super::results::Output::<()>::KINDS
    }
}

impl Signature for Send {
    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("the input")] }
    }

    fn results(&self) -> &'static [Kind] {
        &[]
    }
}

impl Rule for Join {
    fn name(&self) -> &'static str {
        "join"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Join { a, b } = self.operands_of(shapes)?;
        Ok(vec![Shape::vectors(1, a.len() + b.len())])
    }
}

impl Rule for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn options(&self) -> String {
        format!("rank {} of {}", self.rank, self.replicas)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::AllGather { own } = self.operands_of(shapes)?;
        Ok(vec![own.with_c(own.c.saturating_mul(self.replicas))])
    }
}

impl Rule for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::AllReduce { own } = self.operands_of(shapes)?;
        Ok(vec![own])
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }
}

impl Rule for AllReduceStart {
    fn name(&self) -> &'static str {
        "all_reduce_start"
    }

    fn shapes(&self, _: &[Shape]) -> Result<Vec<Shape>> {
        Ok(vec![Shape::vectors(1, self.len)])
    }
}

impl Rule for Send {
    fn name(&self) -> &'static str {
        "send"
    }

    fn options(&self) -> String {
        format!("to {}", self.to.name())
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        match shapes {
            [_] => Ok(Vec::new()),
            _ => Err(count(self.name(), shapes.len(), 1)),
        }
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        let receive = Receive { from: self.to, shape: to.shape(x) };
        let gradient = to.push(receive, &[], &[])?[0];
        to.add(x, gradient)
    }
}

impl Rule for Receive {
    fn name(&self) -> &'static str {
        "receive"
    }

    fn options(&self) -> String {
        format!("from {}", self.from.name())
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        match shapes {
            [] => Ok(vec![self.shape]),
            _ => Err(count(self.name(), shapes.len(), 0)),
        }
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let gradient = to.of(step);
        to.push(Send { to: self.from }, &[gradient], &[]).map(drop)
    }
}

impl Neighbor {
    fn name(self) -> &'static str {
        match self {
            Neighbor::Previous => "previous",
            Neighbor::Next => "next",
        }
    }
}
