//! One device's work in a step, as a function of its batch.

use crate::profile::Profile;
use anyhow::{Result, bail, ensure};

/// A time as a function of the batch: a part that is always there, and a part for each sample; in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    fixed: f64,
    per_sample: f64,
}

impl Line {
    /// Through one measured point, a given share of which does not depend on the batch.
    fn through((batch, seconds): (usize, f64), fixed: f64) -> Line {
        Line { fixed: fixed * seconds, per_sample: (1.0 - fixed) * seconds / batch as f64 }
    }

    /// Through two measured points. Noise that would make a time fall with the batch, or negative, is cut off.
    fn between((small, low): (usize, f64), (large, high): (usize, f64)) -> Line {
        let slope = (high - low) / (large - small) as f64;
        let per_sample = slope.clamp(0.0, high / large as f64);
        Line { fixed: high - per_sample * large as f64, per_sample }
    }

    fn at(self, batch: usize) -> f64 {
        self.fixed + self.per_sample * batch as f64
    }
}

/// What there is to draw lines through.
enum Fit<'a> {
    /// One batch, and the share of each time that does not depend on it.
    One(&'a Profile, f64),
    /// The smaller batch first.
    Two(&'a Profile, &'a Profile),
}

impl<'a> Fit<'a> {
    fn new(profiles: &'a [Profile], fixed: f64) -> Result<Fit<'a>> {
        let (small, large) = match profiles {
            [one] => return Ok(Fit::One(one, fixed)),
            [a, b] if a.batch > b.batch => (b, a),
            [a, b] => (a, b),
            _ => bail!("give one --profile, or two of the same network at two batches"),
        };
        let layers = |of: &'a Profile| of.layers.iter().map(|layer| (&layer.name, layer.params));
        let same = layers(small).eq(layers(large)) && small.device == large.device;
        ensure!(same, "the two profiles are of different networks or devices");
        ensure!(small.batch < large.batch, "the two profiles are of the same batch");
        Ok(Fit::Two(small, large))
    }

    fn largest(&self) -> &'a Profile {
        match *self {
            Fit::One(one, _) => one,
            Fit::Two(_, large) => large,
        }
    }

    /// The line of one part of a step, which `ms` finds in a profile.
    fn line(&self, ms: impl Fn(&Profile) -> f64) -> Line {
        let point = |profile: &Profile| (profile.batch, ms(profile) / 1e3);
        match *self {
            Fit::One(one, fixed) => Line::through(point(one), fixed),
            Fit::Two(small, large) => Line::between(point(small), point(large)),
        }
    }

    fn words(&self) -> String {
        match *self {
            Fit::One(_, 0.0) => "in proportion to the batch (assumed)".to_owned(),
            Fit::One(_, fixed) => {
                format!(
                    "in proportion to the batch, but for a share of {fixed} that is always there (--fixed)"
                )
            }
            Fit::Two(small, large) => {
                format!("on lines through the times at batches {} and {}", small.batch, large.batch)
            }
        }
    }
}

/// One device's work in a step, as a function of its batch.
#[derive(Clone, Debug)]
pub struct Model {
    pub name: String,
    /// On what the times were measured.
    pub device: String,
    /// The largest measured batch.
    pub batch: usize,
    /// How times depend on the batch, in words.
    pub scaling: String,
    /// By what all measured times were divided, and why, in words.
    pub speed: Option<String>,
    before: Line,
    /// Time and bytes of each layer with parameters or a backward pass, in the order of the backward pass.
    layers: Vec<(Line, usize)>,
    end: Line,
    update: f64,
    tail_bytes: usize,
}

/// One device's work in one step, in seconds and bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The forward pass and the loss.
    pub before: f64,
    /// The backward pass: each layer's time and the bytes of its gradients, the last layer first.
    pub layers: Vec<(f64, usize)>,
    /// What the device then does to the gradients before they can be sent.
    pub end: f64,
    /// Running averages and optimizer, when all is added up.
    pub update: f64,
    /// Sums, metrics and a signal, which are added up too.
    pub tail: usize,
}

impl Work {
    /// What the device computes for itself.
    pub fn compute(&self) -> f64 {
        self.before + self.layers.iter().map(|layer| layer.0).sum::<f64>() + self.end + self.update
    }

    /// What devices add up.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.1).sum::<usize>() + self.tail
    }

    /// The same work on a device that takes `factor` as long.
    pub fn slower(&self, factor: f64) -> Work {
        Work {
            before: factor * self.before,
            layers: self.layers.iter().map(|&(seconds, bytes)| (factor * seconds, bytes)).collect(),
            end: factor * self.end,
            update: factor * self.update,
            tail: self.tail,
        }
    }
}

