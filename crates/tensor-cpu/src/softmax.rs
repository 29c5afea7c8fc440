use tensor_backend::{SoftmaxXent, View, ViewMut};

pub(crate) fn probabilities(_x: View<[f32]>, _y: ViewMut<[f32]>) {
    todo!()
}
pub(crate) fn cross_entropy(
    _xent: &SoftmaxXent,
    _logits: View<[f32]>,
    _labels: &[u32],
    _dlogits: Option<ViewMut<[f32]>>,
    _metrics: &mut [f32],
) {
    todo!()
}
