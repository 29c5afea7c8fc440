//! Developer commands of the towers workspace.
fn main() {}
