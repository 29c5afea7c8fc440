use crate::{Error, Result, Worst, pattern};
use towers_layers::{Draws, Graph, Mode, Network, Role, Slot, Value};
use towers_program::{View, ViewMut};

/// The step of the differences: a power of two, so that adding it loses few bits.
const STEP: f64 = 1.0 / 16_384.0;

/// Checks all gradients of a network against differences of its loss, in f64 on the reference device.
///
/// The derivative by one number is taken from four losses around it, `(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h`, whose
/// own error is of the order `h^4`. An element passes if the gradient is as close to it as `tolerance` times the largest
/// derivative in its tensor, plus what rounding can do to the loss.
///
/// If the loss has a kink next to the element (a ReLU at 0, two equal numbers under a max-pooling window) no
/// difference is right. A failing element is skipped if the derivatives from its left and its right differ by
/// as much as its error. At most one element in ten may be skipped.
///
/// Images and parameters are [`pattern`]s, labels are `0, 1, 2, ...` modulo the classes.
#[derive(Clone, Debug)]
pub struct GradientCheck {
    batch: usize,
    max_batch: usize,
    elements: usize,
    label_smoothing: f32,
    tolerance: f64,
    draws: Draws,
    alter: fn(&str, &mut [f64]),
}

impl Default for GradientCheck {
    fn default() -> Self {
        let draws = Draws { seed: 5, step: 3, first_sample: 2 };
        let (label_smoothing, tolerance) = (0.0, 1e-7);
        let alter = |_: &str, _: &mut [f64]| {};
        GradientCheck { batch: 2, max_batch: 2, elements: 40, label_smoothing, tolerance, draws, alter }
    }
}

/// What a check that passed has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Elements whose gradient was compared.
    pub checked: usize,
    /// Those of them that were skipped since the loss has a kink there.
    pub kinks: usize,
    /// The element that is furthest off, for its tensor's largest derivative.
    pub worst: Worst,
}

/// The losses at -2, -1, 0, 1 and 2 steps from where an element stands.
struct Around([f64; 5]);

impl Around {
    fn derivative(&self) -> f64 {
        let [a, b, _, d, e] = self.0;
        (8.0 * (d - b) - (e - a)) / (12.0 * STEP)
    }

    /// How much the derivatives from the left and from the right differ.
    fn kink(&self) -> f64 {
        let [a, b, c, d, e] = self.0;
        let left = (3.0 * c - 4.0 * b + a) / (2.0 * STEP);
        let right = (4.0 * d - 3.0 * c - e) / (2.0 * STEP);
        (left - right).abs()
    }

    /// What rounding, a few units in the last place of each loss, can do to the derivative.
    fn noise(&self) -> f64 {
        32.0 * f64::EPSILON * self.0[2].abs() / STEP
    }
}

/// Which numbers of a network are varied.
#[derive(Clone)]
enum Varied {
    Input,
    Parameter(Slot),
}

impl GradientCheck {
    /// Two samples, 40 elements a tensor, no label smoothing, a tolerance of 1e-7.
    pub fn new() -> Self {
        Self::default()
    }

    /// So many samples, in a network built for as many.
    pub fn batch(self, batch: usize) -> Self {
        GradientCheck { batch, max_batch: batch, ..self }
    }

    /// The network is built for so many samples, of which the batch fills only a part.
    pub fn max_batch(self, max_batch: usize) -> Self {
        GradientCheck { max_batch, ..self }
    }

    /// At most so many elements of each tensor, chosen at random.
    pub fn elements(self, elements: usize) -> Self {
        GradientCheck { elements, ..self }
    }

    /// With smoothed labels.
    pub fn label_smoothing(self, label_smoothing: f32) -> Self {
        GradientCheck { label_smoothing, ..self }
    }

    /// How far a gradient may be off, for the largest derivative in its tensor.
    pub fn tolerance(self, tolerance: f64) -> Self {
        GradientCheck { tolerance, ..self }
    }

    /// Has a function change each tensor's gradient before it is compared: for tests that a wrong one is found. It is given the tensor's
    /// name, `input` or the parameter's.
    pub fn altered(self, alter: fn(&str, &mut [f64])) -> Self {
        GradientCheck { alter, ..self }
    }

    /// Checks the input's and every parameter's gradient.
    ///
    /// # Errors
    /// [`Error::Gradient`] with the worst element, [`Error::Kinks`], or the network's error.
    pub fn run(&self, graph: &Graph, logits: Value) -> Result<Report> {
        let mode = Mode::TrainingWithInputGradient;
        let mut network = graph.build(logits, &towers_tensor_cpu::reference(), self.max_batch, mode)?;
        self.fill(&mut network)?;
        let slots = network.arena().slots().to_vec();
        let parameters = slots.into_iter().filter(|slot| slot.role == Role::Trainable);
        let varied: Vec<Varied> =
            [Varied::Input].into_iter().chain(parameters.map(Varied::Parameter)).collect();
        let mut report = Report { checked: 0, kinks: 0, worst: Worst::default() };
        let mut wrong = 0;
        for what in &varied {
            wrong += self.tensor(&mut network, what, &mut report)?;
        }
        if wrong > 0 {
            let worst = Box::new(report.worst);
            return Err(Error::Gradient { worst, wrong, checked: report.checked });
        }
        if report.kinks * 10 > report.checked {
            return Err(Error::Kinks { kinks: report.kinks, checked: report.checked });
        }
        Ok(report)
    }

