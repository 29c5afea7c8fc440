use crate::ops::Concat;
use crate::{Home, Op, Phase, Program, Step, TensorId};

/// Outputs of cheap ops that the backward pass reads are not kept: they are computed again just before they are read for the first time.
/// The same goes for a concatenation of such outputs.
pub fn recompute(mut program: Program) -> Program {
    let forward = program.steps.iter().take_while(|step| step.phase == Phase::Forward).count();
    let mut again: Vec<TensorId> = Vec::new();
    for k in 0..forward {
        let Some(&id) = program.steps[k].results.first() else { continue };
        let Some(from) = repeated(&program, k, &again) else { continue };
        if let Some(reader) = first_backward_reader(&program, id) {
            again.push(id);
            insert(&mut program, id, &from, reader);
        }
    }
    program
}

/// The steps that compute the result of step `k` once more, if all are cheap and their operands are kept.
fn repeated(program: &Program, k: usize, again: &[TensorId]) -> Option<Vec<usize>> {
    let step = &program.steps[k];
    let id = step.results[0];
    if program.kept().any(|kept| kept == id) {
        return None;
    }
    let is_kept = |k: usize| {
        let (_, operands) = {
            let step = &program.steps[k];
            step.op.recompute(step)
        }?;
        operands.iter().all(|operand| !again.contains(operand)).then_some(k)
    };
    if !matches!(step.op, Op::Concat(Concat)) {
        // A concatenation is recomputed as a whole.
        let is_joined = program.readers(id).any(|k| matches!(program.steps[k].op, Op::Concat(Concat)));
        return is_kept(k).filter(|_| !is_joined).map(|k| vec![k]);
    }
    let alone = |id: &TensorId| program.is_read_once(*id).then(|| program.writer(*id)).flatten();
    let mut writers: Vec<usize> = step.operands.iter().map(alone).collect::<Option<_>>()?;
    writers.iter().all(|&k| is_kept(k).is_some()).then(|| {
        writers.push(k);
        writers
    })
}

fn first_backward_reader(program: &Program, id: TensorId) -> Option<usize> {
    program.readers(id).find(|&k| program.steps[k].phase == Phase::Backward)
}

/// Repeats the steps `from` before the step `reader`. All of the backward pass then reads their results.
fn insert(program: &mut Program, id: TensorId, from: &[usize], reader: usize) {
    let mut renamed: Vec<(TensorId, TensorId)> = Vec::new();
    for (at, &k) in from.iter().enumerate() {
        let step = program.steps[k].clone();
        let (op, operands) = step.op.recompute(&step).unwrap_or((step.op, step.operands.clone()));
        let new = |id: TensorId| renamed.iter().find(|(old, _)| *old == id).map_or(id, |(_, new)| *new);
        let operands = operands.into_iter().map(new).collect();
        let old = step.results[0];
        let result = program.add_tensor(program.shape(old), program.tensor(old).arena, Home::Free);
        renamed.push((old, result));
        let layer = program.steps[reader + at].layer;
        let (results, phase, pass) = (vec![result], Phase::Backward, "recompute");
        program.steps.insert(reader + at, Step { op, operands, results, onto: None, layer, phase, pass });
    }
    // The tensor itself comes last.
    let Some(&(_, new)) = renamed.last() else { return };
    for step in &mut program.steps[reader + from.len()..] {
        step.operands.iter_mut().filter(|operand| **operand == id).for_each(|operand| *operand = new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::differentiate;
    use crate::testing::Layers;

    #[test]
    fn a_normalization_is_computed_again_before_its_first_reader() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv("a", 2, net.input());
        let x = net.batch_norm("b", x);
        let x = net.conv("c", 2, x);
        let text = recompute(differentiate(net.loss(x), false).unwrap()).to_string();
        let backward = text.split("c, backward:\n  ").nth(1).unwrap();
        assert_eq!(
            backward,
            "\
  %18 (4, 4, 2) = reshape %17
  %21 (4, 4, 2) = batch_norm_recompute epsilon 0.001 %3, @b/gamma, @b/beta, #10
  &c/kernel = conv2d_weight_gradient 1x1 %21, %18
  %19 (4, 4, 2) = conv2d_input_gradient 1x1 %18, @c/kernel
b, backward:
  &b/gamma, &b/beta = batch_norm_weight_gradient epsilon 0.001 %3, @b/gamma, @b/beta, #10, %19
  %20 (4, 4, 2) = batch_norm_input_gradient epsilon 0.001 %3, @b/gamma, @b/beta, #10, %19, &b/gamma, &b/beta
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %20
"
        );
    }

    #[test]
    fn a_concatenation_of_normalizations_is_computed_again_as_a_whole() {
        let mut net = Layers::new([4, 4, 3]);
        let branch = |net: &mut Layers, name: &str| {
            let x = net.conv(name, 2, net.input());
            net.batch_norm(&format!("{name}_norm"), x)
        };
        let (a, b) = (branch(&mut net, "a"), branch(&mut net, "b"));
        let x = net.concat(&[a, b]);
        let x = net.conv("c", 2, x);
        let program = recompute(differentiate(net.loss(x), false).unwrap());
        let again: Vec<&str> =
            program.steps.iter().filter(|step| step.pass == "recompute").map(|step| step.op.name()).collect();
        assert_eq!(again, ["batch_norm_recompute", "batch_norm_recompute", "concat"]);
    }
}
