//! Just enough of Python's pickle format to read a batch, without ever executing anything.
//!
//! A pickle is a program for a small stack machine, and Python runs any function that it names. This reader
//! runs none. It builds the tree that the program describes, calls included, and [`crate::python`] recognizes
//! the few shapes that a batch may have. It knows the opcodes of protocols 2 to 5 that plain data and NumPy
//! arrays need. Any other is an error.
//!
//! Strings are slices of the input and every opcode adds at most one node, so [`MAX_OPCODES`] bounds memory;
//! nothing recurses.
//!
//! Reference: `Lib/pickletools.py` in CPython, which documents each opcode.

use std::collections::HashMap;

/// The most opcodes that are read: about five times as many as the longest official batch has.
const MAX_OPCODES: usize = 1 << 20;

/// The index of a node in its [`Tree`].
pub(crate) type Id = usize;

/// A value, or a call as the pickle describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Floats and whole numbers beyond 64 bits, which no batch needs the value of.
    Number,
    /// Bytes, or the UTF-8 of a string.
    Bytes(&'a [u8]),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A function or class, named but never looked up.
    Global(&'a [u8], &'a [u8]),
    /// The call of `callable` with the tuple `args`, and the state that it was given afterwards.
    Call {
        callable: Id,
        args: Id,
        state: Option<Id>,
    },
}

/// What a pickle describes.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    root: Id,
}

impl<'a> Tree<'a> {
    /// The node with an index that came from this tree.
    pub fn get(&self, id: Id) -> &Node<'a> {
        &self.nodes[id]
    }

    pub fn root(&self) -> &Node<'a> {
        self.get(self.root)
    }
}

/// Where reading stopped, and why.
#[derive(Debug)]
pub(crate) struct Fault {
    pub offset: usize,
    pub reason: String,
}

/// Reads one pickle from the beginning of `input`.
pub(crate) fn parse(input: &[u8]) -> Result<Tree<'_>, Fault> {
    let mut machine =
        Machine { input, at: 0, nodes: vec![], stack: vec![], marks: vec![], memo: HashMap::new() };
    machine
        .run()
        .map_err(|reason| Fault { offset: machine.at, reason })
        .map(|root| Tree { nodes: machine.nodes, root })
}

struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    nodes: Vec<Node<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

type Step<T = ()> = Result<T, String>;

impl<'a> Machine<'a> {
    fn run(&mut self) -> Step<Id> {
        for _ in 0..MAX_OPCODES {
            let opcode = self.take(1)?[0];
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
        }
        Err(format!("more than {MAX_OPCODES} opcodes"))
    }

    fn step(&mut self, opcode: u8) -> Step {
        match opcode {
            0x80 => self.take(1).map(drop),       // PROTO
            0x95 => self.take(8).map(drop),       // FRAME
            b'N' => self.push(Node::None),        // NONE
            0x88 => self.push(Node::Bool(true)),  // NEWTRUE
            0x89 => self.push(Node::Bool(false)), // NEWFALSE
            b'K' | b'M' | b'J' | 0x8a | b'G' => self.number(opcode),
            b'U' | b'C' | 0x8c => self.string(1), // SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE
            b'T' | b'B' | b'X' => self.string(4), // BINSTRING, BINBYTES, BINUNICODE
            0x8d | 0x8e | 0x96 => self.string(8), // BINUNICODE8, BINBYTES8, BYTEARRAY8
            b'q' => self.memoize(1),              // BINPUT
            b'r' => self.memoize(4),              // LONG_BINPUT
            0x94 => self.memoize(0),              // MEMOIZE
            b'h' => self.recall(1),               // BINGET
            b'j' => self.recall(4),               // LONG_BINGET
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'0' => self.pop().map(drop), // POP
            b')' | 0x85..=0x87 | b't' => self.tuple(opcode),
            b']' => self.push(Node::List(vec![])), // EMPTY_LIST
            b'a' | b'e' => self.append(opcode),
            b'}' => self.push(Node::Dict(vec![])), // EMPTY_DICT
            b's' | b'u' => self.set_items(opcode),
            b'c' | 0x93 => self.global(opcode),
            b'R' | 0x81 => self.call(), // REDUCE, NEWOBJ
            b'b' => self.build(),
            other => Err(format!("opcode {other:#04x} has no place in a batch")),
        }
    }

    fn take(&mut self, n: usize) -> Step<&'a [u8]> {
        let input: &'a [u8] = self.input;
        let end = self.at.checked_add(n).filter(|&end| end <= input.len()).ok_or("the file ends here")?;
        let bytes = &input[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// A little-endian number of up to 8 bytes.
    fn unsigned(&mut self, bytes: usize) -> Step<u64> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn push(&mut self, node: Node<'a>) -> Step {
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        Ok(())
    }

    /// The topmost value above the last mark.
    fn pop(&mut self) -> Step<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("a value is missing on the stack".into());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty".into())
    }

    /// The values above the last mark, which is taken away.
    fn pop_marked(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("a mark is missing on the stack")?;
        Ok(self.stack.split_off(mark))
    }

    fn number(&mut self, opcode: u8) -> Step {
        let node = match opcode {
            b'K' => Node::Int(self.unsigned(1)? as i64),
            b'M' => Node::Int(self.unsigned(2)? as i64),
            b'J' => Node::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'G' => self.take(8).map(|_| Node::Number)?,
            _ => {
                // LONG1: two's complement of any length.
                let n = self.unsigned(1)? as usize;
                let bytes = self.take(n)?;
                let sign = if bytes.last().is_some_and(|&top| top >= 0x80) { 0xff } else { 0 };
                let mut wide = [sign; 8];
                match wide.get_mut(..n) {
                    Some(low) => low.copy_from_slice(bytes),
                    None => return self.push(Node::Number),
                }
                Node::Int(i64::from_le_bytes(wide))
            }
        };
        self.push(node)
    }

