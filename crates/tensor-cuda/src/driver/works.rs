//! The pieces of work of a capture, and their dependencies.

use towers_program::Result;

/// The pieces of work of a capture. `N` is a node of the graph. The driver reads and sets the stream's
/// dependencies for the next node.
#[derive(Debug)]
pub(crate) struct Works<N> {
    /// The last nodes of each piece of work.
    last: Vec<Vec<N>>,
    /// The nodes without a dependent so far.
    ends: Vec<usize>,
    /// The last work outside of pieces, on which all later work depends.
    floor: Vec<N>,
    at: At,
}

/// The state of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Outside of pieces of work: the stream's nodes are a new floor.
    Outside,
    /// In a piece of work.
    Work,
    /// After a piece, before the next call is known.
    Between,
}

impl<N> Default for Works<N> {
    fn default() -> Works<N> {
        Works { last: Vec::new(), ends: Vec::new(), floor: Vec::new(), at: At::Outside }
    }
}

impl<N: Copy + PartialEq> Works<N> {
    /// Begins a piece of work after these. Returns the dependencies to set. `now` reads the stream's nodes.
    pub(crate) fn begin(&mut self, after: &[usize], now: impl FnOnce() -> Result<Vec<N>>) -> Result<Vec<N>> {
        if core::mem::replace(&mut self.at, At::Work) == At::Outside {
            self.floor = now()?;
        }
        self.ends.retain(|end| !after.contains(end));
        Ok(self.union(after.iter().copied()))
    }

    /// Ends it. `now` are the stream's nodes.
    pub(crate) fn end(&mut self, now: Vec<N>) {
        self.ends.push(self.last.len());
        self.last.push(now);
        self.at = At::Between;
    }

    /// Called before all work. In a piece of work no dependency is set. Other work depends on all earlier
    /// nodes, which are returned unless they are set already.
    pub(crate) fn leave(&mut self) -> Option<Vec<N>> {
        if self.at != At::Between {
            return None;
        }
        self.at = At::Outside;
        let ends = core::mem::take(&mut self.ends);
        Some(self.union(ends.into_iter()))
    }

    /// The floor and the last nodes of these works, each once.
    fn union(&self, works: impl Iterator<Item = usize>) -> Vec<N> {
        let mut all = self.floor.clone();
        for &node in works.flat_map(|work| &self.last[work]) {
            if !all.contains(&node) {
                all.push(node);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture with numbers for nodes, and their dependencies.
    #[derive(Default)]
    struct Captured {
        works: Works<usize>,
        now: Vec<usize>,
        after: Vec<Vec<usize>>,
    }

    impl Captured {
        fn ask(&mut self) {
            self.after.push(core::mem::replace(&mut self.now, vec![self.after.len()]));
        }

        fn work(&mut self, after: &[usize], nodes: usize) {
            let now = self.now.clone();
            self.now = self.works.begin(after, || Ok(now)).unwrap_or_default();
            (0..nodes).for_each(|_| self.ask());
            self.works.end(self.now.clone());
        }

        fn outside(&mut self) {
            if let Some(nodes) = self.works.leave() {
                self.now = nodes;
            }
            self.ask();
        }
    }

    #[test]
    fn works_come_after_those_that_they_name_and_others_after_all() {
        let mut c = Captured::default();
        c.outside(); // node 0
        c.work(&[], 1); // 1
        c.work(&[], 2); // 2, 3
        c.work(&[0], 1); // 4
        c.work(&[1], 0); // no node: stands for work 1
        c.work(&[2, 3], 1); // 5
        c.work(&[0], 1); // 6
        c.outside(); // 7
        c.outside(); // 8
        c.work(&[0], 1); // 9
        let expected: [&[usize]; 10] =
            [&[], &[0], &[0], &[2], &[0, 1], &[0, 4, 3], &[0, 1], &[0, 5, 6], &[7], &[8, 1]];
        assert_eq!(c.after, expected);
    }

    #[test]
    fn without_works_all_is_in_order() {
        let mut c = Captured::default();
        (0..3).for_each(|_| c.outside());
        assert_eq!(c.after, [vec![], vec![0], vec![1]]);
    }
}
