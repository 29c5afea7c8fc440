use crate::{Error, Metric, Result};

/// The share of the samples whose class has one of the `k` best scores. As in Keras, a class with the same score as the
/// last of them is among them.
struct TopK {
    k: usize,
}

/// `top5_acc`; the number is from 1 to 999.
pub(crate) fn named(name: &str) -> Option<Box<dyn Metric>> {
    let k = name.strip_prefix("top")?.strip_suffix("_acc")?;
    let plain =
        (1..=3).contains(&k.len()) && k.bytes().all(|byte| byte.is_ascii_digit()) && !k.starts_with('0');
    plain.then(|| Some(Box::new(TopK { k: k.parse().ok()? }) as _))?
}

impl Metric for TopK {
    fn name(&self) -> String {
        format!("top{}_acc", self.k)
    }

    fn title(&self) -> String {
        format!("Top-{} accuracy", self.k)
    }

    fn counts(&self, classes: usize) -> Result<usize> {
        // All samples would be right.
        if classes <= self.k {
            let needs = format!("more than {} classes", self.k);
            return Err(Error::Classes { name: self.name(), needs, classes });
        }
        Ok(2)
    }

    fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]) {
        let own = scores[label];
        let better = scores.iter().filter(|&&score| score > own).count();
        counts[0] += u64::from(better < self.k && !own.is_nan());
        counts[1] += 1;
    }

    fn value(&self, counts: &[u64]) -> f64 {
        counts[0] as f64 / counts[1] as f64
    }
}
