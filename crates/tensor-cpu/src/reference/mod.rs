/// Every op as a plain loop in f64.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;
