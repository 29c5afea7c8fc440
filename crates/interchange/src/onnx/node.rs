//! A node of a graph. Whatever a node has must be read, or it is refused: an attribute or an operand that
//! nothing here looks at would change what another program computes.

use super::proto::{AttributeProto, AttributeType, NodeProto, TensorProto};
use crate::text::shortened;
use core::cell::RefCell;
use std::collections::HashSet;

/// A node, with the places of the attributes and operands that were read.
pub(super) struct Node<'g> {
    proto: &'g NodeProto,
    /// Its place in the graph, from 1.
    number: usize,
    /// The version of the operators.
    opset: i64,
    attributes: RefCell<HashSet<usize>>,
    operands: RefCell<HashSet<usize>>,
}

impl<'g> Node<'g> {
    /// A node of an operator of ONNX itself.
    pub(super) fn new(proto: &'g NodeProto, number: usize, opset: i64) -> Result<Self, String> {
        let (attributes, operands) = Default::default();
        let node = Node { proto, number, opset, attributes, operands };
        let (op, domain) = (shortened(&proto.op_type), shortened(&proto.domain));
        if !["", "ai.onnx"].contains(&proto.domain.as_str()) || !proto.overload.is_empty() {
            return Err(node.refuse(format!(
                "is a {op} of the domain `{domain}`, but only operators of ONNX itself are supported"
            )));
        }
        Ok(node)
    }

