//! Memory: allocations are 0, and copies to a device come back.

use crate::operand::*;
use crate::shown::assert_equal;
use crate::{Bench, Subject};
use towers_program::{Result, Span};

/// Fresh memory of every kind holds zeros.
pub fn fresh_memory_is_zero(subject: &Subject) {
    for bench in subject.benches() {
        for len in [0, 1, 1000] {
            for buffer in [bench.device.alloc(len), bench.device.alloc_activations(len)] {
                let buffer = buffer.expect("memory");
                let values = bench.download(&buffer, Span::new(0, len)).expect("a download");
                assert_equal("fresh memory", &values, &vec![0.0; len]);
            }
        }
    }
}

/// Numbers go to any place and come back as they were, those around them too, and a fill fills its run alone.
pub fn what_goes_up_comes_down(subject: &Subject) {
    for bench in subject.benches() {
        for activations in [false, true] {
            let (expected, got) = round_trip(&bench, activations).expect("copies and fills");
            assert_equal("what comes back", &got, &expected);
        }
    }
}

fn round_trip(bench: &Bench, activations: bool) -> Result<(Vec<f32>, Vec<f32>)> {
    let device = bench.device;
    let mut buffer = if activations { device.alloc_activations(1000)? } else { device.alloc(1000)? };
    let mut expected = vec![0.0; 1000];
    for (offset, len) in [(0, 1000), (3, 1), (17, 500), (999, 1), (1000, 0)] {
        let numbers: Vec<f32> = numbers(&format!("from {offset}"), len);
        let numbers: Vec<f32> =
            numbers.into_iter().map(|x| if activations { bench.round(x) } else { x }).collect();
        device.upload(&numbers, &mut buffer, offset)?;
        expected[offset..offset + len].copy_from_slice(&numbers);
    }
    for (value, at) in [(1.5, Span::new(1, 7)), (-2.0, Span::new(500, 333)), (7.0, Span::new(40, 0))] {
        device.fill(value, &mut buffer, at)?;
        expected[at.range()].fill(value);
    }
    device.synchronize()?;
    let mut got = bench.download(&buffer, Span::new(0, 400))?;
    got.extend(bench.download(&buffer, Span::new(400, 600))?);
    Ok((expected, got))
}

/// Numbers that are none, or too small or large to be normal, are kept in f32.
pub fn special_numbers_are_kept(subject: &Subject) {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, f32::MAX, f32::MIN_POSITIVE];
    for bench in subject.benches() {
        let arena = bench.buffer_of(special.to_vec()).expect("an upload");
        let back = bench.download(&arena.data, Span::new(0, special.len())).expect("a download");
        assert!(back[0].is_nan());
        assert!(back.iter().zip(&special).skip(1).all(|(a, b)| a.to_bits() == b.to_bits()), "{back:?}");
    }
}
