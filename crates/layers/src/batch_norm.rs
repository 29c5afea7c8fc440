use crate::{Backward, BackwardReads, Forward, Initializer, Layer, Op, Operation, ParamSpec, Place, Role};
use tensor::{
    Activation, AffineSpans, Backend, BatchNorm, Device, Layout, NormGrads, NormInfer, NormSaved, NormSpans,
    NormTrain, Result, Run, RunMut, Shape, Span, Storage, View, ViewMut, Write,
};

/// Batch normalization over all axes but the channels, with an activation fused into it.
///
/// Defaults as in Keras: momentum 0.99, epsilon 1e-3, gamma 1, beta 0. The running statistics change when replicas' sums
/// have been added ([`Network::finish_step`](crate::Network::finish_step)), so that every replica has the same.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormalization {
    momentum: f32,
    epsilon: f32,
    scale: bool,
    activation: Activation,
}

impl Default for BatchNormalization {
    fn default() -> Self {
        BatchNormalization { momentum: 0.99, epsilon: 1e-3, scale: true, activation: Activation::None }
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

    /// Whether gamma is trained. Otherwise it is there all the same, and stays 1: PyTorch's `weight.requires_grad = False`.
    /// Keras' `scale=False` computes the same, but has no gamma in its files.
    pub fn scale(self, scale: bool) -> Self {
        BatchNormalization { scale, ..self }
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
            Activation::Gelu => "BatchNormalization+GELU",
        }
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        let refuse = |what, value: f32, accepted| {
            Err(tensor::Error::Value { op: "batch normalization", what, value: value.into(), accepted })
        };
        if !(0.0..=1.0).contains(&self.momentum) {
            return refuse("momentum", self.momentum, "from 0 to 1");
        }
        if !(self.epsilon >= 0.0 && self.epsilon.is_finite()) {
            return refuse("epsilon", self.epsilon, "a finite number of at least 0");
        }
        Ok(x)
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let running = Role::Running { momentum: self.momentum };
        [
            ("gamma", Initializer::Ones, Role::trained(self.scale)),
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

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::INPUT
    }

    fn recomputes(&self) -> bool {
        true
    }

    fn lends_output(&self) -> bool {
        true
    }

    fn takes_bias_away(&self) -> bool {
        true
    }

    fn normalization(&self) -> Option<BatchNorm> {
        Some(BatchNorm { epsilon: self.epsilon, act: self.activation })
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::BatchNorm(BatchNorm { epsilon: self.epsilon, act: self.activation }))
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
            at: NormSpans { affine: AffineSpans { gamma, beta }, mean, var },
            sums,
            bias: place.bias_before,
            saved: place.device.alloc(2 * place.x.c)?,
        }))
    }
}

struct BatchNormOp {
    bn: BatchNorm,
    at: NormSpans,
    sums: Span,
    bias: Option<Span>,
    saved: Storage,
}

impl Op for BatchNormOp {
    fn board_len(&self, replicas: usize) -> usize {
        // What the backward pass needs is less.
        replicas * BatchNorm::stats_len(self.at.mean.len)
    }

    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        let &mut BatchNormOp { ref bn, at, sums, bias, ref mut saved } = self;
        let Forward { device, params, running, grads, training, meeting } = cx;
        if training.is_none() {
            return device.bn_act_fwd_infer(bn, x, NormInfer { params, running, at }, y);
        }
        let (affine, sums) = (Run::new(params, at.affine), RunMut::new(grads, sums));
        let norm = NormTrain { affine, bias, saved, sums };
        let Some(mut meeting) = meeting else {
            return device.bn_act_fwd_train(bn, x, norm, y);
        };
        let own = BatchNorm::stats_len(at.mean.len);
        let stats = meeting.gather(device, own, |stats| device.bn_statistics(x, stats))?;
        device.bn_act_fwd_joined(bn, x, stats, norm, y)
    }

    fn forward_again(&mut self, cx: Backward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        let affine = Run::new(cx.params, self.at.affine);
        cx.device.bn_act_fwd_again(&self.bn, NormSaved { x, affine, saved: &self.saved }, y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        let &mut BatchNormOp { ref bn, at: NormSpans { affine: at, .. }, ref saved, .. } = self;
        let Backward { device, params, grads, meeting, .. } = cx;
        let Some((dx, write)) = dx else { unreachable!("a network gives dx to a layer that needs it") };
        let (norm, dy) = (NormSaved { x, affine: Run::new(params, at), saved }, dy.as_view());
        let mut grads = RunMut::new(grads, at);
        let Some(mut meeting) = meeting else {
            return device.bn_act_bwd(bn, norm, dy, grads, dx, write);
        };
        device.bn_act_bwd_params(bn, norm, dy, grads.reborrow())?;
        // Those in `grads` remain this replica's: they are added up with all others when the pass is done.
        let count = meeting.samples() * x.layout.shape.h * x.layout.shape.w;
        let [gamma, beta] = [Span::new(0, at.gamma.len), Span::new(at.gamma.len, at.beta.len)];
        let whole = meeting.sum(device, beta.end(), |board| {
            copy_run(device, grads.data, at.gamma, board, gamma)?;
            copy_run(device, grads.data, at.beta, board, beta)
        })?;
        let whole = Run::new(whole, AffineSpans { gamma, beta });
        device.bn_act_bwd_data(bn, norm, dy, NormGrads { grads: whole, count }, dx, write)
    }
}

fn copy_run(device: &Device, x: &Storage, from: Span, y: &mut Storage, to: Span) -> Result<()> {
    let at = |span: Span| Layout { offset: span.offset, ..Layout::contiguous(Shape::vectors(1, span.len)) };
    device.copy(View::new(x, at(from)), ViewMut::new(y, at(to)), Write::Set)
}
