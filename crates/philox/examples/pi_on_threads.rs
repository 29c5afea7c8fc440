//! Estimates pi by random points, with the same bits for any number of threads: each stream of points is a function
//! of its number.

use std::f64::consts::PI;
use std::thread;
use towers_philox::{Philox, domain};

const STREAMS: u64 = 100;
const POINTS: u32 = 1000;

/// The points of a stream that lie in the quarter of a circle.
fn inside(stream: u64) -> u32 {
    let mut rng = Philox::new(7, domain("points of a square"), [stream, 0]);
    (0..POINTS).map(|_| u32::from(rng.unit_f64().hypot(rng.unit_f64()) < 1.0)).sum()
}

/// The points of all streams that do, counted by so many threads.
fn count(threads: u64) -> u32 {
    let share = |thread| (thread..STREAMS).step_by(threads as usize).map(inside).sum::<u32>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
    })
}

#[cfg_attr(test, test)]
fn main() {
    let counts = [1, 2, 7].map(count);
    assert_eq!(counts, [counts[0]; 3]);
    let pi = 4.0 * f64::from(counts[0]) / (STREAMS * u64::from(POINTS)) as f64;
    println!("pi is about {pi:.3}");
    assert!((pi - PI).abs() < 0.02);
}
