//! A network of candle learns from `towers-cifar`, `towers-augment` and `towers-optim`. It depends on them and on
//! candle-core = "0.11"
//! candle-nn = "0.11"

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Conv2dConfig, Module, Optimizer, VarBuilder, VarMap, conv2d, linear, loss, seq};
use towers_augment::{ImageDataGenerator, Layout, LoaderOptions, Samples};
use towers_optim::{Progress, Schedule};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = towers_cifar::synthetic(1, 1000, 10).train; // or Cifar::new(Kind::Cifar10).load()?.train
    let (size, samples) = (data.len() as f32, Samples::new(data.images, data.labels.to_vec())?);
    let augmentation = ImageDataGenerator::new().horizontal_flip(true).random_crop(4).rescale(1.0 / 255.0);
    let batches = augmentation.flow(samples, LoaderOptions::new().batch_size(25).layout(Layout::Nchw))?;

    let (variables, cpu) = (VarMap::new(), Device::Cpu);
    let parameters = VarBuilder::from_varmap(&variables, DType::F32, &cpu);
    let by_two = Conv2dConfig { stride: 2, ..Conv2dConfig::default() };
    let network = seq()
        .add(conv2d(3, 16, 3, by_two, parameters.pp("conv1"))?)
        .add_fn(Tensor::relu)
        .add(conv2d(16, 32, 3, by_two, parameters.pp("conv2"))?)
        .add_fn(Tensor::relu)
        .add_fn(|x| x.flatten_from(1))
        .add(linear(32 * 7 * 7, 10, parameters.pp("dense"))?);
    let mut optimizer = AdamW::new_lr(variables.all_vars(), 0.0)?;

    let schedule: Schedule = "cosine+warmup:epochs=1".parse()?;
    let (steps, epochs, mut right) = (batches.steps_per_epoch() as u64, 12, 0.0);
    for (step, batch) in (0..epochs * steps).zip(batches) {
        let batch = batch?;
        let x = Tensor::from_slice(&batch.x, (batch.len(), 3, 32, 32), &cpu)?;
        let labels = Tensor::from_slice(&batch.labels, batch.len(), &cpu)?;
        let logits = network.forward(&x)?;
        optimizer.set_learning_rate(schedule.lr(0.005, &Progress::at_step(step, steps, epochs)));
        optimizer.backward_step(&loss::cross_entropy(&logits, &labels)?)?;
        let hits = logits.argmax(D::Minus1)?.eq(&labels)?.to_dtype(DType::F32)?;
        right += hits.sum_all()?.to_scalar::<f32>()?;
        if (step + 1) % steps == 0 {
            println!("epoch {}: accuracy {:.3}", batch.epoch, right / size);
            right = 0.0;
        }
    }
    Ok(())
}
