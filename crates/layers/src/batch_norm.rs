use crate::{Backward, Forward, Initializer, Layer, Op, ParamSpec, Place, Role};
use tensor::{Activation, Backend, BatchNorm, Result, Shape, Span, Storage, View, ViewMut, Write};

/// Batch normalization over all axes but the channels, with an activation fused into it.
///
/// Defaults as in Keras: momentum 0.99, epsilon 1e-3, gamma 1, beta 0. The running statistics change when replicas' sums
/// have been added ([`Network::finish_step`](crate::Network::finish_step)), so that every replica has the same.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalization {
    momentum: f32,
    epsilon: f32,
    activation: Activation,
}

impl Default for BatchNormalization {
    fn default() -> Self {
        BatchNormalization { momentum: 0.99, epsilon: 1e-3, activation: Activation::None }
    }
}

impl BatchNormalization {
    /// With Keras' defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The share of the old running statistics that stays in a step (PyTorch's `1 - momentum`).
    pub fn momentum(self, momentum: f32) -> Self {
        BatchNormalization { momentum, ..self }
    }

    /// Added to the variance.
    pub fn epsilon(self, epsilon: f32) -> Self {
        BatchNormalization { epsilon, ..self }
    }

    /// What follows the normalization.
    pub fn activation(self, activation: Activation) -> Self {
        BatchNormalization { activation, ..self }
    }
}

impl Layer for BatchNormalization {
    fn kind(&self) -> &'static str {
        match self.activation {
            Activation::None => "BatchNormalization",
            Activation::Relu => "BatchNormalization+ReLU",
        }
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        Ok(x)
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let running = Role::Running { momentum: self.momentum };
        [
            ("gamma", Initializer::Ones, Role::Trainable),
            ("beta", Initializer::Zeros, Role::Trainable),
            ("moving_mean", Initializer::Zeros, running),
            ("moving_variance", Initializer::Ones, running),
        ]
        .map(|(name, init, role)| ParamSpec { name, shape: vec![x.c], init, role })
        .into()
    }

    fn needs_dx(&self) -> bool {
        true
    }

    fn takes_bias_away(&self) -> bool {
        true
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        let &[gamma, beta, mean, var] = place.params else {
            unreachable!("a network places as many parameters as the layer asked for")
        };
        let sums = Span::new(place.sums[0].offset, 2 * place.x.c);
        debug_assert_eq!(place.sums[1].offset, place.sums[0].end(), "both sums lie side by side");
        let bn = BatchNorm { epsilon: self.epsilon, act: self.activation };
        Ok(Box::new(BatchNormOp {
            bn,
            gamma,
            beta,
            mean,
            var,
            sums,
            bias: place.bias_before,
            saved: place.device.alloc(2 * place.x.c)?,
        }))
    }
}

struct BatchNormOp {
    bn: BatchNorm,
    gamma: Span,
    beta: Span,
    mean: Span,
    var: Span,
    sums: Span,
    bias: Option<Span>,
    saved: Storage,
}

impl Op for BatchNormOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        let BatchNormOp { bn, gamma, beta, mean, var, sums, bias, saved } = self;
        if cx.training.is_some() {
            cx.device.bn_act_fwd_train(bn, x, cx.params, *gamma, *beta, *bias, y, saved, cx.grads, *sums)
        } else {
            cx.device.bn_act_fwd_infer(bn, x, cx.params, *gamma, *beta, cx.running, *mean, *var, y)
        }
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let BatchNormOp { bn, gamma, beta, saved, .. } = self;
        let Backward { device, params, grads, .. } = cx;
        let Some((dx, write)) = dx else { unreachable!("a network gives dx to a layer that needs it") };
        device.bn_act_bwd(bn, x, dy.as_view(), params, *gamma, *beta, saved, grads, *gamma, *beta, dx, write)
    }
}
