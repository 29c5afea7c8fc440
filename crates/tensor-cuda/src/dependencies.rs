//! The dependencies of captured work. Work is queued in one order, but a graph keeps only the dependencies
//! through memory. A piece of work waits for those that wrote its inputs, and for those that read or wrote
//! its outputs. So the two branches of an inception module, or the two gradients of a convolution, may run
//! side by side.
//!
//! A program declares the reads and writes of each of its steps: `Cuda::declare`. Other ops note them as they
//! look up their operands (`Cuda::read`, `Cuda::write`, `Cuda::run` and others), before they queue work.
//! Scratch memory and counters are noted where they are allocated. Work outside of ops waits for all work
//! before it, and all later work waits for it.

use crate::driver::Ptr;
use crate::place::Place;

/// Memory that is read or written: rows of some bytes, a stride apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    start: u64,
    rows: u64,
    width: u64,
    stride: u64,
}

impl Region {
    /// Bytes without gaps.
    pub(crate) fn run(ptr: Ptr, bytes: usize) -> Region {
        Region { start: ptr.0, rows: 1, width: bytes as u64, stride: bytes as u64 }
    }

    /// A tensor of elements of so many bytes.
    pub(crate) fn tensor(place: &Place, element: usize) -> Region {
        let [rows, width, stride] = [place.rows(), place.shape.c, place.stride].map(|x| x as u64);
        let element = element as u64;
        if width == stride || rows <= 1 {
            return Region::run(place.ptr, (rows * width * element) as usize);
        }
        Region { start: place.ptr.0, rows, width: width * element, stride: stride * element }
    }

    fn end(&self) -> u64 {
        if self.rows * self.width == 0 {
            return self.start;
        }
        self.start + (self.rows - 1) * self.stride + self.width
    }

    /// Whether they have a byte in common. It may return true for two regions without one.
    fn meets(&self, other: &Region) -> bool {
        if self.start >= other.end() || other.start >= self.end() {
            return false;
        }
        // Channel slices of one tensor lie between each other.
        let (rows, stride) = (self.rows.min(other.rows), self.stride);
        if rows == 1 || stride != other.stride {
            return true;
        }
        let behind = (other.start % stride + stride - self.start % stride) % stride;
        behind < self.width || behind + other.width > stride
    }
}

/// Memory, and whether it is written.
pub(crate) type Access = (Region, bool);

/// Whether the order of two accesses matters.
fn clash(&(a, a_writes): &Access, &(b, b_writes): &Access) -> bool {
    (a_writes || b_writes) && a.meets(&b)
}

/// The work of a capture so far.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    works: Vec<Work>,
    /// The reads and writes of the current op so far. `None` between ops.
    op: Option<Vec<Access>>,
    /// Whether a program has declared them, so that operands need not be noted.
    declared: bool,
    /// The op's last piece of work.
    last: Option<usize>,
}

#[derive(Debug)]
struct Work {
    accesses: Vec<Access>,
    /// The works that end before it begins, directly or not, a bit each.
    before: Vec<u64>,
    /// The length of the longest chain that ends with it.
    depth: usize,
}

impl Dependencies {
    pub(crate) fn begin_op(&mut self) {
        self.op = Some(Vec::new());
        self.declared = false;
        self.last = None;
    }

    pub(crate) fn end_op(&mut self) {
        self.op = None;
    }

    pub(crate) fn note(&mut self, region: Region, writes: bool) {
        if let Some(op) = &mut self.op {
            op.push((region, writes));
        }
    }

    /// Notes all accesses of the op. Its own lookups are not noted again.
    pub(crate) fn declare(&mut self, accesses: impl Iterator<Item = Access>) {
        accesses.for_each(|(region, writes)| self.note(region, writes));
        self.declared = true;
    }

    /// Notes an operand that the op has looked up, unless a program has declared it.
    pub(crate) fn note_operand(&mut self, region: Region, writes: bool) {
        if !self.declared {
            self.note(region, writes);
        }
    }

    /// A new piece of work of the op. Returns the numbers of its direct dependencies. `None` outside of ops.
    pub(crate) fn next(&mut self) -> Option<Vec<usize>> {
        let accesses = self.op.clone()?;
        let number = self.works.len();
        let mut after: Vec<usize> = Vec::new();
        let mut before = vec![0_u64; number / 64 + 1];
        for (k, work) in self.works.iter().enumerate().rev() {
            let known = before[k / 64] >> (k % 64) & 1 == 1;
            let needed = self.last == Some(k)
                || work.accesses.iter().any(|mine| accesses.iter().any(|other| clash(mine, other)));
            if !known && needed {
                after.push(k);
                before[k / 64] |= 1 << (k % 64);
                before.iter_mut().zip(&work.before).for_each(|(all, more)| *all |= more);
            }
        }
        let depth = 1 + after.iter().map(|&k| self.works[k].depth).max().unwrap_or(0);
        self.works.push(Work { accesses, before, depth });
        self.last = Some(number);
        Some(after)
    }

