//! Fits a straight line to four points by least squares, with an optimizer and a schedule chosen by their names.

use towers_optim::{Optimizer, Progress, Schedule};

#[cfg_attr(test, test)]
fn main() -> Result<(), towers_optim::Error> {
    let Optimizer { rule, clip, .. } = "adam:global-clipnorm=5".parse()?;
    let schedule: Schedule = "cosine+warmup:epochs=1".parse()?;
    let points = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0), (3.0, 7.0)];
    let (mut slope, mut bias, mut state) = ([0.0_f32], [0.0_f32], [[0.0_f32]; 4]);
    for step in 0..400 {
        let (mut dslope, mut dbias) = ([0.0], [0.0]);
        for (x, y) in points {
            let error = slope[0] * x + bias[0] - y;
            (dslope[0], dbias[0]) = (dslope[0] + error * x / 4.0, dbias[0] + error / 4.0);
        }
        clip.iter().for_each(|clip| clip.apply(&mut [&mut dslope, &mut dbias]));
        let lr = schedule.lr(0.3, &Progress::at_step(step, 20, 20)) as f32;
        let [mean, square, other_mean, other_square] = &mut state;
        rule.step(lr, step + 1, &mut slope, &dslope, [mean, square]);
        rule.step(lr, step + 1, &mut bias, &dbias, [other_mean, other_square]);
    }
    println!("{:.2} x + {:.2}", slope[0], bias[0]);
    Ok(())
}
