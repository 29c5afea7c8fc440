//! The priorities of a graph's kernels. Where several kernels are ready, the GPU first gives room to those on
//! the longest chain: all later work waits for them. A weight's gradient, for which only the optimizer waits,
//! fills the room that they leave.

use super::CudaDriver;
use crate::number::number;
use core::ffi::c_int;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ptr;
use towers_program::Result;

const KERNEL: u32 = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL as u32;

impl CudaDriver {
    pub(super) fn set_priorities(&self, graph: sys::CUgraph) -> Result<()> {
        let (mut least, mut greatest): (c_int, c_int) = (0, 0);
        // SAFETY: the driver writes both numbers. The greatest priority is the smallest number.
        self.call("cuCtxGetStreamPriorityRange", || unsafe {
            number!(sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))
        })?;
        let nodes = self.nodes(graph)?;
        let slacks = slacks(nodes.len(), &self.edges(graph, &nodes)?);
        for (node, slack) in nodes.into_iter().zip(slacks) {
            let mut kind = KERNEL;
            // SAFETY: the node is one of the graph, and the driver writes its kind.
            self.call("cuGraphNodeGetType", || unsafe {
                number!(sys::cuGraphNodeGetType(node, (&raw mut kind).cast()))
            })?;
            if kind != KERNEL {
                continue;
            }
            let level = (slack + 1).ilog2() as c_int;
            let value = sys::CUlaunchAttributeValue { priority: (greatest + level).min(least) };
            let priority = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
            // SAFETY: the node is a kernel of the graph; the driver reads the value for this attribute.
            self.call("cuGraphKernelNodeSetAttribute", || unsafe {
                number!(sys::cuGraphKernelNodeSetAttribute(node, priority, &raw const value))
            })?;
        }
        Ok(())
    }

    fn nodes(&self, graph: sys::CUgraph) -> Result<Vec<sys::CUgraphNode>> {
        let mut nodes = Vec::new();
        // First for their number, then for the nodes. The driver refuses a list without room.
        for _ in 0..2 {
            let mut count = nodes.len();
            let place = if count > 0 { nodes.as_mut_ptr() } else { ptr::null_mut() };
            // SAFETY: there is room for `count` nodes, or the driver only counts.
            self.call("cuGraphGetNodes", || unsafe {
                number!(sys::cuGraphGetNodes(graph, place, &raw mut count))
            })?;
            nodes.resize(count, ptr::null_mut());
        }
        Ok(nodes)
    }

    /// Pairs of nodes, by their places: the second begins after the first.
    fn edges(&self, graph: sys::CUgraph, nodes: &[sys::CUgraphNode]) -> Result<Vec<[usize; 2]>> {
        let (mut from, mut to, mut data) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..2 {
            let mut count = from.len();
            let mut places = [ptr::null_mut(); 2];
            let mut beside = ptr::null_mut();
            if count > 0 {
                (places, beside) = ([from.as_mut_ptr(), to.as_mut_ptr()], data.as_mut_ptr());
            }
            // SAFETY: there is room for `count` edges, or the driver only counts.
            self.call("cuGraphGetEdges", || unsafe {
                number!(sys::cuGraphGetEdges_v2(graph, places[0], places[1], beside, &raw mut count))
            })?;
            from.resize(count, ptr::null_mut());
            to.resize(count, ptr::null_mut());
            // SAFETY: edge data is plain numbers.
            data.resize_with(count, || unsafe { core::mem::zeroed::<sys::CUgraphEdgeData>() });
        }
        let numbers: HashMap<_, _> = nodes.iter().enumerate().map(|(k, &node)| (node, k)).collect();
        let pair = |(from, to)| Some([*numbers.get(from)?, *numbers.get(to)?]);
        Ok(from.iter().zip(&to).filter_map(pair).collect())
    }
}

/// How many nodes the longest chain through each node is shorter than the longest chain of all.
fn slacks(count: usize, edges: &[[usize; 2]]) -> Vec<usize> {
    let mut after = vec![Vec::new(); count];
    let mut waits = vec![0; count];
    for &[from, to] in edges {
        after[from].push(to);
        waits[to] += 1;
    }
    let mut order: Vec<usize> = (0..count).filter(|&k| waits[k] == 0).collect();
    let mut above = vec![0; count];
    let mut next = 0;
    while let Some(&k) = order.get(next) {
        next += 1;
        for &to in &after[k] {
            above[to] = above[to].max(above[k] + 1);
            waits[to] -= 1;
            if waits[to] == 0 {
                order.push(to);
            }
        }
    }
    let mut below = vec![0; count];
    for &k in order.iter().rev() {
        below[k] = after[k].iter().map(|&to| below[to] + 1).max().unwrap_or(0);
    }
    let longest = below.iter().max().copied().unwrap_or(0);
    (0..count).map(|k| longest - above[k] - below[k]).collect()
}

#[cfg(test)]
mod tests {
    use super::slacks;

    /// 0 to 3 in a chain, and 4 beside 1 and 2.
    #[test]
    fn what_nothing_waits_for_has_slack() {
        let edges = [[0, 1], [1, 2], [2, 3], [0, 4], [4, 3], [0, 3]];
        assert_eq!(slacks(5, &edges), [0, 0, 0, 0, 1]);
        assert_eq!(slacks(3, &[[2, 0]]), [0, 1, 0], "nodes come in any order");
        assert_eq!(slacks(0, &[]), []);
    }
}
