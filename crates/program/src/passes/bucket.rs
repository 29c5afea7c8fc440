use crate::ops::AllReduceStart;
use crate::{Arena, Home, Phase, Program, Shape, Span, Step, TensorId};

/// Elements that make a bucket large enough: 1 MiB of gradients. Smaller ones cost more latency than they hide, and much larger ones hide
/// nothing in a network of a few megabytes.
pub const BUCKET: usize = 1 << 18;

/// Starts the sums of gradients over all replicas during the backward pass, in buckets. Each has at least `least` elements, except the one with
/// the first layers.
///
/// The backward pass goes through the layers from the last to the first, and the arena has them from the first to the last. So buckets are
/// cut from the end of the gradients. A bucket starts behind the last step that reads or writes one of its gradients, and behind the
/// buckets before it: the program alone decides their order, so it is the same on all replicas.
pub fn bucket(mut program: Program, least: usize) -> Program {
    let first = program.steps.iter().position(|step| step.phase == Phase::Backward);
    let mut at = first.unwrap_or(program.steps.len());
    for (number, (gradients, span)) in (1..).zip(cut(&gradients(&program), least)) {
        let is_used =
            |step: &Step| step.reads().chain(step.results.iter().copied()).any(|id| gradients.contains(&id));
        at = at.max(program.steps.iter().rposition(is_used).map_or(0, |last| last + 1));
        let result = program.add_tensor(Shape::vectors(1, span.len), Arena::Gradients, Home::At(span.offset));
        program.tensors[result.0].name = Some(format!("bucket{number}"));
        let layer = at.checked_sub(1).map_or(0, |before| program.steps[before].layer);
        let (op, results) = (AllReduceStart { len: span.len }.into(), vec![result]);
        let (phase, pass) = (Phase::Backward, "bucket");
        program.steps.insert(at, Step { op, operands: gradients, results, onto: None, layer, phase, pass });
        at += 1;
    }
    program
}

/// The gradients of trained parameters, in the order of the arena.
fn gradients(program: &Program) -> Vec<(TensorId, Span)> {
    let trained = program.gradients.iter().flatten().filter(|(_, is_trained)| *is_trained);
    let place = |&(id, _): &(TensorId, bool)| match program.tensor(id).home {
        Home::At(offset) => Some((id, Span::new(offset, program.shape(id).len()))),
        Home::Free | Home::In(..) => None,
    };
    let mut gradients: Vec<(TensorId, Span)> = trained.filter_map(place).collect();
    gradients.sort_by_key(|(_, span)| span.offset);
    gradients
}

/// Cuts gradients into buckets, the last one of the arena first. Gaps go with the tensor before them.
fn cut(gradients: &[(TensorId, Span)], least: usize) -> Vec<(Vec<TensorId>, Span)> {
    let mut buckets = Vec::new();
    let (mut end, mut own) = (gradients.last().map_or(0, |(_, span)| span.end()), Vec::new());
    for (k, (id, span)) in gradients.iter().enumerate().rev() {
        own.insert(0, *id);
        // The first tensor's bucket begins where the arena does.
        let start = if k == 0 { 0 } else { span.offset };
        if end - start >= least || k == 0 {
            buckets.push((core::mem::take(&mut own), Span::new(start, end - start)));
            end = start;
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Layers, training_step};
    use proptest::prelude::*;

    /// Three convolutions in a row, with 6, 4 and 8 elements of weights.
    fn step() -> Program {
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, a);
        let c = net.conv("c", 4, b);
        training_step(net.loss(c), false)
    }

    #[test]
    fn a_bucket_starts_when_its_gradients_are_there() {
        let text = bucket(step(), 10).to_string();
        let backward = text.split("c, backward:\n").nth(1).unwrap();
        assert_eq!(
            backward,
            "\
\x20 %14 (4, 4, 4) = reshape %13
  &c/kernel = conv2d_weight_gradient 1x1 %6, %14
  %15 (4, 4, 2) = conv2d_input_gradient 1x1 %14, @c/kernel
b, backward:
  &b/kernel = conv2d_weight_gradient 1x1 %3, %15
  &bucket1 = all_reduce_start &b/kernel, &c/kernel
  %16 (4, 4, 2) = conv2d_input_gradient 1x1 %15, @b/kernel
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %16
  &bucket2 = all_reduce_start &a/kernel
"
        );
    }

    /// The runs of the buckets, in their order.
    fn runs(least: usize) -> Vec<Span> {
        cut(&gradients(&step()), least).into_iter().map(|(_, span)| span).collect()
    }

    #[test]
    fn buckets_are_cut_from_the_end_and_cover_all_gradients() {
        assert_eq!(runs(1), [Span::new(10, 8), Span::new(6, 4), Span::new(0, 6)]);
        assert_eq!(runs(9), [Span::new(6, 12), Span::new(0, 6)]);
        assert_eq!(runs(1000), [Span::new(0, 18)]);
    }

    /// A normalization reads the gradients of gamma and beta once more for that of its input.
    #[test]
    fn a_gradient_is_not_added_up_while_it_is_read() {
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 2, net.input());
        let y = net.batch_norm("bn", a);
        let program = bucket(training_step(net.loss(y), false), 1);
        let start =
            program.steps.iter().position(|step| matches!(step.op, crate::Op::AllReduceStart(_))).unwrap();
        let read =
            program.steps.iter().rposition(|step| step.op.name() == "batch_norm_input_gradient").unwrap();
        assert!(read < start, "{program}");
    }

    #[test]
    fn without_trained_parameters_there_is_nothing_to_add_up() {
        let net = Layers::new([4, 4, 3]);
        let x = net.input();
        assert_eq!(bucket(net.finish(x), 1).steps, []);
    }

    proptest! {
        #[test]
        fn every_element_is_in_one_bucket(
            lens in prop::collection::vec(1_usize..3000, 0..60), least in 1_usize..5000
        ) {
            let (mut gradients, mut end) = (Vec::new(), 0_usize);
            for (k, len) in lens.into_iter().enumerate() {
                gradients.push((TensorId(k), Span::new(end, len)));
                end = (end + len).next_multiple_of(16);
            }
            let buckets = cut(&gradients, least);
            // From the end of the last gradient, each bucket ends where the one before it begins.
            let mut at = gradients.last().map_or(0, |(_, span)| span.end());
            for (ids, span) in &buckets {
                prop_assert_eq!(span.end(), at);
                at = span.offset;
                let own = gradients.iter().filter(|(_, of)| span.range().contains(&of.offset));
                prop_assert_eq!(ids, &own.map(|(id, _)| *id).collect::<Vec<_>>());
                prop_assert!(span.len >= least || span.offset == 0);
            }
            prop_assert_eq!(at, 0);
            prop_assert_eq!(buckets.iter().map(|(ids, _)| ids.len()).sum::<usize>(), gradients.len());
        }
    }
}