    fn string(&mut self, length_bytes: usize) -> Step {
        let n = self.unsigned(length_bytes)?;
        let bytes = self.take(usize::try_from(n).map_err(|_| "a string is longer than memory")?)?;
        self.push(Node::Bytes(bytes))
    }

    fn memoize(&mut self, key_bytes: usize) -> Step {
        let key = if key_bytes == 0 { self.memo.len() as u64 } else { self.unsigned(key_bytes)? };
        let top = *self.stack.last().ok_or("there is no value to remember")?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key_bytes: usize) -> Step {
        let key = self.unsigned(key_bytes)?;
        let id = *self.memo.get(&key).ok_or_else(|| format!("value {key} was never remembered"))?;
        self.stack.push(id);
        Ok(())
    }

    fn tuple(&mut self, opcode: u8) -> Step {
        let items = match opcode {
            b')' => vec![],
            b't' => self.pop_marked()?,
            _ => {
                let mut items = (0..opcode - 0x84).map(|_| self.pop()).collect::<Step<Vec<Id>>>()?;
                items.reverse();
                items
            }
        };
        self.push(Node::Tuple(items))
    }

    fn append(&mut self, opcode: u8) -> Step {
        let mut items = if opcode == b'a' { vec![self.pop()?] } else { self.pop_marked()? };
        match self.stack.last().map(|&top| &mut self.nodes[top]) {
            Some(Node::List(list)) => list.append(&mut items),
            _ => return Err("there is no list to append to".into()),
        }
        Ok(())
    }

    fn set_items(&mut self, opcode: u8) -> Step {
        let items = if opcode == b's' {
            let value = self.pop()?;
            vec![self.pop()?, value]
        } else {
            self.pop_marked()?
        };
        let (pairs, rest) = items.as_chunks::<2>();
        match self.stack.last().map(|&top| &mut self.nodes[top]) {
            Some(Node::Dict(dict)) if rest.is_empty() => {
                dict.extend(pairs.iter().map(|&[key, value]| (key, value)))
            }
            _ => return Err("there is no dictionary to add to".into()),
        }
        Ok(())
    }

    fn global(&mut self, opcode: u8) -> Step {
        let node = if opcode == b'c' {
            Node::Global(self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            match (&self.nodes[module], &self.nodes[name]) {
                (&Node::Bytes(module), &Node::Bytes(name)) => Node::Global(module, name),
                _ => return Err("a function's name is no string".into()),
            }
        };
        self.push(node)
    }

    fn line(&mut self) -> Step<&'a [u8]> {
        let n = self.input[self.at..].iter().position(|&byte| byte == b'\n').ok_or("a line has no end")?;
        let line = self.take(n)?;
        self.take(1)?;
        Ok(line)
    }

    fn call(&mut self) -> Step {
        let (args, callable) = (self.pop()?, self.pop()?);
        self.push(Node::Call { callable, args, state: None })
    }

    fn build(&mut self) -> Step {
        let given = self.pop()?;
        match self.stack.last().map(|&top| &mut self.nodes[top]) {
            Some(Node::Call { state, .. }) => *state = Some(given),
            _ => return Err("there is no object to give a state to".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(pickle: &[u8]) -> Node<'_> {
        parse(pickle).unwrap().root().clone()
    }

    #[test]
    fn numbers_keep_their_sign() {
        assert_eq!(root(b"K\xff."), Node::Int(255));
        assert_eq!(root(b"M\x10\x27."), Node::Int(10_000));
        assert_eq!(root(b"J\xff\xff\xff\xff."), Node::Int(-1));
        assert_eq!(root(b"\x8a\x00."), Node::Int(0));
        assert_eq!(root(b"\x8a\x02\x00\x80."), Node::Int(-32_768));
        assert_eq!(root(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01."), Node::Number);
    }

    #[test]
    fn a_remembered_list_is_one_list() {
        // [x, x] where the one x is appended to after both were placed.
        let tree = parse(b"]]q\x00h\x00K\x05a0h\x00\x86.").unwrap();
        let Node::Tuple(items) = tree.root() else { panic!() };
        assert_eq!(items[0], items[1]);
        assert!(matches!(tree.get(items[0]), Node::List(list) if list.len() == 1));
    }

    #[test]
    fn calls_are_described_and_never_made() {
        let tree = parse(b"\x80\x02cos\nsystem\nU\x07rm -rf ~\x85R.".as_slice());
        assert!(tree.is_err(), "the length is wrong on purpose: the string ends early");
        let tree = parse(b"\x80\x02cos\nsystem\nU\x08rm -rf ~\x85R.").unwrap();
        let Node::Call { callable, .. } = tree.root() else { panic!() };
        assert_eq!(*tree.get(*callable), Node::Global(b"os", b"system"));
    }

    #[test]
    fn malformed_pickles_are_refused() {
        let cases: [&[u8]; 14] = [
            b"",
            b".",
            b"K",
            b"(.",
            b"t.",
            b"K\x01a.",
            b"K\x01K\x02K\x03s.",
            b"}(K\x01u.",
            b"h\x07.",
            b"q\x00.",
            b"X\xff\xff\xff\xffshort.",
            b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
            b"K\x01Nb.",
            b"cos\nsystem",
        ];
        for pickle in cases {
            assert!(parse(pickle).is_err(), "{pickle:?}");
        }
        assert!(parse(&[b'N'; MAX_OPCODES + 9]).is_err_and(|fault| fault.reason.contains("opcodes")));
        assert!(parse(&[b'('; 1 << 21]).is_err());
    }
}
