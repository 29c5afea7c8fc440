use core::ops::Range;
use std::sync::Arc;

/// The order in which the parts of all replicas are added up: a binary tree over the parts.
///
/// Part 0 is added to part 1, part 2 to part 3, and so on; then these pairs to each other, and so on. An odd
/// sum at the end goes up alone. So each *node* of the tree is the sum of consecutive parts. It depends on
/// the number of all parts, but not on the replicas that have them.
///
/// A replica has consecutive parts. It adds them up as far as they make nodes, and brings the nodes that are left:
/// about two for each doubling of its parts at most, and one if the numbers of parts and of replicas are
/// powers of two. Then all replicas add up these nodes to the sum of all parts.
///
/// Both times a stack of partial sums is enough. Each part or node goes onto the stack. Then the two on top
/// are *joined*, added up to one, as often as the tree says.
///
/// ```
/// use towers_parallel::SumTree;
///
/// // Of eight parts, the replicas have five and three.
/// let tree = SumTree::new(&[5, 3]);
/// // The first one brings the sum of the parts 0 to 3, and part 4. The second one brings part 5, and 6 + 7.
/// assert_eq!(tree.nodes(), [2, 2]);
/// assert_eq!(tree.joins_of(0), [0, 1, 0, 2, 0]);
/// // 4 + 5, that and 6 + 7, and the sum of all.
/// assert_eq!(tree.joins(), [0, 0, 1, 2]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SumTree(Arc<Plan>);

#[derive(Debug, PartialEq)]
struct Plan {
    /// The first part of each replica; then the number of all parts.
    firsts: Vec<usize>,
    nodes: Vec<usize>,
    joins: Vec<usize>,
}

impl SumTree {
    /// The tree over the parts of all replicas, of which each has so many.
    ///
    /// # Panics
    /// If no replica has a part.
    pub fn new(counts: &[usize]) -> SumTree {
        let mut firsts = vec![0];
        counts.iter().for_each(|count| firsts.push(firsts[firsts.len() - 1] + count));
        let total = firsts[counts.len()];
        assert!(total > 0, "a sum of no parts");
        let of_replicas: Vec<_> =
            firsts.windows(2).map(|parts| join(total, (parts[0]..parts[1]).map(single)).1).collect();
        let nodes = of_replicas.iter().map(Vec::len).collect();
        let (joins, _) = join(total, of_replicas.into_iter().flatten());
        SumTree(Arc::new(Plan { firsts, nodes, joins }))
    }

    /// The number of nodes that each replica brings.
    pub fn nodes(&self) -> &[usize] {
        &self.0.nodes
    }

    /// For each node of all replicas, in order: how often the two sums on top of the stack are joined after
    /// it.
    pub fn joins(&self) -> &[usize] {
        &self.0.joins
    }

    /// The same for each part of replica `rank`.
    ///
    /// # Panics
    /// If there is no replica `rank`.
    pub fn joins_of(&self, rank: usize) -> Vec<usize> {
        join(self.total(), self.parts(rank..rank + 1).map(single)).0
    }

    /// The same for each node of some consecutive replicas, without the others. The stack ends with the nodes
    /// of all of their parts.
    pub(crate) fn joins_within(&self, replicas: Range<usize>) -> Vec<usize> {
        let nodes = |rank: usize| join(self.total(), self.parts(rank..rank + 1).map(single)).1.into_iter();
        join(self.total(), replicas.flat_map(nodes)).0
    }

    /// The tree over the same parts, as if groups of replicas were one replica each. `firsts` has the first
    /// replica of each group; then the number of all.
    pub(crate) fn grouped(&self, firsts: &[usize]) -> SumTree {
        let counts: Vec<usize> =
            firsts.windows(2).map(|group| self.parts(group[0]..group[1]).len()).collect();
        SumTree::new(&counts)
    }

    /// Adds up the nodes of all replicas, in order: runs of as many numbers as `sum`.
    pub fn add_up(&self, nodes: &[&[f32]], sum: &mut [f32]) {
        add_up(self.joins(), nodes, sum.len(), sum);
    }

    fn total(&self) -> usize {
        self.0.firsts[self.0.firsts.len() - 1]
    }

