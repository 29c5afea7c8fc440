/// How a weight decay of strength `w` acts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WeightDecay {
    /// Not at all.
    #[default]
    None,
    /// As an L2 penalty: the gradient becomes `g + w * p` (PyTorch's SGD and RMSprop).
    Coupled(f32),
    /// Beside the gradient: `p` first becomes `p - lr * w * p` (Keras 3, AdamW).
    Decoupled(f32),
}

/// A weight decay as two factors, one of which does nothing: `g += penalty * p`, `p *= keep`.
pub(super) struct Decay {
    pub(super) penalty: f32,
    pub(super) keep: f32,
}

impl WeightDecay {
    /// Its number, `w`; 0 for none.
    pub fn strength(self) -> f32 {
        let (WeightDecay::Coupled(w) | WeightDecay::Decoupled(w)) = self else { return 0.0 };
        w
    }

    #[inline(always)]
    pub(super) fn at(self, lr: f32) -> Decay {
        match self {
            WeightDecay::None => Decay { penalty: 0.0, keep: 1.0 },
            WeightDecay::Coupled(w) => Decay { penalty: w, keep: 1.0 },
            WeightDecay::Decoupled(w) => Decay { penalty: 0.0, keep: 1.0 - lr * w },
        }
    }
}
