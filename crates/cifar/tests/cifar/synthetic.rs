//! The drawn figures.

use md5::{Digest, Md5};
use towers_cifar::{IMAGE_BYTES, Split, synthetic};

#[test]
fn a_seed_gives_the_same_images_on_every_machine() {
    let data = synthetic(42, 300, 100);
    let hash = |split: &Split| -> String {
        let digest = Md5::digest(split.images.as_slice().unwrap());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    assert_eq!(
        [hash(&data.train), hash(&data.test)],
        ["7bbf477023acc77a946b51e9045fd7ff", "8892e63abbf5ad93b1dd67860aae784b"]
    );
}

#[test]
fn an_image_depends_on_seed_split_and_index_alone() {
    let (small, large) = (synthetic(1, 30, 30), synthetic(1, 60, 40));
    assert_eq!(large.train.take(30), small.train);
    assert_eq!(large.test.take(30), small.test);
    assert_ne!(small.train.images, small.test.images);
    assert_ne!(synthetic(2, 30, 0).train.images, small.train.images);
    assert_eq!(small.train.class_counts(10), [3; 10]);
    assert!(synthetic(1, 0, 0).train.is_empty());
}

/// Multinomial logistic regression on the pixels, trained by gradient descent, stays near chance (10%),
/// however well it does on its training images.
#[test]
fn a_linear_model_fails() {
    let data = synthetic(3, 2000, 1000);
    let inputs = |split: &Split| -> Vec<Vec<f32>> {
        let images = split.images.outer_iter();
        images.map(|image| image.iter().map(|&level| f32::from(level) / 64.0 - 2.0).collect()).collect()
    };
    let (train, test) = (inputs(&data.train), inputs(&data.test));
    let mut weights = vec![[0.0_f32; 10]; IMAGE_BYTES];
    for epoch in 0..8 {
        for k in 0..train.len() {
            let k = (k * 7 + epoch) % train.len();
            let scores = scores(&weights, &train[k]);
            let top = scores.iter().fold(f32::MIN, |a, &b| a.max(b));
            let exps = scores.map(|score| (score - top).exp());
            let sum: f32 = exps.iter().sum();
            let mut error = exps.map(|exp| exp / sum * 0.0005);
            error[usize::from(data.train.labels[k])] -= 0.0005;
            for (row, x) in weights.iter_mut().zip(&train[k]) {
                row.iter_mut().zip(&error).for_each(|(w, e)| *w -= x * e);
            }
        }
    }
    let accuracy = |inputs: &[Vec<f32>], split: &Split| {
        let right = inputs.iter().zip(&split.labels).filter(|(x, label)| {
            let scores = scores(&weights, x);
            (0..10).max_by(|&a, &b| scores[a].total_cmp(&scores[b])) == Some(usize::from(**label))
        });
        right.count() as f64 / inputs.len() as f64
    };
    let (seen, unseen) = (accuracy(&train, &data.train), accuracy(&test, &data.test));
    assert!(seen > 0.3, "the model was not trained: {seen}");
    assert!(unseen < 0.25, "a linear model reaches {unseen}");
}

fn scores(weights: &[[f32; 10]], x: &[f32]) -> [f32; 10] {
    let mut scores = [0.0; 10];
    for (row, x) in weights.iter().zip(x) {
        scores.iter_mut().zip(row).for_each(|(score, w)| *score += w * x);
    }
    scores
}
