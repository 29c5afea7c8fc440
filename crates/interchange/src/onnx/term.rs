//! What nodes compute of one layer's output, element by element, before it is known which layers that is.
//!
//! SiLU, layer normalization or hard-swish are several nodes. Each node makes a term of its operands' terms. Only a reader
//! that needs a layer has the term [lowered](super::lower) to the fewest layers that compute it.

use super::node::Node;
use std::sync::Arc;

/// A function of a layer's output.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) kind: Kind,
    /// The node that made it, for errors: `its node n is a Mul`.
    pub(super) told: String,
    /// The node's output, which names the layer.
    pub(super) output: String,
    /// How many terms it is made of.
    size: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// The layer's output itself.
    Leaf,
    /// `x * scale + offset`: a number, or one for each channel. The name is that of a layer with such weights.
    Affine {
        scale: Vec<f64>,
        offset: Vec<f64>,
        named: String,
        of: Arc<Term>,
    },
    /// An activation by Keras' name, or a function that is only a part of others: `erf`, `sqrt`, `reciprocal`.
    Function(String, Arc<Term>),
    /// Between two numbers.
    Clip(f64, f64, Arc<Term>),
    Sum(Arc<Term>, Arc<Term>),
    Product(Arc<Term>, Arc<Term>),
    Quotient(Arc<Term>, Arc<Term>),
    /// The mean over the channels.
    Mean(Arc<Term>),
    /// The mean or the largest number over rows and columns: the class that computes it.
    Pooled(&'static str, Arc<Term>),
    /// Groups of channels with a mean of 0 and a variance of 1, with this epsilon.
    Grouped(i64, f32, Arc<Term>),
    /// The same of all channels at each pixel.
    Normalized(f32, Arc<Term>),
    /// Some of the channels: the first one, and their number.
    Channels(i64, i64, Arc<Term>),
}

/// Terms are equal if they compute the same.
impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size && self.kind == other.kind
    }
}

/// The most terms of one: a deeper one becomes layers first.
const MOST_TERMS: usize = 40;

impl Term {
    pub(super) fn leaf() -> Arc<Self> {
        Arc::new(Term { kind: Kind::Leaf, told: String::new(), output: String::new(), size: 1 })
    }

    fn new(kind: Kind, node: &Node<'_>) -> Arc<Self> {
        let size = match &kind {
            Kind::Leaf => 0,
            Kind::Sum(a, b) | Kind::Product(a, b) | Kind::Quotient(a, b) => a.size + b.size,
            Kind::Affine { of, .. } | Kind::Function(_, of) | Kind::Clip(_, _, of) => of.size,
            Kind::Mean(of) | Kind::Pooled(_, of) | Kind::Grouped(_, _, of) => of.size,
            Kind::Normalized(_, of) | Kind::Channels(_, _, of) => of.size,
        };
        Arc::new(Term { kind, told: node.told(), output: node.output().to_owned(), size: size + 1 })
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.kind == Kind::Leaf
    }

    pub(super) fn is_large(&self) -> bool {
        self.size > MOST_TERMS
    }

    pub(super) fn function(name: &str, of: Arc<Term>, node: &Node<'_>) -> Arc<Self> {
        Term::new(Kind::Function(name.to_owned(), of), node)
    }

    pub(super) fn kind(kind: Kind, node: &Node<'_>) -> Arc<Self> {
        Term::new(kind, node)
    }

    /// `x op number`, for each channel or all of them.
    pub(super) fn affine(
        op: &str,
        of: &Arc<Term>,
        numbers: &[f64],
        named: &str,
        node: &Node<'_>,
    ) -> Result<Arc<Self>, String> {
        let (mut scale, mut offset, mut name, of) = match &of.kind {
            Kind::Affine { scale, offset, named, of } => (scale.clone(), offset.clone(), named.clone(), of),
            _ => (vec![1.0], vec![0.0], String::new(), of),
        };
        if name.is_empty() {
            name = named.to_owned();
        }
        for all in [&mut scale, &mut offset] {
            if all.len() < numbers.len() {
                *all = vec![all[0]; numbers.len()];
            }
        }
        let number = |k: usize| numbers[if numbers.len() == 1 { 0 } else { k }];
        if let Some(bad) = numbers.iter().find(|x| !x.is_finite() || (op == "Div" && **x == 0.0)) {
            return Err(node.form(format!("of {bad}")));
        }
        let (scales, offsets) = (scale.iter_mut().enumerate(), offset.iter_mut().enumerate());
        match op {
            "Add" => offsets.for_each(|(k, x)| *x += number(k)),
            "Sub" => offsets.for_each(|(k, x)| *x -= number(k)),
            "Mul" => scales.chain(offsets).for_each(|(k, x)| *x *= number(k)),
            "Div" => scales.chain(offsets).for_each(|(k, x)| *x /= number(k)),
            _ => return Err(node.unknown()),
        }
        Ok(Term::new(Kind::Affine { scale, offset, named: name, of: Arc::clone(of) }, node))
    }

    /// Between two numbers; an infinite one is none.
    pub(super) fn clip(least: f64, most: f64, of: &Arc<Term>, node: &Node<'_>) -> Arc<Self> {
        match &of.kind {
            Kind::Clip(from, to, of) if *from <= most && least <= *to => {
                Term::new(Kind::Clip(from.max(least), to.min(most), Arc::clone(of)), node)
            }
            _ => Term::new(Kind::Clip(least, most, Arc::clone(of)), node),
        }
    }

    /// The sum of two terms.
    pub(super) fn sum(a: Arc<Term>, b: Arc<Term>, node: &Node<'_>) -> Arc<Self> {
        Term::new(Kind::Sum(a, b), node)
    }

    /// The product of two terms, with the numbers in front.
    pub(super) fn product(a: Arc<Term>, b: Arc<Term>, node: &Node<'_>) -> Arc<Self> {
        let ((x, a), (y, b)) = (a.scaled(), b.scaled());
        let product = Term::new(Kind::Product(Arc::clone(a), Arc::clone(b)), node);
        let product = match product.normalized() {
            Some(kind) => Term::new(kind, node),
            None => product,
        };
        if x * y == 1.0 {
            return product;
        }
        let (scale, offset, named) = (vec![x * y], vec![0.0], String::new());
        Term::new(Kind::Affine { scale, offset, named, of: product }, node)
    }

    pub(super) fn quotient(a: Arc<Term>, b: Arc<Term>, node: &Node<'_>) -> Arc<Self> {
        let quotient = Term::new(Kind::Quotient(a, b), node);
        match quotient.normalized() {
            Some(kind) => Term::new(kind, node),
            None => quotient,
        }
    }
}