    /// As [`GradientCheck::run`], for tests. Prints its report.
    ///
    /// # Panics
    /// With the error, where there is one.
    pub fn assert(&self, graph: &Graph, logits: Value) -> Report {
        let report = self.run(graph, logits).unwrap_or_else(|error| panic!("{error}"));
        let Report { checked, kinks, worst } = &report;
        println!("{}: {checked} elements, {kinks} on kinks; at worst {worst}", graph.name());
        report
    }

    /// Sets input, labels and parameters.
    fn fill(&self, network: &mut Network) -> Result<()> {
        let images: Vec<f32> =
            pattern(1, self.batch * network.sample_len(), 1.0).iter().map(|&x| x as f32).collect();
        let label = |n: usize| match network.is_multi_label() {
            // Some classes of each sample.
            true => vec![0x5c5c_5c5c_u32.rotate_left(n as u32); network.label_words()],
            false => vec![(n % network.classes().max(1)) as u32],
        };
        let labels: Vec<u32> = (0..self.batch).flat_map(label).collect();
        network.set_input(&images, &labels)?;
        for (k, slot) in network.arena().slots().to_vec().iter().enumerate() {
            let fan_in: usize = slot.shape.iter().rev().skip(1).product();
            // Biases, gamma and beta are away from 0 too, for their gradients' sake.
            let (middle, scale) =
                if slot.shape.len() > 1 { (0.0, (3.0 / fan_in as f64).sqrt()) } else { (0.25, 0.5) };
            let is_variance = slot.name.ends_with("moving_variance");
            let value = |x: &f64| (if is_variance { x.abs() } else { *x } + middle) as f32;
            let values: Vec<f32> = pattern(k as u32 + 2, slot.span.len, scale).iter().map(value).collect();
            let device = network.device().clone();
            network.arena_mut().load(&device, slot, &values)?;
        }
        Ok(())
    }

    /// Checks some elements of one tensor; how many are wrong.
    fn tensor(&self, network: &mut Network, what: &Varied, report: &mut Report) -> Result<usize> {
        self.loss(network)?;
        let gradients = match what {
            Varied::Input => {
                let gradient = network.input_gradient();
                gradient.and_then(|View { data, layout }| {
                    Some(data.as_f64()?[layout.offset..layout.end()].to_vec())
                })
            }
            Varied::Parameter(slot) => {
                network.arena().grads.as_f64().map(|all| all[slot.span.range()].to_vec())
            }
        };
        let name = match what {
            Varied::Input => "input",
            Varied::Parameter(slot) => &slot.name,
        };
        let mut gradients =
            gradients.expect("the network was built on the reference, with the input's gradient");
        (self.alter)(name, &mut gradients);
        let order = towers_philox::permutation(1, 0, gradients.len() as u32);
        let mut seen = Vec::new();
        for index in order.into_iter().take(self.elements).map(|index| index as usize) {
            seen.push((index, gradients[index], self.around(network, what, index)?));
        }
        let larger = |largest: f64, (_, gradient, around): &(usize, f64, Around)| {
            largest.max(gradient.abs()).max(around.derivative().abs())
        };
        let largest = seen.iter().fold(0.0, larger);
        let mut wrong = 0;
        for (index, gradient, around) in seen {
            report.checked += 1;
            let difference = around.derivative();
            // NaN is off by more than anything.
            let off =
                Some((gradient - difference).abs()).filter(|off| !off.is_nan()).unwrap_or(f64::INFINITY);
            let passes = off <= self.tolerance * largest + around.noise();
            if !passes && off.is_finite() && around.kink() >= off {
                report.kinks += 1;
                continue;
            }
            wrong += usize::from(!passes);
            let error = if off <= around.noise() { 0.0 } else { off / largest };
            if report.worst.name.is_empty() || error > report.worst.error {
                report.worst = Worst { name: name.to_owned(), index, gradient, difference, error };
            }
        }
        Ok(wrong)
    }

    /// The losses around where an element stands.
    fn around(&self, network: &mut Network, what: &Varied, index: usize) -> Result<Around> {
        let middle = *element(network, what, index);
        let mut losses = [0.0; 5];
        for (loss, steps) in losses.iter_mut().zip([-2.0, -1.0, 0.0, 1.0, 2.0]) {
            *element(network, what, index) = middle + steps * STEP;
            *loss = self.loss(network)?;
        }
        *element(network, what, index) = middle;
        Ok(Around(losses))
    }

    /// A training pass: the loss, scaled as its gradient is.
    fn loss(&self, network: &mut Network) -> Result<f64> {
        network.train_pass(self.draws, self.label_smoothing, self.batch)?;
        let arena = network.arena();
        let sum = arena.grads.as_f64().map_or(f64::NAN, |all| all[arena.metrics.offset]);
        Ok(sum * f64::from(1.0 / self.batch as f32))
    }
}

fn element<'a>(network: &'a mut Network, what: &Varied, index: usize) -> &'a mut f64 {
    let (storage, place) = match what {
        Varied::Input => {
            let ViewMut { data, layout } = network.input_mut();
            (data, layout.offset + index)
        }
        Varied::Parameter(slot) => (&mut network.arena_mut().params, slot.span.offset + index),
    };
    &mut storage.as_f64_mut().expect("the network was built on the reference")[place]
}
