use super::Gradients;
use crate::ops::Activate;
use crate::{Home, Op, Phase, Program, Result, Step, TensorId};

/// Adds the backward pass: for each op, from the last to the first, those of its gradient.
///
/// A fused activation whose gradient [reads its input](crate::Activation::reads_input) becomes a separate step first: the fused op
/// keeps only the output.
///
/// # Errors
/// If two ops read one trained parameter: its gradient has one place.
pub fn differentiate(program: Program, input_gradient: bool) -> Result<Program> {
    let program = split_activations(program);
    let mut wanted: Vec<bool> =
        program.gradients.iter().map(|gradient| matches!(gradient, Some((_, true)))).collect();
    wanted[program.input.index()] = input_gradient;
    for step in &program.steps {
        // The other stage waits for the gradient of a tensor that it sent.
        let is_received = matches!(step.op, Op::Receive(_));
        let wants = is_received || step.operands.iter().any(|operand| wanted[operand.index()]);
        // Only a first result has a gradient.
        if let Some(result) = step.results.first() {
            wanted[result.index()] |= wants && step.phase == Phase::Forward;
        }
    }
    let mut of = vec![None; program.tensors.len()];
    of[program.output.index()] = program.output_gradient;
    let forward = program.steps.clone();
    let mut gradients = Gradients { program, wanted, of, layer: 0 };
    for step in forward.iter().rev().filter(|step| step.phase == Phase::Forward) {
        let is_known = |result: &TensorId| gradients.wants(*result) && gradients.of[result.index()].is_some();
        // A step without a result sends one: its gradient comes back.
        if step.results.first().is_none_or(is_known) {
            gradients.layer = step.layer;
            step.op.gradient(step, &mut gradients)?;
        }
    }
    let input_gradient = gradients.of[gradients.program.input.index()].filter(|_| input_gradient);
    Ok(Program { input_gradient, ..gradients.program })
}

