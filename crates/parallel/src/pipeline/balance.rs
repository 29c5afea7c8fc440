//! Where to cut a list of layers so that no stage has much more to do than the others.

/// Cuts a list of pieces with these costs into `stages` runs, so that the most expensive run is as cheap as
/// possible. Returns the number of the first piece of each run but the first. `None` if there are fewer
/// pieces than stages.
///
/// ```
/// // Two stages: 3 + 1 + 2 and 5.
/// assert_eq!(towers_parallel::balance(&[3, 1, 2, 5], 2), Some(vec![3]));
/// assert_eq!(towers_parallel::balance(&[3, 1], 3), None);
/// ```
pub fn balance(costs: &[u64], stages: usize) -> Option<Vec<usize>> {
    let n = costs.len();
    if stages == 0 || stages > n {
        return None;
    }
    let mut sums = vec![0u64];
    sums.extend(costs.iter().scan(0u64, |sum, &cost| {
        *sum = sum.saturating_add(cost);
        Some(*sum)
    }));
    // best[end]: the cost of the most expensive run over the first `end` pieces. chosen[runs][end]: where the
    // last run begins.
    let mut best = sums.clone();
    let mut chosen = vec![vec![0; n + 1]];
    for runs in 2..=stages {
        let mut next = vec![u64::MAX; n + 1];
        let mut begins = vec![0; n + 1];
        for end in runs..=n {
            let cost = |begin: usize| best[begin].max(sums[end] - sums[begin]);
            begins[end] = (runs - 1..end).min_by_key(|&begin| cost(begin)).unwrap_or(runs - 1);
            next[end] = cost(begins[end]);
        }
        best = next;
        chosen.push(begins);
    }
    let mut end = n;
    let mut cuts: Vec<usize> = (1..stages)
        .rev()
        .map(|run| {
            end = chosen[run][end];
            end
        })
        .collect();
    cuts.reverse();
    Some(cuts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most_expensive(costs: &[u64], cuts: &[usize]) -> u64 {
        let ends = cuts.iter().copied().chain([costs.len()]);
        let begins = [0].into_iter().chain(cuts.iter().copied());
        begins.zip(ends).map(|(begin, end)| costs[begin..end].iter().sum()).max().unwrap()
    }

    /// The cheapest most expensive run, by trying all ways to cut.
    fn brute_force(costs: &[u64], stages: usize) -> u64 {
        let n = costs.len();
        let ways = (0..1u32 << (n - 1)).filter(|mask| mask.count_ones() as usize == stages - 1);
        let cuts = |mask: u32| (1..n).filter(|k| mask >> (k - 1) & 1 == 1).collect::<Vec<_>>();
        ways.map(|mask| most_expensive(costs, &cuts(mask))).min().unwrap()
    }

    #[test]
    fn no_other_way_to_cut_is_better() {
        let mut x = 1u64;
        for case in 0..300 {
            let n = 1 + case % 9;
            let costs: Vec<u64> = (0..n)
                .map(|_| {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    (x >> 33) % 20
                })
                .collect();
            for stages in 1..=n {
                let cuts = balance(&costs, stages).unwrap();
                assert_eq!(cuts.len(), stages - 1);
                assert!(cuts.iter().all(|&cut| cut > 0 && cut < n) && cuts.windows(2).all(|w| w[0] < w[1]));
                assert_eq!(most_expensive(&costs, &cuts), brute_force(&costs, stages), "{costs:?}, {stages}");
            }
        }
    }

    #[test]
    fn every_stage_gets_a_piece() {
        assert_eq!(balance(&[0, 0, 0], 3), Some(vec![1, 2]));
        assert_eq!(balance(&[1, 2], 3), None);
        assert_eq!(balance(&[1], 0), None);
        assert_eq!(balance(&[u64::MAX, u64::MAX, 1], 2).map(|cuts| cuts.len()), Some(1));
    }
}
