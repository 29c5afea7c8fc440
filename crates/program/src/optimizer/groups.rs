use crate::{ParamRun, Span};
use core::ops::Range;
use std::collections::HashMap;
use towers_optim::{Optimizer, ParamGroup, UpdateRule};

/// Runs of an arena, each of parameters of one group, and the epochs in which they move.
#[derive(Clone, Debug)]
pub(super) struct Grouped(Vec<(ParamRun, Range<u64>)>);

impl Grouped {
    /// Neighbours with the same options make one run if nothing lies between them, unless a step is of whole tensors. The
    /// `matrices` have rows and columns; an optimizer with a rule for the rest takes its own for them alone.
    pub(super) fn new<'n>(
        optimizer: &Optimizer,
        groups: &[ParamGroup],
        matrices: &HashMap<String, [usize; 2]>,
        params: impl Iterator<Item = (&'n str, Span)>,
    ) -> Self {
        let run = |(name, at): (&str, Span)| {
            let group = ParamGroup::of(groups, name);
            let trained = group.map_or(0..u64::MAX, ParamGroup::trained);
            let lr_multiplier = group.map_or(1.0, |group| group.lr_multiplier);
            let own = |rule: &UpdateRule| {
                let weight_decay = group.and_then(|group| group.weight_decay).unwrap_or(rule.weight_decay());
                ParamRun { lr_multiplier, ..ParamRun::new(at, weight_decay) }
            };
            let run = match (optimizer.rest, matrices.get(name)) {
                (None, _) => own(&optimizer.rule),
                (Some(_), Some(&[rows, columns])) => {
                    // Behind it there may be room up to the next parameter.
                    ParamRun { at: Span::new(at.offset, rows * columns), columns, ..own(&optimizer.rule) }
                }
                (Some(rest), None) => {
                    let lr_multiplier = lr_multiplier * rest.lr_multiplier;
                    ParamRun { rule: Some(rest.rule), lr_multiplier, ..own(&rest.rule) }
                }
            };
            (run, trained)
        };
        let mut runs: Vec<(ParamRun, Range<u64>)> = params.map(run).collect();
        runs.sort_by_key(|(run, _)| run.at.offset);
        runs.dedup_by(|(next, next_trained), (run, trained)| {
            let same = ParamRun { at: run.at, ..*next } == *run && next_trained == trained;
            let of_tensors = run.rule_in(&optimizer.rule).of_tensors();
            let joins = same && !of_tensors && next.at.offset == run.at.end();
            if joins {
                run.at.len += next.at.len;
            }
            joins
        });
        Grouped(runs)
    }

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A number that falls whenever a later epoch moves other runs: of those that are trained, and of those that are
    /// still frozen.
    pub(super) fn changes_left(&self, epoch: u64) -> usize {
        let of = |(_, trained): &(_, Range<u64>)| {
            [trained.start, trained.end].into_iter().filter(|end| epoch < *end).count()
        };
        self.0.iter().map(of).sum()
    }

    /// The parts of `at` that a step takes in `epoch`; frozen ones have a rate of 0.
    pub(super) fn runs(&self, epoch: u64, at: Span) -> impl Iterator<Item = ParamRun> {
        self.0.iter().filter(move |(_, trained)| epoch < trained.end).filter_map(move |(run, trained)| {
            let (from, to) = (run.at.offset.max(at.offset), run.at.end().min(at.end()));
            let lr_multiplier = if epoch < trained.start { 0.0 } else { run.lr_multiplier };
            (from < to).then(|| ParamRun { at: Span::new(from, to - from), lr_multiplier, ..*run })
        })
    }
}