    pub(super) fn op(&self) -> &'g str {
        &self.proto.op_type
    }

    /// The name of its node, or else of its output.
    fn label(&self) -> String {
        match (self.proto.name.as_str(), self.proto.output.first().map_or("", String::as_str)) {
            ("", "") => format!("node number {}", self.number),
            ("", output) => format!("node with the output `{}`", shortened(output)),
            (name, _) => format!("node `{}`", shortened(name)),
        }
    }

    /// An error that names it.
    pub(super) fn refuse(&self, what: impl AsRef<str>) -> String {
        format!("its {} {}", self.label(), what.as_ref())
    }

    /// What it is, for errors.
    pub(super) fn told(&self) -> String {
        self.refuse(format!("is a {}", shortened(self.op())))
    }

    /// The error of a known operator in a form that nothing here computes.
    pub(super) fn form(&self, what: impl AsRef<str>) -> String {
        self.refuse(format!("is a {} {}, which is not supported", shortened(self.op()), what.as_ref()))
    }

    /// The error of a known operator on operands that nothing here computes.
    pub(super) fn unknown(&self) -> String {
        self.refuse(format!("is a {} in a form that is not supported", shortened(self.op())))
    }

    /// Whether the operators are of this version or a later one.
    pub(super) fn since(&self, opset: i64) -> bool {
        self.opset >= opset
    }

    /// Its name without the last part, or the name of its output.
    pub(super) fn scope(&self) -> &'g str {
        self.proto.name.rsplit_once('/').map_or(self.output(), |(path, _)| path)
    }

    pub(super) fn output(&self) -> &'g str {
        self.proto.output.first().map_or("", String::as_str)
    }

    /// The names of all outputs, empty for those that nothing reads.
    pub(super) fn output_names(&self) -> impl ExactSizeIterator<Item = &'g str> + use<'g> {
        self.proto.output.iter().map(String::as_str)
    }

    pub(super) fn outputs(&self) -> impl Iterator<Item = &'g str> {
        self.proto.output.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The names of its operands, empty for those that are left out. They don't count as read.
    pub(super) fn names(&self) -> impl ExactSizeIterator<Item = &'g str> {
        self.proto.input.iter().map(String::as_str)
    }

    /// The name of an operand, unless it is left out. It counts as read.
    pub(super) fn operand(&self, k: usize) -> Option<&'g str> {
        self.operands.borrow_mut().insert(k);
        self.proto.input.get(k).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// An attribute of this kind. It counts as read.
    fn attribute(&self, name: &str, kind: AttributeType) -> Result<Option<&'g AttributeProto>, String> {
        let Some(at) = self.proto.attribute.iter().position(|own| own.name == name) else { return Ok(None) };
        self.attributes.borrow_mut().insert(at);
        match &self.proto.attribute[at] {
            own if own.r#type == i32::from(kind) => Ok(Some(own)),
            _ => Err(self.refuse(format!("must have {} as its `{name}`", kind.in_words()))),
        }
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Result<f32, String> {
        let own = self.attribute(name, AttributeType::Float)?;
        Ok(own.map_or(default, |own| own.f.unwrap_or_default()))
    }

    /// A number, if it is there.
    pub(super) fn given(&self, name: &str) -> Result<Option<i64>, String> {
        let own = self.attribute(name, AttributeType::Int)?;
        Ok(own.map(|own| own.i.unwrap_or_default()))
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, String> {
        Ok(self.given(name)?.unwrap_or(default))
    }

    /// 0 or 1.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        match self.given(name)? {
            None => Ok(default),
            Some(number @ (0 | 1)) => Ok(number == 1),
            Some(_) => Err(self.refuse(format!("must have 0 or 1 as its `{name}`"))),
        }
    }

    /// Refuses any value of an attribute but the default one.
    pub(super) fn only(&self, name: &str, default: i64) -> Result<(), String> {
        match self.int(name, default)? {
            own if own == default => Ok(()),
            own => Err(self.form(format!("with {name}={own}"))),
        }
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<&'g [i64]>, String> {
        Ok(self.attribute(name, AttributeType::Ints)?.map(|own| &own.ints[..]))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<&'g [f32]>, String> {
        Ok(self.attribute(name, AttributeType::Floats)?.map(|own| &own.floats[..]))
    }

    /// A float, if it is there.
    pub(super) fn given_float(&self, name: &str) -> Result<Option<f32>, String> {
        let own = self.attribute(name, AttributeType::Float)?;
        Ok(own.map(|own| own.f.unwrap_or_default()))
    }

    /// Two numbers from 1 on, for rows and columns.
    pub(super) fn pair(&self, name: &str) -> Result<Option<[i64; 2]>, String> {
        match self.ints(name)? {
            None => Ok(None),
            Some(&[rows, columns]) if rows > 0 && columns > 0 => Ok(Some([rows, columns])),
            Some(_) => Err(self.refuse(format!("must have two numbers from 1 on as its `{name}`"))),
        }
    }

    pub(super) fn word(&self, name: &str, default: &'static str) -> Result<&'g str, String> {
        match self.attribute(name, AttributeType::String)? {
            None => Ok(default),
            Some(own) => {
                str::from_utf8(&own.s).map_err(|_| self.refuse(format!("must have a word as its `{name}`")))
            }
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<&'g TensorProto>, String> {
        Ok(self.attribute(name, AttributeType::Tensor)?.and_then(|own| own.t.as_ref()))
    }

    /// Refuses attributes and operands that nothing has read.
    pub(super) fn done(&self) -> Result<(), String> {
        let (attributes, operands) = (self.attributes.borrow(), self.operands.borrow());
        let unread = self.proto.attribute.iter().enumerate().find(|(k, _)| !attributes.contains(k));
        if let Some((_, attribute)) = unread {
            return Err(self.form(format!("with the attribute `{}`", shortened(&attribute.name))));
        }
        let unread = self.proto.input.iter().enumerate();
        match unread.into_iter().find(|(k, name)| !operands.contains(k) && !name.is_empty()) {
            Some((_, name)) => Err(self.form(format!("with the operand `{}`", shortened(name)))),
            None => Ok(()),
        }
    }
}

/// The end of an error about a layer that is not there.
pub(super) fn without(class: &str) -> String {
    format!("in a form that needs a layer {class}, which is not supported")
}
