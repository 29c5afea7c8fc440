//! Three threads train a straight line, which knows nothing of towers: `cargo run -p towers-parallel --example own_model`

use towers_parallel::{Error, run_replicas, slice_batch};

#[cfg_attr(test, test)]
fn main() -> Result<(), Error> {
    let points: Vec<(f32, f32)> = (0..20).map(|k| k as f32 / 10.0).map(|x| (x, 2.0 * x + 1.0)).collect();
    let lines = run_replicas(&[(); 3].map(|()| towers_tensor_cpu::device(1)), |mut replica| {
        let (mut slope, mut bias) = (0.0, 0.0);
        let own = slice_batch(points.len(), replica.world(), replica.rank());
        for _ in 0..500 {
            let mut gradient = [0.0; 2];
            for (x, y) in &points[own.clone()] {
                let error = 2.0 * (slope * x + bias - y);
                gradient = [gradient[0] + error * x, gradient[1] + error];
            }
            replica.all_reduce_sum(&mut gradient)?;
            (slope, bias) = (slope - 0.01 * gradient[0], bias - 0.01 * gradient[1]);
        }
        Ok::<_, Error>(format!("{slope:.2} x + {bias:.2}"))
    })?;
    println!("{}", lines.join(", "));
    Ok(())
}