/// Makes each fused activation a separate step if its gradient reads its input, which the fused op does not keep.
fn split_activations(mut program: Program) -> Program {
    let mut k = 0;
    while k < program.steps.len() {
        let fused = program.steps[k].op.fused_activation().filter(|act| act.reads_input());
        if let Some(act) = fused.map(core::mem::take) {
            let y = program.steps[k].results[0];
            let z = program.add_tensor(program.shape(y), program.tensor(y).arena, Home::Free);
            let step = &mut program.steps[k];
            let (op, operands, results) = (Activate { act }.into(), vec![z], vec![y]);
            let activate = Step { op, operands, results, onto: None, ..step.clone() };
            step.results[0] = z;
            program.steps.insert(k + 1, activate);
        }
        k += 1;
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Neighbor, Receive, Send};
    use crate::testing::{Layers, training_step};
    use crate::{Activation, Arena, Builder, Shape, ops::Scale};

    #[test]
    fn a_convolution_has_two_gradients_and_the_first_needs_one() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv("a", 2, net.input());
        let x = net.conv("b", 2, x);
        assert_eq!(
            differentiate(net.loss(x), false).unwrap().to_string(),
            "\
a:
  %3 (4, 4, 2) = conv2d 1x1 %0, @a/kernel
b:
  %6 (4, 4, 2) = conv2d 1x1 %3, @b/kernel
  %7 (32) = reshape %6
loss:
  %10 (32), &metrics = cross_entropy %7, $labels
b, backward:
  %11 (4, 4, 2) = reshape %10
  &b/kernel = conv2d_weight_gradient 1x1 %3, %11
  %12 (4, 4, 2) = conv2d_input_gradient 1x1 %11, @b/kernel
a, backward:
  &a/kernel = conv2d_weight_gradient 1x1 %0, %12
"
        );
    }

    #[test]
    fn gradients_of_two_readers_are_added() {
        let mut net = Layers::new([4, 4, 2]);
        let x = net.conv("a", 2, net.input());
        let y = net.conv("b", 2, x);
        let sum = net.add(y, x);
        let text = differentiate(net.loss(sum), false).unwrap().to_string();
        assert!(
            text.contains("\na, backward:\n  &a/kernel = conv2d_weight_gradient 1x1 %0, %14\n"),
            "{text}"
        );
        assert!(text.contains("  %14 (4, 4, 2) = add %12, %13\n"), "{text}");
    }

    #[test]
    fn a_parameter_of_two_ops_is_refused() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv_of("a", "shared", 3, net.input());
        let x = net.conv_shared("b", x);
        let error = differentiate(net.loss(x), false).unwrap_err().to_string();
        assert!(error.contains("read by two ops"), "{error}");
    }

    #[test]
    fn the_inputs_gradient_is_computed_if_it_is_asked_for() {
        for asked in [false, true] {
            let mut net = Layers::new([4, 4, 3]);
            let x = net.conv("a", 2, net.input());
            let program = training_step(net.loss(x), asked);
            assert_eq!(program.input_gradient.is_some(), asked);
        }
    }

    /// GELU's gradient reads its input, ReLU's its output.
    #[test]
    fn an_activation_is_taken_out_of_an_op_if_its_gradient_reads_its_input() {
        for act in Activation::ALL {
            let mut net = Layers::new([4, 4, 3]);
            let x = net.conv("a", 2, net.input());
            let mut forward = net.loss(x);
            *forward.steps[0].op.fused_activation().unwrap() = act;
            let (input, name) = (forward.tensors.len(), act.name());
            let text = differentiate(forward, false).unwrap().to_string();
            let apart = text.contains(&format!("%3 (4, 4, 2) = activate {name} %{input}\n"));
            let by_input = text.contains(&format!("activation_gradient {name} %{input}, "));
            let by_output = text.contains(&format!("activation_gradient {name} %3, "));
            let from_output = !act.reads_input() && act != Activation::None;
            let expected = (act.reads_input(), act.reads_input(), from_output);
            assert_eq!((apart, by_input, by_output), expected, "{text}");
        }
    }

    /// The gradient of running averages is that of the input alone.
    #[test]
    fn running_averages_with_trained_parameters_are_refused() {
        let mut net = Layers::new([4, 4, 3]);
        let x = net.conv("a", 2, net.input());
        let x = net.batch_norm_infer("b", x);
        let mut forward = net.loss(x);
        let error = differentiate(forward.clone(), false).unwrap_err().to_string();
        assert_eq!(
            error,
            "batch_norm_infer: gamma is trained, but must be frozen: running averages have no gradient for it"
        );
        let named = |program: &Program, name: &str| {
            program
                .tensors
                .iter()
                .position(|tensor| tensor.arena == Arena::Parameters && tensor.name.as_deref() == Some(name))
        };
        for name in ["b/gamma", "b/beta"] {
            let parameter = named(&forward, name).unwrap();
            forward.gradients[parameter].as_mut().unwrap().1 = false;
        }
        let text = differentiate(forward, false).unwrap().to_string();
        assert!(text.contains(" = batch_norm_infer_gradient epsilon 0.001 %"), "{text}");
    }

    /// A tensor that crosses the border of a stage comes back as its gradient, whether or not the stage
    /// trains anything.
    #[test]
    fn a_stage_sends_back_the_gradient_of_what_it_received() {
        let shape = Shape::new(1, 4, 4, 2);
        let mut builder = Builder::new(shape);
        let x = builder.input();
        builder.layer("scale");
        builder.push(Receive { from: Neighbor::Previous, shape }, &[], &[x]).unwrap();
        let y = builder.push(Scale { factor: 2.0 }, &[x], &[]).unwrap()[0];
        builder.push(Send { to: Neighbor::Next }, &[y], &[]).unwrap();
        assert_eq!(
            training_step(builder.finish(y), false).to_string(),
            "\
scale:
  %0 (4, 4, 2) = receive from previous
  %1 (4, 4, 2) = scale by 2 %0
  send to next %1
scale, backward:
  %2 (4, 4, 2) = receive from next
  %3 (4, 4, 2) = scale by 2 %2
  send to previous %3
"
        );
    }
}