    /// The number of pieces of work, and the length of the longest chain.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.works.len(), self.works.iter().map(|work| work.depth).max().unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_program::Shape;

    fn slice(first: u64, channels: usize, stride: usize) -> Region {
        Region::tensor(&Place { ptr: Ptr(4096 + first), shape: Shape::new(2, 3, 3, channels), stride }, 2)
    }

    #[test]
    fn slices_of_one_tensor_do_not_meet() {
        let [left, right] = [slice(0, 8, 24), slice(16, 16, 24)];
        assert!(!left.meets(&right) && !right.meets(&left));
        assert!(left.meets(&slice(14, 16, 24)) && slice(14, 16, 24).meets(&left));
        assert!(right.meets(&slice(32, 16, 24)), "the next pixel's first channels");
        let whole = slice(0, 24, 24);
        assert!(whole.meets(&left) && right.meets(&whole));
        assert!(left.meets(&slice(16, 16, 32)), "of strides that differ nobody knows");
        assert!(!left.meets(&slice(18 * 48, 8, 24)) && !slice(18 * 48, 8, 24).meets(&left));
        assert!(!Region::run(Ptr(4096), 0).meets(&left) && !left.meets(&Region::run(Ptr(4096), 0)));
        assert!(!slice(0, 0, 24).meets(&whole));
    }

    /// Slices meet exactly if they share a byte, wherever they lie.
    #[test]
    fn slices_meet_where_a_byte_is_of_both() {
        let bytes = |r: &Region| -> Vec<u64> {
            let row = |k| (r.start + k * r.stride)..(r.start + k * r.stride + r.width);
            (0..r.rows).flat_map(row).collect()
        };
        for (first, a, b) in (0..100).step_by(2).flat_map(|f| [1, 3, 5].map(|a| (f, a, 1 + f as usize % 5))) {
            let [one, other] = [slice(50, a, 6), slice(first, b, 6)];
            let shared = bytes(&one).iter().any(|x| bytes(&other).contains(x));
            // Beyond the ends it may return true without a shared byte.
            assert!(one.meets(&other) || !shared, "{one:?} {other:?}");
            assert_eq!(one.meets(&other), other.meets(&one));
        }
    }

    /// An op of one piece of work. Returns its dependencies.
    fn op(dependencies: &mut Dependencies, reads: &[u64], writes: &[u64]) -> Vec<usize> {
        dependencies.begin_op();
        reads.iter().for_each(|&x| dependencies.note(Region::run(Ptr(x), 8), false));
        writes.iter().for_each(|&x| dependencies.note(Region::run(Ptr(x), 8), true));
        let after = dependencies.next().unwrap_or_default();
        dependencies.end_op();
        after
    }

    #[test]
    fn work_waits_for_what_memory_demands_and_no_more() {
        let mut s = Dependencies::default();
        assert_eq!(op(&mut s, &[0], &[8]), []);
        assert_eq!(op(&mut s, &[0], &[16]), [], "both read 0");
        assert_eq!(op(&mut s, &[8], &[24]), [0]);
        assert_eq!(op(&mut s, &[16], &[32]), [1]);
        assert_eq!(op(&mut s, &[24, 32], &[40]), [3, 2], "where branches meet");
        assert_eq!(op(&mut s, &[40, 8], &[48]), [4], "work 0 comes before work 4 anyway");
        assert_eq!(op(&mut s, &[], &[0]), [1, 0], "what it overwrites must have been read");
        assert_eq!(op(&mut s, &[], &[4]), [6, 5], "and half of it counts");
        assert_eq!(s.size(), [8, 5]);
    }

    #[test]
    fn the_work_of_an_op_is_in_order() {
        let mut s = Dependencies::default();
        assert_eq!(s.next(), None, "outside of ops it waits for all");
        s.begin_op();
        s.note(Region::run(Ptr(0), 8), true);
        assert_eq!(s.next(), Some(vec![]));
        s.note(Region::run(Ptr(8), 8), true);
        assert_eq!(s.next(), Some(vec![0]));
        s.end_op();
        assert_eq!(op(&mut s, &[8], &[]), [1]);
        assert_eq!(op(&mut s, &[16], &[]), []);
    }
}