    fn parts(&self, replicas: Range<usize>) -> Range<usize> {
        self.0.firsts[replicas.start]..self.0.firsts[replicas.end]
    }
}

fn single(part: usize) -> Range<usize> {
    part..part + 1
}

/// Puts nodes of the tree over `total` parts onto a stack, and joins the two on top while that makes a node.
/// Returns how often after each node, and the nodes that are left.
fn join(total: usize, nodes: impl Iterator<Item = Range<usize>>) -> (Vec<usize>, Vec<Range<usize>>) {
    let (mut joins, mut stack) = (Vec::new(), Vec::<Range<usize>>::new());
    for node in nodes {
        stack.push(node);
        let mut count = 0;
        while let [.., left, right] = &stack[..]
            && is_node(total, left.start..right.end)
        {
            let joined = left.start..right.end;
            stack.truncate(stack.len() - 2);
            stack.push(joined);
            count += 1;
        }
        joins.push(count);
    }
    (joins, stack)
}

/// Whether these parts are a node: a power of two of them at a multiple of it, or those that are there at the
/// end.
fn is_node(total: usize, parts: Range<usize>) -> bool {
    let size = parts.len().next_power_of_two();
    parts.start.is_multiple_of(size) && (parts.len() == size || parts.end == total)
}

/// The height of the stack with these joins, at most.
fn most(joins: &[usize]) -> usize {
    let heights = joins.iter().scan(0, |height, joins| {
        let most = *height + 1;
        *height = most - joins;
        Some(most)
    });
    heights.max().unwrap_or(0)
}

/// So many numbers are added up at a time: their partial sums stay in the processor's cache.
const BLOCK: usize = 4096;

/// Adds up nodes in host memory, runs of `len` numbers. `sums` gets those that are left, one behind the other.
pub(crate) fn add_up(joins: &[usize], nodes: &[&[f32]], len: usize, sums: &mut [f32]) {
    let size = BLOCK.min(len);
    let mut stack = vec![0.0; most(joins) * size];
    for start in (0..len).step_by(BLOCK) {
        let block = start..len.min(start + BLOCK);
        let mut height = 0;
        for (node, joins) in nodes.iter().zip(joins) {
            let (below, free) = stack.split_at_mut(height * size);
            let node = &node[block.clone()];
            if *joins == 0 {
                free[..node.len()].copy_from_slice(node);
                height += 1;
                continue;
            }
            add(&mut below[(height - 1) * size..], node);
            for _ in 1..*joins {
                height -= 1;
                let (below, top) = stack.split_at_mut(height * size);
                add(&mut below[(height - 1) * size..], &top[..block.len()]);
            }
        }
        for (sums, sum) in sums.chunks_exact_mut(len).zip(stack.chunks_exact(size)) {
            sums[block.clone()].copy_from_slice(&sum[..block.len()]);
        }
    }
}

