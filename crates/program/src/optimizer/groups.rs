use crate::{ParamRun, Span};
use towers_optim::{ParamGroup, UpdateRule};

/// Runs of an arena, each of parameters of one group, and until which epoch they are trained.
#[derive(Clone, Debug)]
pub(super) struct Grouped(Vec<(ParamRun, u64)>);

impl Grouped {
    /// Neighbours of one group make one run if nothing lies between them.
    pub(super) fn new<'n>(
        rule: &UpdateRule,
        groups: &[ParamGroup],
        params: impl Iterator<Item = (&'n str, Span)>,
    ) -> Self {
        let mut params: Vec<(Option<&ParamGroup>, Span)> =
            params.map(|(name, at)| (ParamGroup::of(groups, name), at)).collect();
        params.sort_by_key(|(_, at)| at.offset);
        params.dedup_by(|(group, at), (last, run)| {
            let same = group == last && at.offset == run.end();
            if same {
                run.len += at.len;
            }
            same
        });
        let run = |(group, at): (Option<&ParamGroup>, Span)| {
            let weight_decay = group.and_then(|group| group.weight_decay).unwrap_or(rule.weight_decay());
            let lr_multiplier = group.map_or(1.0, |group| group.lr_multiplier);
            let epochs = group.and_then(|group| group.epochs).unwrap_or(u64::MAX);
            (ParamRun { at, lr_multiplier, weight_decay }, epochs)
        };
        Grouped(params.into_iter().map(run).collect())
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
