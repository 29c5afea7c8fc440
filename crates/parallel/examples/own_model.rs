//! Three threads train a model that knows nothing of towers: each takes its slice of the batch, and one call adds the gradients.
//!
//! `cargo run -p towers-parallel --example own_model`

use parallel::{Error, Replica, run_replicas, slice_batch};

/// A straight line.
struct Line {
    slope: f32,
    bias: f32,
}

impl Line {
    /// The gradient of the squared errors over some points.
    fn gradient(&self, points: &[(f32, f32)]) -> [f32; 2] {
        points.iter().fold([0.0; 2], |[slope, bias], &(x, y)| {
            let error = self.slope * x + self.bias - y;
            [slope + 2.0 * error * x, bias + 2.0 * error]
        })
    }
}

fn main() -> Result<(), Error> {
    let points: Vec<(f32, f32)> = (0..20).map(|k| k as f32 / 10.0).map(|x| (x, 2.0 * x + 1.0)).collect();
    let lines = run_replicas(&[(); 3].map(|()| tensor_cpu::device(1)), |mut replica: Replica| {
        let mut line = Line { slope: 0.0, bias: 0.0 };
        let own = slice_batch(points.len(), replica.world(), replica.rank());
        for _ in 0..500 {
            let mut gradient = line.gradient(&points[own.clone()]);
            replica.all_reduce_sum(&mut gradient)?;
            line.slope -= 0.01 * gradient[0];
            line.bias -= 0.01 * gradient[1];
        }
        Ok::<Line, Error>(line)
    })?;
    for (rank, Line { slope, bias }) in lines.iter().enumerate() {
        println!("replica {rank}: {slope:.3} x + {bias:.3}");
    }
    Ok(())
}
