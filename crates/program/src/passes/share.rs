use crate::check::{Sharing, copied_parts, is_inside};
use crate::ops::{AllGather, Concat, Slice};
use crate::{Home, Op, Program, Step, TensorId};

/// Places tensors inside of others where that saves a copy: sums in place of an operand that no other step
/// reads, the parts of a concatenation inside of it, slices inside of their source.
///
/// A part that can't lie inside is copied: one of two concatenations, one that lies beside what an op reads.
pub fn share(mut program: Program) -> Program {
    let mut sharing = Sharing::new(&program);
    for k in 0..program.steps.len() {
        let step = &program.steps[k];
        if let (Some(onto), Some(&result)) = (step.onto, step.results.first()) {
            sharing.put(&mut program, result, onto, 0);
        } else if let Some((result, operand)) = in_place(&program, &sharing, k) {
            sharing.put(&mut program, result, operand, 0);
        }
    }
    for k in 0..program.steps.len() {
        match program.steps[k].op {
            Op::Concat(Concat) => join(&mut program, &mut sharing, k),
            Op::AllGather(AllGather { rank, .. }) => {
                let step = &program.steps[k];
                let (own, all) = (step.operands[0], step.results[0]);
                let from = rank * program.shape(own).c;
                put(&mut program, &mut sharing, own, all, from);
            }
            Op::Slice(Slice { from, .. }) => {
                let step = &program.steps[k];
                let (part, whole) = (step.results[0], step.operands[0]);
                put(&mut program, &mut sharing, part, whole, from);
            }
            _ => {}
        }
    }
    program
}

/// The first result of step `k`, and the operand whose place it can take, since no later step reads that.
fn in_place(program: &Program, sharing: &Sharing, k: usize) -> Option<(TensorId, TensorId)> {
    let step = &program.steps[k];
    let &result = step.results.first()?;
    let may = |&&at: &&usize| {
        let operand = step.operands[at];
        let alone = step.operands.iter().filter(|&&other| program.overlap(other, operand)).count() == 1;
        let [of, to] = [operand, result].map(|id| program.tensor(id));
        let fits = of.arena == to.arena && of.arena.is_placed() && of.shape == to.shape;
        fits && alone && sharing.is_dead_after(program, operand, k)
    };
    step.op.in_place().iter().find(may).map(|&at| (result, step.operands[at]))
}

/// Places the operands of a concatenation inside of its result.
fn join(program: &mut Program, sharing: &mut Sharing, k: usize) {
    let (whole, mut channel) = (program.steps[k].results[0], 0);
    for part in program.steps[k].operands.clone() {
        let shape = program.shape(part);
        let (root, at) = program.root(part);
        // Tensors that share the part's memory move with it.
        if at == 0 && program.shape(root) == shape && root != program.root(whole).0 {
            put(program, sharing, root, whole, channel);
        }
        channel += shape.c;
    }
}

/// Puts a free tensor inside of another one, unless an op would then read some channels and write others. A tensor that callers read must lie
/// back to back, and stays free.
fn put(program: &mut Program, sharing: &mut Sharing, part: TensorId, whole: TensorId, channel: usize) {
    let is_kept = program.kept().any(|kept| program.root(kept).0 == part);
    let is_free = program.tensor(part).home == Home::Free;
    if is_kept || !is_free || program.tensor(part).arena != program.tensor(whole).arena {
        return;
    }
    sharing.put_if(program, (part, whole, channel), is_executable);
}

/// Whether a step's reads and writes are separate runs of memory, for tensors inside of this root. Where an op reads
/// some channels and writes others, pixels of both take turns: no backend can make slices of them.
pub(crate) fn is_executable(program: &Program, step: &Step, root: TensorId) -> bool {
    let is_apart = |read: TensorId, written: TensorId| {
        let is_same = program.is_same_memory(read, written);
        is_same || program.root(read).0 != root || program.root(written).0 != root
    };
    match step.op {
        Op::Concat(Concat) => {
            copied_parts(program, step).all(|(k, _)| is_apart(step.operands[k], step.results[0]))
        }
        Op::Slice(Slice { from, .. }) => {
            let (whole, part) = (step.operands[0], step.results[0]);
            is_inside(program, part, whole, from) || is_apart(whole, part)
        }
        Op::AllGather(_) => true,
        // One side must lie back to back, to be seen in the other one's shape.
        Op::Reshape(_) => {
            let is_whole = |id: TensorId| program.shape(program.root(id).0).c == program.shape(id).c;
            let (x, y) = (step.operands[0], step.results[0]);
            is_apart(x, y) && (is_whole(x) || is_whole(y))
        }
        _ => step.reads().all(|read| step.results.iter().all(|&written| is_apart(read, written))),
    }
}

#[cfg(test)]
mod tests {
    use crate::passes::{Training, inference, training};
    use crate::testing::Layers;

    const PLAIN: Training =
        Training { input_gradient: false, recompute: false, sync_batch_norm: None, bucket: None };

    #[test]
    fn branches_write_into_the_concatenation_and_read_slices_of_its_gradient() {
        let mut net = Layers::new([4, 4, 3]);
        let (a, b) = (net.conv("a", 2, net.input()), net.conv("b", 3, net.input()));
        let y = net.concat(&[a, b]);
        assert_eq!(
            training(net.loss(y), PLAIN).unwrap().to_string(),
            "\
a:
  %3 (4, 4, 2) in %7[0..] = conv2d 1x1 %0, @a/kernel
b:
  %6 (4, 4, 3) in %7[2..] = conv2d 1x1 %0, @b/kernel
  %7 (4, 4, 5) = concat %3, %6
  %8 (80) = reshape %7
loss:
  %11 (80), &metrics = cross_entropy %8, $labels
b, backward:
  %12 (4, 4, 5) = reshape %11
  %13 (4, 4, 2) in %12[0..] = slice 0..2 %12
  %14 (4, 4, 3) in %12[2..] = slice 2..5 %12
  &b/kernel = conv2d_weight_gradient 1x1 %0, %14
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %13
"
        );
    }

    #[test]
    fn a_sum_lies_where_its_last_operand_did() {
        let mut net = Layers::new([4, 4, 2]);
        let x = net.conv("a", 2, net.input());
        let y = net.conv("b", 2, x);
        let sum = net.add(y, x);
        let text = inference(net.finish(sum)).to_string();
        assert!(text.ends_with("  %7 (4, 4, 2) in %3 = add %6, %3\n"), "{text}");
    }

    #[test]
    fn what_a_layer_reads_beside_its_output_is_copied() {
        // A dense block: the input of b would lie beside its output.
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 2, net.input());
        let b = net.conv("b", 2, a);
        let y = net.concat(&[a, b]);
        let text = inference(net.finish(y)).to_string();
        assert!(text.contains("%3 (4, 4, 2) in %7[0..] = conv2d"), "{text}");
        assert!(text.contains("  %6 (4, 4, 2) = conv2d"), "{text}");
    }

    #[test]
    fn the_input_and_the_output_are_never_overwritten() {
        let mut net = Layers::new([4, 4, 3]);
        let a = net.conv("a", 3, net.input());
        let sum = net.add(a, net.input());
        let y = net.concat(&[net.input(), sum]);
        let text = inference(net.finish(y)).to_string();
        assert!(text.contains("in %3 = add") && text.contains("concat %0, %4"), "{text}");
        assert!(!text.contains("%0 in"), "{text}");
    }
}
