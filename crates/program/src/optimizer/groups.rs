use crate::{ParamRun, Span};
use towers_optim::{ParamGroup, UpdateRule};

/// Runs of an arena, each of parameters of one group, and until which epoch they are trained.
#[derive(Clone, Debug)]
pub(super) struct Grouped(Vec<(ParamRun, u64)>);

impl Grouped {
    /// Neighbours with the same options make one run if nothing lies between them, unless a step is of whole tensors.
    pub(super) fn new<'n>(
        rule: &UpdateRule,
        groups: &[ParamGroup],
        params: impl Iterator<Item = (&'n str, Span)>,
    ) -> Self {
        let run = |(name, at)| {
            let group = ParamGroup::of(groups, name);
            let weight_decay = group.and_then(|group| group.weight_decay).unwrap_or(rule.weight_decay());
            let lr_multiplier = group.map_or(1.0, |group| group.lr_multiplier);
            let epochs = group.and_then(|group| group.epochs).unwrap_or(u64::MAX);
            (ParamRun { at, lr_multiplier, weight_decay }, epochs)
        };
        let mut runs: Vec<(ParamRun, u64)> = params.map(run).collect();
        runs.sort_by_key(|(run, _)| run.at.offset);
        runs.dedup_by(|(next, next_epochs), (run, epochs)| {
            let same = ParamRun { at: run.at, ..*next } == *run && next_epochs == epochs;
            let joins = same && !rule.of_tensors() && next.at.offset == run.at.end();
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

    /// What of `at` is trained in `epoch`.
    pub(super) fn runs(&self, epoch: u64, at: Span) -> impl Iterator<Item = ParamRun> {
        self.0.iter().filter(move |(_, epochs)| epoch < *epochs).filter_map(move |(run, _)| {
            let (from, to) = (run.at.offset.max(at.offset), run.at.end().min(at.end()));
            (from < to).then(|| ParamRun { at: Span::new(from, to - from), ..*run })
        })
    }
}
