//! Which places of an image speak for a class.

use super::exchange::Exchange;
use super::graph::{Graph, Mode, Value};
use super::instance::Network;
use super::split::Cut;
use crate::{Draws, Error, Result};
use towers_program::ops::Neighbor;
use towers_program::{Device, Layout, Op, Shape, Storage};

/// Grad-CAM: class activation maps of a network. R. R. Selvaraju et al., "Grad-CAM: Visual Explanations from Deep Networks via
/// Gradient-based Localization" (2017).
///
/// A map is the sum of the last convolutional activation's channels, each with the mean gradient of the class score as its weight;
/// negative sums are 0. The activation is the last tensor of the last convolution's height and width that alone leads to the scores:
/// behind its normalization and activation, or behind the branches that end there.
pub struct GradCam {
    /// The layers up to that activation.
    features: Network,
    /// The others, with the gradient of their input.
    head: Network,
    activation: Shape,
}

impl Network {
    /// The maps of this network with its current weights, for batches of up to `batch` samples. `None` for a network without such an
    /// activation.
    ///
    /// ```
    /// use towers_layers::{Conv2D, Dense, GlobalAveragePooling2D, Graph, Mode};
    ///
    /// let mut graph = Graph::new("tiny", [8, 8, 3]);
    /// let x = graph.add(Conv2D::new(4, 3).same(), graph.input())?;
    /// let x = graph.add(GlobalAveragePooling2D, x)?;
    /// let logits = graph.add(Dense::new(10), x)?;
    /// let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Inference)?;
    /// network.init(7)?;
    /// let mut maps = network.grad_cam(2)?.ok_or("no convolution")?;
    /// assert_eq!(maps.map_size(), [8, 8]);
    /// // Of two images, where the first one looks like class 3, and the second one like class 9.
    /// let of_both = maps.maps(&[0.5; 2 * 8 * 8 * 3], &[3, 9])?;
    /// assert_eq!(of_both.len(), 2 * 8 * 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the device's memory doesn't suffice.
    pub fn grad_cam(&self, batch: usize) -> Result<Option<GradCam>> {
        let Some(cut) = self.last_convolutional() else { return Ok(None) };
        let stages = self.graph.split(self.output, &[cut])?;
        let Ok([(features, end), (mut head, logits)]) = <[(Graph, Value); 2]>::try_from(stages) else {
            return Ok(None);
        };
        // The gradient of its output comes from outside.
        head.sends = true;
        let mut maps = GradCam {
            activation: features.shape(end),
            features: features.build_stage(end, &self.device, batch, Mode::Inference, 1)?,
            head: head.build_stage(logits, &self.device, batch, Mode::InferenceWithInputGradient, 1)?,
        };
        for part in [&mut maps.features, &mut maps.head] {
            part.copy_parameters(self)?;
        }
        Ok(Some(maps))
    }

    /// The cut behind the last convolutional activation.
    fn last_convolutional(&self) -> Option<Cut> {
        let (program, nodes) = (self.infer.program(), &self.graph.nodes);
        let size = |node: usize| {
            let Shape { h, w, .. } = self.graph.shape(nodes[node].output);
            [h, w]
        };
        let convolves = program.steps.iter().filter(|step| {
            matches!(step.op, Op::Conv2dForward(_) | Op::DepthwiseForward(_))
                // Folded with a normalization.
                || matches!(step.op, Op::Conv2dNormalized(_) | Op::DepthwiseNormalized(_))
        });
        let place = |layer: &String| nodes.iter().position(|node| node.name == *layer);
        let convolutions = convolves.filter_map(|step| place(program.layers.get(step.layer)?));
        let last = convolutions.filter(|&node| size(node) != [1, 1]).max()?;
        let mut behind = self.graph.cuts(self.output);
        behind.retain(|cut| cut.node >= last && size(cut.node) != [1, 1]);
        let first = size(behind.first()?.node);
        behind.into_iter().rfind(|cut| size(cut.node) == first)
    }

