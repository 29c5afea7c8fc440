//! A network of burn learns from `towers-cifar`, `towers-augment` and `towers-optim`. It depends on them and on
//! burn = { version = "0.22", features = ["flex"] }

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::{prelude::*, tensor::activation::relu};
use towers_augment::{ImageDataGenerator, Layout, LoaderOptions, Samples};
use towers_optim::{Progress, Schedule};

#[derive(Module, Debug)]
struct Network {
    conv1: Conv2d,
    conv2: Conv2d,
    dense: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        let conv = |channels| Conv2dConfig::new(channels, [3, 3]).with_stride([2, 2]).init(device);
        let dense = LinearConfig::new(32 * 7 * 7, 10).init(device);
        Network { conv1: conv([3, 16]), conv2: conv([16, 32]), dense }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = relu(self.conv2.forward(relu(self.conv1.forward(x))));
        self.dense.forward(x.flatten(1, 3))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = towers_cifar::synthetic(1, 1000, 10).train; // or Cifar::new(Kind::Cifar10).load()?.train
    let (size, samples) = (data.len() as f32, Samples::new(data.images, data.labels.to_vec())?);
    let augmentation = ImageDataGenerator::new().horizontal_flip(true).random_crop(4).rescale(1.0 / 255.0);
    let batches = augmentation.flow(samples, LoaderOptions::new().batch_size(25).layout(Layout::Nchw))?;

    let device = Device::flex().autodiff();
    device.seed(1);
    let (mut network, mut optimizer) = (Network::new(&device), AdamConfig::new().init());
    let loss = CrossEntropyLossConfig::new().init(&device);

    let schedule: Schedule = "cosine+warmup:epochs=1".parse()?;
    let (steps, epochs, mut right) = (batches.steps_per_epoch() as u64, 12, 0.0);
    for (step, batch) in (0..epochs * steps).zip(batches) {
        let batch = batch?;
        let x = TensorData::new(batch.x.clone(), [batch.len(), 3, 32, 32]);
        let labels = Tensor::<1, Int>::from_data(&batch.labels[..], &device);
        let logits = network.forward(Tensor::from_data(x, &device));
        let gradients = loss.forward(logits.clone(), labels.clone()).backward();
        let gradients = GradientsParams::from_grads(gradients, &network);
        let lr = schedule.lr(0.005, &Progress::at_step(step, steps, epochs));
        network = optimizer.step(lr, network, gradients);
        right += logits.argmax(1).squeeze::<1>().equal(labels).float().sum().into_scalar::<f32>();
        if (step + 1) % steps == 0 {
            println!("epoch {}: accuracy {:.3}", batch.epoch, right / size);
            right = 0.0;
        }
    }
    Ok(())
}
