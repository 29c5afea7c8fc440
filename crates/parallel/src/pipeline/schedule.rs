//! The order of micro-batches in a pipeline: one forward, one backward (1F1B).

/// A pass of a stage over one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The forward pass over the micro-batch of this number.
    Forward(usize),
    /// Its backward pass.
    Backward(usize),
}

/// The passes of stage `stage` of `stages` over the micro-batches of one step, in order: "1F1B" (Narayanan et al., "PipeDream:
/// Generalized Pipeline Parallelism for DNN Training", 2019), with all gradients added up before the only update of the step.
///
/// A stage begins with as many forward passes as there are stages after it, then alternates. So at most
/// [`in_flight`] micro-batches wait for their backward pass.
///
/// ```
/// use towers_parallel::Pass::{Backward as B, Forward as F};
/// use towers_parallel::one_forward_one_backward;
///
/// assert_eq!(one_forward_one_backward(2, 0, 3), [F(0), F(1), B(0), F(2), B(1), B(2)]);
/// assert_eq!(one_forward_one_backward(2, 1, 3), [F(0), B(0), F(1), B(1), F(2), B(2)]);
/// ```
///
/// # Panics
/// If `stage` is not below `stages`.
pub fn one_forward_one_backward(stages: usize, stage: usize, micro_batches: usize) -> Vec<Pass> {
    let ahead = in_flight(stages, stage, micro_batches).saturating_sub(1);
    let mut passes: Vec<Pass> = (0..ahead).map(Pass::Forward).collect();
    for next in ahead..micro_batches {
        passes.extend([Pass::Forward(next), Pass::Backward(next - ahead)]);
    }
    passes.extend((micro_batches - ahead..micro_batches).map(Pass::Backward));
    passes
}

/// The most micro-batches of a stage between their forward and their backward pass.
///
/// # Panics
/// If `stage` is not below `stages`.
pub fn in_flight(stages: usize, stage: usize, micro_batches: usize) -> usize {
    assert!(stage < stages, "stage {stage} of {stages}");
    (stages - stage).min(micro_batches)
}

#[cfg(test)]
mod tests {
    use super::Pass::{Backward, Forward};
    use super::*;

    #[test]
    fn every_micro_batch_goes_forward_then_backward_and_few_are_in_flight() {
        for (stages, micro_batches) in (1..=5).flat_map(|s| (0..=7).map(move |m| (s, m))) {
            for stage in 0..stages {
                let passes = one_forward_one_backward(stages, stage, micro_batches);
                assert_eq!(passes.len(), 2 * micro_batches);
                let (mut forward, mut backward) = (0, 0);
                let mut most = 0;
                for pass in passes {
                    // Each kind in order, so gradients are added in order, too.
                    match pass {
                        Forward(m) => assert_eq!(m, core::mem::replace(&mut forward, m + 1)),
                        Backward(m) => assert_eq!(m, core::mem::replace(&mut backward, m + 1)),
                    }
                    assert!(backward <= forward);
                    most = most.max(forward - backward);
                }
                assert_eq!((forward, backward), (micro_batches, micro_batches));
                assert_eq!(most, in_flight(stages, stage, micro_batches));
            }
        }
    }

    /// Every stage waits for the inputs of its next pass, and in each round all ready stages run. With passes
    /// of one length, a pipeline of S stages idles for at most the 2 (S - 1) passes of its beginning and end.
    #[test]
    fn no_stage_waits_for_ever_or_longer_than_it_must() {
        for (stages, micro_batches) in (1..=5).flat_map(|s| (1..=9).map(move |m| (s, m))) {
            let all: Vec<_> =
                (0..stages).map(|s| one_forward_one_backward(stages, s, micro_batches)).collect();
            let mut done = vec![0; stages];
            let mut rounds = 0;
            while done.iter().zip(&all).any(|(&done, passes)| done < passes.len()) {
                let has = |stage: usize, pass: Pass| all[stage][..done[stage]].contains(&pass);
                let ready = |stage: usize| match all[stage].get(done[stage]) {
                    Some(&Forward(m)) => stage == 0 || has(stage - 1, Forward(m)),
                    Some(&Backward(m)) => stage + 1 == stages || has(stage + 1, Backward(m)),
                    None => false,
                };
                let go: Vec<usize> = (0..stages).filter(|&stage| ready(stage)).collect();
                assert!(!go.is_empty(), "{stages} stages, {micro_batches} micro-batches: all wait");
                go.into_iter().for_each(|stage| done[stage] += 1);
                rounds += 1;
            }
            assert_eq!(rounds, 2 * micro_batches + 2 * (stages - 1));
        }
    }
}