    /// Takes the values of its parameters from a network that has them under the same names.
    fn copy_parameters(&mut self, from: &Network) -> Result<()> {
        for slot in self.arena.slots().to_vec() {
            if let Some(same) = from.arena.slots().iter().find(|same| same.name == slot.name) {
                let values =
                    from.arena.storage(same).to_vec(&from.device, same.span.offset, same.span.len)?;
                self.arena.load(&self.device, &slot, &values)?;
            }
        }
        Ok(())
    }
}

impl GradCam {
    /// Height and width of a map.
    pub fn map_size(&self) -> [usize; 2] {
        [self.activation.h, self.activation.w]
    }

    /// A map for each image and its class, one after the other, row by row. Images are as for [`Network::set_input`]. A network with one
    /// score, which is that of class 1, has its opposite for class 0.
    ///
    /// # Errors
    /// As [`Network::set_input`], and the errors of the device.
    pub fn maps(&mut self, images: &[f32], classes: &[usize]) -> Result<Vec<f32>> {
        let known = self.head.classes();
        if let Some(&label) = classes.iter().find(|&&class| class >= known) {
            return Err(Error::Label { label: label as u32, classes: known });
        }
        let n = classes.len();
        self.features.set_input(images, &vec![0; n * self.features.label_words()])?;
        self.head.set_batch(n, false)?;
        let mut outside = Outside { classes, activation: Vec::new(), gradient: Vec::new() };
        self.features.evaluate_pass_with(Some(&mut outside))?;
        let draws = Draws { seed: 0, step: 0, first_sample: 0 };
        self.head.forward_pass(draws, Some(&mut outside))?;
        self.head.backward_pass(draws, 0.0, n.max(1), Some(&mut outside))?;
        let Shape { h, w, c, .. } = self.activation;
        let samples = outside.activation.chunks(h * w * c).zip(outside.gradient.chunks(h * w * c));
        Ok(samples.flat_map(|(activation, gradient)| map(activation, gradient, c)).collect())
    }
}

/// The map of one sample: a number for each of its pixels.
fn map(activation: &[f32], gradient: &[f32], channels: usize) -> Vec<f32> {
    let mut weights = vec![0.0; channels];
    for pixel in gradient.chunks(channels) {
        weights.iter_mut().zip(pixel).for_each(|(weight, &gradient)| *weight += f64::from(gradient));
    }
    let pixels = (gradient.len() / channels) as f64;
    let of_pixel = |pixel: &[f32]| {
        let products = pixel.iter().zip(&weights).map(|(&value, weight)| f64::from(value) * weight / pixels);
        products.sum::<f64>().max(0.0) as f32
    };
    activation.chunks(channels).map(of_pixel).collect()
}

/// The tensors that both parts exchange: the activation, the gradient of the class scores, and that of the activation.
struct Outside<'a> {
    classes: &'a [usize],
    activation: Vec<f32>,
    gradient: Vec<f32>,
}

impl Exchange for Outside<'_> {
    fn send(
        &mut self,
        to: Neighbor,
        device: &Device,
        data: &Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        let sent = || data.to_vec(device, at.offset, at.shape.len());
        match to {
            Neighbor::Previous => self.gradient = sent()?,
            Neighbor::Next if self.activation.is_empty() => self.activation = sent()?,
            // The class scores.
            Neighbor::Next => {}
        }
        Ok(())
    }

    fn receive(
        &mut self,
        from: Neighbor,
        device: &Device,
        data: &mut Storage,
        at: Layout,
    ) -> towers_program::Result<()> {
        if from == Neighbor::Previous {
            return device.upload(&self.activation, data, at.offset);
        }
        let scores = at.shape.c;
        let mut gradient = vec![0.0; self.classes.len() * scores];
        for (row, &class) in gradient.chunks_mut(scores).zip(self.classes) {
            match row {
                [only] => *only = if class == 0 { -1.0 } else { 1.0 },
                row => row[class] = 1.0,
            }
        }
        device.upload(&gradient, data, at.offset)
    }
}
