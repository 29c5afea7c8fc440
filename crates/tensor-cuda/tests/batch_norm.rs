//! Batch normalization on the emulated GPU: sizes at which the kernels take other ways, and the order of threads.

use crate::harness::*;
use towers_conformance::normalization::Normalization;
use towers_conformance::{ALONE, Case as _, Placement, SLICE};
use towers_program::{Activation, Shape, Write};

fn norm(shape: Shape) -> Normalization {
    Normalization { shape, place: ALONE, act: Activation::Relu, mode: Write::Set, mean: 0.0 }
}

/// Shapes of MiniGoogLeNet, with fewer samples: many slabs, several tiles, channels that fill no vector.
#[test]
fn layers_of_real_networks() {
    let place = Placement { before: 16, beside: 24 };
    agree(&norm(Shape::new(4, 32, 32, 96)));
    agree(&Normalization { place, ..norm(Shape::new(4, 15, 15, 112)) });
    agree(&norm(Shape::new(8, 7, 7, 336)));
    agree(&Normalization { place: SLICE, ..norm(Shape::new(4, 20, 20, 10)) });
    agree(&Normalization { mode: Write::Add, ..norm(Shape::new(20, 32, 32, 3)) });
}

/// The same bits however blocks and threads take turns: the emulation has another order for each launch.
#[test]
fn the_order_of_threads_changes_no_bit() {
    for subject in PRECISIONS.map(subject) {
        for shape in [Shape::new(2, 24, 24, 48), Shape::new(3, 13, 13, 7)] {
            let case = Normalization { mode: Write::Add, ..norm(shape) };
            for bench in subject.benches() {
                let first = case.run(&bench).expect("the case");
                for _ in 0..4 {
                    // Launches more, so that each kernel meets every order.
                    norm(Shape::vectors(2, 1)).run(&bench).expect("another case");
                    for (a, b) in first.iter().zip(&case.run(&bench).expect("the case again")) {
                        assert!(a.same_bits(b), "{} of {case:?} has other bits", a.name);
                    }
                }
            }
        }
    }
}
