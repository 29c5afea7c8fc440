//! Nodes whose operands are all constants.

use super::constants::{Constant, MOST_NUMBERS, converted, gathered};
use super::graph::Reader;
use super::node::Node;

impl Reader<'_> {
    /// The result of a node whose operands are all constants; `None` if nothing here computes it.
    pub(super) fn folded(&self, node: &Node<'_>, all: &[Constant]) -> Result<Option<Constant>, String> {
        // The axes behind the first operand are read as such.
        let own = if ["Squeeze", "Unsqueeze"].contains(&node.op()) { 1 } else { all.len() };
        (0..own).for_each(|k| _ = node.operand(k));
        Ok(match (node.op(), all) {
            ("Identity", [x]) => Some(x.clone()),
            ("Cast", [x]) => converted(x, node.int("to", 0)?, node)?,
            ("Squeeze", [x, ..]) => {
                let axes = self.axes(node, 13)?;
                let one = axes.is_none_or(|axes| axes == [0]) && x.shape == [1];
                x.as_numbers().filter(|_| one).map(|numbers| Constant::number(numbers[0].clone()))
            }
            ("Reshape", [x, to]) => {
                node.only("allowzero", 0)?;
                let is_list = [Some(vec![-1]), Some(vec![x.shape.iter().product::<usize>() as i64])];
                let is_list = is_list.contains(&to.known_numbers()) && to.shape == [1];
                x.as_numbers().filter(|_| is_list).map(|numbers| Constant::numbers(numbers.to_vec()))
            }
            ("Unsqueeze", [x, ..]) => self.axes(node, 13)?.and_then(|axes| x.unsqueezed(&axes)),
            ("Transpose", [x]) if [None, Some(&[1, 0][..])].contains(&node.ints("perm")?) => x.transposed(),
            ("Gather", [x, at]) if [0, -1].contains(&node.int("axis", 0)?) => gathered(x, at),
            ("Concat", parts) if [Some(0), Some(-1)].contains(&node.given("axis")?) => {
                let lists = parts.iter().filter(|part| part.shape.len() == 1).map(Constant::as_numbers);
                let numbers = lists.collect::<Option<Vec<_>>>().filter(|lists| lists.len() == parts.len());
                numbers
                    .map(|lists| lists.concat())
                    .filter(|all| all.len() <= MOST_NUMBERS)
                    .map(Constant::numbers)
            }
            // How many numbers an image has.
            ("Mul", [a, b]) => match (a.as_numbers(), b.as_numbers()) {
                (Some([x]), Some([y])) if [x, y].iter().all(|x| x.known().is_none_or(|x| x > 0)) => {
                    let shape = if a.shape.len() > b.shape.len() { &a.shape } else { &b.shape };
                    let product = x.times(y).map(Constant::number);
                    product.map(|product| product.shaped(shape.clone()))
                }
                _ => None,
            },
            _ => None,
        })
    }
}