impl Model {
    /// From one profile, of whose times the share `fixed` does not depend on the batch; or from two, of the same network at two
    /// batches. `speed`: the images a second of one device at the largest measured batch, where it is not that of the profile.
    pub fn new(profiles: &[Profile], fixed: f64, speed: Option<f64>) -> Result<Model> {
        let fit = Fit::new(profiles, fixed)?;
        let of = fit.largest();
        let forward = |profile: &Profile| profile.layers.iter().map(|layer| layer.forward_ms).sum::<f64>();
        let backward = |k: usize| fit.line(|profile| profile.layers[k].backward_ms);
        let layers = of.layers.iter().enumerate().rev();
        let mut model = Model {
            name: of.model.clone(),
            device: format!(
                "{} with {} thread{}",
                of.device,
                of.threads,
                if of.threads == 1 { "" } else { "s" }
            ),
            batch: of.batch,
            scaling: fit.words(),
            speed: None,
            before: fit.line(|profile| forward(profile) + profile.loss_ms),
            layers: layers.map(|(k, layer)| (backward(k), size_of::<f32>() * layer.params)).collect(),
            end: Line { fixed: of.gradients_ms / 1e3, per_sample: 0.0 },
            update: of.update_ms / 1e3,
            tail_bytes: of.tail_bytes,
        };
        if let Some(speed) = speed {
            ensure!(speed.is_finite() && speed > 0.0, "--speed is {speed}, but must be a positive number");
            let factor = model.at(of.batch).compute() * speed / of.batch as f64;
            ensure!(factor > 0.0, "the profile takes no time");
            model.speed_up(factor);
            model.speed =
                Some(format!("divided by {factor:.4}, so that one device makes {speed} images/s (--speed)"));
        }
        Ok(model)
    }

    fn speed_up(&mut self, factor: f64) {
        let lines = self.layers.iter_mut().map(|layer| &mut layer.0).chain([&mut self.before, &mut self.end]);
        for line in lines {
            (line.fixed, line.per_sample) = (line.fixed / factor, line.per_sample / factor);
        }
        self.update /= factor;
    }

    /// The work for a batch of so many samples. A device without samples only adds up and steps.
    pub fn at(&self, batch: usize) -> Work {
        let at = |line: Line| if batch == 0 { 0.0 } else { line.at(batch) };
        Work {
            before: at(self.before),
            layers: self.layers.iter().map(|&(line, bytes)| (at(line), bytes)).collect(),
            end: at(self.end),
            update: self.update,
            tail: self.tail_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;

    #[test]
    fn work_is_all_that_was_measured_and_backward_comes_last_layer_first() {
        let model =
            Model::new(&[profile(10, &[(5, 1.0, 2.0), (0, 3.0, 4.0), (7, 5.0, 6.0)])], 0.0, None).unwrap();
        let work = model.at(10);
        assert_eq!(work.bytes(), 4 * (5 + 7) + 12);
        assert!((work.compute() - 24e-3).abs() < 1e-12);
        let layers: Vec<_> =
            work.layers.iter().map(|&(seconds, bytes)| ((1e6 * seconds).round(), bytes)).collect();
        assert_eq!(layers, [(6000.0, 28), (4000.0, 0), (2000.0, 20)]);
        assert!((work.slower(1.5).compute() - 36e-3).abs() < 1e-12);
    }

    #[test]
    fn times_follow_the_batch() {
        let profiles = [profile(10, &[(5, 10.0, 20.0)]), profile(30, &[(5, 20.0, 50.0)])];
        let model = Model::new(&profiles, 0.0, None).unwrap();
        let close =
            |work: Work, backward: f64| assert!((work.layers[0].0 * 1e3 - backward).abs() < 1e-9, "{work:?}");
        close(model.at(10), 20.0);
        close(model.at(30), 50.0);
        close(model.at(20), 35.0);
        assert_eq!(model.at(0).layers[0].0, 0.0);
        let model = Model::new(&profiles[..1], 0.5, None).unwrap();
        close(model.at(10), 20.0);
        close(model.at(1), 11.0);
        assert!(Model::new(&[profiles[0].clone(), profiles[0].clone()], 0.0, None).is_err());
    }

    #[test]
    fn a_stated_speed_is_that_of_one_device() {
        let model = Model::new(&[profile(10, &[(5, 10.0, 20.0)])], 0.0, Some(500.0)).unwrap();
        assert!((model.at(10).compute() - 10.0 / 500.0).abs() < 1e-12);
    }
}