/// Adds numbers to those in place.
fn add(sums: &mut [f32], numbers: &[f32]) {
    sums.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sum of a node, by its definition: the left child has the greatest power of two of its parts that
    /// is less than all of them.
    fn sum(parts: &[Vec<f32>]) -> Vec<f32> {
        if let [part] = parts {
            return part.clone();
        }
        let (left, right) = parts.split_at(parts.len().next_power_of_two() / 2);
        sum(left).iter().zip(sum(right)).map(|(left, right)| left + right).collect()
    }

    fn added(joins: &[usize], nodes: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let nodes: Vec<&[f32]> = nodes.iter().map(Vec::as_slice).collect();
        let len = nodes.first().map_or(1, |node| node.len());
        let mut sums = vec![f32::NAN; (nodes.len() - joins.iter().sum::<usize>()) * len];
        add_up(joins, &nodes, len, &mut sums);
        sums.chunks_exact(len).map(<[f32]>::to_vec).collect()
    }

    fn bits(sum: &[f32]) -> Vec<u32> {
        sum.iter().map(|x| x.to_bits()).collect()
    }

    /// Parts of such different sizes that another order gives other bits. Some lengths need several blocks.
    fn parts(total: usize) -> impl Strategy<Value = Vec<Vec<f32>>> {
        let len = prop_oneof![4 => 1..5_usize, 1 => Just(BLOCK + 3)];
        (len, any::<u32>()).prop_map(move |(len, seed)| {
            let number = |k: usize| {
                let mixed =
                    (k as u32 ^ seed).wrapping_mul(0x9e37_79b9).rotate_left(7).wrapping_mul(0x85eb_ca6b);
                (mixed as f32 / 1e9 - 2.0) * 10_f32.powi((mixed % 13) as i32 - 6)
            };
            (0..total).map(|part| (part * len..(part + 1) * len).map(number).collect()).collect()
        })
    }

    /// The parts of each replica, and the first replica of each process.
    fn replicas() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
        prop::collection::vec((0..9_usize, any::<bool>()), 1..8).prop_map(|mut replicas| {
            replicas[0].0 += 1;
            let begins = replicas.iter().enumerate().filter(|(rank, (_, begins))| *rank == 0 || *begins);
            let mut firsts: Vec<usize> = begins.map(|(rank, _)| rank).collect();
            firsts.push(replicas.len());
            (replicas.iter().map(|(count, _)| *count).collect(), firsts)
        })
    }

    proptest! {
        /// Replicas add up their parts, processes the nodes of their replicas, and all the nodes of the
        /// processes. It is the sum of all parts, bit for bit.
        #[test]
        fn any_replicas_and_processes_have_the_sum_of_the_tree(
            ((counts, firsts), parts) in replicas().prop_flat_map(|all| {
                let total = all.0.iter().sum();
                (Just(all), parts(total))
            }),
        ) {
            let expected = bits(&sum(&parts));
            let tree = SumTree::new(&counts);
            let mut nodes = Vec::new();
            for rank in 0..counts.len() {
                let own = added(&tree.joins_of(rank), &parts[tree.parts(rank..rank + 1)]);
                prop_assert_eq!(own.len(), tree.nodes()[rank]);
                prop_assert!(own.len() <= 2 * (counts[rank] + 1).ilog2() as usize);
                nodes.push(own);
            }
            let whole = added(tree.joins(), &nodes.concat());
            prop_assert_eq!(whole.len(), 1);
            prop_assert_eq!(bits(&whole[0]), &expected[..]);

            let grouped = tree.grouped(&firsts);
            let of_processes: Vec<_> = firsts
                .windows(2)
                .map(|group| {
                    let group = group[0]..group[1];
                    added(&tree.joins_within(group.clone()), &nodes[group].concat())
                })
                .collect();
            let counts: Vec<usize> = of_processes.iter().map(Vec::len).collect();
            prop_assert_eq!(&counts[..], grouped.nodes());
            let whole = added(grouped.joins(), &of_processes.concat());
            prop_assert_eq!(bits(&whole[0]), expected);
        }
    }

    /// With up to three parts there is one order, that of the parts.
    #[test]
    fn from_four_parts_on_the_order_is_another() {
        let one_by_one = |parts: &[Vec<f32>]| {
            parts.iter().skip(1).fold(parts[0].clone(), |mut sum, part| {
                add(&mut sum, part);
                sum
            })
        };
        for total in 1..=4 {
            let parts: Vec<Vec<f32>> =
                [1e8, 1.0, -1e8, 0.5].iter().take(total).map(|&part| vec![part]).collect();
            let tree = SumTree::new(&vec![1; total]);
            let whole = added(tree.joins(), &parts);
            assert_eq!(whole[0] == one_by_one(&parts), total < 4, "{total} parts");
        }
    }

    /// A zero's sign is that of the only part.
    #[test]
    fn one_part_is_copied() {
        assert_eq!(bits(&added(&[0], &[vec![-0.0]])[0]), [(-0.0_f32).to_bits()]);
    }

    /// The nodes that each replica brings, of eight parts and of others.
    #[test]
    fn replicas_bring_few_nodes() {
        for (counts, nodes) in [
            (&[8][..], &[1][..]),
            (&[4, 4], &[1, 1]),
            (&[2, 3, 3], &[1, 2, 2]),
            (&[2, 2, 2, 2], &[1, 1, 1, 1]),
            (&[5, 3], &[2, 2]),
            (&[64; 16], &[1; 16]),
            (&[3, 4], &[2, 2]),
            (&[0, 7, 0], &[0, 1, 0]),
        ] {
            assert_eq!(SumTree::new(counts).nodes(), nodes, "{counts:?}");
        }
    }
}
